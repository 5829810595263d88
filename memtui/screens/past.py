"""The dialog for a moment of the past: a calendar of changes, or a typed time."""

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

from memtui.contract import Invalid, MemtuiError
from memtui.filters import parse_when
from memtui.presenters import format as fmt
from memtui.screens.dialogs import READING, Dialog, Waiting
from memtui.screens.operations.view import about
from memtui.store.operation import Operation
from memtui.widgets.background import Background
from memtui.widgets.calendar import Calendar
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import actor
from memtui.widgets.display import ACCENT, DIM, WARN, display, line
from memtui.widgets.editor import ForeignInput
from memtui.widgets.rows import PAGE_ROWS, WindowRows
from memtui.widgets.virtual_list import Opened, PagesWanted, VirtualList

if TYPE_CHECKING:
    from memtui.screens.session import ServiceSession
    from memtui.screens.state import AppState
    from memtui.service.visibility import Caller

_KEYS = "arrows, [ ] day   pgup pgdn month   enter choose   esc go back"


def past_moment(text: str, state: AppState) -> datetime:
    """Parse a moment of the past: `2026-03-09`, `3 weeks ago`.

    Raises:
        Invalid: it is no time, or in the future.
    """
    now = state.true_clock()
    moment = parse_when(text.strip(), now=now, zone=state.local_zone)
    if moment > now:
        raise Invalid(f"{text.strip()} is still to come; give a moment of the past.")
    return moment


class _Moment(NamedTuple):
    """A moment of a day that can be chosen: a change, or an end of the day."""

    at: datetime
    operation_id: str | None = None
    """The operation that made the change; None: unknown."""
    edge: str = ""
    """The words for an end of the day; empty: it is none."""


class DayMoment(NamedTuple):
    """A moment as a row: time, author and operation."""

    at: datetime
    who: str
    what: str


class _Known(NamedTuple):
    """The changes of a scope, by day."""

    counts: Mapping[date, int]
    moments: Mapping[date, Sequence[datetime]]
    binding_key: str
    problem: str
    """What could not be read; empty: nothing."""


class _Line(ForeignInput):
    """The input; while it is empty, it passes the calendar's keys on.

    It has the focus from the start: if the first letter moved the focus here, letters typed fast
    would still go to the calendar.
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
        """Pass a key of the calendar on before the input handles it."""
        if isinstance(event, Key) and not self.value and await self._calendar.take_key(event.key):
            return
        await super().on_event(event)

    def on_focus(self) -> None:
        """Show the calendar's cursor, as keys move it now."""
        self._calendar.has_cursor = True

    def on_blur(self) -> None:
        """Hide the calendar's cursor."""
        self._calendar.has_cursor = False


