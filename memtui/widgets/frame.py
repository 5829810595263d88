"""The lines around every screen: scope bar, banner of the past, numbered tabs, footer."""

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
"""Key of a part's action in its style."""
_SCOPE_CELLS = 24
"""Most cells of the scope that the spending badge leaves free."""
_GAP = 2
FILTER_PLACEHOLDER = "such as agent:coding,ops -draft since:7d words ~fuzzy"
"""Placeholder of the filter line."""
PAST_SIGN = "◷"
"""The mark of a past moment."""


@dataclass
class Pressed(Message):
    """A part that runs an action was clicked."""

    action_id: str


def pressable(part: Content, action_id: str) -> Content:
    """Let a click on a part of a `PressedLine` run an action."""
    return part.stylize(Style.from_meta({_PRESSED: action_id}))


class PressedLine(Widget):
    """One line with parts that run actions: a click posts `Pressed`.

    It is a single widget, since Textual styles, lays out and paints every widget separately.
    """

    tips: Mapping[str, Content] = {}
    """Tooltips by action."""
    _over: reactive[str] = reactive("")
    """Action of the part under the mouse."""

    @abstractmethod
    def draw(self, width: int) -> Content:
        """Return the line for `width` cells, its parts made `pressable`."""

    def render(self) -> Content:
        """Return the line, with the part under the mouse underlined."""
        drawn = self.draw(self.content_size.width)
        for start, end, style in drawn.spans:
            if self._over and isinstance(style, Style) and style.meta.get(_PRESSED) == self._over:
                drawn = drawn.stylize("underline", start, end)
        return drawn

    def watch_hover_style(self, _: RichStyle, hover_style: RichStyle) -> None:
        """Underline the part under the mouse, and show its tooltip."""
        self._over = hover_style.meta.get(_PRESSED, "")
        self.tooltip = self.tips.get(self._over)

    def on_click(self, event: Click) -> None:
        """Post `Pressed` for a clicked part."""
        if action_id := event.style.meta.get(_PRESSED):
            self.post_message(Pressed(action_id))


@dataclass(frozen=True, slots=True)
class ScopeView:
    """The content of the scope bar.

    `status` is ok, degraded, down or unknown; `word` is its text, empty for several bindings.
    """

    parts: tuple[str, ...] = ()
    binding: str = ""
    status: str = "unknown"
    word: str = ""
    read_only: bool = False
    live: bool = True
    """Whether changes by others show at once."""
    spending: tuple[str, ...] = ()
    """Forms of the spending badge, the longest first; empty if no limit is near."""
    over_limit: bool = False
    waiting: int = 0
    """Number of writes held for review."""
    demo_percent: int | None = None
    """Percentage of the demo made so far; None: none is being made."""
    past: tuple[str, ...] = ()
    """Forms of the words for the past moment that is shown, the longest first; empty: now."""


def path_content(view: ScopeView) -> Content:
    """Return the scope as `company › project › agent`."""
    first, *rest = view.parts or ("memtui",)
    parts = [display(first, limit=40, style=STRONG)]
    parts += [display(part, limit=40, style=ACCENT) for part in rest]
    return Content.styled(" › ", DIM).join(parts)


def binding_content(view: ScopeView) -> Content:
    """Return the binding with the mark and the word of its health, and its badges."""
    mark, style = _MARKS.get(view.status, _MARKS["unknown"])
    health = Content.styled(f"{mark} ", style) + display(view.word, limit=30, style=style)
    if view.past or not view.word:
        health = Content("")  # health is known only for now, and for a single binding
    badge = Content.styled(" read-only ", "bold reverse") if view.read_only else None
    behind = None if view.live else display("not live", style=WARN)
    return line(display(view.binding, limit=40), health, badge, behind, gap="  ")


def review_content(view: ScopeView) -> Content:
    """Return the badge of writes held for review."""
    return display(f"◔ {view.waiting:,} held" if view.waiting else "", style=f"{STRONG} {WARN}")


