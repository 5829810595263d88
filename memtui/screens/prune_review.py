"""The model of the prune review: candidates in groups, their marks, and the tokens saved.

It imports no widget. Build and rearrange it off the event loop; plain marking changes only `marks`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memtui.contract import Filter, Record, RecordHandle, Scope, owner_of, owner_scope, owner_words
from memtui.presenters.risks import WORDS
from memtui.provider_kit.matching import matcher
from memtui.pruning.candidates import REPEATS, PruneCandidate, Reason
from memtui.pruning.uses import is_used_as
from memtui.widgets.record_names import RecordName

if TYPE_CHECKING:
    from memtui.pruning.insights import Insight
    from memtui.pruning.plan import PlanItem, PrunePlan
    from memtui.service.answers import BindingOutcome
    from memtui.service.operations.everywhere import ListedRecord

_FITS = "worth more, so it fits"
"""The group of records that are worth enough to stay within a budget."""
_REPEATED = "It stays, and says the same."
_CHOSEN = "It says the same as the one that you chose to stay."
_CONTRADICTED = "It stays, and says otherwise."
_ORDER = {reason: place for place, reason in enumerate(Reason)}


class Sort(StrEnum):
    """The kind of a line of the review."""

    GROUP = "group"
    STAYS = "stays"
    GOES = "goes"


@dataclass(frozen=True, slots=True)
class ReviewLine:
    """A group, a candidate in it, the record that stays in place of a duplicate."""

    key: str
    sort: Sort
    group: str
    """The reason or owner of its group."""
    text: str
    name: RecordName | None = None
    record: Record | None = None
    sentence: str = ""
    tokens: int = 0
    cluster: str = ""
    reason: str = ""
    """The surest of its reasons, in a few words."""
    kept: str = ""
    """Why it cannot be forgotten."""


@dataclass(frozen=True, slots=True)
class PlanPart:
    """The plan for the records of one binding."""

    binding_key: str
    plan: PrunePlan


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The part of the plans that is reviewed; without any field set: all."""

    owner: Scope | None = None
    """The scope that names an owner and nothing else."""
    binding_key: str = ""
    filter: Filter = field(default_factory=Filter)
    now: datetime | None = None
    """The moment that relative spans of the filter count back from."""

    def test(self) -> Callable[[str, PlanItem], bool]:
        """Return a predicate: whether a record of a binding is in this part."""
        passes, owner = matcher(self.filter), self.owner and owner_of(self.owner)

        def is_in(key: str, item: PlanItem) -> bool:
            return (
                self.binding_key in {"", key}
                and (owner is None or owner_of(item.record.scope) == owner)
                and self.filter.allows("binding_key", key)
                and passes(item.record)
                and (self.now is None or is_used_as(self.filter, item.used, self.now))
            )

        return is_in

    @property
    def label(self) -> str:
        """The part's name for a person; empty for everything."""
        owner = owner_words(self.owner) if self.owner else ""
        return " in ".join(part for part in (owner, self.binding_key) if part)


@dataclass(frozen=True, slots=True)
class _Going:
    """A prunable record, with its surest reason."""

    name: RecordName
    item: PlanItem
    first: PruneCandidate
    sentence: str
    survivor: RecordName | None

    @property
    def is_free(self) -> bool:
        """Whether it can be marked with its group: a pinned record is only marked singly."""
        return not self.item.kept and not self.item.record.pinned

    @property
    def group(self) -> str:
        """The name of its group by reason."""
        fits = self.first.reason is Reason.LEAST_WORTH and not self.first.suggested
        return _FITS if fits else WORDS[self.first.reason]


class BudgetSection(NamedTuple):
    """A section of the context over its budget: tokens now, and without the marked records."""

    word: str
    before: int
    after: int
    budget: int


class Size(NamedTuple):
    """Tokens that remain without some records."""

    tokens: int
    sections: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """The tokens and the budget of each section of a context."""