class ChooseMoment(Dialog[datetime]):
    """Let a person choose a moment of the past.

    Arrows choose a day of the calendar, `enter` goes to the changes of that day, and there it takes
    a moment. Typed text goes into the input above.
    """

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-high")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-wider")]
    BOX = "dialog-moment"
    AUTO_FOCUS = "Input"

    def __init__(self, state: AppState, title: str) -> None:
        super().__init__(title, _KEYS)
        self._state = state
        self._zone = state.local_zone
        self._rows: WindowRows[DayMoment] = WindowRows(
            lambda one: one.at.isoformat(), page_rows=PAGE_ROWS
        )
        self._moments: Sequence[_Moment] = ()
        """The moments of `_day`, the latest first."""
        self._day: date | None = None
        """The day of the listed changes; those of the calendar's day may still be loading."""
        self._known: _Known | None = None
        """The changes by day; None: not read yet."""
        self._days = Background(self, "moment-days")
        self._changes = Background(self, "moment-changes")
        self._pages = Background(self, "moment-pages")

    def body(self) -> ComposeResult:
        """Yield the input, the calendar and the changes of its day."""
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
        """Whether the input has text."""
        return bool(self._line.value.strip())

    def on_mount(self) -> None:
        """Read the days of changes; if there are none today, move to the last such day."""
        state, today = self._state, self._calendar.day
        is_now = state.as_of is None

        def show(known: _Known) -> None:
            self._known = known
            self._calendar.counts = known.counts
            is_untouched = self._calendar.day == today and not self.is_written and is_now
            if is_untouched and known.counts and not self._calendar.counts.get(today):
                self._calendar.day = max(known.counts)
            self.query_one(".dialog-error", Static).update(display(known.problem, style=WARN))
            self._show_day()

        def failed(error: MemtuiError) -> None:
            show(_Known({}, {}, "", ""))
            self._failed(error)

        self._days.latest(lambda: _known_of(state), show, failed)
        self.paint_with(self._read)

    async def _read(self) -> None:
        """Wait for the calendar and the changes of its day."""
        await self._days.delivered()
        await self._changes.delivered()

    def _failed(self, error: MemtuiError) -> None:
        self.refuse(str(error))

    @on(Calendar.Moved)
    def _show_day(self) -> None:
        """Read the changes of the day under the cursor."""
        state, day, known = self._state, self._calendar.day, self._known
        if known is None:
            return
        moments = known.moments.get(day, ())

        async def read() -> tuple[Sequence[_Moment], Sequence[DayMoment]]:
            found = _moments_of(day, moments, await _made_by(state, moments, known), state)
            return found, await _as_shown(state, found[:PAGE_ROWS])

        def show(read: tuple[Sequence[_Moment], Sequence[DayMoment]]) -> None:
            self._day, (self._moments, first) = day, read
            listed = self.query_one(VirtualList)
            self._pages.forget()
            self._rows.reset(len(self._moments))
            self._rows.put(0, first)
            listed.show(self._rows)
            listed.go_to(0)
            name = display(f"{day:%a} {day.isoformat()}")
            number = fmt.counted(known.counts.get(day, 0), "change")
            title = line(name, display(number, style=DIM), gap="  ")
            self.query_one(".moment-day", Static).update(title)

        self._changes.latest(read, show, self._failed)

    @on(PagesWanted)
    def _read_on(self, event: PagesWanted) -> None:
        """Read the operations of the moments that came into view."""
        event.stop()
        state, moments = self._state, self._moments

        async def read() -> dict[int, Sequence[DayMoment]]:
            bounds = {page: slice(*self._rows.page_bounds(page)) for page in event.pages}
            return {page: await _as_shown(state, moments[part]) for page, part in bounds.items()}

        def hold(found: dict[int, Sequence[DayMoment]]) -> None:
            for page, rows in found.items():
                self._rows.put(page, rows)
            self.query_one(VirtualList).rows_changed()

        self._pages.latest(read, hold, self._failed)

    def on_descendant_focus(self) -> None:
        """Set a class for the styles: a low terminal shows only the part with the focus."""
        self.set_class(self.query_one(VirtualList).has_focus, "-in-day")

    @on(Calendar.Chosen)
    def _enter_day(self) -> None:
        """Focus the changes of the day once they are read; keys are queued until then."""

        def enter(_: object = None) -> None:
            if self._day == self._calendar.day:
                self.query_one(VirtualList).focus()

        if self._day == self._calendar.day:
            enter()
        else:
            waiting = Waiting("reading what was changed", self._read, enter, self._failed)
            self.app.push_screen(waiting, lambda _: None)

    @on(Opened)
    def _take(self) -> None:
        moment = self.query_one(VirtualList).current
        if moment is not None and self._day == self._calendar.day:
            self.dismiss(moment.at)

    def action_back(self) -> None:
        """Go back to an empty input; from there, close without an answer."""
        if self._line.has_focus and not self._line.value:
            self.dismiss(None)
        else:
            self._line.value = ""
            self._line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the parsed moment, if the text is one, and its day."""
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
        """Take the typed moment, or show its error."""
        event.stop()
        try:
            self.dismiss(past_moment(event.value, self._state))
        except Invalid as error:
            self.refuse(str(error))


def _moments_of(
    day: date, moments: Sequence[datetime], made_by: Sequence[str | None], state: AppState
) -> list[_Moment]:
    """Return the moments of a day, the latest first; changes of one operation are one moment."""
    zone = state.local_zone
    begin = datetime.combine(day, time(), zone)
    end = (begin + timedelta(days=1)).astimezone(UTC) - timedelta(microseconds=1)
    ends = [] if end > state.true_clock() else [_Moment(end, edge="end of the day")]
    changes: dict[object, _Moment] = {}
    for moment, made in sorted(zip(moments, made_by, strict=True), key=lambda one: one[0])[::-1]:
        changes.setdefault(made or moment, _Moment(moment, made))
    return [*ends, *changes.values(), _Moment(begin.astimezone(UTC), edge="start of the day")]


async def _as_shown(state: AppState, moments: Sequence[_Moment]) -> list[DayMoment]:
    """Return moments as rows, with author and operation."""
    session, ids = state.session, [one.operation_id for one in moments if one.operation_id]
    found: Mapping[str | None, Operation] = {}
    if session is not None and ids:
        known = await session.service.log.by_ids(_now(session), ids)
        found = {one.operation_id: one for one in known}
    shown: list[DayMoment] = []
    for one in moments:
        operation = found.get(one.operation_id)
        if operation is None or operation.damaged:
            unknown = "the operation is damaged" if operation else "no operation is known"
            note = one.edge or f"changed; {unknown}"
            shown.append(DayMoment(one.at, "", note))
        else:
            words = about(operation) or fmt.counted(operation.result_count, "record")
            what = f"{operation.operation_type.value}: {words}"
            shown.append(DayMoment(one.at, actor(operation), what))
    return shown


async def _known_of(state: AppState) -> _Known:
    """Read the changes of the scope's records, by day, up to now."""
    session = state.session
    if session is None:
        return _Known({}, {}, "", "")
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
    return _Known(counts, moments, found.binding_key, fmt.not_read(found.problems))


async def _made_by(
    state: AppState, moments: Sequence[datetime], known: _Known
) -> Sequence[str | None]:
    """Return the id of the operation behind each change; None: unknown."""
    session = state.session
    if session is None:
        return [None] * len(moments)
    return await session.service.past.made_by(_now(session), moments, known.binding_key)


def _now(session: ServiceSession) -> Caller:
    """Return the caller in the present: any moment can be chosen, even while viewing the past."""
    return session.caller.model_copy(update={"as_of": None})
