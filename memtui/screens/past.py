"""Choosing a moment of the past: by a calendar of what changed when, or by writing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.events import Key
from textual.widgets import Input, Static

from memtui.contract import Filter, Invalid, MemtuiError, OperationStatus, OperationType
from memtui.filters import parse_when
from memtui.screens.dialogs import Dialog
from memtui.screens.operations.view import asked
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.calendar import Calendar
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import actor
from memtui.widgets.display import ACCENT, DIM, display, line
from memtui.widgets.editor import ForeignInput
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, VirtualList

if TYPE_CHECKING:
    from memtui.screens.state import AppState, ServiceSession
    from memtui.store.operation import Operation

_CHANGES = (
    OperationType.WRITE,
    OperationType.CORRECT,
    OperationType.FORGET,
    OperationType.UNDO,
)
_MOST = 1_000
_KEYS = "arrows, [ ] day   pgup pgdn month   enter take it   esc back"


def past_moment(text: str, state: AppState) -> datetime:
    """Return the moment of the past that a person wrote: `2026-03-09`, `3 weeks ago`.

    Raises:
        Invalid: it is no time, or still to come.
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


class ChooseMoment(Dialog[datetime]):
    """Let a person choose a moment of the past.

    The calendar has the cursor: arrows choose a day, `enter` goes on to the changes of that day,
    and there takes a moment. Whatever is typed goes into the line above.
    """

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-high")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-wider")]
    BOX = "dialog-moment"
    AUTO_FOCUS = "Calendar"

    def __init__(self, state: AppState, title: str) -> None:
        super().__init__(title, _KEYS)
        self._state = state
        self._zone = state.local_zone
        self._rows: AppendedRows[DayMoment] = AppendedRows(lambda one: one.at.isoformat())
        self._days = Background(self, "moment-days")
        self._changes = Background(self, "moment-changes")

    def body(self) -> ComposeResult:
        """Yield the line, the calendar and the changes of its day."""
        today = self._state.true_clock().astimezone(self._zone).date()
        yield ForeignInput(
            placeholder="2026-03-09, 14:30, 3 weeks ago, last monday",
            compact=True,
            select_on_focus=False,
            classes="dialog-input",
        )
        yield Static(classes="dialog-error")
        with Container(classes="moment-split"):
            yield Calendar(self._state.clock().astimezone(self._zone).date(), today)
            with Vertical():
                yield Static(classes="moment-day")
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
        """Read on which days something changed, and the changes of the first one."""
        session, zone = self._state.session, self._zone
        if session is None:
            return

        def show(counts: Mapping[date, int]) -> None:
            self._calendar.counts = counts

        self._days.latest(lambda: days_of(session, zone), show, self._failed)
        self._show_day()

    def _failed(self, error: MemtuiError) -> None:
        self.refuse(str(error))

    @on(Calendar.Moved)
    def _show_day(self) -> None:
        """Read the changes of the day under the cursor."""
        session, zone, day = self._state.session, self._zone, self._calendar.day
        if session is None:
            return

        def show(found: Sequence[Operation]) -> None:
            self._rows.replace(self._moments(day, found))
            self.query_one(VirtualList).show(self._rows)
            self.query_one(VirtualList).go_to(0)
            name = display(f"{day:%a} {day.isoformat()}")
            self.query_one(".moment-day", Static).update(
                line(name, display(fmt.counted(len(found), "change"), style=DIM), gap="  ")
            )

        self._changes.latest(lambda: changes_of(session, zone, day), show, self._failed)

    def _moments(self, day: date, found: Sequence[Operation]) -> list[DayMoment]:
        """Return the moments of a day, the last one first."""
        begin = datetime.combine(day, time(), self._zone)
        end = (begin + timedelta(days=1)).astimezone(UTC) - timedelta(microseconds=1)
        ends = [] if end > self._state.true_clock() else [DayMoment(end, "", "the end of the day")]
        changes = [
            DayMoment(_done_at(one), actor(one), f"{one.operation_type.value}: {asked(one)}")
            for one in found
        ]
        return [*ends, *changes, DayMoment(begin.astimezone(UTC), "", "its beginning")]

    @on(Calendar.Chosen)
    def _enter_day(self) -> None:
        self.query_one(VirtualList).focus()

    @on(Opened)
    def _take(self) -> None:
        if (moment := self.query_one(VirtualList).current) is not None:
            self.dismiss(moment.at)

    def action_back(self) -> None:
        """Go back to the calendar, and from there without an answer."""
        if self.focused is None or self.focused is self._calendar:
            self.dismiss(None)
        else:
            self._line.value = ""
            self._calendar.focus()

    def on_key(self, event: Key) -> None:
        """Take what is typed over the calendar into the line."""
        if self.focused is self._calendar and event.is_printable and event.character:
            event.stop()
            self._line.focus()
            self._line.insert_text_at_cursor(event.character)

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


def _done_at(operation: Operation) -> datetime:
    """Return when what an operation did was done."""
    return operation.started_at + timedelta(milliseconds=operation.latency_ms or 0)


async def changes_of(session: ServiceSession, zone: tzinfo, day: date) -> list[Operation]:
    """Return what changed memories on a day, newest first."""
    begin = datetime.combine(day, time(), zone)
    return await _changes_between(session, begin, begin + timedelta(days=1))


async def days_of(session: ServiceSession, zone: tzinfo) -> Mapping[date, int]:
    """Return how much changed on each day."""
    found = await _changes_between(session, None, None)
    return Counter(one.started_at.astimezone(zone).date() for one in found)


async def _changes_between(
    session: ServiceSession, since: datetime | None, until: datetime | None
) -> list[Operation]:
    found: list[Operation] = []
    for kind in _CHANGES:
        chosen = Filter(since=since, until=until, operation_type=kind, status=OperationStatus.OK)
        page = await session.service.log.page(session.caller, chosen, limit=_MOST)
        found += page.operations
    return sorted(found, key=lambda one: -one.seq)
