"""What a prune review shows and what is marked in it; no widget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from memtui.contract import Record, RecordHandle
from memtui.pruning.plan import PlanItem, PruneCandidate, PrunePlan, Reason
from memtui.screens.budget.facts import Place

WORDS = {
    Reason.EXACT_DUPLICATE: "says exactly the same",
    Reason.EXPIRED: "expired",
    Reason.CONTRADICTED: "contradicted by a newer one",
    Reason.NEAR_DUPLICATE: "says nearly the same",
    Reason.FORGOTTEN_BEFORE: "deleted by hand before",
    Reason.NEVER_READ: "never read",
    Reason.STALE: "not read for a while",
    Reason.TOO_LONG: "too long",
}
_STAYS = "It stays and says the same, or says it anew."


class Sort(StrEnum):
    """What a line of the review is."""

    REASON = "reason"
    STAYS = "stays"
    GOES = "goes"


@dataclass(frozen=True, slots=True)
class Line:
    """A reason with its candidates under it, one candidate, or the fact that says it and stays."""

    key: str
    sort: Sort
    reason: Reason
    text: str
    record: Record | None = None
    sentence: str = ""
    tokens: int = 0
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The plan for one place."""

    place: Place
    plan: PrunePlan


class Review:
    """The plans of all places of a context, under one set of marks.

    Made once, off the event loop; marking changes nothing but `marks`. `size_of` returns what a
    model reads once some records are gone, in tokens: the whole context as one text, as the Budget
    screen counts it.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        size_of: Callable[[frozenset[RecordHandle]], int] = lambda _: 0,
    ) -> None:
        self.parts = tuple(parts)
        self._size_of = cache(size_of)
        self._items = {item.record.handle: item for part in parts for item in part.plan.items}
        self._candidates = [one for part in parts for one in part.plan.candidates]
        self.groups = _by_first_reason(self._candidates)
        self.lines = _lines(self.groups, self._candidates, self._items)
        self.before = self._size_of(frozenset())
        self.marks = {one.handle for part in parts for one in part.plan.marked}

    @property
    def marked(self) -> list[Record]:
        """The records that would go, in the plans' order."""
        return [item.record for item in self._items.values() if item.record.handle in self.marks]

    @property
    def saved(self) -> int:
        """By how many tokens the context gets shorter without what is marked."""
        return self.before - self._size_of(frozenset(self.marks))

    @property
    def lost(self) -> int:
        """How many marked duplicates would go together with the fact that says the same."""
        going = self.marks
        return len(
            {
                one.record.handle
                for one in self._candidates
                if one.survivor in going and one.record.handle in going
            }
        )

    def chosen(self, reason: Reason) -> tuple[int, int]:
        """Return how many candidates of a reason are marked, and how many there are."""
        group = self.groups[reason]
        return sum(one.record.handle in self.marks for one in group), len(group)

    def is_marked(self, line: Line) -> bool:
        """Return whether a candidate, or every one of a reason, is marked."""
        if line.sort is Sort.REASON:
            marked, of = self.chosen(line.reason)
            return marked == of
        return (
            line.sort is Sort.GOES and line.record is not None and line.record.handle in self.marks
        )

    def turn(self, line: Line) -> None:
        """Mark a candidate, or all of a reason, or take the marks away where they are there.

        Of a reason pinned ones are left as they are: they are marked one by one.
        """
        if line.sort is Sort.GOES and line.record is not None:
            self.marks ^= {line.record.handle}
        elif line.sort is Sort.REASON:
            unpinned = {one.record.handle for one in self.groups[line.reason] if not _pinned(one)}
            if unpinned <= self.marks:
                self.marks -= unpinned
            else:
                self.marks |= unpinned

    def mark_all(self) -> None:
        """Mark every candidate that is not pinned, and no other."""
        self.marks = {one.record.handle for one in self._candidates if not _pinned(one)}

    def mark_none(self) -> None:
        """Take all marks away."""
        self.marks = set()

    def mark_suggested(self) -> None:
        """Mark what was suggested, and no other."""
        self.marks = {one.record.handle for one in self._candidates if one.suggested}

    def mark_as(self, before: Iterable[Record]) -> None:
        """Mark the candidates that are just as they were among `before`, and no other."""
        wanted = {(record.handle, record.revision) for record in before}
        records = (one.record for one in self._candidates)
        self.marks = {one.handle for one in records if (one.handle, one.revision) in wanted}

    def cluster(self, name: str) -> list[Record]:
        """Return the records of a cluster, the one that stays first."""
        found: dict[RecordHandle, Record] = {}
        for one in self._candidates if name else ():
            if one.cluster_id == name and one.survivor is not None:
                found.setdefault(one.survivor, self._items[one.survivor].record)
                found[one.record.handle] = one.record
        return list(found.values())

    def diff(self) -> list[Line]:
        """Return what goes and, beside the first duplicate of each, what stays and says it."""
        return [
            Line(
                key=f"{place}\x1f{line.sign}\x1f{_name(line.handle)}",
                sort=Sort.GOES if line.sign == "-" else Sort.STAYS,
                reason=Reason.NEAR_DUPLICATE,
                text=line.text,
                record=self._items[line.handle].record,
                sentence=line.why,
                tokens=line.tokens,
            )
            for place, part in enumerate(self.parts)
            for line in self._plan(part).diff()
        ]

    def _plan(self, part: Part) -> PrunePlan:
        """Return a part's plan with the marks there are now."""
        candidates = {one.record.handle for one in part.plan.candidates}
        return part.plan.unmark(candidates - self.marks).mark(candidates & self.marks)


