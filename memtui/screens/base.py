"""The frame of every numbered screen: scope bar, tabs, filter line, body, footer.

For a screen author. Derive from `MemtuiScreen`, set `MODE` to the screen's name in
`memtui.actions.SCREENS`, bind its actions with `BINDINGS = bindings_for(MODE)`, and give:

- `compose_body()`: the widgets between filter line and footer;
- `load()`: read again what the screen shows. It is called on the event loop when the service is
  open and anything in `state` that matters to data changed (service, company, scope, filter,
  binding) and on `r`, only while the screen is the one shown; if it was hidden meanwhile, when it
  comes back. Read with `self.reads.latest(…)` (`memtui.widgets.background.Background`) and return.
- `forget()`: take away what is shown, as another moment of the past is looked at, or now again;
- `select(name)`: put the cursor on what another screen pointed at, optional;
- `happened(news)`: take note of what came into the log, where that is shown, optional;
- `READS_WITH`: the modules that its first reading imports, optional; they are imported before it is
  shown, where there was time for that;
- `prepare()`: read before it is shown, where that leaves nothing in the log, optional;
- `action_<verb>()` for each action of its group.

What is there to use:

- `self.state`: scope, filter, active binding (`memtui.screens.state.AppState`);
  `self.state.clock()`: the moment that is looked at, now unless it is one of the past;
  `self.session`: service, caller and company (inside `load` and actions that need the service);
- `self.missing = {Need.ROW: "", …}`: which needs do not hold now, with a reason of the screen's
  own ("" takes the need's). Actions that need one are dimmed, and pressing one says why.
  `SERVICE` and `WRITABLE` are kept by the frame itself; until the screen says otherwise all that
  hangs on what it shows is missing. While `self.reads` is busy that is the reason;
- `self.labels = {"records.forget": "forget 3…"}`: footer words for the moment;
- `self.show_count("41 of 12,204")`: the text at the right end of the filter line;
- `self.toast(message, severity=…)`; `self.fail(error)`: a toast for one of the contract's errors;
- up to the app: `self.post_message(GoTo(…))`, `ConfigurationChanged`;
- questions: an action that is a coroutine marked with `@conversation`; the dialogs are in
  `memtui.screens.dialogs`. What a question is made of is read inside it (`Choose` and `Sheet` take
  the work), or in `wait`: it is there when the key is pressed, so that no later key falls through;
- the source of a record: `memtui.screens.open_source`;
- classes set on the screen by width, for `styles.tcss`: `-tiny` under 60 columns, `-narrow` under
  100, `-wide` from 100 on; by height: `-short` under 30 lines, `-tall` from 30 on.

A shared widget that carries out a group of actions of its own (`list`) says so with a class
attribute `ACTION_GROUP = "list"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.dom import DOMNode
from textual.events import DescendantBlur, DescendantFocus
from textual.reactive import var
from textual.screen import Screen
from textual.widget import Widget

from memtui.actions import ACTIONS, INPUT_GROUPS, Action, Need, footer_actions, groups_on
from memtui.contract import Conflict, Filter, Invalid, MemtuiError, NotFound, OperationStatus
from memtui.filters import (
    FilterTarget,
    format_filter,
    parse_filter,
    refuse_unsupported,
    unsupported,
)
from memtui.screens.dialogs import Confirm, Dialog, Prompt, Waiting
from memtui.screens.following import News
from memtui.screens.kept import SavedView
from memtui.screens.keymap import action_entries
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState, ConfigurationChanged, GoTo, Phase
from memtui.widgets import format as fmt
from memtui.widgets import spending
from memtui.widgets.background import Background, Work
from memtui.widgets.detail_lines import made_again
from memtui.widgets.display import toast
from memtui.widgets.filter_line import FilterLine
from memtui.widgets.filter_words import known_values
from memtui.widgets.frame import (
    PAST_SIGN,
    KeyFooter,
    PastBanner,
    Pressed,
    ScopeBar,
    ScopeView,
    ScreenTabs,
)
from memtui.widgets.panes import Notice
from memtui.widgets.sized import AT_ONCE_SECONDS, SizedScreen
from memtui.widgets.typed import KeysFree

if TYPE_CHECKING:
    from memtui.screens.drafts import KeptDraft
    from memtui.service.answers import MutationAnswer, UndoCandidate
    from memtui.store.operation import Operation

T = TypeVar("T")
S = TypeVar("S", bound="ServiceScreen")

_KNOWN_OPERATIONS = 500
"""Operations whose names the filter line completes."""
_DATA = ("session", "scope", "filter", "binding_key", "everywhere", "resolution")
_OF_FRAME = {Need.SERVICE, Need.WRITABLE, Need.NOW, Need.CHARTS, Need.SQL}
_SHOWN = dict.fromkeys(set(Need) - _OF_FRAME, "")
"""What hangs on what a screen shows; nothing of it is there at first."""
TOLD_EVERY_S = 5.0
"""How often a change that takes long says that it is still under way."""
_READING = "This is still being read; press the key again when it is there."


def conversation(action: Callable[[S], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """Make an action of a coroutine that asks the person.

    It waits for nothing but the screen's `ask`, `wait` and `change`. Up to the first of these it
    runs at once; an error that it raises is shown by the screen's `fail`.
    """

    @wraps(action)
    def begin(screen: S) -> None:
        screen.talk(action(screen))

    return begin


class ServiceScreen(SizedScreen[None]):
    """What a screen over the service can do, numbered or modal: tell, copy, and ask the person."""

    state: var[AppState] = var(AppState)
    holds_keys = False
    """Whether what is typed waits for a question that is about to be asked."""
    _given_filter: Mapping[Filter, str] = {}
    """The filter that a person gave this screen last, with its line."""

    def __init__(self, state: AppState, **options: Any) -> None:
        super().__init__(**options)
        self.acts = Background(self, "acts")
        """Runs what a person does here: changes, and the questions before them."""
        self.reads = Background(self, "reads")
        """Reads what the screen shows."""
        self._writing: tuple[Dialog[Any], Callable[[Any], KeptDraft]] | None = None
        """The question for a text that is open, and what its answer would be kept as."""
        self.set_reactive(ServiceScreen.state, state)

    @property
    def session(self) -> ServiceSession:
        """The open service; raises `MemtuiError` before it is open."""
        if self.state.session is None:
            raise MemtuiError(Need.SERVICE.value)
        return self.state.session

    def happened(self, news: News) -> None:
        """Take note of what came into the log, also while another screen is shown."""

    def toast(
        self, message: str, *, severity: Literal["information", "warning", "error"] = "information"
    ) -> None:
        """Show a toast; the text is shown as it is written."""
        toast(self.app, message, severity=severity)

    def fail(self, error: MemtuiError) -> None:
        """Show an error's sentence as a toast."""
        self.toast(str(error), severity="error")

    def copy(self, text: str, said: str) -> None:
        """Copy to the terminal's clipboard, over SSH too, but for lone surrogates, and say so."""
        self.app.copy_to_clipboard(text.encode("utf-8", "replace").decode("utf-8"))
        self.toast(said)

    def talk(self, conversation: Coroutine[Any, Any, None]) -> None:
        """Begin what `conversation` makes an action of."""
        self.acts.talk(conversation, self.fail)

    def line_of(self, chosen: Filter) -> str:
        """Return a filter as the person typed it, else as it can be typed."""
        state = self.state
        typed = {
            state.filter: state.filter_line,
            state.log_filter: state.log_line,
            **self._given_filter,
        }
        return typed.get(chosen) or format_filter(chosen, state.zone)

    async def ask_filter(
        self, title: str, hint: str, chosen: Filter, target: FilterTarget = FilterTarget.OPERATIONS
    ) -> Filter | None:
        """Return what to narrow a list by instead of `chosen`, which is offered as it was typed."""
        state = self.state

        def parsed(text: str) -> Filter:
            found = parse_filter(text, now=state.clock(), zone=state.zone or UTC)
            refuse_unsupported(found, target)
            return found

        prompt = Prompt(title, value=self.line_of(chosen), hint=hint, check=parsed)
        text = await self.ask(prompt)
        if text is None:
            return None
        found = parsed(text)
        self._given_filter = {found: text.strip()}
        return found

    @property
    def unsaved(self) -> Sequence[str]:
        """The texts that are only held here, and would go with memtui."""
        return ()

    async def ask_text(self, dialog: Dialog[T], draft_of: Callable[[T], KeptDraft]) -> T | None:
        """Ask for a text, which `to_keep` has as long as it is being written."""
        self._writing = dialog, draft_of
        try:
            return await self.ask(dialog)
        finally:
            self._writing = None

    @property
    def to_keep(self) -> Sequence[KeptDraft]:
        """What to keep where memtui is ended without a question."""
        if self._writing is None:
            return ()
        dialog, draft_of = self._writing
        # Before it is mounted it has nothing that could be written in.
        is_open = dialog.is_attached and dialog.is_mounted
        return [draft_of(dialog.written)] if is_open and dialog.is_written else ()

    async def ask(self, dialog: Screen[T]) -> T | None:
        """Return the answer to a question; None if the person goes back."""
        answer: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self.app.push_screen(dialog, answer.set_result)
        return await answer

    async def change(self, work: Work[T]) -> T:
        """Return what a change comes to, which nothing cancels; raises the error it fails with.

        Where that takes long, it says every few seconds that it is still under way. What was
        undone before cannot be redone after it.
        """
        session = self.state.session  # by the end another company may be shown
        done = await self._carry_out(work)
        if session is not None:
            session.undone.clear()
        return done

    async def _carry_out(self, work: Work[T]) -> T:
        begun = monotonic()

        def tell() -> None:
            self.toast(
                f"Not done yet, {monotonic() - begun:.0f} s so far; you can go on meanwhile."
            )

        telling = self.app.set_interval(TOLD_EVERY_S, tell)
        try:
            return await self.acts.change(work)
        finally:
            telling.stop()

    async def wait(self, words: str, work: Work[T]) -> T:
        """Return what a question is made of; keys wait too, and `esc` ends the conversation.

        If it ends quickly, no dialog is shown.
        """
        reading = asyncio.ensure_future(work())
        self.holds_keys = True
        try:
            await asyncio.wait({reading}, timeout=AT_ONCE_SECONDS)
        except asyncio.CancelledError:
            reading.cancel()
            raise
        finally:
            self.holds_keys = False
            failed = reading.done() and not reading.cancelled() and reading.exception() is not None
            self.post_message(KeysFree(drops=failed))
        if reading.done():
            return reading.result()

        async def rest() -> T:
            return await reading

        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = Waiting(words, rest, outcome.set_result, outcome.set_exception)

        def stopped(_: object) -> None:
            outcome.cancel()  # which is too late, and does nothing, where it was read

        self.app.push_screen(waiting, stopped)
        return await outcome

    async def last_change(self) -> UndoCandidate | None:
        """Return the last change of all, once none is under way any more.

        Where nobody saw its end, it is found out first; None: the person does not want that.

        Raises:
            Invalid: there is none, it did not happen, or that cannot be told.
        """
        found = await self._newest_change()
        if found.why_not is None:
            return found
        return await self._newest_change() if await self.find_out(found.operation) else None

    async def _newest_change(self) -> UndoCandidate:
        session = self.session

        async def last() -> list[UndoCandidate]:
            await self.acts.settled()
            return await session.service.undoable(session.caller, 1)

        found = await self.wait("waiting for the change under way", last)
        if not found:
            raise Invalid("There is nothing to undo.")
        return found[0]

    async def find_out(self, operation: Operation) -> bool:
        """Find out of a change whose end nobody saw whether it happened, after a yes.

        False: the person does not want that. Of any other change there is nothing to find out.

        Raises:
            Invalid: it did not happen, or that cannot be told.
        """
        session, operation_id = self.session, operation.operation_id
        service, caller = session.service, session.caller
        if operation.status is not OperationStatus.UNKNOWN:
            return True
        found = await service.log.found_outcome(caller, operation_id)
        if found is None or found.happened is None:
            change = fmt.the_change(operation, self.state.clock(), caller.principal)
            question = Confirm(
                f"Find out whether {change} happened?",
                detail="Nobody saw its end. Its binding is asked, and nothing is changed.",
                verb="find out",
                otherwise="not now",
            )
            if not await self.ask(question):
                return False
            found = await self.wait(
                "asking its binding", lambda: service.check_outcome(caller, operation_id)
            )
            if found.happened:
                self.toast(found.told)
        if found.happened is None:
            raise Invalid(f"{found.told} Select a change before it on Operations to undo that one.")
        if not found.happened:
            raise Invalid(f"{found.told} So there is nothing of it to undo.")
        return True

    def undo_question(self, found: UndoCandidate) -> Confirm:
        """Return the question whether to undo a change, with what its record is then again.

        Raises:
            Invalid: it cannot be.
        """
        if found.why_not is not None:
            raise Invalid(f"The last change cannot be undone. {found.why_not}")
        question = fmt.undo_question(
            found.operation,
            fmt.changed(found),
            self.state.clock(),
            self.session.caller.principal,
        )
        now, then = found.record, found.before
        return Confirm(question, verb="undo", detail=made_again(now, then) if now and then else "")

    async def came_back(self, answers: Sequence[MutationAnswer]) -> str:
        """Return what was undone, in words; settings are read again."""
        from memtui.service.answers import Together

        records = settings = waiting = 0
        for answer in answers:
            records += len(answer.handles)
            pending = sum(one.setting == "pending" for one in answer.settings)
            settings += len(answer.settings) - pending
            waiting += 0 if answer.handles else pending  # a record that waits again is counted
        if settings:
            self.post_message(ConfigurationChanged())
        if (records, settings, waiting) == (1, 0, 0) and (name := await self._name_of(answers)):
            return name
        keys = {answer.binding_key for answer in answers if answer.handles}
        back = Together(records=records, bindings=len(keys), settings=settings, waiting=waiting)
        return fmt.taken_back(back) or fmt.counted(0, "record")

    async def _name_of(self, answers: Iterable[MutationAnswer]) -> str:
        """Name the only record of answers; empty where it is not for this person to read."""
        session = self.session
        [only] = (one.operation_id for one in answers if one.handles)
        try:
            changes = await self._carry_out(
                lambda: session.service.log.changes(session.caller, only)
            )
        except MemtuiError:
            return ""  # it was done all the same, and why something else was not is told first
        records = (one.after or one.before for one in changes)
        return next((fmt.quoted_name(one) for one in records if one is not None), "")

    async def undo_last(self) -> None:
        """Undo the last change of all, after a yes.

        Raises:
            Invalid: there is none, or it cannot be undone.
        """
        found = await self.last_change()
        if found is not None and await self.ask(self.undo_question(found)):
            await self.undo([found.operation.operation_id])

    async def undo(self, operation_ids: Sequence[str]) -> None:
        """Undo changes in this order, and say how they are redone."""
        answers = await self.undo_all(operation_ids)
        self.toast(f"Undone: {await self.came_back(answers)}. U redoes it.")

    async def undo_all(self, operation_ids: Sequence[str]) -> list[MutationAnswer]:
        """Undo changes in this order; where one fails, what was undone before is told.

        What was undone can be redone, on whichever screen.
        """
        session = self.session  # by the end another company may be shown
        done: list[MutationAnswer] = []
        try:
            await self.take_back(operation_ids, done)
        except MemtuiError as error:
            await self._raise_in_part(error, done, "Undone before that: {}; U redoes it.")
        finally:
            if done:
                session.undone.append(done)
        return done

    async def redo_last(self) -> None:
        """Redo what was undone last, on whichever screen.

        Raises:
            Invalid: nothing was since the last change, or it was redone already.
        """
        _, again = await self.redo_all()
        self.toast(f"Redone: {await self.came_back(again)}. u undoes it.")

    async def redo_all(self) -> tuple[Sequence[MutationAnswer], list[MutationAnswer]]:
        """Redo what was undone last, on whichever screen; return what that was, and its redoing.

        Where one fails, what was redone before is told, and the rest can be redone, but for what
        is in conflict, which stays so.

        Raises:
            Invalid: nothing was undone since the last change, or it was redone already.
        """
        await self.wait("waiting for the change under way", self.acts.settled)
        undoes = self.session.undone
        if not undoes:
            raise Invalid("There is nothing to redo; u undoes.")
        undone = undoes.pop()
        again: list[MutationAnswer] = []
        try:
            await self.take_back([one.operation_id for one in reversed(undone)], again)
        except MemtuiError as error:
            redone = {one.undoes for one in again}
            rest = [one for one in undone if one.operation_id not in redone]
            if isinstance(error, Conflict):
                rest = rest[:-1]  # the one that was tried
            if rest:
                undoes.append(rest)
            more = "; U goes on with the rest" if rest else ""
            told = f"Redone before that: {{}}, which u undoes{more}."
            await self._raise_in_part(error, again, told)
        return undone, again

    async def _raise_in_part(
        self, error: MemtuiError, done: Sequence[MutationAnswer], told: str
    ) -> NoReturn:
        if not done:
            raise error
        raise type(error)(f"{error} {told.format(await self.came_back(done))}") from error

    async def take_back(self, operation_ids: Iterable[str], done: list[MutationAnswer]) -> None:
        """Take changes back, each with what was done at once with it; `done` gets what was."""
        session = self.session

        async def work() -> None:
            for one in operation_ids:
                if all(known.undoes != one for known in done):
                    await session.service.undo_together(session.caller, one, answers=done)

        try:
            await self._carry_out(work)
        except MemtuiError:
            self.stopped_halfway()
            raise

    def stopped_halfway(self) -> None:
        """Take note that changes were not taken back, or only some of them."""