class ReviewedPlans:
    """The plans of several places or bindings, under one set of marks.

    `size_of` returns the size that remains without some records. If narrowed to a part, only its
    records are shown, counted and forgotten; marks on others are kept.
    """

    def __init__(
        self,
        parts: Sequence[PlanPart] = (),
        size_of: Callable[[frozenset[RecordName]], Size] | None = None,
        *,
        failed: Sequence[BindingOutcome] = (),
        insights: Sequence[Insight] = (),
        narrowing: Narrowing = Narrowing(),
        by_owner: bool = False,
        budget: int | None = None,
        stuck: str = "",
    ) -> None:
        self.failed, self.insights = failed, insights
        self.budget, self.stuck = budget, stuck
        self._items = {
            RecordName(part.binding_key, item.record.handle.provider_record_id): item
            for part in parts
            for item in part.plan.items
        }
        self._size_of = lru_cache(maxsize=4)(size_of or self._sum_without)
        self._clusters: dict[str, list[RecordName]] = defaultdict(list)
        self._survivors: list[tuple[RecordName, RecordName]] = []
        """Pairs of a duplicate and the record that says the same."""
        self._chosen_to_stay: tuple[RecordName, ...] = ()
        """Duplicates that the person chose to keep, latest choice last."""
        self._going = sorted((one for part in parts for one in self._of(part)), key=_placed)
        self.before = self._size_of(frozenset()).tokens
        self.marks = {name for name, item in self._items.items() if item.marked}
        self._arrange(narrowing, by_owner=by_owner)

    def _of(self, part: PlanPart) -> Iterator[_Going]:
        reasons: dict[RecordHandle, list[PruneCandidate]] = defaultdict(list)
        for one in part.plan.candidates:
            reasons[one.record.handle].append(one)

        def named(handle: RecordHandle) -> RecordName:
            return RecordName(part.binding_key, handle.provider_record_id)

        for handle, found in reasons.items():
            name, first = named(handle), min(found, key=lambda one: _ORDER[one.reason])
            for one in found:
                if one.survivor is not None:
                    self._survivors.append((name, named(one.survivor)))
                if one.survivor is not None and one.cluster_id is not None:
                    cluster = self._clusters[_cluster(part.binding_key, one)]
                    cluster += [known for known in (named(one.survivor), name)
                                if known not in cluster]  # fmt: skip
            yield _Going(
                name=name,
                item=self._items[name],
                first=first,
                sentence=" ".join(dict.fromkeys(one.sentence for one in found)),
                survivor=named(first.survivor) if first.survivor else None,
            )

    def _sum_without(self, gone: frozenset[RecordName]) -> Size:
        return Size(sum(item.tokens for name, item in self._items.items() if name not in gone))

    # Narrowing and grouping.

    def arranged(self, narrowing: Narrowing, *, by_owner: bool) -> ReviewedPlans:
        """Return a copy narrowed to a part, grouped by owner or by reason."""
        found = copy(self)
        found._arrange(narrowing, by_owner=by_owner)  # noqa: SLF001 — its own copy
        return found

    def _arrange(self, narrowing: Narrowing, *, by_owner: bool) -> None:
        self.narrowing, self.by_owner = narrowing, by_owner
        is_in = narrowing.test()
        self._shown = {
            one.name: one for one in self._going if is_in(one.name.binding_key, one.item)
        }
        self.total = sum(is_in(name.binding_key, one) for name, one in self._items.items())
        self.groups: dict[str, list[_Going]] = defaultdict(list)
        for one in self._shown.values():
            owner = owner_words(one.item.record.scope)
            self.groups[owner if by_owner else one.group].append(one)
        names = sorted(self.groups) if by_owner else list(self.groups)
        self.lines = [line for name in names for line in self._lines(name)]

    def _lines(self, group: str) -> Iterator[ReviewLine]:
        own = self.groups[group]
        tokens = sum(one.item.tokens for one in own)
        yield ReviewLine(f"group\x1f{group}", Sort.GROUP, group, group, tokens=tokens)
        survivor: RecordName | None = None
        for one in own:
            if one.survivor is not None and one.survivor != survivor:
                stays = self._items[one.survivor]
                yield _line(Sort.STAYS, group, one, one.survivor, stays)
            survivor = one.survivor
            yield _line(Sort.GOES, group, one, one.name, one.item)

    def parts(self) -> list[tuple[Narrowing, int, int]]:
        """Return the possible narrowings, each with its prunable and total records.

        First everything, then each owner, then each binding if there are several.
        """
        could: dict[Narrowing, int] = defaultdict(int)
        there: dict[Narrowing, int] = {Narrowing(): len(self._items)}
        owners: dict[tuple[str, str], Narrowing] = {}
        bindings = {name.binding_key: Narrowing(binding_key=name.binding_key)
                    for name in self._items}  # fmt: skip
        for name, item in self._items.items():
            known = owner_of(item.record.scope)
            if known not in owners:
                owners[known] = Narrowing(owner=owner_scope(item.record.scope))
            for one in (owners[known], bindings[name.binding_key]):
                there[one] = there.get(one, 0) + 1
        for going in (one for one in self._going if not one.item.kept):
            of_owner = owners[owner_of(going.item.record.scope)]
            for one in (Narrowing(), of_owner, bindings[going.name.binding_key]):
                could[one] += 1
        by_count = sorted(owners.values(), key=lambda one: (-could[one], one.label))
        several = sorted(bindings.values(), key=lambda one: one.label) if len(bindings) > 1 else []
        return [(one, could[one], there[one]) for one in (Narrowing(), *by_count, *several)]

    def owners(self) -> dict[Scope, tuple[int, int]]:
        """Return the prunable and total records of each owner.

        The company's figures are the totals, as in the scope chooser.
        """
        parts = self.parts()
        found = {part.owner: (could, there) for part, could, there in parts if part.owner}
        if self._items:
            company = next(iter(found)).company_id
            found[Scope(company_id=company)] = parts[0][1:]
        return found

    # Marks.

    @property
    def could(self) -> int:
        """Number of prunable records in this part."""
        return sum(not one.item.kept for one in self._shown.values())

    @property
    def must_stay(self) -> Counter[str]:
        """Number of candidates in this part that cannot be forgotten, by why they cannot."""
        return Counter(one.item.kept for one in self._shown.values() if one.item.kept)

    @property
    def going(self) -> set[RecordName]:
        """The marked records in this part."""
        return self.marks & self._shown.keys()

    @property
    def marked(self) -> list[ListedRecord]:
        """The records that would go, in the plans' order."""
        return self._listed(name for name in self._shown if name in self.marks)

    def _listed(self, names: Iterable[RecordName]) -> list[ListedRecord]:
        from memtui.service.operations.everywhere import ListedRecord

        return [
            ListedRecord(**dict(self._items[one].record), binding_key=one.binding_key)
            for one in names
        ]

    @property
    def saved(self) -> int:
        """Tokens saved by forgetting the marked records."""
        return self.before - self._size_of(frozenset(self.going)).tokens

    @property
    def over_budget(self) -> list[BudgetSection]:
        """The sections of the context that are now over their budget."""
        now, then = (self._size_of(gone).sections for gone in (frozenset(), frozenset(self.going)))
        return [
            BudgetSection(word, tokens, then.get(word, (0, 0))[0], budget)
            for word, (tokens, budget) in now.items()
            if tokens > budget
        ]

    @property
    def lost(self) -> int:
        """How many marked duplicates would go together with the record that says the same."""
        going = self.going
        return len({name for name, stays in self._survivors if {name, stays} <= going})

    @property
    def staying(self) -> list[ListedRecord]:
        """The records that stay in the place of one that would go."""
        going = self.going
        names = {stays for name, stays in self._survivors if name in going and stays not in going}
        return self._listed(sorted(names))

    @property
    def all_kept(self) -> str:
        """Why nothing in this part can be forgotten; empty if something can."""
        return min(self.must_stay) if self._shown and not self.could else ""

    def chosen(self, group: str) -> tuple[int, int]:
        """Return how many candidates of a group are marked, and how many there are."""
        own = self.groups[group]
        return sum(one.name in self.marks for one in own), len(own)

    def is_marked(self, line: ReviewLine) -> bool:
        """Return whether a candidate, or every one of a group, is marked."""
        if line.sort is Sort.GROUP:
            marked, of = self.chosen(line.group)
            return marked == of
        return line.sort is Sort.GOES and line.name in self.marks

    def turn(self, line: ReviewLine) -> None:
        """Toggle the mark of a candidate or of a whole group.

        A group's pinned records stay as they are: they are only marked one by one.
        """
        if line.sort is Sort.GOES and line.name is not None and not line.kept:
            self.marks ^= {line.name}
        elif line.sort is Sort.GROUP:
            free = {one.name for one in self.groups[line.group] if one.is_free}
            if free <= self.marks:
                self.marks -= free
            else:
                self.marks |= free

    def staying_for(self, name: RecordName | None) -> RecordName | None:
        """Return the record that stays in place of a duplicate; None: it is no duplicate."""
        one = self._shown.get(name) if name is not None else None
        return one.survivor if one is not None and one.first.reason in REPEATS else None

    def is_repeated(self, name: RecordName | None) -> bool:
        """Return whether a record stays in place of a duplicate."""
        return any(
            one.survivor == name and one.first.reason in REPEATS for one in self._shown.values()
        )

    def kept(self, name: RecordName) -> str:
        """Return why a record cannot be forgotten; empty if it can."""
        return self._items[name].kept

    def let_stay(self, name: RecordName) -> None:
        """Swap a duplicate with the record that was to stay, which takes over its mark."""
        before = self.staying_for(name)
        if before is None:
            return
        stays, goes = self._items[name], self._items[before]
        is_free = not goes.kept and not goes.record.pinned
        self._items = self._items | {
            name: stays.model_copy(update={"marked": False}),
            before: goes.model_copy(update={"marked": stays.marked and is_free}),
        }

        def of(one: _Going) -> _Going:
            """Return a duplicate of what was to stay with the one that stays now."""
            if one.name != name and (one.survivor != before or one.first.reason not in REPEATS):
                return one
            goes = before if one.name == name else one.name
            return replace(one, name=goes, item=self._items[goes], sentence=_CHOSEN, survivor=name)

        self._going = sorted((of(one) for one in self._going if one.name != before), key=_placed)
        self._survivors = [
            (before if goes == name else goes, name) if stays == before else (goes, stays)
            for goes, stays in self._survivors
        ]
        for cluster in self._clusters.values():
            if name in cluster:
                cluster.sort(key=lambda one: one != name)
        if name in self.marks:
            self.marks = (self.marks - {name}) | ({before} if is_free else set())
        self._chosen_to_stay += (name,)
        self._arrange(self.narrowing, by_owner=self.by_owner)

    def mark_all(self) -> None:
        """Mark every candidate that can be forgotten, is not pinned and exceeds the budget."""
        self._mark(one.name for one in self._shown.values() if one.is_free and one.group != _FITS)

    def mark_none(self) -> None:
        """Take all marks away."""
        self._mark(())

    def mark_suggested(self) -> None:
        """Mark only the suggested records."""
        self._mark(name for name, one in self._shown.items() if one.item.marked)

    def mark_in_turn(self) -> None:
        """Mark all; if all are marked, none; if none is marked, the suggested ones."""
        if before := self.going:
            self.mark_all()
            if self.going == before:
                self.mark_none()
        else:
            self.mark_suggested()
            if not self.going:
                self.mark_all()

    def _mark(self, names: Iterable[RecordName]) -> None:
        self.marks = (self.marks - self._shown.keys()) | set(names)

    def take_over(self, before: ReviewedPlans) -> None:
        """Take over narrowing and marks of `before`, the marks only on unchanged records.

        New records are marked as suggested.
        """
        for name in before._chosen_to_stay:
            if (instead := self.staying_for(name)) and not self.kept(instead):
                self.let_stay(name)
        same = {
            name
            for name in before.marks & self._items.keys()
            if self._items[name].record.revision == before._items[name].record.revision
        }
        could = {one.name for one in self._going}
        self.marks = (same & could) | {name for name in self.marks if name not in before._items}
        self._arrange(before.narrowing, by_owner=before.by_owner)

    def cluster(self, name: str) -> list[ListedRecord]:
        """Return the records of a cluster, the one that stays first."""
        return self._listed(self._clusters.get(name, ()))

    def diff(self) -> list[ReviewLine]:
        """Return the records that go, each set of duplicates after the record that stays."""
        found: list[ReviewLine] = []
        stays: ReviewLine | None = None
        for one in self.lines:
            goes = one.name is not None and one.name in self.marks
            if one.sort is not Sort.GOES:
                stays = None if goes or one.sort is Sort.GROUP else one
            elif goes:
                if stays is not None and stays.cluster == one.cluster:
                    found.append(stays)
                    stays = None
                found.append(one)
        return found


