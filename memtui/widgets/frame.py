"""The lines around every screen: whose memory it is, the numbered tabs, the keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style as RichStyle
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from memtui.actions import SCREENS, ScreenTab
from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line

_MARKS = {"ok": ("●", OK), "degraded": ("▲", WARN), "down": ("✗", BAD), "unknown": ("○", DIM)}
_PRESSED = "pressed"
"""Where a style keeps which action a part of a line stands for."""
_SCOPE_CELLS = 24
"""How much of the scope the spending badge leaves to see."""
_GAP = 2
FILTER_PLACEHOLDER = "such as agent:coding,ops -draft since:7d words ~fuzzy"
"""What the filter line shows while nothing is written in it."""
PAST_SIGN = "◷"
"""Stands wherever the past is shown."""


class Pressed(Message):
    """What stands for an action was clicked."""

    def __init__(self, action_id: str) -> None:
        super().__init__()
        self.action_id = action_id


def pressable(part: Content, action_id: str) -> Content:
    """Let a part of a `PressedLine` stand for an action."""
    return part.stylize(Style.from_meta({_PRESSED: action_id}))


class PressedLine(Widget):
    """One line, some parts of which stand for an action: a click posts `Pressed`.

    It is one widget, as Textual styles, lays out and paints every widget by itself.
    """

    tips: Mapping[str, Content] = {}
    """What to say over the part of an action."""
    _over: reactive[str] = reactive("")
    """The action that the mouse is over."""

    @abstractmethod
    def draw(self, width: int) -> Content:
        """Return the line for so many cells, its parts made `pressable`."""

    def render(self) -> Content:
        """Return the line, with the part underlined that the mouse is over."""
        drawn = self.draw(self.content_size.width)
        for start, end, style in drawn.spans:
            if self._over and isinstance(style, Style) and style.meta.get(_PRESSED) == self._over:
                drawn = drawn.stylize("underline", start, end)
        return drawn

    def watch_hover_style(self, _: RichStyle, hover_style: RichStyle) -> None:
        """Tell what the mouse is over."""
        self._over = hover_style.meta.get(_PRESSED, "")
        self.tooltip = self.tips.get(self._over)

    def on_click(self, event: Click) -> None:
        """Pass up which action was clicked."""
        if action_id := event.style.meta.get(_PRESSED):
            self.post_message(Pressed(action_id))


@dataclass(frozen=True, slots=True)
class ScopeView:
    """What the scope bar shows.

    `status` is ok, degraded, down or unknown; `word` says it, and is empty for several bindings.
    """

    parts: tuple[str, ...] = ()
    binding: str = ""
    status: str = "unknown"
    word: str = ""
    read_only: bool = False
    live: bool = True
    """Whether what others do is seen at once."""
    spending: tuple[str, ...] = ()
    """What to say of spending limits, the longest form first; nothing where all is well."""
    over_limit: bool = False
    waiting: int = 0
    """How much waits for review."""
    demo_percent: int | None = None
    """How much of a demo is made, while it is being made."""
    past: tuple[str, ...] = ()
    """What to say of the moment of the past that is looked at, the longest form first."""


def path_content(view: ScopeView) -> Content:
    """Return the scope as `company › project › agent`."""
    first, *rest = view.parts or ("memtui",)
    parts = [display(first, limit=40, style=STRONG)]
    parts += [display(part, limit=40, style=ACCENT) for part in rest]
    return Content.styled(" › ", DIM).join(parts)


def binding_content(view: ScopeView) -> Content:
    """Return the binding with the mark and the word of its health."""
    mark, style = _MARKS.get(view.status, _MARKS["unknown"])
    health = Content.styled(f"{mark} ", style) + display(view.word, limit=30, style=style)
    if view.past or not view.word:
        health = Content("")  # which is that of now, or of no single binding
    badge = Content.styled(" read-only ", "bold reverse") if view.read_only else None
    behind = None if view.live else display("not live", style=WARN)
    return line(display(view.binding, limit=40), health, badge, behind, gap="  ")


def review_content(view: ScopeView) -> Content:
    """Return how much waits for review."""
    return display(f"◔ {view.waiting:,} held" if view.waiting else "", style=f"{STRONG} {WARN}")


def demo_content(view: ScopeView) -> Content:
    """Return that what is seen is not all of the demo yet."""
    percent = view.demo_percent
    return Content("") if percent is None else display(f"demo {percent}% made", style=WARN)


def spending_content(view: ScopeView, width: int) -> Content:
    """Return the longest form of the spending badge that leaves room for the rest in `width`."""
    if not view.spending:
        return Content("")
    scope = min(path_content(view).cell_length, _SCOPE_CELLS)
    room = width - scope - min(binding_content(view).cell_length, width * 6 // 10) - 2 * _GAP
    for badge in (demo_content(view), review_content(view)):
        room -= badge.cell_length + _GAP if badge else 0
    style = f"{STRONG} {BAD}" if view.over_limit else WARN
    forms = [display(form, style=style) for form in view.spending]
    return next((form for form in forms if form.cell_length <= room), forms[-1])


class ScopeBar(PressedLine):
    """Shows a `ScopeView`; a click on one of its parts asks to change it or to show more."""

    view: reactive[ScopeView] = reactive(ScopeView)

    def draw(self, width: int) -> Content:
        """Put the scope at the left, the badges and the binding at the right."""
        view = self.view
        badges = [
            demo_content(view) or None,
            pressable(review_content(view), "app.review") if view.waiting else None,
            pressable(spending_content(view, width), "app.limits"),
        ]
        binding = binding_content(view).truncate(width * 6 // 10, ellipsis=True)
        right = line(*badges, pressable(binding, "app.binding"), gap=" " * _GAP)
        if any(badges):
            right = Content(" " * _GAP) + right
        room = max(0, width - right.cell_length)
        path = pressable(path_content(view).truncate(room, ellipsis=True), "app.scope")
        return path.pad_right(max(0, room - path.cell_length)) + right

    def on_click(self, event: Click) -> None:
        """Take a click on anything else for one on the scope."""
        if _PRESSED not in event.style.meta:
            self.post_message(Pressed("app.scope"))


class PastBanner(Static):
    """Says across the whole screen that what is shown is the past; gone while it is now."""

    forms: reactive[tuple[str, ...]] = reactive(())
    """What to say, the longest form first."""

    def watch_forms(self, forms: tuple[str, ...]) -> None:
        """Say it, as long as it fits."""
        self.display = bool(forms)
        fitting = (form for form in forms if len(form) <= self.app.size.width - _GAP)
        self.update(display(next(fitting, forms[-1] if forms else "")))

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.watch_forms(self.forms)

    def on_click(self) -> None:
        """Ask for the way back."""
        self.post_message(Pressed("app.past"))


class ScreenTabs(PressedLine):
    """The row of tabs, with the one of this screen lit."""

    COMPONENT_CLASSES = {"screen-tabs--active"}

    past: reactive[bool] = reactive(default=False)
    """Whether the past is looked at."""

    def __init__(self, active: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._active = active

    def draw(self, width: int) -> Content:
        """Draw one tab for each screen, with the longest titles that fit; else only its own."""
        titles = {tab: tab.short for tab in SCREENS}
        row = self._row({tab: tab.title for tab in SCREENS}, "  ")
        if row.rstrip().cell_length > width:
            row = self._row(titles, " ")
        if row.rstrip().cell_length > width:
            own = {tab: title for tab, title in titles.items() if tab.mode == self._active}
            row = self._row(own, " ")
        return row

    def _row(self, titles: Mapping[ScreenTab, str], around: str) -> Content:
        """Return all numbers, and the titles; in the past there is a sign between them."""
        sign = PAST_SIGN if self.past else " "
        tabs = []
        for tab in SCREENS:
            drawn = Content(f"{around}{tab.number}{sign}{titles.get(tab, '')}{around}")
            if tab.mode == self._active:
                drawn = drawn.stylize_before(self.get_visual_style("screen-tabs--active"))
            tabs.append(pressable(drawn, f"app.go_{tab.mode}"))
        return Content("").join(tabs)


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """One key of the footer; `reason` says why it is disabled, or nothing."""

    action_id: str
    key: str
    label: str
    description: str
    reason: str = ""


def entry_content(entry: FooterEntry) -> Content:
    """Return a key and its word; a disabled one is dim and struck through, not only paler."""
    if entry.reason:
        return Content.styled(f"{entry.key} ", DIM) + display(entry.label, style=f"{DIM} strike")
    return Content.styled(f"{entry.key} ", f"bold {ACCENT}") + display(entry.label)


def fitting(entries: tuple[FooterEntry, ...], width: int) -> tuple[FooterEntry, ...]:
    """Return the entries that fit into `width` cells; the last one stays before all others."""
    if not entries or not width:
        return entries
    *first, last = entries
    room = width - entry_content(last).cell_length
    kept = []
    for entry in first:
        room -= entry_content(entry).cell_length + _GAP
        if room < 0:
            break
        kept.append(entry)
    return (*kept, last)


class KeyFooter(PressedLine):
    """Shows as many of the `entries` as fit; a click on one is passed up."""

    entries: reactive[tuple[FooterEntry, ...]] = reactive(())

    def watch_entries(self, entries: tuple[FooterEntry, ...]) -> None:
        """Say over a key what it does, or why it cannot."""
        self.tips = {one.action_id: display(one.reason or one.description) for one in entries}

    def draw(self, width: int) -> Content:
        """Draw the keys with their words."""
        keys = (
            pressable(entry_content(one), one.action_id) for one in fitting(self.entries, width)
        )
        return Content(" " * _GAP).join(keys)
