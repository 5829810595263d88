"""Spending limits: their models, their state, and what a passed limit refuses.

A limit is checked before an operation begins, so what runs already may still exceed it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

from memtui.contract import Denied, Invalid, Model, OperationType, Scope, UtcDatetime
from memtui.service.recorder import RunningOperation
from memtui.service.visibility import agent_of
from memtui.store import limits as table
from memtui.store.database import DatabaseConnection
from memtui.store.limits import Spent
from memtui.store.rows import SpendingLimitRow

NEAR = Decimal("0.8")
"""From this share of a limit on, its state is `NEAR`."""

_SEARCHES = frozenset(
    {OperationType.QUERY, OperationType.EXPLAIN, OperationType.PROFILE, OperationType.EMBED}
)
_WRITES = frozenset(
    {OperationType.WRITE, OperationType.CORRECT, OperationType.SYNC, OperationType.EMBED}
)
_LOOKS = frozenset(
    {OperationType.BROWSE, OperationType.GET, OperationType.HISTORY, OperationType.NAMESPACES}
)


class LimitTarget(StrEnum):
    """The kind of a limit's target."""

    COMPANY = "company"
    AGENT = "agent"
    PROJECT = "project"
    BINDING = "binding"


class LimitMeasure(StrEnum):
    """The unit: US dollars, or the sum of input, output and embedding tokens."""

    USD = "usd"
    TOKENS = "tokens"


class LimitPeriod(StrEnum):
    """A local day or month."""

    DAY = "day"
    MONTH = "month"


class LimitAction(StrEnum):
    """What happens with operations of the target while a limit is passed."""

    WARN = "warn"
    """Nothing: the limit is only shown as passed."""
    NO_SEARCH = "no-search"
    """Nothing is searched or embedded; a context has its facts, and neither results nor profile."""
    READ_ONLY = "read-only"
    """Nothing is written, corrected, rebuilt or embedded."""
    REFUSE = "refuse"
    """Both, no context either, and agents read nothing more. Forgetting and undo still work."""


class LimitState(StrEnum):
    """How far spending is: `NEAR` is close to the limit or at it, `PASSED` is more than it."""

    OK = "ok"
    NEAR = "near"
    PASSED = "passed"


class SpendingLimit(Model):
    """The most that a target should spend in a period, and what happens once it has."""

    target_type: LimitTarget
    target_id: str
    """The agent's or project's id, the binding's key, or the company's id."""
    measure: LimitMeasure
    amount: Decimal | int
    """US dollars as a decimal number, tokens as a whole one."""
    period: LimitPeriod
    action: LimitAction = LimitAction.WARN


class SpendingStatus(SpendingLimit):
    """A limit, with the spending in one of its periods."""

    since: UtcDatetime
    """When the period begins; `until` is when the next one does."""
    until: UtcDatetime
    spent: Decimal | int
    """The exact spending; a lower bound where `unpriced_count` is not 0."""
    unpriced_count: int = 0
    """Calls without a known price, which a limit in dollars cannot count."""
    share: float
    """`spent` as a share of `amount`."""
    state: LimitState


def statuses(
    database: DatabaseConnection,
    company_id: str,
    limits: Iterable[SpendingLimit],
    *,
    day: date,
    zone: tzinfo | None,
    near: Decimal = NEAR,
) -> list[SpendingStatus]:
    """Return limits with the spending in their periods that contain a local day.

    Raises:
        Invalid: the day is at an end of the calendar.
    """
    limits = list(limits)
    spans = {limit.period: span(limit.period, day, zone) for limit in limits}
    spent = {period: table.spent(database, company_id, *within) for period, within in spans.items()}
    return [_status(limit, spans[limit.period], spent[limit.period], near) for limit in limits]


class LimitPassed(Denied):
    """The operation is refused until the period of a limit ends, or the limit is raised."""


def take_limits(entry: RunningOperation, scopes: Iterable[Scope]) -> list[SpendingLimit]:
    """Take the operation's unchecked limits that concern it in one of these scopes."""
    scopes = list(scopes)
    taken = [one for one in entry.unchecked_limits if _is_about(limit_of(one), entry, scopes)]
    entry.unchecked_limits = [one for one in entry.unchecked_limits if one not in taken]
    return list(map(limit_of, taken))


def refuse_passed(
    database: DatabaseConnection,
    entry: RunningOperation,
    limits: Iterable[SpendingLimit],
    now: datetime,
    zone_name: str | None,
) -> None:
    """Refuse an operation that one of its limits does not allow, or let it do without a search.

    Raises:
        LimitPassed: one of the limits is passed, and refuses such an operation.
    """
    company_id, zone = entry.caller.company_id, ZoneInfo(zone_name) if zone_name else None
    day = now.astimezone(zone).date()
    for one in statuses(database, company_id, limits, day=day, zone=zone):
        if one.state is not LimitState.PASSED:
            continue
        refused = _refused(one.action, by_ai=entry.caller.by_ai)
        if entry.operation_type in refused:
            raise LimitPassed(_sentence(one, zone, by_ai=entry.caller.by_ai))
        if OperationType.QUERY in refused:
            entry.no_search = _sentence(one, zone, by_ai=entry.caller.by_ai)


