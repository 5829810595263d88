"""Checks of records for risks; only what has changed since the last one is searched again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from memtui.contract import BrowseRequest, OperationType, Record, RecordHandle, Scope
from memtui.pruning.candidates import (
    PruneCandidate,
    Reason,
    RetrievalTally,
    find_risks,
    owner_key,
)
from memtui.service.answers import OutcomesAnswer
from memtui.service.operations.redaction import redact
from memtui.service.recorder import FanOut
from memtui.service.review.known_risks import (
    Digests,
    KnownRisks,
    RiskyRecord,
    digests,
    id_of,
    risks_of,
)
from memtui.service.review.workspaces import Outdated, Workspaces
from memtui.service.runtime import ServiceRuntime
from memtui.service.visibility import Caller, for_caller, readable
from memtui.store import risks
from memtui.store.database import DatabaseConnection
from memtui.store.details import BrowseDetails
from memtui.store.journal import Journal
from memtui.store.limits import last_seq
from memtui.store.risks import WHOLE
from memtui.store.rows import RiskCheckRow, RiskRow
from memtui.store.visibility import Visibility

WITHIN_MS = 3_600_000
_STORED_AT_ONCE = 1_000
_FRESH = timedelta(minutes=1)
"""How long a list takes a check for granted where memtui changed nothing since."""


class RiskChecks(KnownRisks):
    """Finds the risks of a binding's records."""

    async def checked(
        self, caller: Caller, binding_key: str, so_far: Callable[[int, int | None], None]
    ) -> None:
        """Check a binding, unless that was done within the last minute and nothing changed."""
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        rows = await self._runtime.ask(risks.checks, caller.company_id, binding_key)
        of = await self._runtime.ask(digests, caller.company_id)
        last = rows.get(of.reader(visibility))
        is_known = last is not None and all(
            one.checked_at for one in rows.values() if visibility is None or visibility.reads(one)
        )
        since = last.checked_at if last is not None and is_known else None
        if since is None or self._runtime.clock() - since >= _FRESH:
            fan_out = FanOut(self._runtime.new_id(), WITHIN_MS, seen_only=True)
            await self.check_binding(
                caller, binding_key, fan_out, asyncio.Lock(), lambda read: so_far(read, None)
            )

    async def check_binding(
        self,
        caller: Caller,
        key: str,
        fan_out: FanOut,
        comparing: asyncio.Lock,
        report: Callable[[int], None],
        *,
        workspace: Path | None = None,
    ) -> BindingRisks:
        """Read a binding and compare what has changed; bindings compare one at a time."""
        runtime, records, capped = self._runtime, list[Record](), False
        held = set[str]()
        scope = Scope(company_id=caller.company_id)
        asked = BrowseDetails(purpose="risks")
        seq = await runtime.ask(last_seq, caller.company_id)
        async with runtime.connected(
            OperationType.BROWSE, caller, scope, asked, key, needs="browse", fan_out=fan_out
        ) as (entry, connection):
            entry.to_show = True
            request = BrowseRequest(scope=scope, sort="created_at", expired=True)
            async for page in connection.pages(request):
                seen = readable(page.records, scope, entry.visibility, key)
                records += seen
                if entry.has_held:
                    held |= {*map(id_of, page.records)}.difference(map(id_of, seen))
                capped = page.at_least or page.unfinished
                report(len(records))
            entry.result_count, entry.capped = len(records), capped
        answer = OutcomesAnswer(**entry.outcome(capped=capped))
        async with comparing:
            search = RiskSearch(runtime, caller, key, records, entry.visibility, seq,
                                connection.adapter.workspaces, workspace, held)  # fmt: skip
            return await asyncio.to_thread(search.run, answer, is_whole=not capped)


@dataclass(frozen=True)
class BindingRisks:
    """What a check of one binding found."""

    answer: OutcomesAnswer
    records: int
    risky: tuple[RiskyRecord, ...]


_Found = tuple[str, str, str]
"""A risk: its reason, the id of the other record or an empty text, and its mark."""


