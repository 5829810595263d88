"""The frame of every numbered screen: scope bar, tabs, filter line, body, footer.

For a screen author. Derive from `MemtuiScreen`, set `MODE` to the screen's name in
`memtui.actions.SCREENS`, which also binds the keys of its actions, and give:

- `compose_body()`: the widgets between filter line and footer;
- `load()`: start reading the data of the screen. It is called on the event loop with the service
  open, after a change in `state` that affects data (service, company, scope, filter, binding) and
  on `r`. A hidden screen is loaded when it is shown again. Read with `self.reads.latest(…)`
  (`memtui.widgets.background.Background`) and return.
- `forget()`: clear the shown data, called when the person moves to another moment or back to now;
- `select(name)`: put the cursor on the row that another screen named, optional;
- `happened(news)`: react to new operations in the log, optional;
- `READS_WITH`: the modules that its first reading imports, optional; they are imported in advance
  if there is time;
- `prepare()`: read before the screen is shown, optional; only for reads that are not logged;
- `action_<verb>()` for each action of its group.

What is there to use:

- `self.state`: scope, filter, active binding (`memtui.screens.state.AppState`);
  `self.state.clock()`: the moment shown, which is now or a moment of the past;
  `self.session`: service, caller and company (inside `load` and actions that need the service);
- `self.missing = {Need.ROW: "", …}`: the unmet needs, each with a reason ("" takes the need's
  default). Actions that need one are dimmed, and pressing one shows the reason. The frame checks
  `SERVICE` and `WRITABLE` itself. Needs that depend on shown data start as missing; while
  `self.reads` is busy the default reason is that the screen is still reading;
- `self.labels = {"records.forget": "forget 3…"}`: current footer labels;
- `self.show_count("41 of 12,204")`: the text at the right end of the filter line;
- `self.toast(message, severity=…)`; `self.fail(error)`: a toast for one of the contract's errors;
- up to the app: `self.post_message(GoTo(…))`, `ConfigurationChanged`;
- questions: an action that is a coroutine, which awaits only `ask`, `wait` and `change` and runs at
  once up to the first of these; `fail` shows an error that it raises. The dialogs are in
  `memtui.screens.dialogs`. Read the data of a question inside the dialog (`Choose` and `Sheet` take
  the work) or in `wait`: either one takes the keys at once, so that none reaches the screen below;
- the source of a record: `memtui.screens.open_source`;
- classes set on the screen by width, for `styles.tcss`: `-tiny` under 60 columns, `-narrow` under
  100, `-wide` from 100 on; by height: `-short` under 30 lines, `-tall` from 30 on.

A shared widget that implements an action group (`list`) names it in a class attribute:
`ACTION_GROUP = "list"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

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
from memtui.presenters import format as fmt
from memtui.presenters import spending
from memtui.presenters.filter_words import known_values
from memtui.screens.dialogs import Confirm, Dialog, Prompt, Waiting, number_in
from memtui.screens.following import News
from memtui.screens.kept import SavedView
from memtui.screens.keymap import action_entries
from memtui.screens.list_columns import choose_columns, choose_order
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState, ConfigurationChanged, GoTo, Phase
from memtui.store.operation import Operation
from memtui.widgets.background import Background, Work
from memtui.widgets.detail_lines import made_again
from memtui.widgets.display import toast
from memtui.widgets.filter_line import FilterLine
from memtui.widgets.frame import (
    PAST_SIGN,
    KeyFooter,
    PastBanner,
    Pressed,
    ScopeBar,
    ScopeView,
    ScreenTabs,
)
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import Notice
from memtui.widgets.sized import AT_ONCE_SECONDS, SizedScreen
from memtui.widgets.typed import KeysFree
from memtui.widgets.virtual_list import ColumnsAsked, OrderAsked

if TYPE_CHECKING:
    from memtui.screens.drafts import KeptDraft
    from memtui.service import Caller, MemoryService
    from memtui.service.answers import MutationAnswer, UndoCandidate
    from memtui.service.usecases.undoing import Undone

T = TypeVar("T")
S = TypeVar("S", bound="ServiceScreen")

_KNOWN_OPERATIONS = 500
"""Operations whose names the filter line completes."""
_DATA = ("session", "scope", "filter", "binding_key", "bindings", "everywhere", "resolution")
_OF_FRAME = {Need.SERVICE, Need.WRITABLE, Need.NOW, Need.CHARTS, Need.SQL}
_SHOWN = dict.fromkeys(set(Need) - _OF_FRAME, "")
"""The needs that depend on shown data: all are missing until the screen sets `missing`."""
PROGRESS_SECONDS = 5.0
"""Seconds between toasts that say that a change is still under way."""
_READING = "This is still being read; press the key again when it is there."


class ServiceScreen(SizedScreen[GoTo]):
    """Base of numbered and modal screens: toasts, clipboard, questions, changes and undo."""

    ACTION_GROUP: ClassVar[str]
    """The group of actions that the screen carries out; they are bound to their keys."""
    state: var[AppState] = var(AppState)
    holds_keys = False
    """Whether typed keys are queued for a question that is about to open."""
    _given_filter: Mapping[Filter, str] = {}
    """The last filter that a person entered on this screen, and its typed line."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Bind the actions of the class's group."""
        if group := vars(cls).get("ACTION_GROUP"):
            cls.BINDINGS = bindings_for(group)
        super().__init_subclass__(**options)

    def __init__(self, state: AppState, **options: Any) -> None:
        super().__init__(**options)
        self.acts = Background(self, "acts")
        """Runs changes and the conversations that lead to them."""
        self.reads = Background(self, "reads")
        """Reads the data of the screen."""
        self._writing: tuple[Dialog[Any], Callable[[Any], KeptDraft]] | None = None
        """The open text dialog, and how to make a draft of its text."""
        self.set_reactive(ServiceScreen.state, state)

    @property
    def session(self) -> ServiceSession:
        """The open service; raises `MemtuiError` before it is open."""
        if self.state.session is None:
            raise MemtuiError(Need.SERVICE.value)
        return self.state.session

    @property
    def service(self) -> MemoryService:
        """The service of `session`."""
        return self.session.service

    @property
    def caller(self) -> Caller:
        """The caller of `session`."""
        return self.session.caller

    def load(self) -> None:
        """Start reading the data of the screen; called only with the service open."""

    async def perform(self, action_id: str) -> None:
        """Carry out an action by its id, as its key would."""
        action = ACTIONS[action_id]
        nodes = (self, *self.walk_children(Widget))
        carriers = (one for one in nodes if getattr(one, "ACTION_GROUP", "") == action.group)
        await self.app.run_action(action.verb, next(carriers, self.app))

    async def on_pressed(self, message: Pressed) -> None:
        """Run the action clicked in the footer."""
        message.stop()
        await self.perform(message.action_id)

    def unmet(self, need: Need) -> str:
        """Return why a need is not met that does not depend on shown data, or nothing."""
        state = self.state
        if need is Need.SERVICE and state.session is None:
            return str(state.failure or need.value)
        if need is Need.WRITABLE:
            return state.no_change
        return need.value if need is Need.NOW and state.as_of is not None else ""

    @on(ColumnsAsked)
    def _choose_columns(self, event: ColumnsAsked) -> None:
        choose_columns(self, event.rows_list)

    @on(OrderAsked)
    def _choose_order(self, event: OrderAsked) -> None:
        choose_order(self, event.rows_list)

    def happened(self, news: News) -> None:
        """React to new operations in the log; called while the screen is hidden, too."""

    def toast(
        self, message: str, *, severity: Literal["information", "warning", "error"] = "information"
    ) -> None:
        """Show a toast; its text is not parsed as markup."""
        toast(self.app, message, severity=severity)

    def fail(self, error: MemtuiError) -> None:
        """Show an error's sentence as a toast."""
        waits = error.kind == "AwaitsSecond"  # a change of settings, for a second person
        self.toast(str(error), severity="information" if waits else "error")

    def fail_each(self, errors: Sequence[MemtuiError]) -> None:
        """Show the first error of several changes, and how many others failed."""
        if errors:
            others = f" {fmt.counted(len(errors) - 1, 'other')} failed too." * (len(errors) > 1)
            self.fail(type(errors[0])(f"{errors[0]}{others}"))

    def copy(self, text: str, said: str) -> None:
        """Copy to the terminal's clipboard (works over SSH); lone surrogates become `?`."""
        self.app.copy_to_clipboard(text.encode("utf-8", "replace").decode("utf-8"))
        self.toast(said)

    def talk(self, conversation: Coroutine[Any, Any, object]) -> None:
        """Start a conversation, such as an action that is a coroutine; `fail` shows its error."""
        self.acts.talk(conversation, self.fail)

    def line_of(self, chosen: Filter) -> str:
        """Return the line that the person typed for a filter, else a line that parses to it."""
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
        """Ask for a filter, with the line of `chosen` to edit; None: the person went back."""
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
        """Texts that exist only on this screen and would be lost when memtui ends."""
        return ()

    async def ask_text(self, dialog: Dialog[T], draft_of: Callable[[T], KeptDraft]) -> T | None:
        """Ask for a text; while it is being written, `to_keep` includes it."""
        self._writing = dialog, draft_of
        try:
            return await self.ask(dialog)
        finally:
            self._writing = None

    @property
    def to_keep(self) -> Sequence[KeptDraft]:
        """Drafts to save if memtui ends without asking."""
        if self._writing is None:
            return ()
        dialog, draft_of = self._writing
        # Before it is mounted the dialog has no text field to read.
        is_open = dialog.is_attached and dialog.is_mounted
        return [draft_of(dialog.written)] if is_open and dialog.is_written else ()

    async def ask(self, dialog: Screen[T]) -> T | None:
        """Return the answer to a question; None if the person goes back."""
        answer: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self.app.push_screen(dialog, answer.set_result)
        return await answer

    async def ask_number(self, title: str, value: int, *, most: int, go: str = "set") -> int | None:
        """Ask for a number from 1 to `most`; None: the person went back."""
        prompt = Prompt(title, value=str(value), go=go, check=partial(number_in, most=most))
        text = await self.ask(prompt)
        return None if text is None else number_in(text, most)

    async def visit(self, over: Screen[GoTo]) -> bool:
        """Show a modal screen; if it leads to another screen, go there and return True."""
        wanted = await self.ask(over)
        if wanted is not None:
            self.post_message(wanted)
        return wanted is not None

    async def change(self, work: Work[T]) -> T:
        """Carry out a change, which cannot be cancelled; return its result or raise its error.

        A toast every `PROGRESS_SECONDS` seconds says that it is still under way. A change that
        succeeds clears the redo history.
        """
        session = self.state.session  # another company may be shown when the change ends
        done = await self._carry_out(work)
        if session is not None:
            session.undone.clear()
        return done

    async def configure(self, work: Work[T], said: str) -> T:
        """Change a setting that screens show, show `said` as a toast, and read again."""
        done = await self.change(work)
        self.toast(said)
        self.post_message(ConfigurationChanged())
        self.load()
        return done

    async def _carry_out(self, work: Work[T]) -> T:
        begun = monotonic()

        def tell() -> None:
            self.toast(
                f"Not done yet, {monotonic() - begun:.0f} s so far; you can go on meanwhile."
            )

        telling = self.app.set_interval(PROGRESS_SECONDS, tell)
        try:
            return await self.acts.change(work)
        finally:
            telling.stop()

    async def wait(self, words: str, work: Work[T]) -> T:
        """Await the data for a question; keys are queued, and `esc` ends the conversation.

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
            outcome.cancel()  # no effect if the result has already arrived

        self.app.push_screen(waiting, stopped)
        return await outcome

    async def last_change(self) -> UndoCandidate | None:
        """Return the newest change, after waiting for any change under way.

        If its outcome is unknown, it is checked first; None: the person declined the check.

        Raises:
            NotFound: there is no change.
            Invalid: it did not happen, or its outcome stays unknown.
        """
        found = await self._newest_change()
        if found.why_not is None:
            return found
        return await self._newest_change() if await self.find_out(found.operation) else None

    async def _newest_change(self) -> UndoCandidate:
        from memtui.service.usecases import undoing

        async def last() -> UndoCandidate:
            await self.acts.settled()
            return await undoing.last_change(self.service, self.caller)

        return await self.wait("waiting for the change under way", last)

    async def find_out(self, operation: Operation) -> bool:
        """Check a change of unknown outcome with its binding, after a yes.

        True: it happened, or its outcome was known already. False: the person declined the check.

        Raises:
            Invalid: the change did not happen, or its outcome stays unknown.
        """
        service, caller, operation_id = self.service, self.caller, operation.operation_id
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
                self.toast(found.sentence)
        if found.happened is None:
            select = "Select a change before it on Operations to undo that one."
            raise Invalid(f"{found.sentence} {select}")
        if not found.happened:
            raise Invalid(f"{found.sentence} So it has nothing to undo.")
        return True

    def undo_question(self, found: UndoCandidate) -> Confirm:
        """Return the question whether to undo a change, with a preview of the restored record.

        Raises:
            Invalid: the change cannot be undone.
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
        """Describe what was undone or redone; changed settings are read again."""
        from memtui.service.answers import Together

        records = waiting = 0
        settings: list[str] = []
        for answer in answers:
            records += len(answer.handles)
            others = [one.name for one in answer.settings if one.setting != "pending"]
            settings += others
            # A pending record is in `records` already.
            waiting += 0 if answer.handles else len(answer.settings) - len(others)
        if settings:
            self.post_message(ConfigurationChanged())
        if not records and not waiting:
            return fmt.named(settings, "setting") or fmt.counted(0, "record")
        if (records, settings, waiting) == (1, [], 0) and (name := await self._name_of(answers)):
            return name
        keys = {answer.binding_key for answer in answers if answer.handles}
        counts = {"bindings": len(keys), "settings": len(settings), "waiting": waiting}
        back = Together(records=records, **counts)
        return fmt.taken_back(back)

    async def _name_of(self, answers: Iterable[MutationAnswer]) -> str:
        """Name the only record of the answers; empty if this person may not read it."""
        [only] = (one.operation_id for one in answers if one.handles)
        try:
            changes = await self._carry_out(partial(self.service.log.changes, self.caller, only))
        except MemtuiError:
            return ""  # the undo succeeded all the same, and only the name is missing
        records = (one.after or one.before for one in changes)
        return next((fmt.quoted_name(one) for one in records if one is not None), "")

    async def undo_last(self) -> None:
        """Undo the newest change, after a yes.

        Raises:
            Invalid: there is no change, or it cannot be undone.
        """
        found = await self.last_change()
        if found is not None and await self.ask(self.undo_question(found)):
            await self.undo([found.operation.operation_id])

    async def undo(self, operation_ids: Sequence[str], records: Collection[str] = ()) -> None:
        """Undo changes in this order, or `records` of them; a toast names the redo key."""
        answers = await self.undo_all(operation_ids, records)
        self.toast(f"Undone: {await self.came_back(answers)}. U redoes it.")

    async def undo_all(
        self, operation_ids: Sequence[str], records: Collection[str] = ()
    ) -> list[MutationAnswer]:
        """Undo changes in this order; if one fails, the error names those undone before it.

        They can be redone, on any screen.
        """
        session = self.session  # another company may be shown when the undo ends
        undone = await self.take_back(operation_ids, records)
        if undone.answers:
            session.undone.append(undone.answers)
        await self._raise_in_part(undone, "Undone before that: {}; U redoes it.")
        return undone.answers

    async def redo_last(self) -> None:
        """Redo the last undo, made on any screen.

        Raises:
            Invalid: nothing was undone since the last change, or it was redone already.
        """
        _, again = await self.redo_all()
        self.toast(f"Redone: {await self.came_back(again)}. u undoes it.")

    async def redo_all(self) -> tuple[Sequence[MutationAnswer], list[MutationAnswer]]:
        """Redo the last undo, made on any screen; return the answers of the undo and of the redo.

        If one fails, the error names what was redone before it. The rest can still be redone,
        except a change in conflict.

        Raises:
            Invalid: nothing was undone since the last change, or it was redone already.
        """
        await self.wait("waiting for the change under way", self.acts.settled)
        undoes = self.session.undone
        if not undoes:
            raise Invalid("There is nothing to redo; u undoes.")
        undone = undoes.pop()
        again = await self.take_back([one.operation_id for one in reversed(undone)])
        if again.failed is not None:
            redone = {one.undoes for one in again.answers}
            rest = [one for one in undone if one.operation_id not in redone]
            if isinstance(again.failed, Conflict):
                rest = rest[:-1]  # drop the conflicting change: it would fail again
            if rest:
                undoes.append(rest)
            more = "; U goes on with the rest" if rest else ""
            await self._raise_in_part(again, f"Redone before that: {{}}, which u undoes{more}.")
        return undone, again.answers

    async def _raise_in_part(self, undone: Undone, addition: str) -> None:
        """Raise why a change could not be undone, with those that were before."""
        if undone.failed is not None and undone.answers:
            before = addition.format(await self.came_back(undone.answers))
            raise type(undone.failed)(f"{undone.failed} {before}") from undone.failed
        if undone.failed is not None:
            raise undone.failed

    async def action_undo(self) -> None:
        """Undo the last change, after a yes."""
        await self.undo_last()
        self.load()

    async def action_redo(self) -> None:
        """Redo what was undone last, also on another screen."""
        await self.redo_last()
        self.load()

    async def take_back(
        self, operation_ids: Sequence[str], records: Collection[str] = ()
    ) -> Undone:
        """Undo changes in this order, each with the changes made together with it."""
        from memtui.service.usecases import undoing

        undone = await self._carry_out(
            partial(undoing.undo, self.service, self.caller, operation_ids, records)
        )
        if undone.failed is not None:
            self.stopped_halfway()
        return undone

    def stopped_halfway(self) -> None:
        """React to an undo or redo that failed, perhaps after some of its changes."""


