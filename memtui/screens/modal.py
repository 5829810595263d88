"""The frame of a modal screen: head, a list with the details of a row, footer.

For a screen author. Derive from `ModalListScreen`, set `ACTION_GROUP`, which also binds the keys of
its actions, and give:

- `NOUN`: the word for a row, as in "No version is selected.";
- `columns()` and `key(row)`: the columns of the list, and what a row is found again by;
- `read()`: a coroutine that returns the rows and stores what else the head shows. It runs when the
  screen opens, on `r` and after a change. Until there are rows, the list shows `READING`; if there
  are none, `NOTHING` or what `nothing()` returns; after an error, its sentence and `AGAIN`;
- `draw_head()` and `detail(row, width)`: the contents of head and details;
- `reasons()`: why actions cannot run now, beyond their needs in the registry;
- `happened(news)`: react to new operations in the log, for example with `load()`; optional;
- `open_row()`: what `enter` does; by default it goes into the details;
- `action_<verb>()` for each action of the group. `read`, `filter` (it asks `FILTERS`), `undo`,
  `redo`, `help` and `leave` (it asks `may_leave`) exist.

`configure` carries out a change of settings, says so and reads again. A list that comes in pages
sets `following` in `read()` and gives `read_on()`.

Show it with `visit`. A `GoTo` posted on it closes it and goes to that screen.

Call `draw()` after a change of anything that head, details or footer depend on. The rows of a
`RunScreen` come from a longer job instead of from `read`: start it in `begin()` with `run`, and
call `ended()` at its end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from memtui.actions import ACTIONS, KEEPS_ORDER, Need, actions_of
from memtui.contract import Filter, MemtuiError
from memtui.filters import FilterTarget
from memtui.presenters import format as fmt
from memtui.screens.base import past_words
from memtui.screens.help import Help
from memtui.screens.keymap import footer_entries
from memtui.screens.list_screen import RowsScreen
from memtui.screens.state import AppState, GoTo
from memtui.widgets.background import Stoppable
from memtui.widgets.columns import Column
from memtui.widgets.display import WARN, display
from memtui.widgets.frame import KeyFooter, PastBanner
from memtui.widgets.keys import bindings_everywhere
from memtui.widgets.panes import Drawn, Fitted, Split
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Highlighted, PagesWanted, SortAsked, VirtualList

R = TypeVar("R")
Reasons = Iterable[tuple[str, object, str]]

_ORDERING = {"list.sort", "list.reverse", "list.wider", "list.narrower"}
_OVER = {"tour", "palette", "picture", "theme", "suspend", "quit"}
"""The actions of the app that are carried out while the screen stays open."""
_OWN = {"app.help", "app.palette"}
"""The actions of the app that the palette does not offer here: each screen has its own help."""


class ModalListScreen(RowsScreen[R], ModalScreen[GoTo]):
    """A list with details over the whole screen; see the module's text."""

    READING: ClassVar[str] = ""
    NOTHING: ClassVar[tuple[str, ...]] = ()
    AGAIN: ClassVar[str] = "r reads again, esc goes back."
    FILTERS: ClassVar[tuple[str, str]]
    """The question for a filter, and what its keys do."""
    NARROWS: ClassVar[FilterTarget] = FilterTarget.OPERATIONS
    """What the filter narrows."""
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = bindings_everywhere("tour", "palette")

    def __init__(self, state: AppState) -> None:
        super().__init__(state, classes="modal")
        self.rows: AppendedRows[R] = AppendedRows(self.key)
        self.following: int | None = None
        """Where the next page begins; None: all rows came."""
        self.written: str | None = None
        """The key of the row that the cursor goes to once it is listed."""
        self.is_read = False
        """Whether the rows are what was read last, and no error."""
        self.chosen = Filter()
        """What narrows the list."""

    def compose(self) -> ComposeResult:
        """Lay out head, list, details and keys."""
        with Vertical(classes="modal-frame"):
            yield PastBanner()
            yield Fitted(id="modal-head")
            with Split(self.ACTION_GROUP, self.state.shares):
                yield self.make_list()
                yield self.make_detail()
            yield KeyFooter(id="modal-footer")

    def make_list(self) -> VirtualList[R]:
        """Return the list."""
        return VirtualList(self.columns(), self.rows, name=f"{self.NOUN}-list")

    def columns(self) -> Sequence[Column[R]]:
        """Return the columns of the list."""
        raise NotImplementedError

    def key(self, row: R) -> str:
        """Return what a row is found again by."""
        raise NotImplementedError

    async def read(self) -> Iterable[R]:
        """Return the rows, or those of the first page."""
        raise NotImplementedError

    async def read_on(self) -> Iterable[R]:
        """Return the rows of the page at `following`."""
        raise NotImplementedError

    def nothing(self) -> tuple[str, ...]:
        """Return the notice where there are no rows."""
        return self.NOTHING

    def draw_head(self) -> Drawn:
        """Return the lines above the list."""
        raise NotImplementedError

    @property
    def number(self) -> str:
        """How many rows there are, in words; nothing until they are read."""
        return fmt.counted(self.rows.loaded, self.NOUN) if self.is_read else ""

    def narrowed(self) -> list[Content]:
        """Return the line of the head that says what narrows the list, if anything does."""
        words = self.line_of(self.chosen)
        return [display(f"only: {words}", limit=300, style=WARN)] if words else []

    def reasons(self) -> Reasons:
        """Return why actions cannot run: verbs, whether the reason applies, and its sentence."""
        return ()

    def refusal(self, verb: str) -> str:
        """Return the first reason that applies to a verb, or nothing."""
        found = (why for verbs, holds, why in self.reasons() if holds and verb in verbs.split())
        return next(found, "")

    @property
    def busy(self) -> bool:
        """Whether a job runs, which goes on below another screen."""
        return False

    def may_leave(self) -> bool:
        """Return whether the screen may close now."""
        return True

    def begin(self) -> None:
        """Begin to read."""
        self.action_read()

    def on_mount(self) -> None:
        """Focus the list and draw the first frame, together with reads that are quick."""
        self.rows_list.focus()
        self.query_one(PastBanner).forms = past_words(self.state, leads_back=False)
        self.begin()
        self.draw()
        if self.reads.busy:
            self.paint_with(self.reads.delivered)

    def load(self) -> None:
        """Read the rows again; the ones before stay till then."""
        self.reads.latest(self.read, self._show, self.not_read)

    def _show(self, found: Iterable[R]) -> None:
        self.is_read = True
        self.fill(found, *self.nothing())

    def not_read(self, error: MemtuiError) -> None:
        """Show an error in place of the rows."""
        self.is_read, self.following = False, None
        self.fill((), f"✗ {error}", self.AGAIN)

    def fill(self, found: Iterable[R], *notice: str) -> None:
        """Show rows; `notice` is shown if there are none."""
        self.rows.replace(list(found), more=self.following is not None)
        self.read_marks(row for _, row in self.rows.held())
        if self.is_read:
            self.rows_list.selection.keep_held()
        self.rows_list.notice = notice
        self.rows_list.rows_changed()
        if self.written is not None:
            self.rows_list.go_to_key(self.written)
            self.written = None
        self.draw()

    def load_on(self) -> None:
        """Read the next page."""
        self.reads.latest(self.read_on, self._append, self.not_read)

    def _append(self, found: Iterable[R]) -> None:
        rows = list(found)
        self.rows.append(rows, more=self.following is not None)
        self.read_marks(rows)
        self.rows_list.rows_changed()
        self.draw()

    @on(PagesWanted)
    def _load_on(self) -> None:
        if not self.reads.busy and self.following is not None:
            self.load_on()

    def on_go_to(self, message: GoTo) -> None:
        """Close, then go to another screen; a job goes on below that one."""
        if not self.busy:
            message.stop()
            self.dismiss(replace(message))

    def on_view_chosen(self) -> None:
        """Close, while the app shows the view; a job goes on below it."""
        if not self.busy:
            self.dismiss(None)

    def draw(self) -> None:
        """Draw head, details and keys again."""
        if self.is_attached:
            self.query_one("#modal-head", Fitted).fit(self.draw_head())
            self.draw_detail()
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
        if action is None:
            return ""
        unmet = next(filter(None, map(self.unmet, action.needs)), "")
        return unmet or (self.refusal(action.verb) if action.group == self.ACTION_GROUP else "")

    def action_ids(self) -> list[str]:
        """Return the ids of all actions that work here; those of the app close it first."""
        groups = self.ACTION_GROUP, "list", "app"
        return [one.id for group in groups for one in actions_of(group) if one.id not in _OWN]

    async def perform(self, action_id: str) -> None:
        """Carry out an action by its id, as its key would."""
        action = ACTIONS[action_id]
        if action.group == "app":
            await self.action_everywhere(action.verb)
        else:
            await super().perform(action_id)

    def unmet(self, need: Need) -> str:
        """Return why a need is not met, or nothing; a row is one of them here."""
        if need is Need.ROW and self.current is None:
            return self.none_selected
        return super().unmet(need)

    @on(Highlighted)
    def _moved(self) -> None:
        self.draw()

    @on(SortAsked)
    def _keep_order(self) -> None:
        """Answer a click on a header as the sort keys do: the order is fixed."""
        self.toast(KEEPS_ORDER)

    def action_read(self) -> None:
        """Read the rows again."""
        self.rows_list.notice = (self.READING,)
        self.load()

    async def action_filter(self) -> None:
        """Ask what to list."""
        chosen = await self.ask_filter(*self.FILTERS, self.chosen, self.NARROWS)
        if chosen is not None:
            self.chosen = chosen
            self.action_read()

    def action_help(self) -> None:
        """Show every key."""
        group = self.ACTION_GROUP
        groups = (group, "list")
        self.app.push_screen(Help("Keys", groups, self.state.keymap, self.why_disabled))

    def may_close(self) -> bool:
        """Return whether another screen may take its place; a job goes on below that one."""
        return self.may_leave()

    async def action_everywhere(self, verb: str) -> None:
        """Carry out an action of the app: over it, or after closing it."""
        if verb.startswith("go_"):
            if self.may_close():
                self.dismiss(None)
        elif verb not in _OVER:
            action_id = f"app.{verb}"
            running = "Something still runs here; stop it, or wait until it ends."
            if why := running if self.busy else self.why_disabled(action_id):
                self.toast(why)
            else:  # reviews below this one close too
                self.dismiss(GoTo(then=action_id))
            return
        await self.app.run_action(verb, self.app)

    def action_leave(self) -> None:
        """Go back, from the details to the list first."""
        if self.opened:
            self.close_row()
        elif self.may_leave():
            self.dismiss(None)