@dataclass(frozen=True)
class RiskSearch:
    """One check of a binding's records against what is known of them. Blocking."""

    runtime: ServiceRuntime
    caller: Caller
    key: str
    records: Sequence[Record]
    visibility: Visibility | None
    seq: int
    """The end of the log before the records were read."""
    workspaces: Mapping[str | None, Path] = field(default_factory=dict)
    workspace: Path | None = None
    """The workspace of the records for which none is set."""
    held: Collection[str] = ()
    """The records that were read, but are hidden from this caller, as those with a held text."""

    def run(self, answer: OutcomesAnswer, *, is_whole: bool) -> BindingRisks:
        """Find the risks, and store them where that is possible."""
        runtime, company_id = self.runtime, self.caller.company_id
        with runtime.database.read() as database:
            rows = risks.checks(database, company_id, self.key)
            stored = _stored(database, company_id, self.key)
            dismissed = risks.dismissed(database, company_id)
            of = digests(database, company_id)
        now, by_id = runtime.clock(), {id_of(one): one for one in self.records}
        states = {name: _state(of, one, now) for name, one in by_id.items()}
        seen = by_id.keys()
        gone = {
            name
            for name, row in rows.items()
            if name not in seen and row.text_digest != WHOLE and is_whole and self._reads(row)
        }
        stale = {name for name in seen if not _is_fresh(rows.get(name), states[name])}
        compared = {owner_key(by_id[name]) for name in stale}
        compared |= {
            owner_key(by_id[name])
            for name in seen
            if any(other in gone for _, other, _ in stored[name])
        }
        alone = {
            one.handle
            for name, one in by_id.items()
            if name not in rows or rows[name].text_digest != of.text(one)
        }
        now_found: dict[str, set[_Found]] = {name: set() for name in seen}
        outdated = self.runtime.module(Workspaces).outdated(
            self.caller, self.records, self.workspaces, self.workspace
        )
        if stale or gone or outdated.judged:
            for name, one in by_id.items():
                now_found[name] = {
                    known
                    for known in stored[name]
                    if self._stands(known, alone=one.handle in alone, seen=seen,
                                    outdated=(one.handle, known[0]) in outdated.judged,
                                    compared=owner_key(one) in compared)
                }  # fmt: skip
            for risk in self._search(alone, compared, outdated):
                names = (other.provider_record_id for other in risk.others)
                others = [by_id[name] for name in names if name in by_id]
                mark = of.mark(risk.reason, risk.record, others)
                for other in map(id_of, others) if others else ("",):
                    now_found[id_of(risk.record)].add((risk.reason, other, mark))
        else:
            now_found = {name: stored[name] for name in seen}
        changed = {name for name in seen if name in stale or now_found[name] != stored[name]}
        if not runtime.database.read_only:
            self._store(changed=changed, gone=gone, found=now_found, states=states, of=of,
                        now=now, is_whole=is_whole)  # fmt: skip
        risky = [
            RiskyRecord(
                binding_key=self.key,
                record=for_caller(self.caller, [by_id[name]])[0],
                risks=risks_of((*one, one[2] in dismissed) for one in known),
            )
            for name, found in now_found.items()
            if (known := [one for one in found if not one[1] or one[1] in seen])
        ]
        return BindingRisks(answer, len(seen), tuple(risky))

    def _reads(self, row: RiskCheckRow) -> bool:
        is_visible = self.visibility is None or self.visibility.reads(row)
        return is_visible and not self._is_held(row.record_id)

    def _is_held(self, record_id: str) -> bool:
        """Whether a record is hidden from this caller as it is held for review."""
        hides = self.visibility is not None and self.visibility.hides((self.key, record_id))
        return hides or record_id in self.held

    def _stands(
        self, risk: _Found, *, alone: bool, outdated: bool, compared: bool, seen: Collection[str]
    ) -> bool:
        """Whether a known risk of a record was not searched for again."""
        reason, other, _ = risk
        if self._is_held(other):
            return True
        if reason == Reason.DISAGREES:  # of an owner whose records this caller does not see
            return self.visibility is not None and other not in seen
        if reason in {Reason.REFERS_TO_GONE, Reason.SOURCE_CHANGED}:
            return not (alone or outdated)
        return not (compared if other else alone)

    def _search(
        self, alone: Collection[RecordHandle], compared: Collection[str], outdated: Outdated
    ) -> list[PruneCandidate]:
        log = self.runtime.log_of(self.caller)
        ids = {id_of(one): one.handle for one in self.records}
        counts = log.retrieval_counts(self.key, list(ids)) if compared else {}
        return find_risks(
            self.records,
            now=self.runtime.clock(),
            alone=alone,
            compared=compared,
            secrets_of=lambda text: redact(text)[1],
            outdated=outdated.why,
            retrievals={
                ids[name]: RetrievalTally(count=one.times, last_at=one.last_at)
                for name, one in counts.items()
            },
        )

    def _store(
        self,
        *,
        changed: Collection[str],
        gone: Collection[str],
        found: Mapping[str, Collection[_Found]],
        states: Mapping[str, str],
        of: Digests,
        now: datetime,
        is_whole: bool,
    ) -> None:
        """Store what was found, except of records that have changed meanwhile."""
        by_id = {id_of(one): one for one in self.records}
        of_binding = company_id, key = self.caller.company_id, self.key
        place = {"company_id": company_id, "binding_key": key}
        names, database = sorted(changed), self.runtime.database
        for start in range(0, len(names) + 1, _STORED_AT_ONCE):
            with database.write(durable=False) as connection:
                meanwhile = Journal(connection, company_id).changed_since(key, self.seq)
                part = [one for one in names[start : start + _STORED_AT_ONCE]
                        if one not in meanwhile]  # fmt: skip
                rows = [
                    replace(
                        risks.unchecked(by_id[name], **place),
                        text_digest=of.text(by_id[name]),
                        state_digest=states[name],
                        checked_at=now,
                    )
                    for name in part
                ]
                there = [
                    RiskRow(**place, record_id=name, reason=reason, other_id=other, mark=mark)
                    for name in part
                    for reason, other, mark in found[name]
                ]
                if start + _STORED_AT_ONCE > len(names):
                    risks.forget(connection, *of_binding, set(gone) - set(meanwhile))
                    if is_whole:
                        rows.append(
                            RiskCheckRow(
                                **place,
                                record_id=of.reader(self.visibility),
                                text_digest=WHOLE,
                                state_digest="",
                                checked_at=now,
                            )
                        )
                risks.store(connection, rows, there)


def _is_fresh(row: RiskCheckRow | None, state: str) -> bool:
    return row is not None and row.checked_at is not None and row.state_digest == state


def _stored(
    database: DatabaseConnection, company_id: str, binding_key: str
) -> defaultdict[str, set[_Found]]:
    found: defaultdict[str, set[_Found]] = defaultdict(set)
    for one in risks.of_binding(database, company_id, binding_key):
        found[one.record_id].add((one.reason, one.other_id, one.mark))
    return found


def _state(of: Digests, record: Record, now: datetime) -> str:
    """Return the digest of all by which a record is compared."""
    times = (record.valid_from, record.valid_to, record.updated_at, record.created_at)
    ended = [at is not None and at <= now for at in (record.valid_to, record.expires_at)]
    return of.of(
        [
            of.text(record), owner_key(record), record.pinned, record.read_only, ended,
            *(at.isoformat() if at else None for at in times),
        ]
    )  # fmt: skip