class MemtuiScreen(ServiceScreen):
    """A numbered screen; see the module's text for how to write one."""

    MODE: ClassVar[str]
    FILTERED: ClassVar[bool] = True
    """Whether the screen has a filter line."""
    NARROWS: ClassVar[FilterTarget] = FilterTarget.OPERATIONS
    """What the filter line narrows here; unsupported terms are named beside the count."""
    EVERYWHERE: ClassVar[bool] = False
    """Whether the screen can show all bindings at once."""
    AUTO_FOCUS = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    READS_WITH: ClassVar[Sequence[str]] = ()

    missing: var[Mapping[Need, str]] = var(lambda: _SHOWN)
    labels: var[Mapping[str, str]] = var(dict)

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the screen carry out the actions of its own name."""
        if mode := vars(cls).get("MODE"):
            cls.ACTION_GROUP = mode
        super().__init_subclass__(**options)

    def __init__(self, state: AppState) -> None:
        super().__init__(state, id=f"screen-{self.MODE}")
        self._stale = True
        self._wanted: str | None = None
        self._next = ""
        """The id of an action to run as soon as it is enabled."""
        self._next_on = ""
        """The `select` name that the cursor must be on before; empty: any row."""
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

    async def prepare(self) -> None:
        """Read the first data while nobody types; only for reads that are not logged."""

    def forget(self) -> None:
        """Clear the shown data: it belongs to another moment."""

    def select(self, name: str) -> None:
        """Put the cursor on the row that another screen named."""

    @property
    def reading(self) -> bool:
        """Whether the screen is reading its data."""
        return self.reads.busy

    @property
    def group(self) -> str:
        """The action group of the footer: an input group around the focus, else the screen's."""
        focused = self.focused
        chain = focused.ancestors_with_self if focused is not None else []
        named = (getattr(node, "ACTION_GROUP", "") for node in chain)
        return next((name for name in named if name in INPUT_GROUPS), self.MODE)

    def why_disabled(self, action_id: str) -> str:
        """Return why an action cannot run now, or nothing if it can."""
        action = ACTIONS.get(action_id)
        for need in action.needs if action else ():
            if unmet := self.unmet(need):
                return unmet
            if need in self.missing:
                return self.missing[need] or self._why_missing(need)
        return ""

    def _why_missing(self, need: Need) -> str:
        if self.state.phase is not Phase.READY:
            return str(self.state.failure or Need.SERVICE.value)
        return _READING if self._stale or self.reading else need.value

    def action_ids(self) -> list[str]:
        """Return the ids of all actions that work on this screen, its own first."""
        groups = groups_on(self.MODE)
        ranked = sorted(ACTIONS.values(), key=lambda action: action.group != self.MODE)
        return [action.id for action in ranked if action.group in groups]

    def show_count(self, text: str) -> None:
        """Show a count at the right end of the filter line.

        Filter terms that do not narrow this screen are named, or the count would seem filtered.
        """
        chosen = self.state.filter
        terms = unsupported(chosen, self.NARROWS)
        idle = list(dict.fromkeys("".join(term.partition(":")[:2]) for term in terms))
        verb = "does" if len(idle) == 1 and not idle[0].endswith("words") else "do"
        note = f"{' and '.join(idle)} {verb} not apply here" if idle else ""
        for filter_line in self.query(FilterLine):
            filter_line.count = " · ".join(filter(None, [note, text]))

    def as_view(self, name: str) -> SavedView:
        """Return the current view as a saved view."""
        return SavedView(name=name, screen=self.MODE, filter_line=self.state.filter_line)

    def use_view(self, view: SavedView) -> None:
        """Apply a saved view of this screen."""
        self.post_message(GoTo(filter_line=view.filter_line))
        if view.filter_line == self.state.filter_line:
            self.reload()

    def reload(self) -> None:
        """Load now, or once this screen is shown and the service is open."""
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
        """Cancel the reads of `prepare`, unless the screen is shown by now."""
        if not self.is_current and self.reading:
            self.reads.forget()
            self._stale = True

    def read_again(self) -> None:
        """Reload because the person asked for it."""
        self.reload()

    def point_at(self, name: str) -> None:
        """Have `select(name)` called once the screen has loaded."""
        self._wanted = name
        self.reload()

    def carry_on(self, action_id: str, on: str = "") -> None:
        """Run an action as soon as it is enabled, unless the person leaves the screen before.

        With `on` it also waits until the cursor is on that `select` name.
        """
        self._next, self._next_on = action_id, on
        self._go_on()

    def is_on(self, name: str) -> bool:
        """Whether the cursor is on the row of `select(name)`; an empty name is any row."""
        return not name

    def on_worker_state_changed(self) -> None:
        """Run the waiting action if the read enabled it."""
        self._go_on()

    def _go_on(self) -> None:
        is_read = self.state.phase is Phase.READY and not (self._stale or self.reading)
        if not (self._next and is_read and self.is_current and self.is_on(self._next_on)):
            return
        if not self.why_disabled(self._next):
            wanted, self._next = self._next, ""
            self.call_later(self.perform, wanted)

    def on_screen_suspend(self) -> None:
        """Drop the waiting action."""
        self._next = ""

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Redraw the frame, and reload if the change affects data."""
        if not self.is_mounted:
            return
        if before.filter_line != now.filter_line:
            for filter_line in self.query(FilterLine):
                filter_line.take(now.filter_line)
        if before.as_of != now.as_of:
            self.reads.forget()  # a pending read would show data of the other moment
            self.forget()
        if self.is_current:
            self._draw_frame()
        if any(getattr(before, name) != getattr(now, name) for name in _DATA):
            self.reload()

    def on_mount(self) -> None:
        """Draw the frame from the state known so far."""
        self._draw_frame()

    def on_screen_resume(self) -> None:
        """Redraw the frame, and load if the data is stale."""
        self._draw_frame()
        if self._stale:
            self.reload()
            if self.reading:
                self.paint_with(self.answered)
        elif self.focused is None:
            self.focus_body()

    async def answered(self) -> None:
        """Wait until the pending reads are delivered."""
        await self.reads.delivered()

    def on_filter_line_applied(self, message: FilterLine.Applied) -> None:
        """Ask the app to use the filter line."""
        message.stop()
        self.post_message(GoTo(filter_line=message.line))

    def on_filter_line_entered(self, message: FilterLine.Entered) -> None:
        """Read names (agents, projects, …) from the newest operations, for completion."""
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

    def drop_filter(self) -> None:
        """Clear the filter, as there is nothing nearer to leave."""
        if self.state.filter_line:
            self.post_message(GoTo(filter_line=""))

    def focus_body(self) -> None:
        """Focus the first focusable widget of the body."""
        body = self.query_one("#body")
        self.set_focus(next((one for one in self.focus_chain if body in one.ancestors), None))

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
    def _draw_footer(self) -> None:
        if self.is_mounted:
            actions, labels = self.footer(), {"app.past": "now", **self.labels}
            if self.state.as_of is not None and self.group not in INPUT_GROUPS:
                actions = [ACTIONS["app.past"], *actions]
            self.query_one("#key-footer", KeyFooter).entries = action_entries(
                actions, self.state.keymap, self.why_disabled, labels
            )
            self._go_on()

    _watch_missing = _watch_labels = _draw_footer

    def footer(self) -> list[Action]:
        """Return the actions that the footer shows."""
        return footer_actions(self.group)


def frame_of(part: DOMNode) -> MemtuiScreen:
    """Return the numbered screen that contains a widget."""
    screen = part.screen
    if not isinstance(screen, MemtuiScreen):
        raise NotFound("This is not on a screen of memtui.")
    return screen


def scope_view(state: AppState, *, everywhere: bool = False) -> ScopeView:
    """Return the view of the scope bar; `everywhere`: all bindings are shown."""
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
    """Return the banner texts for a past moment, longest first; empty for now.

    `leads_back`: mention the key that goes back to now.
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
