"""The plan of records to forget, for a person to review; nothing is changed here."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import PrivateAttr

from memtui.contract import Invalid, Model, Record, RecordHandle
from memtui.pruning.candidates import REPEATS, PruneCandidate, Reason
from memtui.pruning.uses import Used
from memtui.pruning.worth import Worth


class PlanItem(Model):
    """One record of the scope, its tokens, and whether it is marked to be forgotten."""

    record: Record
    tokens: int
    """Tokens of its text in a prompt; 0 if it is expired, as no prompt contains it."""
    marked: bool = False
    kept: str = ""
    """Why it cannot be forgotten, in a sentence; empty if it can."""
    used: Used
    """Its use."""
    worth: Worth | None = None
    """Its worth to a context; None: it never goes to meet a budget."""


class PlanLine(Model):
    """One line of the review: `-` will be forgotten; a blank sign marks a survivor."""

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
    """All records of the scope, in the order given."""
    candidates: tuple[PruneCandidate, ...]
    limits: tuple[str, ...] = ()
    """What of the workspaces was not looked at, in sentences."""
    _size_of: Callable[[Sequence[Record]], int] = PrivateAttr()

    def __init__(self, size_of: Callable[[Sequence[Record]], int], **fields: Any) -> None:
        """`size_of`: returns the tokens of records in a context; `fields`: the others, by name."""
        super().__init__(**fields)
        self._size_of = size_of

    @property
    def marked(self) -> tuple[Record, ...]:
        """The records to forget."""
        return tuple(item.record for item in self.items if item.marked)

    @property
    def staying(self) -> tuple[Record, ...]:
        """The survivors of marked records."""
        marked = {record.handle for record in self.marked}
        stay = {one.survivor for one in self.candidates if one.record.handle in marked} - marked
        return tuple(item.record for item in self.items if item.record.handle in stay)

    @property
    def kept(self) -> tuple[str, ...]:
        """Why each candidate that cannot be forgotten must stay."""
        could = {candidate.record.handle for candidate in self.candidates}
        return tuple(one.kept for one in self.items if one.kept and one.record.handle in could)

    @property
    def tokens_before(self) -> int:
        """Tokens of the context section with all records."""
        return self._size_of([item.record for item in self.items])

    @property
    def tokens_after(self) -> int:
        """Tokens of the context section without the marked records."""
        return self._size_of([item.record for item in self.items if not item.marked])

    @property
    def tokens_saved(self) -> int:
        """Tokens that the section loses; a record that no model reads saves none."""
        return self.tokens_before - self.tokens_after

    def mark(self, handles: Iterable[RecordHandle]) -> Self:
        """Return the plan with these records marked too.

        Raises:
            Invalid: a handle names no candidate, or its record cannot be forgotten.
        """
        wanted = frozenset(handles)
        if unknown := wanted - {candidate.record.handle for candidate in self.candidates}:
            first = min(handle.provider_record_id for handle in unknown)
            raise Invalid(f"The record {first} is not in this plan; forget it with memtui forget.")
        for item in self.items:
            if item.kept and item.record.handle in wanted:
                name = item.record.handle.provider_record_id
                raise Invalid(f"The record {name} cannot be forgotten. {item.kept}")
        return self._marking(lambda item: item.marked or item.record.handle in wanted)

    def unmark(self, handles: Iterable[RecordHandle]) -> Self:
        """Return the plan with these records unmarked."""
        unwanted = frozenset(handles)
        return self._marking(lambda item: item.marked and item.record.handle not in unwanted)

    def mark_reasons(self, reasons: Iterable[Reason]) -> Self:
        """Return the plan with only the unpinned candidates of these reasons marked.

        Records that cannot be forgotten stay unmarked.
        """
        chosen = frozenset(reasons)
        wanted = {
            candidate.record.handle
            for candidate in self.candidates
            if candidate.reason in chosen and not candidate.record.pinned
        }
        return self._marking(lambda item: item.record.handle in wanted and not item.kept)

    def for_budget(self, going: Collection[RecordHandle]) -> Self:
        """Return the plan with only these records marked, and a reason for each one with a worth.

        The reasons are in the order of the worth, least first.
        """
        ranked = sorted((one for one in self.items if one.worth), key=lambda one: one.worth or ())
        by_worth = (
            PruneCandidate(
                record=one.record,
                reason=Reason.LEAST_WORTH,
                sentence=f"Worth {'least' if goes else 'more'}: {one.worth.words}.",
                tokens_saved=one.tokens,
                suggested=goes,
            )
            for one in ranked
            if one.worth
            for goes in (one.record.handle in going,)
        )
        marked = self._marking(lambda item: item.record.handle in going)
        return marked.model_copy(update={"candidates": (*self.candidates, *by_worth)})

    def diff(self) -> tuple[PlanLine, ...]:
        """Return the marked records, each survivor after its first duplicate."""
        reasons: dict[RecordHandle, list[PruneCandidate]] = defaultdict(list)
        for candidate in self.candidates:
            reasons[candidate.record.handle].append(candidate)
        staying = {item.record.handle: item for item in self.items if not item.marked}
        lines: list[PlanLine] = []
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
    kept: Callable[[Record], str] = lambda _record: "",
    last_read: Callable[[Record], datetime | None] = lambda _record: None,
    worth: Callable[[Record], Worth | None] = lambda _record: None,
    risks: Callable[[Record], frozenset[str]] = lambda _record: frozenset(),
    limits: Iterable[str] = (),
) -> PrunePlan:
    """Return a plan over a scope's records, with the suggested candidates marked.

    Args:
        records: All records of the scope.
        candidates: The records that could be forgotten, with reasons.
        tokens_of: Returns the tokens of one text's line in a prompt.
        size_of: Returns the tokens of records in a context: lines and heading counted as one text,
            as the context counts them. The sum of single lines is another number.
        kept: Returns why a record cannot be forgotten; empty if it can.
        last_read: Returns when a query or context last returned a record; None: never.
        worth: Returns the worth of a record that can be forgotten; None: no budget lets it go.
        risks: Returns the risks of a record and its states, as `Used.risks`.
        limits: What of the workspaces was not looked at, in sentences.
    """
    suggested = {candidate.record.handle for candidate in candidates if candidate.suggested}
    repeats = {one.record.handle for one in candidates if one.reason in REPEATS}
    expired = {one.record.handle for one in candidates if one.reason is Reason.EXPIRED}
    return PrunePlan(
        size_of,
        items=tuple(
            PlanItem(
                record=record,
                tokens=0 if record.handle in expired else tokens,
                marked=record.handle in suggested and not why_kept,
                kept=why_kept,
                used=Used(last_read(record), tokens, record.handle in repeats, risks(record)),
                worth=None if why_kept else worth(record),
            )
            for record in records
            for why_kept, tokens in ((kept(record), tokens_of(record.text)),)
        ),
        candidates=tuple(candidates),
        limits=tuple(limits),
    )


def joined(plans: Sequence[PrunePlan], size_of: Callable[[Sequence[Record]], int]) -> PrunePlan:
    """Return the plans of several owners as one, whose records have the given size together."""
    return PrunePlan(
        size_of,
        items=tuple(item for one in plans for item in one.items),
        candidates=tuple(candidate for one in plans for candidate in one.candidates),
        limits=tuple(limit for one in plans for limit in one.limits),
    )


def _line(sign: Literal["-", " "], item: PlanItem, why: str) -> PlanLine:
    record = item.record
    return PlanLine(sign=sign, text=record.text, handle=record.handle, tokens=item.tokens, why=why)
