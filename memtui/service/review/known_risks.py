"""The risks of a binding's records: what is wrong with them, found ahead of the lists that show it.

A check reads the binding, compares what has changed since the last one, and keeps reasons and
salted digests in the control plane. Lists, figures and filters read what is known; a record that is
not checked, or has changed since, counts as unchecked and never as free of risks.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from memtui import __version__
from memtui.contract import (
    RISKS,
    RISKS_BY_SEVERITY,
    BrowseRequest,
    Model,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    severity_of,
)
from memtui.pruning.candidates import (
    PruneCandidate,
    Reason,
    RetrievalTally,
    find_risks,
    owner_key,
)
from memtui.pruning.uses import states_of
from memtui.record_changes import names_beside, texts_beside
from memtui.service.answers import OutcomesAnswer
from memtui.service.operations.redaction import redact
from memtui.service.runtime import FanOut, ServiceModule, ServiceRuntime
from memtui.service.visibility import Caller, for_caller, is_org, readable
from memtui.store import journal, risks, statements
from memtui.store.database import DatabaseConnection
from memtui.store.details import BrowseDetails
from memtui.store.digest import canonical
from memtui.store.limits import last_seq
from memtui.store.risks import WHOLE, KnownRisk
from memtui.store.rows import RiskCheckRow, RiskRow
from memtui.store.visibility import Visibility

WITHIN_MS = 3_600_000
_STORED_AT_ONCE = 1_000
_FRESH = timedelta(minutes=1)
"""How long a list takes a check for granted where memtui changed nothing since."""
_DIGEST_BYTES = 16


class FoundRisk(Model):
    """One risk of a record."""

    reason: str
    """One of `memtui.contract.RISKS`."""
    others: tuple[str, ...] = ()
    """The ids of the records that it was compared with."""
    dismissed: bool = False
    """True: a person said that it is none."""


class RiskMark(Model):
    """What is known of the risks of a record."""

    checked: bool
    """False: it was never checked, or it or a record that it was compared with has changed."""
    risks: tuple[FoundRisk, ...] = ()
    """Dismissed ones are last."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The risks that nobody dismissed."""
        return tuple(one.reason for one in self.risks if not one.dismissed)

    @property
    def severity(self) -> str | None:
        """The severity of its worst risk that nobody dismissed (`RISKS_BY_SEVERITY`)."""
        return severity_of(self.reasons)

    @property
    def states(self) -> frozenset[str] | None:
        """The value of `Used.risks`."""
        if not self.checked:
            return None
        return states_of(self.reasons, dismissed=any(one.dismissed for one in self.risks))


class RiskyRecord(Model):
    """A record with risks."""

    binding_key: str
    record: Record
    risks: tuple[FoundRisk, ...]

    @property
    def severity(self) -> str | None:
        """The severity of its worst risk; None: all are dismissed."""
        return severity_of(one.reason for one in self.risks if not one.dismissed)


class RiskFigures(Model):
    """How many records are known, checked and risky, of those that the caller may see."""

    records: int = 0
    checked: int = 0
    risky: int = 0
    """Checked records with a risk that nobody dismissed."""
    dismissed: int = 0
    """Checked records with a dismissed risk."""
    by_severity: dict[str, int] = {}
    """The risky records by their worst risk; the worst first."""
    by_reason: dict[str, int] = {}
    """The risky records by reason; one with two reasons is in both."""
    unchecked_bindings: tuple[str, ...] = ()
    """The bindings that were never checked as a whole."""

    @property
    def is_complete(self) -> bool:
        """Whether every record is checked."""
        return self.checked == self.records and not self.unchecked_bindings

    @property
    def sentence(self) -> str:
        """How much was looked at: “412 of 445 checked”."""
        of = f"{self.records:,}" if self.is_complete or self.records else "an unknown number"
        more = f", and {', '.join(self.unchecked_bindings)} not at all"
        return f"{self.checked:,} of {of} checked{more if self.unchecked_bindings else ''}"