def _placed(one: _Going) -> tuple[object, ...]:
    """Return the sort key of a record: by reason, then worth or the record that stays instead."""
    by_worth = one.item.worth if one.first.reason is Reason.LEAST_WORTH else None
    return _ORDER[one.first.reason], by_worth or (), one.survivor or one.name, one.name


def _cluster(binding_key: str, one: PruneCandidate) -> str:
    return f"{binding_key}\x1f{one.cluster_id}" if one.cluster_id else ""


def _line(sort: Sort, group: str, one: _Going, name: RecordName, item: PlanItem) -> ReviewLine:
    of = f"{group}\x1f" if sort is Sort.STAYS else ""
    stays = _REPEATED if one.first.reason in REPEATS else _CONTRADICTED
    return ReviewLine(
        key=f"{sort}\x1f{of}{name.binding_key}\x1f{name.record_id}",
        sort=sort,
        group=group,
        text=item.record.text,
        name=name,
        record=item.record,
        sentence=stays if sort is Sort.STAYS else one.sentence,
        tokens=item.tokens,
        cluster=_cluster(name.binding_key, one.first),
        reason=one.group if sort is Sort.GOES else "",
        kept=item.kept,
    )


class LeftReview(NamedTuple):
    """Saved position of a review, to resume it."""

    begun: tuple[object, ...]
    review: ReviewedPlans
    everything: bool
    key: str
    """Key of the row under the cursor."""
