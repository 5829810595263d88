"""Sets, removes and checks the spending limits of a company, agent, project or binding."""

from __future__ import annotations

from datetime import date, tzinfo
from decimal import Decimal

from memtui.contract import Invalid, NotFound
from memtui.service.runtime import ServiceModule, check_target_id, find_binding, to_its_end
from memtui.service.spending import (
    NEAR,
    LimitMeasure,
    LimitPeriod,
    LimitTarget,
    SpendingLimit,
    SpendingStatus,
    limit_of,
    statuses,
)
from memtui.service.visibility import Caller
from memtui.store import limits as table
from memtui.store.database import DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.rows import SpendingLimitRow
from memtui.store.visibility import Visibility
from memtui.threads import in_thread

_MOST_USD = 9_000_000
_MOST_TOKENS = 2**63 - 1
_PICO = Decimal("1e-12")


class Limits(ServiceModule):
    """The spending limits of companies, and their state."""

    @in_thread
    def all(self, caller: Caller) -> list[SpendingLimit]:
        """Return the limits that the caller may see: managers all, others their projects'.

        Raises:
            Denied: the company has members, and the caller is not one.
        """
        visibility = self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            found = map(limit_of, table.spending_limits(database, caller.company_id))
            return [one for one in found if visibility is None or _is_seen(one, visibility)]

    @to_its_end
    async def set(
        self, caller: Caller, limit: SpendingLimit, *, keeps_action: bool = False
    ) -> SpendingLimit:
        """Set a limit; replaces the one with the same target, measure and period.

        `keeps_action`: the action stays that of the limit that is replaced, if there is one.

        Raises:
            Denied: an agent changes a limit that does more than warn.
            Invalid: the target has no id, or the amount does not fit its measure.
            NotFound: there is no such binding.
        """

        def change(database: DatabaseConnection) -> SpendingLimit:
            row = SpendingLimitRow(
                company_id=caller.company_id,
                target_type=limit.target_type,
                target_id=_target_id(caller, limit.target_type, limit.target_id),
                measure=limit.measure,
                period=limit.period,
                amount=_amount(limit),
                action=limit.action,
            )
            if limit.target_type is LimitTarget.BINDING:
                find_binding(database, caller.company_id, row.target_id)
            place = row.target_type, row.target_id, row.measure, row.period
            for one in table.spending_limits(database, caller.company_id):
                if (one.target_type, one.target_id, one.measure, one.period) == place:
                    row.action = one.action if keeps_action else row.action
            table.set_spending_limit(database, row)
            stored = limit_of(row)
            entry.request["set_spending_limit"] = stored.model_dump(mode="json")
            return stored

        kept = {"action"} if keeps_action else None  # that of the replaced limit, not known yet
        asked = SettingDetails(set_spending_limit=limit.model_dump(mode="json", exclude=kept))
        async with self._runtime.configured(caller, asked) as entry:
            return await self._runtime.configure(entry, change)

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
        return list(map(limit_of, await self._runtime.change(caller, asked, change)))

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
        """
        limits = await self.all(caller)
        day = at or self._runtime.clock().astimezone(zone).date()
        return await self._runtime.ask(
            statuses, caller.company_id, limits, day=day, zone=zone, near=near
        )


def _is_seen(limit: SpendingLimit, visibility: Visibility) -> bool:
    if limit.target_type is not LimitTarget.PROJECT:
        return visibility.manages
    return visibility.projects is None or limit.target_id in visibility.projects


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