class MemtuiScreen(ServiceScreen):
    """A numbered screen; see the module's text for how to write one."""

    MODE: ClassVar[str]
    FILTERED: ClassVar[bool] = True
    """Whether the filter line narrows what this screen shows; without it there is none."""
    NARROWS: ClassVar[FilterTarget] = FilterTarget.OPERATIONS
    """What the filter line narrows here; terms that say nothing about it are named."""
    EVERYWHERE: ClassVar[bool] = False
    """Whether it can show all bindings at once."""
    AUTO_FOCUS = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    READS_WITH: ClassVar[Sequence[str]] = ()

    missing: var[Mapping[Need, str]] = var(lambda: _SHOWN)
    labels: var[Mapping[str, str]] = var(dict)

    def __init__(self, state: AppState) -> None:
        super().__init__(state, id=f"screen-{self.MODE}")
        self._stale = True
        self._wanted: str | None = None
        self._next = ""
        """The action that is carried out as soon as it can be."""
        self._next_on = ""
        """What the cursor has to be on before, as `select` is told; empty for whatever it is on."""
        self._knowing = Background(self, "filter-words")

    def compose(self) -> ComposeResult:
        """Lay out the frame around `compose_body`."""
        yield ScopeBar(id="scope-bar")
        yield PastBanner(id="past-banner")
        yield ScreenTabs(self.MODE, id="tabs")
        if self.FILTERED:
            yield FilterLine(id="filter-line")
        with Container(id="body"):
            yield from self.compose_body()
        yield Notice(id="phase")
        yield KeyFooter(id="key-footer")

    def compose_body(self) -> ComposeResult:
        """Yield the widgets of this screen."""
        yield from ()

    def load(self) -> None:
        """Read again what the screen shows; called only with the service open."""

    async def prepare(self) -> None:
        """Read while nobody types what is shown first; only where the log gets no row of it."""

    def forget(self) -> None:
        """Take away what is shown: it is of another moment than the one that is looked at now."""

    def select(self, name: str) -> None:
        """Put the cursor on what another screen pointed at."""

    @property
    def ACTION_GROUP(self) -> str:  # noqa: N802 - as each carrier of actions has it
        """The group of actions that the screen itself carries out."""
        return self.MODE

    @property
    def reading(self) -> bool:
        """Whether what the screen shows is being read."""
        return self.reads.busy

    @property
    def group(self) -> str:
        """Whose keys the footer shows now: those of the focused widget's group, or the screen's."""
        focused = self.focused
        chain = focused.ancestors_with_self if focused is not None else []
        named = (getattr(node, "ACTION_GROUP", "") for node in chain)
        return next((name for name in named if name in INPUT_GROUPS), self.MODE)

    def why_disabled(self, action_id: str) -> str:
        """Return why an action cannot run now, or nothing if it can."""
        action = ACTIONS.get(action_id)
        for need in action.needs if action else ():
            if need is Need.SERVICE and self.state.session is None:
                return str(self.state.failure or need.value)
            if need is Need.WRITABLE and (refused := self.state.no_change):
                return refused
            if need is Need.NOW and self.state.as_of is not None:
                return need.value
            if need in self.missing:
                return self.missing[need] or self._why_missing(need)
        return ""

    def _why_missing(self, need: Need) -> str:
        if self.state.phase is not Phase.READY:
            return str(self.state.failure or Need.SERVICE.value)
        return _READING if self._stale or self.reading else need.value

    async def perform(self, action_id: str) -> None:
        """Carry out an action by its id, as its key would."""
        action = ACTIONS[action_id]
        carriers = [
            node
            for node in self.walk_children(Widget)
            if getattr(node, "ACTION_GROUP", "") == action.group
        ]
        if action.group == self.MODE:
            await self.app.run_action(action.verb, self)
        elif carriers:
            await self.app.run_action(action.verb, carriers[0])
        else:
            await self.app.run_action(action.verb, self.app)

    def action_ids(self) -> list[str]:
        """Return the ids of all actions that work on this screen, its own first."""
        groups = groups_on(self.MODE)
        ranked = sorted(ACTIONS.values(), key=lambda action: action.group != self.MODE)
        return [action.id for action in ranked if action.group in groups]

    def show_count(self, text: str) -> None:
        """Show how many there are, at the right end of the filter line.

        A field of the filter that does not narrow this screen is named, or it would seem to.
        """
        chosen = self.state.filter
        idle = unsupported(chosen, self.NARROWS)
        note = f"not by {', '.join(term.rstrip(':') for term in idle)}" if idle else ""
        for filter_line in self.query(FilterLine):
            filter_line.count = "  ".join(filter(None, [note, text]))

    def as_view(self, name: str) -> SavedView:
        """Return what is shown, under a name."""
        return SavedView(name=name, screen=self.MODE, filter_line=self.state.filter_line)

    def use_view(self, view: SavedView) -> None:
        """Show what a saved view of this screen does."""
        self.post_message(GoTo(filter_line=view.filter_line))
        if view.filter_line == self.state.filter_line:
            self.reload()

    def reload(self) -> None:
        """Load now if this screen is shown and the service is open, else when both are so."""
        self._stale = True
        if self.is_current and self.is_mounted and self.state.phase is Phase.READY:
            self._stale = False
            self.load()
            if self.focused is None:
                self.focus_body()
            if self._wanted is not None:
                wanted, self._wanted = self._wanted, None
                self.select(wanted)

    def break_off(self) -> None:
        """Stop what `prepare` reads; it goes on where the person came here meanwhile."""
        if not self.is_current and self.reading:
            self.reads.forget()
            self._stale = True

    def read_again(self) -> None:
        """Read what is shown again, because a person asks for it."""
        self.reload()

    def point_at(self, name: str) -> None:
        """Have `select(name)` called once the screen has loaded."""
        self._wanted = name
        self.reload()

    def carry_on(self, action_id: str, on: str = "") -> None:
        """Carry out an action as soon as it can be, unless the person leaves the screen before.

        With `on` it waits until the cursor is on what `select` was told.
        """
        self._next, self._next_on = action_id, on
        self._go_on()

    def is_on(self, name: str) -> bool:
        """Whether the cursor is on what `select(name)` goes to."""
        return not name

    def on_worker_state_changed(self) -> None:
        """Go on where something was read."""
        self._go_on()

    def _go_on(self) -> None:
        is_read = self.state.phase is Phase.READY and not (self._stale or self.reading)
        if not (self._next and is_read and self.is_current and self.is_on(self._next_on)):
            return
        if not self.why_disabled(self._next):
            wanted, self._next = self._next, ""
            self.call_later(self.perform, wanted)

    def on_screen_suspend(self) -> None:
        """Let go of what has not begun."""
        self._next = ""

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Redraw the frame, and load where data depends on what changed."""
        if not self.is_mounted:
            return
        if before.as_of != now.as_of:
            self.reads.forget()  # or what they read would be shown after all
            self.forget()
        if self.is_current:
            self._draw_frame()
        if any(getattr(before, name) != getattr(now, name) for name in _DATA):
            self.reload()

    def on_mount(self) -> None:
        """Draw the frame with what is known at once."""
        self._draw_frame()

    def on_screen_resume(self) -> None:
        """Load if something changed while another screen was shown."""
        self._draw_frame()
        if self._stale:
            self.reload()
            if self.reading:
                self.paint_with(self.answered)
        elif self.focused is None:
            self.focus_body()

    async def answered(self) -> None:
        """Wait until what the screen shows at first has come."""
        await self.reads.delivered()

    def on_filter_line_applied(self, message: FilterLine.Applied) -> None:
        """Pass a filter line up."""
        message.stop()
        self.post_message(GoTo(filter_line=message.line))

    def on_filter_line_entered(self, message: FilterLine.Entered) -> None:
        """Read which agents, projects and other names the newest operations have."""
        message.stop()
        session, filter_line = self.state.session, self.query_one(FilterLine)
        if session is not None:
            self._knowing.latest(
                lambda: session.service.log.page(session.caller, Filter(), limit=_KNOWN_OPERATIONS),
                lambda page: setattr(filter_line, "known", known_values(page.operations)),
                self.fail,
            )

    def on_filter_line_left(self, message: FilterLine.Left) -> None:
        """Give the focus back to the body."""
        message.stop()
        self.focus_body()

    def focus_body(self) -> None:
        """Put the focus on the first widget of the body that takes it, as after the filter."""
        body = self.query_one("#body")
        self.set_focus(next((one for one in self.focus_chain if body in one.ancestors), None))

    async def on_pressed(self, message: Pressed) -> None:
        """Carry out what was clicked."""
        message.stop()
        await self.perform(message.action_id)

    def _draw_frame(self) -> None:
        state = self.state
        view = scope_view(state, everywhere=self.EVERYWHERE and state.asks_all)
        self.query_one(ScopeBar).view = view
        self.query_one(PastBanner).forms = view.past
        self.query_one(ScreenTabs).past = bool(view.past)
        self.set_class(bool(view.past), "-past")
        for filter_line in self.query(FilterLine):
            filter_line.history = state.filters
            filter_line.clock, filter_line.zone = state.clock, state.zone or UTC
            filter_line.show_line(state.filter_line, state.filter)
        phase = self.query_one("#phase", Notice)
        ready = state.phase is Phase.READY
        self.query_one("#body").display = ready
        phase.display = not ready
        if state.phase is Phase.OPENING:
            phase.show("loading", "Opening your memories", "The keys work already; q quits.")
        elif state.phase is Phase.FAILED:
            phase.show("error", str(state.failure or ""), "Press r to try again, q to quit.")
        self._draw_footer()

    @on(DescendantFocus)
    @on(DescendantBlur)
    def _moved_focus(self) -> None:
        self._draw_footer()

    def _watch_missing(self) -> None:
        self._draw_footer()

    def _watch_labels(self) -> None:
        self._draw_footer()

    def _draw_footer(self) -> None:
        if self.is_mounted:
            actions, labels = self.footer(), {"app.past": "now", **self.labels}
            if self.state.as_of is not None and self.group not in INPUT_GROUPS:
                actions = [ACTIONS["app.past"], *actions]
            self.query_one("#key-footer", KeyFooter).entries = action_entries(
                actions, self.state.keymap, self.why_disabled, labels
            )
            self._go_on()

    def footer(self) -> list[Action]:
        """Return what the footer shows: the keys that matter here and now."""
        return footer_actions(self.group)


def frame_of(part: DOMNode) -> MemtuiScreen:
    """Return the screen that a part of it stands on."""
    screen = part.screen
    if not isinstance(screen, MemtuiScreen):
        raise NotFound("This is not on a screen of memtui.")
    return screen


def scope_view(state: AppState, *, everywhere: bool = False) -> ScopeView:
    """Return what the scope bar shows of the state; `everywhere`: all bindings are looked at."""
    scope = state.scope
    company = state.session.company.name if state.session else scope.company_id
    parts = [
        company,
        scope.project_id,
        scope.agent_id,
        scope.subject_id,
        f"issue {scope.issue_id}" if scope.issue_id else None,
        f"run {scope.run_id}" if scope.run_id else None,
    ]
    status, word = ("", "") if everywhere else _health(state)
    closed = state.binding is not None and state.binding.read_only and not everywhere
    return ScopeView(
        parts=tuple(part for part in parts if part),
        binding="all bindings" if everywhere else _binding(state),
        status=status,
        word=word,
        read_only=state.read_only or closed,
        live=not state.not_live,
        spending=() if state.as_of else spending.badge(state.spending),
        over_limit=spending.is_passed(state.spending),
        past=past_words(state),
        waiting=0 if state.as_of else state.waiting,
        demo_percent=state.demo_percent,
    )


def past_words(state: AppState, *, leads_back: bool = True) -> tuple[str, ...]:
    """Return what says that the past is looked at, the longest form first; nothing for now.

    `leads_back`: the key to now works there.
    """
    if state.as_of is None:
        return ()
    at = f"{PAST_SIGN} THE PAST, as of {fmt.exact(state.as_of, state.zone)}"
    ago = fmt.since(state.as_of, state.true_clock())
    back = f"   {state.keymap.label('app.past')} goes back to now" if leads_back else ""
    return (
        f"{at}, {ago}   nothing can be changed here{back}",
        f"{at}{back}",
        at,
        f"{PAST_SIGN} THE PAST",
    )


def _binding(state: AppState) -> str:
    if state.resolution is None:
        return "none" if state.resolution_problem else ""
    return f"{state.resolution.provider_key}·{state.resolution.binding_key}"


def _health(state: AppState) -> tuple[str, str]:
    if state.phase is not Phase.READY:
        return ("down", "closed") if state.phase is Phase.FAILED else ("unknown", "opening")
    if state.resolution is None:
        return ("down", "no binding") if state.resolution_problem else ("unknown", "resolving")
    if state.health is None:
        return "unknown", "checking"
    if state.health.breaker_open:
        return "down", "paused after failures"
    return state.health.health.status, state.health.health.status
