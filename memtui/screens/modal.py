"""The frame of a modal screen: head, a list with the details of a row, footer.

For a screen author. Derive from `ModalListScreen`, set `ACTION_GROUP`, bind its actions with
`BINDINGS = bindings_for(ACTION_GROUP)`, and give:

- `NOUN`: the word for a row, as in "No version is selected.";
- `make_list()`: the list, called once;
- `draw_head(width)` and `draw_row(width)`: the contents of head and details;
- `refusal(verb)`: why an action cannot run now, beyond its needs in the registry;
- `happened(news)`: react to new operations in the log, optional;
- `action_<verb>()` for each action of the group; `help` and `leave` (which asks `may_leave`) exist.

Show it with `show_over`. A `GoTo` posted on it closes it and goes to that screen.

Read with `self.reads.latest(…)`: a read begun in `on_mount` is painted together with the frame if
it is quick. Call `draw()` after a change of anything that head, details or footer depend on. The
rows of a `RunScreen` come from a longer job: start it with `run`, and call `ended()` at its end.
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
        """Where to go after the screen closes."""

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
        """The reason why an action that needs a row cannot run."""
        return f"No {self.NOUN} is selected."

    def fill(self, rows: AppendedRows[R], found: Iterable[R], *notice: str) -> None:
        """Show the rows found; `notice` is shown if there are none."""
        rows.replace(list(found))
        self.rows_list.notice = notice
        self.rows_list.show(rows)
        self.draw()

    def draw_head(self, width: int) -> Content:
        """Return the lines above the list."""
        raise NotImplementedError

    def draw_row(self, width: int) -> Content:
        """Return the details of the row under the cursor."""
        raise NotImplementedError

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now, or nothing."""
        del verb
        return ""

    def may_leave(self) -> bool:
        """Return whether the screen may close now."""
        return True

    def on_mount(self) -> None:
        """Focus the list and draw the first frame, together with reads that are quick."""
        self.query_one(VirtualList).focus()
        self.query_one(PastBanner).forms = past_words(self.state, leads_back=False)
        self.draw()
        if self.reads.busy:
            self.paint_with(self.reads.delivered)

    def on_go_to(self, message: GoTo) -> None:
        """Close, then go to another screen."""
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
        """Return the current footer labels."""
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
        """Answer a click on a header as the sort keys do: the order is fixed."""
        self.toast(KEEPS_ORDER)

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(self, self.rows_list)

    @on(Opened)
    def _opened(self) -> None:
        self.query_one(".split").add_class("-opened")
        self.query_one(DetailPane).focus()

    async def on_pressed(self, message: Pressed) -> None:
        """Run the action clicked in the footer."""
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
    """Show a modal screen in a conversation; then follow the `GoTo` posted on it, if any."""
    await screen.ask(over)
    if over.wanted is not None:
        screen.post_message(over.wanted)


class RunScreen(ModalListScreen[R]):
    """Lists the results of a running job; leaving stops the job first."""

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.run: Stoppable[Any] = Stoppable(self, self.ACTION_GROUP)
        self._leaving = False

    @property
    def stoppable(self) -> bool:
        """Whether a job runs that was not asked to stop yet."""
        return self.run.busy and not self.run.stopping

    def ended(self) -> None:
        """Draw the outcome, and close if the person asked to leave meanwhile."""
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