def demo_content(view: ScopeView) -> Content:
    """Return the badge of a demo that is being made."""
    percent = view.demo_percent
    return Content("") if percent is None else display(f"demo {percent}% made", style=WARN)


def spending_content(view: ScopeView, width: int) -> Content:
    """Return the longest form of the spending badge that fits beside the rest of the bar."""
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
    """Shows a `ScopeView`; a click on a part runs its action."""

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
        """Treat a click outside the parts as one on the scope."""
        if _PRESSED not in event.style.meta:
            self.post_message(Pressed("app.scope"))


class PastBanner(Static):
    """A line across the screen that says that the past is shown; hidden for now."""

    forms: reactive[tuple[str, ...]] = reactive(())
    """Forms of the text, the longest first; empty hides the banner."""

    def watch_forms(self, forms: tuple[str, ...]) -> None:
        """Show the longest form that fits."""
        self.display = bool(forms)
        fitting = (form for form in forms if len(form) <= self.app.size.width - _GAP)
        self.update(display(next(fitting, forms[-1] if forms else "")))

    def on_resize(self) -> None:
        """Choose the form for the new width."""
        self.watch_forms(self.forms)

    def on_click(self) -> None:
        """Post the action that goes back to now."""
        self.post_message(Pressed("app.past"))


class ScreenTabs(PressedLine):
    """The row of tabs, with this screen's tab highlighted."""

    COMPONENT_CLASSES = {"screen-tabs--active"}

    past: reactive[bool] = reactive(default=False)
    """Whether a past moment is shown."""

    def __init__(self, active: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._active = active

    def draw(self, width: int) -> Content:
        """Draw all tabs with the longest titles that fit; if none fit, only this screen's title."""
        titles = {tab: tab.short for tab in SCREENS}
        row = self._row({tab: tab.title for tab in SCREENS}, "  ")
        if row.rstrip().cell_length > width:
            row = self._row(titles, " ")
        if row.rstrip().cell_length > width:
            own = {tab: title for tab, title in titles.items() if tab.mode == self._active}
            row = self._row(own, " ")
        return row

    def _row(self, titles: Mapping[ScreenTab, str], around: str) -> Content:
        """Return the tabs with numbers and titles; for the past, with its mark between them."""
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
    """One key of the footer; `reason` says why it is disabled; empty: it is enabled."""

    action_id: str
    key: str
    label: str
    description: str
    reason: str = ""


def entry_content(entry: FooterEntry) -> Content:
    """Return a key and its label; a disabled one is struck through, so that it needs no colour."""
    key = f"{entry.key} " if entry.key else ""
    if entry.reason:
        return Content.styled(key, DIM) + display(entry.label, style=f"{DIM} strike")
    return Content.styled(key, f"bold {ACCENT}") + display(entry.label)


def fitting(entries: tuple[FooterEntry, ...], width: int) -> tuple[FooterEntry, ...]:
    """Return the entries that fit into `width` cells; the help and the last one always stay."""
    if not entries or not width:
        return entries
    stay = {entries[-1].action_id, *(one.action_id for one in entries if ".help" in one.action_id)}
    room, kept = width + _GAP, list[FooterEntry]()
    for one in sorted(entries, key=lambda one: one.action_id not in stay):
        room -= entry_content(one).cell_length + _GAP
        if room < 0 and one.action_id not in stay:
            break
        kept.append(one)
    return tuple(one for one in entries if one in kept)


class KeyFooter(PressedLine):
    """Shows the `entries` that fit; a click on one posts `Pressed`."""

    entries: reactive[tuple[FooterEntry, ...]] = reactive(())

    def watch_entries(self, entries: tuple[FooterEntry, ...]) -> None:
        """Set the tooltips: what a key does, or why it is disabled."""
        self.tips = {one.action_id: display(one.reason or one.description) for one in entries}

    def draw(self, width: int) -> Content:
        """Draw the keys with their labels."""
        keys = (
            pressable(entry_content(one), one.action_id) for one in fitting(self.entries, width)
        )
        return Content(" " * _GAP).join(keys)