class RunScreen(ModalListScreen[R]):
    """Lists the results of a running job; leaving stops the job first."""

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.run: Stoppable[Any] = Stoppable(self, self.ACTION_GROUP)
        self._leaving = False

    @property
    def busy(self) -> bool:
        """Whether a job runs."""
        return self.run.busy

    @property
    def stoppable(self) -> bool:
        """Whether a job runs that was not asked to stop yet."""
        return self.run.busy and not self.run.stopping

    def refusal(self, verb: str) -> str:
        """Return the first reason that applies to a verb; nothing can be stopped before it runs."""
        if verb == "stop" and not self.stoppable:
            return "Nothing is running."
        return super().refusal(verb)

    def ended(self, *notice: str) -> None:
        """Draw the outcome, and close if the person asked to leave meanwhile."""
        if notice:
            self.rows_list.notice = notice
        self.draw()
        if self._leaving:
            self.dismiss(None)

    def action_stop(self) -> None:
        """Stop what runs; it cleans up."""
        self.run.stop()
        self.draw()

    def may_close(self) -> bool:
        """Return whether nothing runs."""
        return not self.busy

    def may_leave(self) -> bool:
        """Ask a running job to stop if it can, and close the screen once it has ended."""
        self._leaving = self.run.busy
        if self._leaving and not self.refusal("stop"):
            self.action_stop()
        return not self._leaving

    async def on_unmount(self) -> None:
        """Bring what runs to its end where the whole app is left."""
        await self.run.end()
