"""The risks of a binding's records: what is wrong with them, found ahead of the lists that show it.

A check reads the binding, compares what has changed since the last one, and keeps reasons and
salted digests in the control plane. Lists, figures and filters read what is known; a record that is
not checked, or has changed since, counts as unchecked and never as free of risks.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from memtui import __version__
from memtui.contract import (
    RISKS,
    RISKS_BY_SEVERITY,
    Filter,
    Invalid,
    Model,
    Record,
    RecordHandle,
    severity_of,
)
from memtui.pruning.uses import Used, is_used_as, states_of
from memtui.record_changes import names_beside, texts_beside
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, is_org
from memtui.store import bindings, risks, statements
from memtui.store.database import DatabaseConnection
from memtui.store.digest import canonical
from memtui.store.operation import LogFilter, text_place
from memtui.store.risks import WHOLE, KnownRisk
from memtui.store.visibility import Visibility

R = TypeVar("R", bound=Record)
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
    held: bool = False
    """Whether it is held for review, so that agents do not get it."""

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
    _texts: dict[tuple[RecordHandle, str], str] = field(default_factory=dict)

    def of(self, value: object) -> str:
        """Return the digest of a value."""
        # Another version may find other risks, so what it found counts for nothing here.
        written = canonical([__version__, value]).encode()
        return blake2b(written, key=self.salt[:64], digest_size=_DIGEST_BYTES).hexdigest()

    def text(self, record: Record) -> str:
        """Return the digest of all that a model reads of a record."""
        place = record.handle, record.text  # a line of a file has the handle of its section
        known = self._texts.get(place)
        if known is None:
            known = self.of([record.text, *texts_beside(record), *names_beside(record)])
            self._texts[place] = known
        return known

    def reader(self, visibility: Visibility | None) -> str:
        """Return the digest of whose records a caller sees; empty: all."""
        if visibility is None or visibility.everything:
            return ""
        projects = visibility.projects
        return self.of(
            [
                visibility.manages, sorted(visibility.subjects),
                None if projects is None else sorted(projects),
            ]
        )  # fmt: skip

    def mark(self, reason: str, record: Record, others: Iterable[Record]) -> str:
        """Return the mark by which a risk of a record is dismissed."""
        return self.of([reason, self.text(record), *sorted(map(self.text, others))])


def refuse_past(caller: Caller) -> None:
    """Refuse to look for risks in the past.

    Raises:
        Invalid: the caller looks at it.
    """
    if caller.as_of is not None:
        raise Invalid("Risks are known of the present only; go back to now, or remove risk:.")


def digests(database: DatabaseConnection, company_id: str) -> Digests:
    """Return the digests of a company."""
    [(salt,)] = statements.SALT.rows(database, company_id=company_id) or [(b"",)]
    return Digests(bytes(salt))


class KnownRisks(ServiceModule):
    """Tells which risks of records are known, and filters by them."""

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
            is_any_held = statements.HELD.rows(database, company_id=caller.company_id)
            tells = is_any_held and caller.by_person
            held = bindings.held(database, caller.company_id) if tells else frozenset()
            for key, some in records.items():
                # An agent is given a company's records with another text than that of the check.
                texts = {
                    one.handle.provider_record_id: one
                    for one in some
                    if isinstance(one, Record) and not (caller.by_ai and is_org(one.scope))
                }
                ids = [id_of(one) for one in some]
                rows, known = risks.of_records(database, caller.company_id, key, ids)
                found_there = by_record(known, visibility)
                for name in ids:
                    row = rows.get(name)
                    if row is not None and visibility is not None and not visibility.reads(row):
                        row = None
                    same = row is not None and (
                        name not in texts or row.text_digest == of.text(texts[name])
                    )
                    is_checked = same and row is not None and row.checked_at is not None
                    places = {(key, name)}
                    if held and name in texts:
                        places.add(text_place(key, texts[name].text))
                    found[key, name] = RiskMark(
                        checked=is_checked,
                        risks=found_there[key, name] if is_checked else (),
                        held=not held.isdisjoint(places),
                    )
            return found

        return {} if caller.as_of is not None else await self._runtime.ask(look)

    async def passing(
        self, caller: Caller, binding_key: str, chosen: Filter, records: Sequence[R]
    ) -> tuple[list[R], set[RecordHandle]]:
        """Return the records whose known risks pass a filter, and those that are not checked.

        Raises:
            Invalid: the caller looks at the past.
        """
        refuse_past(caller)
        marks = await self.marks(caller, {binding_key: records})

        def known(record: R) -> RiskMark:
            return marks[binding_key, id_of(record)]

        now = self._runtime.clock()
        found = [one for one in records
                 if is_used_as(chosen, Used(risks=known(one).states), now)]  # fmt: skip
        return found, {one.handle for one in records if not known(one).checked}

    def of_operations(self, caller: Caller, chosen: Filter) -> Filter:
        """Return a filter of operations with the records of its risks looked up. Blocking.

        An operation has the risks that are known now of the records that it wrote or changed. One
        of a record that still has to be checked passes no condition that excludes a risk; one of
        records that memtui has not seen since, such as an imported one, passes all of these.

        Raises:
            Invalid: the caller looks at the past.
        """
        alternatives = tuple(self.of_operations(caller, one) for one in chosen.alternatives)
        plain = dict(chosen) | {"uses": (), "alternatives": alternatives}
        if not chosen.uses:
            return chosen if alternatives == chosen.alternatives else Filter(**plain)
        refuse_past(caller)
        states = self._states(caller)
        among, but = None, set[int]()
        for test in chosen.uses:
            passes = partial(is_used_as, Filter(uses=(test,)), now=self._runtime.clock())
            seqs = self._changing(caller, [
                place for place, known in states.items()
                if passes(Used(risks=known)) != test.excluded
            ])  # fmt: skip
            if test.excluded:
                but |= seqs
            else:
                among = seqs if among is None else among & seqs
        return LogFilter(
            **plain, among=None if among is None else tuple(sorted(among)), but=tuple(sorted(but))
        )

    def _states(self, caller: Caller) -> dict[tuple[str, str], frozenset[str] | None]:
        """Return the value of `Used.risks` of all known records that a caller sees."""
        visibility = self._runtime.visibility(caller)
        found: dict[tuple[str, str], frozenset[str] | None] = {}
        with self._runtime.database.read() as database:
            known = by_record(risks.of_company(database, caller.company_id), visibility)
            for key in {one.binding_key for one in risks.counts(database, caller.company_id)[0]}:
                for name, row in risks.checks(database, caller.company_id, key).items():
                    if row.text_digest == WHOLE or not (
                        visibility is None or visibility.reads(row)
                    ):
                        continue
                    mark = RiskMark(checked=row.checked_at is not None, risks=known[key, name])
                    found[key, name] = mark.states
        return found

    def _changing(self, caller: Caller, places: Iterable[tuple[str, str]]) -> set[int]:
        """Return the `seq` of the operations that wrote or changed records."""
        names: dict[str, list[str]] = defaultdict(list)
        for key, name in places:
            names[key].append(name)
        log = self._runtime.log_of(caller)
        return set[int]().union(*(log.mutations(key, some) for key, some in names.items()))


def id_of(one: Record | str) -> str:
    """Return the id of a record."""
    return one if isinstance(one, str) else one.handle.provider_record_id


def may_know(risk: KnownRisk, visibility: Visibility | None) -> bool:
    """Whether a caller may see the record with a risk, and the one that it was compared with."""
    return visibility is None or (
        visibility.reads(risk.owner) and (not risk.other_id or visibility.reads(risk.other))
    )


def by_record(
    known: Iterable[KnownRisk], visibility: Visibility | None
) -> defaultdict[tuple[str, str], tuple[FoundRisk, ...]]:
    """Return the risks that a caller may know, by binding and record."""
    found: dict[tuple[str, str], list[tuple[str, str, str, bool]]] = defaultdict(list)
    for one in known:
        if may_know(one, visibility):
            place = one.binding_key, one.record_id
            found[place].append((one.reason, one.other_id, one.mark, one.dismissed))
    return defaultdict(tuple, {place: risks_of(some) for place, some in found.items()})


def risks_of(found: Iterable[tuple[str, str, str, bool]]) -> tuple[FoundRisk, ...]:
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
