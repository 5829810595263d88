"""The frame of what lies over a numbered screen: head, a list with the details of a row, footer.

For a screen author. Derive from `ModalListScreen`, set `ACTION_GROUP`, bind its actions with
`BINDINGS = bindings_for(ACTION_GROUP)`, and give:

- `NOUN`: what a row is, for "No version is selected.";
- `make_list()`: the list, called once;
- `draw_head(width)` and `draw_row(width)`: the contents of head and details;
- `refusal(verb)`: why an action cannot run now, beyond what the registry says it needs;
- `happened(news)`: take note of what came into the log, optional;
- `action_<verb>()` for each action of the group; `help` is here, `leave` asks `may_leave` first.

Show it with `show_over`. A `GoTo` that is posted on it leaves it, and leads there.

Read with `self.reads.latest(…)`: what is begun in `on_mount` is painted together with the frame,
where it comes at once. Call `draw()` after anything that these depend on has changed. A `RunScreen`
is one whose rows come from something that runs for a while: start it with `run`, and call `ended()`
once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from memtui.actions import ACTIONS, KEEPS_ORDER, Need
from memtui.contract import NotFound
from memtui.screens.base import ServiceScreen, past_words
from memtui.screens.help import Help
from memtui.screens.keymap import footer_entries
from memtui.screens.list_screen import choose_columns
from memtui.screens.state import AppState, GoTo
from memtui.widgets.background import Stoppable
from memtui.widgets.frame import KeyFooter, PastBanner, Pressed
from memtui.widgets.panes import DetailPane, Fitted, Split
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import ColumnsAsked, Highlighted, Opened, SortAsked, VirtualList

R = TypeVar("R")

_ORDERING = {"list.sort", "list.reverse", "list.wider", "list.narrower"}


class ModalListScreen(ServiceScreen, ModalScreen[None], Generic[R]):
    """A list with details over the whole screen; see the module's text."""

    ACTION_GROUP: ClassVar[str]
    NOUN: ClassVar[str]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    def __init__(self, state: AppState) -> None:
        super().__init__(state, classes="modal")
        self.wanted: GoTo | None = None
        """Where to go once it was left."""

    def compose(self) -> ComposeResult:
        """Lay out head, list, details and keys."""
        with Vertical(classes="modal-frame"):
            yield PastBanner()
            yield Fitted(id="modal-head")
            with Split(self.ACTION_GROUP, self.state.shares):
                yield self.make_list()
                with DetailPane(classes="split-detail"):
                    yield Fitted(id="modal-row")
            yield KeyFooter(id="modal-footer")

    def make_list(self) -> VirtualList[R]:
        """Return the list."""
        raise NotImplementedError

    @property
    def rows_list(self) -> VirtualList[R]:
        """The list."""
        return self.query_one(VirtualList)

    @property
    def row(self) -> R:
        """The row under the cursor; raises `NotFound` where there is none."""
        if (row := self.rows_list.current) is None:
            raise NotFound(self.none_selected)
        return row

    @property
    def none_selected(self) -> str:
        """The sentence for what needs a row."""
        return f"No {self.NOUN} is selected."

    def fill(self, rows: AppendedRows[R], found: Iterable[R], *notice: str) -> None:
        """Show what was found, or where it is nothing, why."""
        rows.replace(list(found))
        self.rows_list.notice = notice
        self.rows_list.show(rows)
        self.draw()

    def draw_head(self, width: int) -> Content:
        """Return the lines above the list."""
        raise NotImplementedError

    def draw_row(self, width: int) -> Content:
        """Return the row under the cursor whole."""
        raise NotImplementedError

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now, or nothing."""
        del verb
        return ""

    def may_leave(self) -> bool:
        """Tell whether to go back at once."""
        return True

    def on_mount(self) -> None:
        """Begin in the list."""
        self.query_one(VirtualList).focus()
        self.query_one(PastBanner).forms = past_words(self.state, leads_back=False)
        self.draw()
        if self.reads.busy:
            self.paint_with(self.reads.delivered)

    def on_go_to(self, message: GoTo) -> None:
        """Leave, to go there."""
        message.stop()
        self.wanted = replace(message)
        self.dismiss(None)

    def draw(self) -> None:
        """Draw head, details and keys again."""
        if self.is_attached:
            self.query_one("#modal-head", Fitted).fit(self.draw_head)
            self.query_one("#modal-row", Fitted).fit(self.draw_row)
            self.query_one(KeyFooter).entries = footer_entries(
                self.ACTION_GROUP, self.state.keymap, self.why_disabled, self.labels()
            )

    def labels(self) -> dict[str, str]:
        """Return footer words for the moment."""
        return {}

    def why_disabled(self, action_id: str) -> str:
        """Return why an action of this screen cannot run now, or nothing."""
        if action_id in _ORDERING:
            return KEEPS_ORDER
        action = ACTIONS.get(action_id)
        if action is None or action.group != self.ACTION_GROUP:
            return ""
        if Need.SERVICE in action.needs and self.state.session is None:
            return Need.SERVICE.value
        if Need.WRITABLE in action.needs and self.state.no_change:
            return self.state.no_change
        if Need.NOW in action.needs and self.state.as_of is not None:
            return Need.NOW.value
        return self.refusal(action.verb)

    @on(Highlighted)
    def _moved(self) -> None:
        self.query_one("#modal-row", Fitted).fit(self.draw_row)
        self.query_one(DetailPane).scroll_home(animate=False)
        self.draw()

    @on(SortAsked)
    def _keep_order(self) -> None:
        """Say of a click on a header what the keys say that would sort."""
        self.toast(KEEPS_ORDER)

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(self, self.rows_list)

    @on(Opened)
    def _opened(self) -> None:
        self.query_one(".split").add_class("-opened")
        self.query_one(DetailPane).focus()

    async def on_pressed(self, message: Pressed) -> None:
        """Carry out what was clicked in the footer."""
        message.stop()
        await self.app.run_action(message.action_id.partition(".")[2], self)

    def action_help(self) -> None:
        """Show every key."""
        group = self.ACTION_GROUP
        groups = (group, "list")
        self.app.push_screen(Help("Keys", groups, self.state.keymap, self.why_disabled))

    def action_leave(self) -> None:
        """Go back, from the details to the list first."""
        split = self.query_one(".split")
        if split.has_class("-opened"):
            split.remove_class("-opened")
            self.query_one(VirtualList).focus()
        elif self.may_leave():
            self.dismiss(None)


async def show_over(screen: ServiceScreen, over: ModalListScreen[Any]) -> None:
    """Show it over a screen in a conversation; then go where the person wants to from there."""
    await screen.ask(over)
    if over.wanted is not None:
        screen.post_message(over.wanted)


class RunScreen(ModalListScreen[R]):
    """Lists what something that runs has found; going back stops it first."""

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.run: Stoppable[Any] = Stoppable(self, self.ACTION_GROUP)
        self._leaving = False

    @property
    def stoppable(self) -> bool:
        """Whether something runs that was not asked to stop yet."""
        return self.run.busy and not self.run.stopping

    def ended(self) -> None:
        """Draw what it came to, and go back where that waited for it."""
        self.draw()
        if self._leaving:
            self.dismiss(None)

    def action_stop(self) -> None:
        """Stop what runs; it cleans up."""
        self.run.stop()
        self.draw()

    def may_leave(self) -> bool:
        """Stop what runs where that may be, and go back once it has ended."""
        self._leaving = self.run.busy
        if self._leaving and not self.refusal("stop"):
            self.action_stop()
        return not self._leaving

    async def on_unmount(self) -> None:
        """Bring what runs to its end where the whole app is left."""
        await self.run.end()
