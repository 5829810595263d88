"""Spending limits of a company, agent, project or binding.

Limits only warn: no operation is refused because a limit is passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

from memtui.contract import Filter, Invalid, Model, NotFound, UtcDatetime
from memtui.service.history.analysis import Analysis
from memtui.service.runtime import ServiceModule, check_target_id, find_binding
from memtui.service.visibility import Caller
from memtui.store import limits as table
from memtui.store.database import DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.limits import Spent
from memtui.store.rows import SpendingLimitRow
from memtui.store.visibility import Visibility
from memtui.threads import in_thread

if TYPE_CHECKING:
    from memtui.analytics.layout import Manifest
    from memtui.service.runtime import ServiceRuntime

NEAR = Decimal("0.8")
"""From this share of a limit on, its state is `NEAR`."""

_MOST_USD = 9_000_000
_MOST_TOKENS = 2**63 - 1
_PICO = Decimal("1e-12")
_KEPT_SUMS = 16


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


class LimitState(StrEnum):
    """How far spending is: `NEAR` is close to the limit or at it, `PASSED` is more than it."""

    OK = "ok"
    NEAR = "near"
    PASSED = "passed"


class SpendingLimit(Model):
    """The most that a target should spend in a period."""

    target_type: LimitTarget
    target_id: str
    """The agent's or project's id, the binding's key, or the company's id."""
    measure: LimitMeasure
    amount: Decimal | int
    """US dollars as a decimal number, tokens as a whole one."""
    period: LimitPeriod


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


class Limits(ServiceModule):
    """The spending limits of companies, and their state."""

    def __init__(self, runtime: ServiceRuntime) -> None:
        super().__init__(runtime)
        self._sums: dict[tuple[str, datetime, datetime], tuple[int, tuple[Spent, ...]]] = {}
        """Cache: by company and time range, the spending of unsealed operations up to a `seq`."""

    @in_thread
    def all(self, caller: Caller) -> list[SpendingLimit]:
        """Return the limits that the caller may see: managers all, others their projects'.

        Raises:
            Denied: the company has members, and the caller is not one.
        """
        visibility = self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            found = map(_limit, table.spending_limits(database, caller.company_id))
            return [one for one in found if visibility is None or _is_seen(one, visibility)]

    async def set(self, caller: Caller, limit: SpendingLimit) -> SpendingLimit:
        """Set a limit; replaces the one with the same target, measure and period.

        Raises:
            Invalid: the target has no id, or the amount does not fit its measure.
            NotFound: there is no such binding.
        """

        def change(database: DatabaseConnection) -> SpendingLimitRow:
            row = SpendingLimitRow(
                company_id=caller.company_id,
                target_type=limit.target_type,
                target_id=_target_id(caller, limit.target_type, limit.target_id),
                measure=limit.measure,
                period=limit.period,
                amount=_amount(limit),
            )
            if limit.target_type is LimitTarget.BINDING:
                find_binding(database, caller.company_id, row.target_id)
            table.set_spending_limit(database, row)
            return row

        asked = SettingDetails(set_spending_limit=limit.model_dump(mode="json"))
        return _limit(await self._runtime.change(caller, asked, change))

    async def remove(
        self,
        caller: Caller,
        target_type: LimitTarget,
        target_id: str,
        *,
        measure: LimitMeasure | None = None,
        period: LimitPeriod | None = None,
    ) -> list[SpendingLimit]:
        """Remove and return a target's limits; a measure or period of None matches every one.

        Raises:
            NotFound: the target has no such limit.
        """

        def change(database: DatabaseConnection) -> list[SpendingLimitRow]:
            place = target_type, _target_id(caller, target_type, target_id)
            removed = table.remove_spending_limits(
                database, caller.company_id, *place, measure=measure, period=period
            )
            if not removed:
                raise NotFound(
                    f"The {target_type} {place[1]} has no such limit; "
                    "`memtui budget list` shows those there are."
                )
            return removed

        asked = SettingDetails(
            remove_spending_limits=target_type,
            target_id=target_id,
            measure=measure,
            period=period,
        )
        return list(map(_limit, await self._runtime.change(caller, asked, change)))

    async def check(
        self,
        caller: Caller,
        *,
        at: date | None = None,
        zone: tzinfo | None = None,
        near: Decimal = NEAR,
    ) -> list[SpendingStatus]:
        """Return the visible limits, with the spending in the period of a day. Not an operation.

        All operations count, also those that the caller may not see: the limit applies to them too.

        Args:
            caller: Who asks, of its company.
            at: The day; None: today.
            zone: The time zone of days; None: the system's.
            near: From this share of a limit on, its state is `NEAR`.

        Raises:
            Invalid: the day is at an end of the calendar.
            Unavailable: the log cannot be read.
        """
        limits = await self.all(caller)
        day = at or self._runtime.clock().astimezone(zone).date()
        spans = {limit.period: span(limit.period, day, zone) for limit in limits}
        spent = {
            period: await asyncio.to_thread(self._spent, caller.company_id, *within)
            for period, within in spans.items()
        }
        return [_status(limit, spans[limit.period], spent[limit.period], near) for limit in limits]

    def _spent(self, company_id: str, since: datetime, until: datetime) -> Sequence[Spent]:
        """Return the spending of operations that began at or after `since` and before `until`.

        The sum of a time range is cached; later calls add only operations appended since.
        """
        hot, manifest = self._hot(company_id, since, until)
        if not any(
            one.started_to >= since and one.started_from < until for one in manifest.segments
        ):
            return hot
        from memtui.analytics.figures import HitSign

        stats = (
            self._runtime.module(Analysis)
            .figures(company_id, None)
            .stats(
                Filter(since=since, until=until, internal=True),
                by=("agent", "project", "binding"),
                hit_sign=HitSign.SCORE,  # hits are not used here, and this sign is the cheaper one
            )
        )
        return [
            Spent(
                agent_id=group.keys["agent"],
                project_id=group.keys["project"],
                binding_key=group.keys["binding"],
                tokens=group.input_tokens + group.output_tokens + group.embedding_tokens,
                cost_pico=int(group.cost_usd.scaleb(12)),
                unpriced_count=group.unpriced_count,
            )
            for group in stats.groups
        ]

    def _hot(
        self, company_id: str, since: datetime, until: datetime
    ) -> tuple[tuple[Spent, ...], Manifest]:
        """Return the spending of unsealed rows, and then the manifest of sealed ones.

        In this order: sealing lists rows in the manifest before it removes them, so rows removed
        during the read are in the manifest.
        """
        from memtui.analytics.layout import ArchiveFolder

        place = (company_id, since, until)
        through, known = self._sums.get(place, (0, ()))
        with self._runtime.database.read() as database:
            last = table.last_seq(database, company_id)
            fresh = list(table.spent(database, company_id, since, until, after=through, last=last))
        parts = _added((*known, *fresh))
        if len(self._sums) >= _KEPT_SUMS:
            self._sums.clear()
        self._sums[place] = last, parts
        return parts, ArchiveFolder(
            self._runtime.module(Analysis).archive_folder, company_id
        ).read()


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


def _added(parts: Iterable[Spent]) -> tuple[Spent, ...]:
    """Add up the parts of the same agent, project and binding."""
    sums: dict[tuple[str | None, str | None, str | None], Spent] = {}
    for part in parts:
        key = (part.agent_id, part.project_id, part.binding_key)
        before = sums.get(key)
        sums[key] = (
            part
            if before is None
            else replace(
                part,
                tokens=before.tokens + part.tokens,
                cost_pico=before.cost_pico + part.cost_pico,
                unpriced_count=before.unpriced_count + part.unpriced_count,
            )
        )
    return tuple(sums.values())


def _is_seen(limit: SpendingLimit, visibility: Visibility) -> bool:
    if limit.target_type is not LimitTarget.PROJECT:
        return visibility.manages
    return visibility.projects is None or limit.target_id in visibility.projects


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
        LimitTarget.AGENT: spent.agent_id,
        LimitTarget.PROJECT: spent.project_id,
        LimitTarget.BINDING: spent.binding_key,
        LimitTarget.COMPANY: limit.target_id,
    }
    return of[limit.target_type] == limit.target_id


def _limit(row: SpendingLimitRow) -> SpendingLimit:
    measure = LimitMeasure(row.measure)
    return SpendingLimit(
        target_type=LimitTarget(row.target_type),
        target_id=row.target_id,
        measure=measure,
        amount=_dollars(row.amount) if measure is LimitMeasure.USD else row.amount,
        period=LimitPeriod(row.period),
    )


def _dollars(pico: int) -> Decimal:
    """Convert units of 1e-12 dollars to dollars without trailing zeros."""
    return Decimal(format(Decimal(pico).scaleb(-12).normalize(), "f"))


def _amount(limit: SpendingLimit) -> int:
    """Return the amount as it is stored: tokens, or units of 1e-12 dollars."""
    amount = limit.amount
    if limit.measure is LimitMeasure.TOKENS:
        if amount != int(amount) or not 0 < amount <= _MOST_TOKENS:
            raise Invalid("A limit in tokens is a whole number of them, at least 1.")
        return int(amount)
    dollars = Decimal(amount)
    if not 0 < dollars <= _MOST_USD or dollars != dollars.quantize(_PICO):
        raise Invalid(
            f"A limit in dollars is more than 0 and at most {_MOST_USD:,}, "
            "with up to 12 digits after the point."
        )
    return int(dollars.scaleb(12))


def _target_id(caller: Caller, target_type: LimitTarget, target_id: str) -> str:
    if target_type is not LimitTarget.COMPANY:
        return check_target_id(target_type, target_id)
    if target_id not in ("", caller.company_id):
        raise Invalid(f"The company's limits are those of {caller.company_id}; name no other.")
    return caller.company_id