def _pinned(one: PruneCandidate) -> bool:
    return one.record.pinned


def _by_first_reason(candidates: Iterable[PruneCandidate]) -> dict[Reason, list[PruneCandidate]]:
    """Return each record once, under the surest of its reasons."""
    order = {reason: place for place, reason in enumerate(Reason)}
    first: dict[RecordHandle, PruneCandidate] = {}
    for one in candidates:
        known = first.get(one.record.handle)
        if known is None or order[one.reason] < order[known.reason]:
            first[one.record.handle] = one
    groups: dict[Reason, list[PruneCandidate]] = defaultdict(list)
    for one in first.values():
        groups[one.reason].append(one)
    return groups


def _lines(
    groups: Mapping[Reason, Sequence[PruneCandidate]],
    candidates: Iterable[PruneCandidate],
    items: Mapping[RecordHandle, PlanItem],
) -> list[Line]:
    """Return the candidates by reason and by cluster, with the survivors beside them.

    A candidate stands in one group only; the sentences of its other reasons stand with it.
    """
    sentences: dict[RecordHandle, list[str]] = defaultdict(list)
    for one in candidates:
        sentences[one.record.handle].append(one.sentence)
    found: list[Line] = []
    for reason in Reason:
        if group := groups.get(reason):
            tokens = sum(one.tokens_saved for one in group)
            key = f"reason\x1f{reason}"
            found.append(Line(key, Sort.REASON, reason, WORDS[reason], tokens=tokens))
            survivor: RecordHandle | None = None
            for one in sorted(group, key=_by_cluster):
                if one.survivor is not None and one.survivor != survivor and one.survivor in items:
                    stays = items[one.survivor]
                    found.append(_line(Sort.STAYS, one, stays.record, _STAYS, stays.tokens))
                survivor = one.survivor
                why = " ".join(sentences[one.record.handle])
                found.append(_line(Sort.GOES, one, one.record, why, one.tokens_saved))
    return found


def _by_cluster(one: PruneCandidate) -> tuple[str, str]:
    survivor = one.survivor.provider_record_id if one.survivor else ""
    return one.cluster_id or survivor, one.record.handle.provider_record_id


def _line(sort: Sort, one: PruneCandidate, record: Record, sentence: str, tokens: int) -> Line:
    of = f"{one.reason}\x1f" if sort is Sort.STAYS else ""
    return Line(
        key=f"{sort}\x1f{of}{_name(record.handle)}",
        sort=sort,
        reason=one.reason,
        text=record.text,
        record=record,
        sentence=sentence,
        tokens=tokens,
        cluster=one.cluster_id or "",
    )


def _name(handle: RecordHandle) -> str:
    return f"{handle.provider_key}\x1f{handle.provider_record_id}"
