"""The lines around every screen: whose memory it is, the numbered tabs, the keys."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from memtui.actions import SCREENS, ScreenTab
from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line

_MARKS = {"ok": ("●", OK), "degraded": ("▲", WARN), "down": ("✗", BAD), "unknown": ("○", DIM)}
_ACTIONS = {"scope-binding": "app.binding", "scope-spending": "app.limits",
            "scope-review": "app.review"}  # fmt: skip
_SCOPE_CELLS = 24
"""How much of the scope the spending badge leaves to see."""
_GAP = 2
_LONG_TABS, _SHORT_TABS = 60, 52
"""Columns from which on all tabs fit with their long titles, or with their short ones."""
PAST_SIGN = "◷"
"""Stands wherever the past is shown."""


class Pressed(Message):
    """What stands for an action was clicked."""

    def __init__(self, action_id: str) -> None:
        super().__init__()
        self.action_id = action_id


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


def spending_content(view: ScopeView, width: int) -> Content:
    """Return the longest form of the spending badge that leaves room for the rest in `width`."""
    if not view.spending:
        return Content("")
    scope = min(path_content(view).cell_length, _SCOPE_CELLS)
    room = width - scope - min(binding_content(view).cell_length, width * 6 // 10) - 2 * _GAP
    if view.waiting:
        room -= review_content(view).cell_length + _GAP
    style = f"{STRONG} {BAD}" if view.over_limit else WARN
    forms = [display(form, style=style) for form in view.spending]
    return next((form for form in forms if form.cell_length <= room), forms[-1])


class ScopeBar(Horizontal):
    """Shows a `ScopeView`; a click on one of its parts asks to change it or to show more."""

    view: reactive[ScopeView] = reactive(ScopeView)

    def compose(self) -> ComposeResult:
        """Put the scope at the left, the badges and the binding at the right."""
        yield Static(id="scope-path")
        yield Static(id="scope-review")
        yield Static(id="scope-spending")
        yield Static(id="scope-binding")

    def watch_view(self, view: ScopeView) -> None:
        """Draw the view."""
        if self.is_mounted:
            self.query_one("#scope-path", Static).update(path_content(view))
            self.query_one("#scope-binding", Static).update(binding_content(view))
            waits = self.query_one("#scope-review", Static)
            waits.update(review_content(view))
            waits.display = bool(view.waiting)
            badge = self.query_one("#scope-spending", Static)
            badge.update(spending_content(view, self.content_size.width))
            badge.display = bool(view.spending)

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.watch_view(self.view)

    def on_mount(self) -> None:
        """Draw what was set before the parts were there."""
        self.watch_view(self.view)

    def on_click(self, event: Click) -> None:
        """Ask for the chooser of what was clicked."""
        clicked = event.widget.id if event.widget is not None else None
        self.post_message(Pressed(_ACTIONS.get(clicked or "", "app.scope")))


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


class Tab(Static):
    """One tab: its number and as much of its title as there is room for."""

    def __init__(self, tab: ScreenTab, *, active: bool) -> None:
        super().__init__(classes="-active" if active else "")
        self._tab = tab

    def show(self, *, width: int, past: bool) -> None:
        """Draw the number and a title; a tab of the past has a sign between them.

        In a row of few columns titles are short, and then only this screen's own is there.
        """
        is_active = self.has_class("-active")
        title = self._tab.title if width >= _LONG_TABS else self._tab.short
        if width < _SHORT_TABS and not is_active:
            title = ""
        style = "" if is_active else DIM
        sign = PAST_SIGN if past else " "
        self.update(Content.styled(f"{self._tab.number}{sign}", style) + Content(title))

    def on_click(self) -> None:
        """Ask for this tab's screen."""
        self.post_message(Pressed(f"app.go_{self._tab.mode}"))


class ScreenTabs(Horizontal):
    """The row of tabs, with the one of this screen lit."""

    past: reactive[bool] = reactive(default=False)
    """Whether the past is looked at."""

    def __init__(self, active: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._active = active

    def compose(self) -> ComposeResult:
        """Yield one tab for each screen there is."""
        for tab in SCREENS:
            yield Tab(tab, active=tab.mode == self._active)

    def on_resize(self) -> None:
        """Draw what fits."""
        self.watch_past()

    def watch_past(self) -> None:
        """Draw the tabs."""
        for tab in self.query(Tab):
            tab.show(width=self.size.width, past=self.past)


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


class FooterKey(Static):
    """One key that can be clicked."""

    def __init__(self, entry: FooterEntry) -> None:
        super().__init__(entry_content(entry))
        self.action_id = entry.action_id
        self.tooltip = display(entry.reason or entry.description)

    def on_click(self) -> None:
        """Do what the key does."""
        self.post_message(Pressed(self.action_id))


class KeyFooter(Horizontal):
    """Shows `entries`; a click on one is passed up."""

    entries: reactive[tuple[FooterEntry, ...]] = reactive((), recompose=True)

    def compose(self) -> ComposeResult:
        """Yield one widget for each key that fits."""
        for entry in fitting(self.entries, self.content_size.width):
            yield FooterKey(entry)

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.refresh(recompose=True)