@dataclass(frozen=True)
class Digests:
    """Salted digests of records and risks, which tell whether a text has changed."""

    salt: bytes
    _texts: dict[RecordHandle, str] = field(default_factory=dict)

    def _of(self, value: object) -> str:
        # Another version may find other risks, so what it found counts for nothing here.
        written = canonical([__version__, value]).encode()
        return blake2b(written, key=self.salt[:64], digest_size=_DIGEST_BYTES).hexdigest()

    def text(self, record: Record) -> str:
        """Return the digest of all that a model reads of a record."""
        known = self._texts.get(record.handle)
        if known is None:
            known = self._of([record.text, *texts_beside(record), *names_beside(record)])
            self._texts[record.handle] = known
        return known

    def state(self, record: Record, now: datetime) -> str:
        """Return the digest of all by which a record is compared."""
        times = (record.valid_from, record.valid_to, record.updated_at, record.created_at)
        ended = [at is not None and at <= now for at in (record.valid_to, record.expires_at)]
        return self._of(
            [
                self.text(record), owner_key(record), record.pinned, record.read_only, ended,
                *(at.isoformat() if at else None for at in times),
            ]
        )  # fmt: skip

    def reader(self, visibility: Visibility | None) -> str:
        """Return the digest of whose records a caller sees; empty: all."""
        if visibility is None or visibility.everything:
            return ""
        projects = visibility.projects
        return self._of(
            [
                visibility.manages, sorted(visibility.subjects),
                None if projects is None else sorted(projects),
            ]
        )  # fmt: skip

    def mark(self, reason: str, record: Record, others: Iterable[Record]) -> str:
        """Return the mark by which a risk of a record is dismissed."""
        return self._of([reason, self.text(record), *sorted(map(self.text, others))])


def digests(database: DatabaseConnection, company_id: str) -> Digests:
    """Return the digests of a company."""
    [(salt,)] = statements.SALT.rows(database, company_id=company_id) or [(b"",)]
    return Digests(bytes(salt))