def _refused(action: LimitAction, *, by_ai: bool) -> frozenset[OperationType]:
    if action is LimitAction.NO_SEARCH:
        return _SEARCHES
    if action is LimitAction.READ_ONLY:
        return _WRITES
    return _SEARCHES | _WRITES | {OperationType.CONTEXT} | (_LOOKS if by_ai else frozenset())


_ENDS: Mapping[LimitAction, str] = {
    LimitAction.NO_SEARCH: "nothing is searched or embedded for it",
    LimitAction.READ_ONLY: "nothing is written for it",
    LimitAction.REFUSE: "nothing is searched, written or put into a context for it",
}


def _sentence(one: SpendingStatus, zone: tzinfo | None, *, by_ai: bool) -> str:
    """Say what a passed limit refuses; not its amount, which not everybody may see."""
    refuses_all = one.action is LimitAction.REFUSE and by_ai
    ends = "nothing is read, searched or written for it" if refuses_all else _ENDS[one.action]
    is_company = one.target_type is LimitTarget.COMPANY
    whose = "company" if is_company else f"{one.target_type} {one.target_id}"
    until = one.until.astimezone(zone)
    return (
        f"The {whose} has passed its spending limit of a {one.period}, so {ends} "
        f"until {until:%Y-%m-%d %H:%M}; a person can raise it with `memtui budget set`."
    )


def _is_about(limit: SpendingLimit, entry: RunningOperation, scopes: Sequence[Scope]) -> bool:
    of = {
        LimitTarget.AGENT: (entry.agent_id, *(one.agent_id for one in scopes)),
        LimitTarget.PROJECT: tuple(one.project_id for one in scopes),
        LimitTarget.BINDING: (entry.binding.key if entry.binding else None,),
        LimitTarget.COMPANY: (limit.target_id,),
    }
    return limit.target_id in of[limit.target_type]


def span(period: LimitPeriod, day: date, zone: tzinfo | None) -> tuple[datetime, datetime]:
    """Return the beginning of the period that contains a local day, and of the next, in UTC.

    Args:
        period: Day or month.
        day: The local day.
        zone: The time zone of days; None: the system's.

    Raises:
        Invalid: the day is at an end of the calendar.
    """
    try:
        first, after = day, day + timedelta(days=1)
        if period is LimitPeriod.MONTH:
            first = day.replace(day=1)
            after = (first + timedelta(days=32)).replace(day=1)
        return _begin(first, zone), _begin(after, zone)
    except (OverflowError, ValueError) as error:
        raise Invalid(f"{day} lies at an end of the calendar; give a nearer day.") from error


def _begin(day: date, zone: tzinfo | None) -> datetime:
    """Return the first moment of a day; where the clock skips midnight, the moment of the skip."""
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def _status(
    limit: SpendingLimit,
    within: tuple[datetime, datetime],
    spent: Sequence[Spent],
    near: Decimal,
) -> SpendingStatus:
    own = [one for one in spent if _is_of(one, limit)]
    in_dollars = limit.measure is LimitMeasure.USD
    total: Decimal | int = sum(one.tokens for one in own)
    if in_dollars:
        total = _dollars(sum(one.cost_pico for one in own))
    if total > limit.amount:
        state = LimitState.PASSED
    else:
        state = LimitState.NEAR if total >= limit.amount * near else LimitState.OK
    return SpendingStatus(
        **dict(limit),
        since=within[0],
        until=within[1],
        spent=total,
        unpriced_count=sum(one.unpriced_count for one in own) if in_dollars else 0,
        share=float(Decimal(total) / Decimal(limit.amount)),
        state=state,
    )


def _is_of(spent: Spent, limit: SpendingLimit) -> bool:
    of = {
        LimitTarget.AGENT: (spent.agent_id, agent_of(spent.principal)),
        LimitTarget.PROJECT: (spent.project_id,),
        LimitTarget.BINDING: (spent.binding_key,),
        LimitTarget.COMPANY: (limit.target_id,),
    }
    return limit.target_id in of[limit.target_type]


def limit_of(row: SpendingLimitRow) -> SpendingLimit:
    """Return the limit that a row stores."""
    measure = LimitMeasure(row.measure)
    return SpendingLimit(
        target_type=LimitTarget(row.target_type),
        target_id=row.target_id,
        measure=measure,
        amount=_dollars(row.amount) if measure is LimitMeasure.USD else row.amount,
        period=LimitPeriod(row.period),
        action=LimitAction(row.action),
    )


def _dollars(pico: int) -> Decimal:
    """Convert units of 1e-12 dollars to dollars without trailing zeros."""
    return Decimal(format(Decimal(pico).scaleb(-12).normalize(), "f"))
