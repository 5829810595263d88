"""Choosing a moment of the past: by a calendar of what changed when, or by writing it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.events import Event, Key
from textual.widgets import Input, Static

from memtui.contract import Filter, Invalid, MemtuiError, OperationStatus, OperationType, Term
from memtui.filters import parse_when
from memtui.screens.dialogs import READING, Dialog
from memtui.screens.operations.view import about
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.calendar import Calendar
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import actor
from memtui.widgets.display import ACCENT, DIM, WARN, display, line
from memtui.widgets.editor import ForeignInput
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, VirtualList

if TYPE_CHECKING:
    from memtui.screens.state import AppState, ServiceSession
    from memtui.service.visibility import Caller
    from memtui.store.operation import Operation

_CHANGES = (
    OperationType.WRITE,
    OperationType.CORRECT,
    OperationType.FORGET,
    OperationType.UNDO,
    OperationType.SYNC,
)
_MOST = 5_000
_LONGEST = timedelta(minutes=10)
"""What began longer before a day did not end on it."""
_KEYS = "arrows, [ ] day   pgup pgdn month   enter choose   esc go back"


def past_moment(text: str, state: AppState) -> datetime:
    """Return the moment of the past that a person wrote: `2026-03-09`, `3 weeks ago`.

    Raises:
        Invalid: it is not a time, or still to come.
    """
    now = state.true_clock()
    moment = parse_when(text.strip(), now=now, zone=state.local_zone)
    if moment > now:
        raise Invalid(f"{text.strip()} is still to come; give a moment of the past.")
    return moment


class DayMoment(NamedTuple):
    """A moment of a day that can be gone to, and what had just happened then."""

    at: datetime
    who: str
    what: str


class _Known(NamedTuple):
    """When something changed, by the days on which it did."""

    counts: Mapping[date, int]
    moments: Mapping[date, Sequence[datetime]]
    problem: str
    """What of it is not known."""


class _Line(ForeignInput):
    """Takes what is typed; the keys of the calendar move in it while nothing is.

    The line has the cursor from the beginning and hands those keys on itself: would the first
    letter move the cursor here, letters typed fast would be on their way to the calendar yet.
    """

    def __init__(self, calendar: Calendar) -> None:
        super().__init__(
            placeholder="2026-03-09, 14:30, 3 weeks ago, last monday",
            compact=True,
            select_on_focus=False,
            classes="dialog-input",
        )
        self._calendar = calendar

    async def on_event(self, event: Event) -> None:
        """Hand a key of the calendar on, before the line itself acts on it."""
        if isinstance(event, Key) and not self.value and await self._calendar.take_key(event.key):
            return
        await super().on_event(event)

    def on_focus(self) -> None:
        """Show where the keys go."""
        self._calendar.has_cursor = True

    def on_blur(self) -> None:
        """Show that the keys go elsewhere."""
        self._calendar.has_cursor = False


class ChooseMoment(Dialog[datetime]):
    """Let a person choose a moment of the past.

    Arrows choose a day of the calendar, `enter` goes on to the changes of that day, and there
    takes a moment. Whatever is typed goes into the line above.
    """

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-high")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-wider")]
    BOX = "dialog-moment"
    AUTO_FOCUS = "Input"

    def __init__(self, state: AppState, title: str) -> None:
        super().__init__(title, _KEYS)
        self._state = state
        self._zone = state.local_zone
        self._rows: AppendedRows[DayMoment] = AppendedRows(lambda one: one.at.isoformat())
        self._known: _Known | None = None
        """None until it is read."""
        self._days = Background(self, "moment-days")
        self._changes = Background(self, "moment-changes")

    def body(self) -> ComposeResult:
        """Yield the line, the calendar and the changes of its day."""
        today = self._state.true_clock().astimezone(self._zone).date()
        calendar = Calendar(self._state.clock().astimezone(self._zone).date(), today)
        yield _Line(calendar)
        yield Static(classes="dialog-error")
        with Container(classes="moment-split"):
            yield calendar
            with Vertical():
                yield Static(READING, classes="moment-day")
                yield VirtualList(self._columns(), self._rows, name="moment-list")

    def _columns(self) -> list[Column[DayMoment]]:
        return [
            Column("at", "at", self._clock, 8, keep=100, tone="muted"),
            Column("who", "by", lambda one: one.who or None, 9, keep=50, tone="muted"),
            Column("what", "right after", lambda one: one.what, 16, flexible=True, keep=90),
        ]

    def _clock(self, one: DayMoment) -> str:
        return one.at.astimezone(self._zone).strftime("%H:%M:%S")

    @property
    def _calendar(self) -> Calendar:
        return self.query_one(Calendar)

    @property
    def _line(self) -> Input:
        return self.query_one(Input)

    @property
    def is_written(self) -> bool:
        """Whether something is typed."""
        return bool(self._line.value.strip())

    def on_mount(self) -> None:
        """Read when something changed."""
        state = self._state

        def show(known: _Known) -> None:
            self._known = known
            self._calendar.counts = known.counts
            self.query_one(".dialog-error", Static).update(display(known.problem, style=WARN))
            self._show_day()

        def failed(error: MemtuiError) -> None:
            show(_Known({}, {}, ""))
            self._failed(error)

        self._days.latest(lambda: _known_of(state), show, failed)
        self.paint_with(self._read)

    async def _read(self) -> None:
        """Wait for the calendar, and the changes of its day."""
        await self._days.delivered()
        await self._changes.delivered()

    def _failed(self, error: MemtuiError) -> None:
        self.refuse(str(error))

    @on(Calendar.Moved)
    def _show_day(self) -> None:
        """Read what was done on the day under the cursor."""
        state, day, known = self._state, self._calendar.day, self._known
        if known is None:
            return
        moments = known.moments.get(day, ())

        def show(found: Sequence[Operation]) -> None:
            listed = self.query_one(VirtualList)
            self._rows.replace(self._moments(day, moments, found))
            listed.show(self._rows)
            listed.go_to(0)
            name = display(f"{day:%a} {day.isoformat()}")
            number = fmt.counted(known.counts.get(day, 0), "change")
            title = line(name, display(number, style=DIM), gap="  ")
            self.query_one(".moment-day", Static).update(title)

        self._changes.latest(lambda: _done_on(state, day, moments), show, self._failed)

    def _moments(
        self, day: date, moments: Sequence[datetime], found: Sequence[Operation]
    ) -> list[DayMoment]:
        """Return the moments of a day, the last one first; those of one operation are one."""
        begin = datetime.combine(day, time(), self._zone)
        end = (begin + timedelta(days=1)).astimezone(UTC) - timedelta(microseconds=1)
        ends = [] if end > self._state.true_clock() else [DayMoment(end, "", "end of the day")]
        changes: dict[object, DayMoment] = {}
        for moment in sorted(moments, reverse=True):
            operation = next((one for one in found if _is_during(moment, one)), None)
            if operation is None:
                changes[moment] = DayMoment(moment, "", "changed; no operation is known")
            else:
                words = about(operation) or fmt.counted(operation.result_count, "record")
                what = f"{operation.operation_type.value}: {words}"
                known = DayMoment(moment, actor(operation), what)
                changes.setdefault(operation.operation_id, known)
        return [*ends, *changes.values(), DayMoment(begin.astimezone(UTC), "", "start of the day")]

    def on_descendant_focus(self) -> None:
        """Tell the styles where the keys go: both parts have no room where lines are few."""
        self.set_class(self.query_one(VirtualList).has_focus, "-in-day")

    @on(Calendar.Chosen)
    def _enter_day(self) -> None:
        self.query_one(VirtualList).focus()

    @on(Opened)
    def _take(self) -> None:
        if (moment := self.query_one(VirtualList).current) is not None:
            self.dismiss(moment.at)

    def action_back(self) -> None:
        """Go back to an empty line, and from there without an answer."""
        if self._line.has_focus and not self._line.value:
            self.dismiss(None)
        else:
            self._line.value = ""
            self._line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say which moment is meant, as far as it can be told, and show its day."""
        event.stop()
        try:
            moment = past_moment(event.value, self._state)
        except Invalid:
            self.refuse("")
        else:
            ago = fmt.since(moment, self._state.true_clock())
            said = display(f"{fmt.exact(moment, self._zone)}, {ago}", style=ACCENT)
            self.query_one(".dialog-error", Static).update(said)
            self._calendar.day = moment.astimezone(self._zone).date()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the moment that is written."""
        event.stop()
        try:
            self.dismiss(past_moment(event.value, self._state))
        except Invalid as error:
            self.refuse(str(error))


def _is_during(moment: datetime, operation: Operation) -> bool:
    took = timedelta(milliseconds=operation.latency_ms or 0)
    return operation.started_at <= moment <= operation.started_at + took


async def _known_of(state: AppState) -> _Known:
    """Return when what the scope lists was changed, up to now."""
    session = state.session
    if session is None:
        return _Known({}, {}, "")
    zone = state.local_zone
    found = await session.service.past.moments(
        _now(session),
        state.record_scope,
        zone=zone,
        binding_key=state.filter.binding_key or state.binding_key,
    )
    moments: dict[date, list[datetime]] = defaultdict(list)
    for one in found.moments:
        moments[one.astimezone(zone).date()].append(one)
    counts = {one.day: one.added + one.changed + one.removed for one in found.days}
    return _Known(counts, moments, fmt.not_read(found.problems))


async def _done_on(state: AppState, day: date, moments: Sequence[datetime]) -> Sequence[Operation]:
    """Return what was done through memtui around the moments of a day, newest first."""
    session = state.session
    if session is None or not moments:
        return ()
    begin = datetime.combine(day, time(), state.local_zone)
    chosen = Filter(
        since=begin - _LONGEST,
        until=begin + timedelta(days=1),
        status=OperationStatus.OK,
        terms=(Term(field="operation_type", values=_CHANGES),),
    )
    page = await session.service.log.page(_now(session), chosen, limit=_MOST)
    return page.operations


def _now(session: ServiceSession) -> Caller:
    """Return the caller as one who looks at now: any moment can be chosen from any other."""
    return session.caller.model_copy(update={"as_of": None})
