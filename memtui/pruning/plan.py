"""Which records could go and why, and the plan that a person reviews; nothing is changed here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Self

from pydantic import PrivateAttr

from memtui.contract import Invalid, Model, Record, RecordHandle, UtcDatetime
from memtui.pruning.duplicates import (
    DuplicateIndex,
    Item,
    Likeness,
    Vectors,
    compare,
    find_clusters,
    form_of,
)
from memtui.pruning.patterns import Pattern

_PAIR = re.compile(r"\s*([\w.\-]+):\s+\S")

_LABELS = frozenset(
    {"note", "todo", "fixme", "tip", "warning", "important", "example", "see", "fact", "remember"}
)
"""Words before a colon that label a text; there may be many texts of one label."""


_QUOTED = 60


class Reason(StrEnum):
    """Why a record could go, the surest first."""

    EXACT_DUPLICATE = "exact_duplicate"
    EXPIRED = "expired"
    CONTRADICTED = "contradicted"
    """A newer fact of the same key has another value."""
    NEAR_DUPLICATE = "near_duplicate"
    FORGOTTEN_BEFORE = "forgotten_before"
    """A text like it was deleted by hand."""
    DISAGREES = "disagrees"
    """Another scope that is told with it has another value of its key."""
    CHANGES_OFTEN = "changes_often"
    CHANGED_LATE = "changed_late"
    """Its value stood for months before it changed to this one."""
    NEVER_READ = "never_read"
    STALE = "stale"
    """Read once, but not for a while."""
    TOO_LONG = "too_long"


class PruneRules(Model):
    """What counts as a reason."""

    stale_days: int = 30
    """Days without a retrieval after which a record is stale (seed 002)."""
    max_characters: int = 200
    """Longest fact (seed 004 §6.2); other kinds of record have no limit."""
    likeness: float = 0.95
    """Cosine from which on two vectors mean the same (seed 002)."""


class Retrieval(Model):
    """How often queries returned a record, and when last."""

    count: int = 0
    last_at: UtcDatetime | None = None


class PruneCandidate(Model):
    """One record and one reason for which it could go."""

    record: Record
    reason: Reason
    sentence: str
    cluster_id: str | None = None
    """Shared by the duplicates of one survivor."""
    survivor: RecordHandle | None = None
    """The record that stays and says the same, or says it anew."""
    tokens_saved: int
    suggested: bool
    """Whether a plan marks it by itself. A pinned record is never suggested."""


def find_candidates(
    records: Iterable[Record],
    *,
    now: datetime,
    tokens_of: Callable[[str], int],
    retrievals: Mapping[RecordHandle, Retrieval] | None = None,
    forgotten: Mapping[str, datetime] | None = None,
    rules: PruneRules | None = None,
    vectors: Vectors | None = None,
    patterns: Iterable[Pattern] = (),
) -> tuple[PruneCandidate, ...]:
    """Return every record that could go, with its reasons; the order is by record id and reason.

    Only records of one scope (company, agent, project, subject) are held against each other. A
    record whose validity window has closed is history, not a candidate; an expired one is no
    survivor. Suggested are what loses nothing: duplicates by their words, expired and contradicted
    facts, and what was deleted before. Never read, stale and over-long ones need a person, and so
    do those whose changes show a pattern.

    Args:
        records: What the scope holds.
        now: The moment to judge expiry and staleness at.
        tokens_of: What a record's text costs a prompt, in tokens.
        retrievals: How often each was returned; one that is missing was never returned. None:
            not known, so that no record is called unread.
        forgotten: Texts deleted by hand, and when. Only what was made after that has come back: a
            survivor of the duplicate that was deleted, or what an undo restored, has not.
        rules: The limits; the seeds' by default.
        vectors: Joins texts of the same meaning where the semantic extra is there.
        patterns: What the changes of facts show; of any scopes.
    """
    search = _Search(now, tokens_of, retrievals, rules or PruneRules())
    current = [record for record in records if record.valid_to is None or record.valid_to > now]
    alive = [record for record in current if not search.expired(record)]
    found = [
        *search.of_one(current),
        *search.duplicates(alive, vectors),
        *search.contradicted(alive),
        *search.forgotten(alive, forgotten or {}),
        *search.showing(alive, patterns),
    ]
    order = list(Reason)
    return tuple(sorted(found, key=lambda one: (_id(one.record), order.index(one.reason))))


_SAFE = frozenset(
    {
        Reason.EXACT_DUPLICATE,
        Reason.NEAR_DUPLICATE,
        Reason.EXPIRED,
        Reason.CONTRADICTED,
        Reason.FORGOTTEN_BEFORE,
    }
)


@dataclass(frozen=True, slots=True)
class _Search:
    now: datetime
    tokens_of: Callable[[str], int]
    retrievals: Mapping[RecordHandle, Retrieval] | None
    rules: PruneRules

    def _found(
        self,
        record: Record,
        reason: Reason,
        sentence: str,
        *,
        sure: bool = True,
        cluster_id: str | None = None,
        survivor: Record | None = None,
    ) -> PruneCandidate:
        return PruneCandidate(
            record=record,
            reason=reason,
            sentence=sentence,
            cluster_id=cluster_id,
            survivor=survivor.handle if survivor else None,
            tokens_saved=self.tokens_of(record.text),
            suggested=reason in _SAFE and sure and not record.pinned,
        )

    def expired(self, record: Record) -> bool:
        return record.expires_at is not None and record.expires_at <= self.now

    def of_one(self, records: Iterable[Record]) -> Iterator[PruneCandidate]:
        """Yield the reasons that a record carries in itself."""
        most, stale = self.rules.max_characters, timedelta(days=self.rules.stale_days)
        for record in records:
            if self.expired(record):
                sentence = f"It expired on {record.expires_at:%Y-%m-%d %H:%M} UTC."
                yield self._found(record, Reason.EXPIRED, sentence)
            size = len(record.text)
            if record.kind == "fact" and size > most:
                sentence = f"It has {size:,} characters; a fact has at most {most:,}."
                yield self._found(record, Reason.TOO_LONG, sentence)
            if self.retrievals is None:
                continue
            use = self.retrievals.get(record.handle, Retrieval())
            if not use.count:
                made = record.created_at
                since = f" since it was made on {made:%Y-%m-%d}" if made else ""
                sentence = f"No query has returned it{since}."
                yield self._found(record, Reason.NEVER_READ, sentence)
            elif use.last_at is not None and self.now - use.last_at >= stale:
                days = (self.now - use.last_at).days
                sentence = f"No query has returned it for {days:,} days."
                yield self._found(record, Reason.STALE, sentence)

    def duplicates(
        self, records: Sequence[Record], vectors: Vectors | None
    ) -> Iterator[PruneCandidate]:
        by_id = {_id(record): record for record in records}
        entries = (
            Item(
                id=name,
                text=record.text,
                group=scope_key(record),
                pinned=record.pinned,
                reads=(self.retrievals or {}).get(record.handle, Retrieval()).count,
                at=record.updated_at or record.created_at,
            )
            for name, record in by_id.items()
        )
        for cluster in find_clusters(entries, vectors=vectors, threshold=self.rules.likeness):
            survivor = by_id[cluster.survivor.id]
            for duplicate in cluster.duplicates:
                likeness = duplicate.match.likeness
                exact = likeness is Likeness.EXACT
                yield self._found(
                    by_id[duplicate.item.id],
                    Reason.EXACT_DUPLICATE if exact else Reason.NEAR_DUPLICATE,
                    f"{duplicate.match.sentence} {_quoted(survivor.text)} stays. "
                    f"{cluster.why_survivor}",
                    sure=likeness is not Likeness.MEANING,
                    cluster_id=cluster.id,
                    survivor=survivor,
                )

    def contradicted(self, records: Sequence[Record]) -> Iterator[PruneCandidate]:
        """Yield each fact `key: value` whose key has another value in a newer fact (seed 002 §7).

        Keys are compared within a scope and a topic, the facts file's heading. A fact without a
        time, or of the same time as the newest, is not judged: nobody can tell which of them holds.
        One that says the same in another order is a duplicate and no contradiction, so that never
        both are to go.
        """
        of_key: dict[tuple[str, ...], list[tuple[datetime, str, Record]]] = defaultdict(list)
        for record in records:
            match = _PAIR.match(record.text)
            key = match[1].casefold() if match else None
            at = record.valid_from or record.updated_at or record.created_at
            if key and key not in _LABELS and at is not None:
                name = record.handle.provider_record_id
                of_key[scope_key(record), record.topic or "", key].append((at, name, record))
        for facts in of_key.values():
            newest_at, _, newest = max(facts, key=lambda fact: fact[:2])
            holds = form_of(newest.text)
            for at, _, record in facts:
                if at < newest_at and compare(form_of(record.text), holds) is None:
                    sentence = f"A newer fact of its key says {_quoted(newest.text)}."
                    yield self._found(record, Reason.CONTRADICTED, sentence, survivor=newest)

    def forgotten(
        self, records: Sequence[Record], texts: Mapping[str, datetime]
    ) -> Iterator[PruneCandidate]:
        index = DuplicateIndex()
        known = sorted(texts, key=lambda text: (texts[text], text))
        for text in known:
            index.add(form_of(text))
        for record in records if known else ():
            found = index.find(form_of(record.text))
            if found is None or record.created_at is None:
                continue
            text = known[found[0]]
            if record.created_at > texts[text]:
                sentence = f"You deleted {_quoted(text)} before."
                yield self._found(record, Reason.FORGOTTEN_BEFORE, sentence)

    def showing(
        self, records: Sequence[Record], patterns: Iterable[Pattern]
    ) -> Iterator[PruneCandidate]:
        """Yield the records in whose changes a pattern shows."""
        known = {record.handle: record for record in records}
        for pattern in patterns:
            for handle in dict.fromkeys(one.record.handle for one in pattern.versions):
                if handle in known:
                    yield self._found(known[handle], Reason(pattern.kind.value), pattern.sentence)


def scope_key(record: Record) -> str:
    """Name the scope within which records are compared; the run and issue do not divide it."""
    scope = record.scope
    parts = (scope.company_id, scope.agent_id, scope.project_id, scope.subject_id)
    return "\x1f".join(part or "" for part in parts)


def _id(record: Record) -> str:
    return f"{record.handle.provider_key}\x1f{record.handle.provider_record_id}"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= _QUOTED else line[: _QUOTED - 1] + '…'}”"


class PlanItem(Model):
    """One record of the scope, what it costs a prompt, and whether it is marked to go."""

    record: Record
    tokens: int
    marked: bool = False


class DiffLine(Model):
    """One line of the review: `-` goes; a blank sign stays and says what a duplicate said."""

    sign: Literal["-", " "]
    text: str
    handle: RecordHandle
    tokens: int
    why: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.text}"


class PrunePlan(Model):
    """A plan to forget records. It changes nothing; marking returns another plan."""

    items: tuple[PlanItem, ...]
    """Everything the scope holds, in the order it was given."""
    candidates: tuple[PruneCandidate, ...]
    _size_of: Callable[[Sequence[Record]], int] = PrivateAttr()

    @property
    def marked(self) -> tuple[Record, ...]:
        """The records that would go."""
        return tuple(item.record for item in self.items if item.marked)

    @property
    def tokens_before(self) -> int:
        """What a model reads of all records now, in tokens: their section of its context."""
        return self._size_of([item.record for item in self.items])

    @property
    def tokens_after(self) -> int:
        """The same once the marked ones are gone."""
        return self._size_of([item.record for item in self.items if not item.marked])

    @property
    def tokens_saved(self) -> int:
        """How much shorter the section gets; what a model does not get to read saves nothing."""
        return self.tokens_before - self.tokens_after

    def mark(self, handles: Iterable[RecordHandle]) -> Self:
        """Return the plan with these marked too.

        Raises:
            Invalid: a handle is not a candidate's.
        """
        wanted = frozenset(handles)
        if unknown := wanted - {candidate.record.handle for candidate in self.candidates}:
            first = min(handle.provider_record_id for handle in unknown)
            raise Invalid(f"The record {first} is no candidate of this plan; forget it by itself.")
        return self._marking(lambda item: item.marked or item.record.handle in wanted)

    def unmark(self, handles: Iterable[RecordHandle]) -> Self:
        """Return the plan with these no longer marked."""
        unwanted = frozenset(handles)
        return self._marking(lambda item: item.marked and item.record.handle not in unwanted)

    def mark_reasons(self, reasons: Iterable[Reason]) -> Self:
        """Return the plan with every unpinned candidate of these reasons marked, and no other."""
        chosen = frozenset(reasons)
        wanted = {
            candidate.record.handle
            for candidate in self.candidates
            if candidate.reason in chosen and not candidate.record.pinned
        }
        return self._marking(lambda item: item.record.handle in wanted)

    def diff(self) -> tuple[DiffLine, ...]:
        """Return what goes, and after the first duplicate of a survivor the survivor that stays."""
        reasons: dict[RecordHandle, list[PruneCandidate]] = defaultdict(list)
        for candidate in self.candidates:
            reasons[candidate.record.handle].append(candidate)
        staying = {item.record.handle: item for item in self.items if not item.marked}
        lines: list[DiffLine] = []
        for item in self.items:
            if not item.marked:
                continue
            why = reasons[item.record.handle]
            lines.append(_line("-", item, " ".join(candidate.sentence for candidate in why)))
            survivors = {candidate.survivor for candidate in why if candidate.survivor}
            stay = sorted(survivors & staying.keys(), key=lambda handle: handle.provider_record_id)
            lines += [_line(" ", staying.pop(handle), "It stays.") for handle in stay]
        return tuple(lines)

    def _marking(self, marks: Callable[[PlanItem], bool]) -> Self:
        items = tuple(
            item if item.marked == marks(item) else item.model_copy(update={"marked": marks(item)})
            for item in self.items
        )
        return self.model_copy(update={"items": items})


def make_plan(
    records: Sequence[Record],
    candidates: Sequence[PruneCandidate],
    *,
    tokens_of: Callable[[str], int],
    size_of: Callable[[Sequence[Record]], int],
) -> PrunePlan:
    """Return a plan over a scope's records, with the suggested candidates marked.

    Args:
        records: Everything that the scope holds.
        candidates: Those that could go.
        tokens_of: What the line of one text costs a prompt.
        size_of: What a model reads of some records, in tokens: lines and heading counted as one
            text, as the context counts them. A sum of single lines is another number.
    """
    suggested = {candidate.record.handle for candidate in candidates if candidate.suggested}
    plan = PrunePlan(
        items=tuple(
            PlanItem(
                record=record, tokens=tokens_of(record.text), marked=record.handle in suggested
            )
            for record in records
        ),
        candidates=tuple(candidates),
    )
    plan._size_of = size_of  # noqa: SLF001 - the plan's own module
    return plan


def _line(sign: Literal["-", " "], item: PlanItem, why: str) -> DiffLine:
    record = item.record
    return DiffLine(sign=sign, text=record.text, handle=record.handle, tokens=item.tokens, why=why)
