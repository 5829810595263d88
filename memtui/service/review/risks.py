"""The risks of all memories: counted, looked for, and dismissed by people."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import cast

from memtui.contract import RISKS, Filter, NotFound, OperationType, Scope, owner_scope
from memtui.pruning.candidates import Reason
from memtui.service.answers import OutcomesAnswer
from memtui.service.context.pruning import Pruning
from memtui.service.operations.everywhere import Everywhere, gather
from memtui.service.review.known_risks import (
    RiskFigures,
    RiskyRecord,
    by_record,
    digests,
    figures_of,
    may_know,
    refuse_past,
)
from memtui.service.review.risk_checks import WITHIN_MS, BindingRisks, RiskChecks
from memtui.service.review.workspaces import refuse_no_folder
from memtui.service.runtime import to_its_end
from memtui.service.visibility import Caller, readable
from memtui.store import risks, settings, statements
from memtui.store.database import DatabaseConnection
from memtui.store.details import Details, SettingDetails
from memtui.store.visibility import Visibility


class RisksAnswer(OutcomesAnswer):
    """The risks of all records that could be read."""

    figures: RiskFigures
    risky: tuple[RiskyRecord, ...]
    """The records with a risk, the worst first; those with dismissed risks only are last."""

    @property
    def unread(self) -> tuple[str, ...]:
        """What could not be checked, in sentences."""
        failed = [one.sentence for one in self.failed]
        capped = [f"{one.binding_key} does not list all it has." for one in self.bindings
                  if one.capped]  # fmt: skip
        return (*failed, *capped, *(one.sentence() for one in self.problems))


class Risks(RiskChecks):
    """Counts, finds and dismisses the risks of all bindings."""

    async def figures(self, caller: Caller, binding_key: str | None = None) -> RiskFigures:
        """Return how many records are risky, by what is known. Not an operation; it is cheap."""
        try:
            asked = await self._runtime.module(Everywhere).begin(caller, seen_only=True)
        except NotFound:
            return RiskFigures()
        keys = [key for key in asked.outcomes if binding_key in {None, key}]
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        return await self._runtime.ask(_figures, caller.company_id, keys, visibility)

    async def check(
        self,
        caller: Caller,
        binding_key: str | None = None,
        *,
        but: Collection[str] = (),
        workspace: Path | None = None,
        so_far: Callable[[int], None] = lambda _records: None,
    ) -> RisksAnswer:
        """Find the risks of all records that the caller sees, and keep them.

        Only what has changed since the last check is searched and compared again.

        Args:
            caller: Who asks.
            binding_key: The binding; None: all.
            but: Bindings to leave out.
            workspace: The workspace of the records for which none is set.
            so_far: Called with the number of records read so far.

        Raises:
            Denied: the caller sees nothing here.
            Invalid: the caller looks at the past, or the workspace is no folder.
            NotFound: there is no such binding that is enabled.
        """
        refuse_past(caller)
        await asyncio.to_thread(refuse_no_folder, workspace)
        asked = await self._runtime.module(Everywhere).begin(caller, WITHIN_MS, seen_only=True)
        asked.keep(Filter(binding_key=binding_key))
        found: dict[str, BindingRisks] = {}
        read: dict[str, int] = defaultdict(int)
        comparing = asyncio.Lock()
        """Bindings are compared one at a time, to leave processor time for the other threads."""

        def report(key: str, records: int) -> None:
            read[key] = records
            so_far(sum(read.values()))

        def answered(key: str, one: BindingRisks) -> None:
            found[key] = one
            [outcome] = one.answer.bindings
            asked.note(key, one.answer, one.records, capped=outcome.capped)

        calls = {
            key: partial(self.check_binding, caller, key, asked.fan_out, comparing,
                         partial(report, key), workspace=workspace)
            for key in asked.outcomes
            if key not in but
        }  # fmt: skip
        await gather(asked, calls, answered)
        risky = tuple(sorted((one for part in found.values() for one in part.risky), key=_worst))
        records = sum(one.records for one in found.values())
        figures = figures_of(records, records, [one.risks for one in risky])
        unchecked = tuple(key for key in asked.outcomes if key not in found)
        figures = figures.model_copy(update={"unchecked_bindings": unchecked})
        return RisksAnswer(**asked.values(), figures=figures, risky=risky)

    @to_its_end
    async def dismiss(
        self,
        caller: Caller,
        binding_key: str,
        record_id: str,
        reasons: Collection[str] = (),
        *,
        again: bool = False,
    ) -> tuple[str, ...]:
        """Remember that risks of a record are none, until its text or the other's changes.

        Args:
            caller: The person who decides.
            binding_key: The binding of the record.
            record_id: The record's id.
            reasons: The risks; empty: all of the record.
            again: Take the risks for such again that were dismissed.

        Returns:
            The risks that were dismissed, or that count again.

        Raises:
            Denied: an agent asks, or the caller may not change the record.
            NotFound: the record has no such risk that is known.
        """
        runtime, scope = self._runtime, Scope(company_id=caller.company_id)

        def asked(of: Iterable[str]) -> SettingDetails:
            named = sorted(set(of))
            return {"risk_again": named} if again else {"not_a_risk": named}

        async with runtime.recorder.recorded(
            OperationType.CONFIGURE, caller, scope, asked(reasons)
        ) as entry:
            await runtime.may_dismiss(caller)
            entry.visibility = await asyncio.to_thread(runtime.visibility, caller)
            routed = await runtime.resolve(caller, scope, binding_key)
            entry.binding = routed.binding
            connection = await runtime.open(
                routed.binding, company_read_only=routed.company_read_only
            )
            record = await runtime.find(entry, connection, record_id)
            if not readable([record], scope, entry.visibility, binding_key):
                raise connection.lacks(record.handle)
            entry.scope = owner_scope(record.scope)
            await runtime.may_change(caller, [record.scope])
            entry.about([record])
            name = record.handle.provider_record_id
            _, known = await runtime.ask(
                risks.of_records, caller.company_id, connection.binding.key, [name]
            )
            chosen = {
                one.mark: one.reason
                for one in known
                if one.dismissed == again
                and one.is_fresh
                and (not reasons or one.reason in reasons)
                and may_know(one, entry.visibility)
            }
            if not reasons or Reason.SAYS_OTHERWISE in reasons:
                pruning, key = runtime.module(Pruning), connection.binding.key
                across = await pruning.contradictions(caller, key, record)
                there = await runtime.ask(risks.dismissed, caller.company_id)
                wanted = across & there if again else across - there
                chosen |= dict.fromkeys(wanted, Reason.SAYS_OTHERWISE)
            if not chosen:
                raise NotFound(
                    f"{name} has no {'dismissed' if again else 'known'} risk of this sort; "
                    "`memtui doctor --risks` finds those there are."
                )
            entry.request = cast("Details", asked(chosen.values()))

            def change(database: DatabaseConnection) -> None:
                for mark, reason in chosen.items():
                    place = {"company_id": caller.company_id, "mark": mark}
                    if again:
                        statements.TAKE_RISK_BACK.run(database, **place)
                    else:
                        statements.DISMISS_RISK.run(
                            database, **place, binding_key=connection.binding.key,
                            record_id=name, reason=reason, principal=caller.principal,
                            dismissed_at=runtime.clock(),
                        )  # fmt: skip

            await runtime.configure(entry, change, (settings.RISK,))
        return tuple(dict.fromkeys(chosen.values()))


def _worst(one: RiskyRecord) -> tuple[bool, int]:
    """Return the sort key of a record by its worst risk."""
    return one.risks[0].dismissed, RISKS.index(one.risks[0].reason)


def _figures(
    database: DatabaseConnection,
    company_id: str,
    keys: Collection[str],
    visibility: Visibility | None,
) -> RiskFigures:
    counts, whole = risks.counts(database, company_id)
    seen = [one for one in counts if one.binding_key in keys
            and (visibility is None or visibility.reads(one.owner))]  # fmt: skip
    known = (one for one in risks.of_company(database, company_id)
             if one.is_fresh and one.binding_key in keys)  # fmt: skip
    risky = by_record(known, visibility).values()
    figures = figures_of(sum(one.records for one in seen), sum(one.checked for one in seen), risky)
    reader = digests(database, company_id).reader(visibility)
    unchecked = tuple(key for key in keys if (key, reader) not in whole)
    return figures.model_copy(update={"unchecked_bindings": unchecked})