class KnownRisks(ServiceModule):
    """Finds the risks of a binding's records, and tells those that are known."""

    async def marks(
        self, caller: Caller, records: Mapping[str, Collection[Record | str]]
    ) -> dict[tuple[str, str], RiskMark]:
        """Return what is known of records, by binding and id. Not an operation.

        A record whose text differs from the one that was checked is unchecked; of an id alone, the
        text is taken to be the same. In the past nothing is known.
        """
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)

        def look(database: DatabaseConnection) -> dict[tuple[str, str], RiskMark]:
            of = digests(database, caller.company_id)
            found: dict[tuple[str, str], RiskMark] = {}
            for key, some in records.items():
                # An agent is given a company's records with another text than that of the check.
                texts = {
                    one.handle.provider_record_id: one
                    for one in some
                    if isinstance(one, Record) and not (caller.by_ai and is_org(one.scope))
                }
                ids = [_id(one) for one in some]
                rows, known = risks.of_records(database, caller.company_id, key, ids)
                by_id = by_record(known, visibility)
                for name in ids:
                    row = rows.get(name)
                    if row is not None and visibility is not None and not visibility.reads(row):
                        row = None
                    same = row is not None and (
                        name not in texts or row.text_digest == of.text(texts[name])
                    )
                    is_checked = same and row is not None and row.checked_at is not None
                    found[key, name] = RiskMark(
                        checked=is_checked, risks=by_id[name] if is_checked else ()
                    )
            return found

        return {} if caller.as_of is not None else await self._runtime.ask(look)

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
    ) -> BindingRisks:
        """Read a binding and compare what has changed; bindings compare one at a time."""
        runtime, records, capped = self._runtime, list[Record](), False
        scope = Scope(company_id=caller.company_id)
        asked = BrowseDetails(purpose="risks")
        seq = await runtime.ask(last_seq, caller.company_id)
        async with runtime.connected(
            OperationType.BROWSE, caller, scope, asked, key, needs="browse", fan_out=fan_out
        ) as (entry, connection):
            entry.to_show = True
            request = BrowseRequest(scope=scope, sort="created_at", expired=True)
            async for page in connection.pages(request):
                records += readable(page.records, scope, entry.visibility)
                capped = page.at_least or page.unfinished
                report(len(records))
            entry.result_count, entry.capped = len(records), capped
        answer = OutcomesAnswer(**entry.outcome(capped=capped))
        async with comparing:
            search = _Search(runtime, caller, key, records, entry.visibility, seq)
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
class _Search:
    """One check of a binding's records against what is known of them. Blocking."""

    runtime: ServiceRuntime
    caller: Caller
    key: str
    records: Sequence[Record]
    visibility: Visibility | None
    seq: int
    """The end of the log before the records were read."""

    def run(self, answer: OutcomesAnswer, *, is_whole: bool) -> BindingRisks:
        """Find the risks, and store them where that is possible."""
        runtime, company_id = self.runtime, self.caller.company_id
        with runtime.database.read() as database:
            rows = risks.checks(database, company_id, self.key)
            stored = _stored(database, company_id, self.key)
            dismissed = risks.dismissed(database, company_id)
            of = digests(database, company_id)
        now, by_id = runtime.clock(), {_id(one): one for one in self.records}
        states = {name: of.state(one, now) for name, one in by_id.items()}
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
        if stale or gone:
            for name, one in by_id.items():
                now_found[name] = {
                    known
                    for known in stored[name]
                    if self._stands(known, alone=one.handle in alone,
                                    compared=owner_key(one) in compared, seen=seen)
                }  # fmt: skip
            for risk in self._search(alone, compared):
                others = [by_id[_name(other)] for other in risk.others if _name(other) in by_id]
                mark = of.mark(risk.reason, risk.record, others)
                for other in map(_id, others) if others else ("",):
                    now_found[_id(risk.record)].add((risk.reason, other, mark))
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
                risks=_risks((*one, one[2] in dismissed) for one in known),
            )
            for name, found in now_found.items()
            if (known := [one for one in found if not one[1] or one[1] in seen])
        ]
        return BindingRisks(answer, len(seen), tuple(risky))

    def _reads(self, row: RiskCheckRow) -> bool:
        return self.visibility is None or self.visibility.reads(row)

    def _stands(self, risk: _Found, *, alone: bool, compared: bool, seen: Collection[str]) -> bool:
        """Whether a known risk of a record was not searched for again."""
        reason, other, _ = risk
        if reason == Reason.DISAGREES:  # of an owner whose records this caller does not see
            return self.visibility is not None and other not in seen
        return not (compared if other else alone)

    def _search(
        self, alone: Collection[RecordHandle], compared: Collection[str]
    ) -> list[PruneCandidate]:
        log = self.runtime.log_of(self.caller)
        ids = {_id(one): one.handle for one in self.records}
        counts = log.retrieval_counts(self.key, list(ids)) if compared else {}
        return find_risks(
            self.records,
            now=self.runtime.clock(),
            alone=alone,
            compared=compared,
            secrets_of=lambda text: redact(text)[1],
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
        by_id = {_id(one): one for one in self.records}
        of_binding = company_id, key = self.caller.company_id, self.key
        place = {"company_id": company_id, "binding_key": key}
        names, database = sorted(changed), self.runtime.database
        for start in range(0, len(names) + 1, _STORED_AT_ONCE):
            with database.write(durable=False) as connection:
                meanwhile = journal.changed_since(connection, *of_binding, self.seq)
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


def _id(one: Record | str) -> str:
    return one if isinstance(one, str) else _name(one.handle)


def _name(handle: RecordHandle) -> str:
    return handle.provider_record_id


def may_know(risk: KnownRisk, visibility: Visibility | None) -> bool:
    """Whether a caller may see the record with a risk, and the one that it was compared with."""
    return visibility is None or (
        visibility.reads(risk.owner) and (not risk.other_id or visibility.reads(risk.other))
    )


def by_record(
    known: Iterable[KnownRisk], visibility: Visibility | None
) -> defaultdict[str, tuple[FoundRisk, ...]]:
    """Return the risks that a caller may know, by record."""
    found: dict[str, list[tuple[str, str, str, bool]]] = defaultdict(list)
    for one in known:
        if may_know(one, visibility):
            found[one.record_id].append((one.reason, one.other_id, one.mark, one.dismissed))
    return defaultdict(tuple, {name: _risks(some) for name, some in found.items()})


def _risks(found: Iterable[tuple[str, str, str, bool]]) -> tuple[FoundRisk, ...]:
    """Return risks, one a reason and mark, the dismissed ones last."""
    others: dict[tuple[bool, int, str, str], list[str]] = defaultdict(list)
    for reason, other, mark, dismissed in sorted(found):
        others[dismissed, RISKS.index(reason), reason, mark] += [other] if other else []
    return tuple(
        FoundRisk(reason=reason, others=tuple(names), dismissed=dismissed)
        for (dismissed, _, reason, _), names in sorted(others.items())
    )


def figures_of(records: int, checked: int, risky: Iterable[Sequence[FoundRisk]]) -> RiskFigures:
    """Return the figures of records, of which some have risks."""
    by_reason, by_severity = Counter[str](), Counter[str]()
    dismissed = 0
    for found in risky:
        reasons = {one.reason for one in found if not one.dismissed}
        by_reason.update(reasons)
        by_severity.update(filter(None, [severity_of(reasons)]))
        dismissed += any(one.dismissed for one in found)
    return RiskFigures(
        records=records, checked=checked, risky=by_severity.total(), dismissed=dismissed,
        by_severity={one: by_severity[one] for one in RISKS_BY_SEVERITY if by_severity[one]},
        by_reason={one: by_reason[one] for one in RISKS if by_reason[one]},
    )  # fmt: skip
