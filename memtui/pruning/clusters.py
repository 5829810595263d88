"""Group texts that say the same thing, each group around the one to keep."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memtui.pruning.meaning import join_by_meaning
from memtui.pruning.sameness import Likeness, Match, compare
from memtui.pruning.words import Form, form_of

Vectors = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Turns texts into vectors of one length, in order."""

_BUCKET = 8
"""Texts of one key that a text is compared with, so that no input makes the work quadratic."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text to group, and what speaks for keeping it."""

    id: str
    text: str
    group: str = ""
    """Only texts of one group are compared: one scope's facts."""
    pinned: bool = False
    reads: int = 0
    at: datetime | None = None
    """When it was last written, UTC."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An entry that says what the survivor says."""

    entry: Entry
    match: Match


@dataclass(frozen=True, slots=True)
class Cluster:
    """Entries that say the same. Each was compared with the survivor itself, not with a chain.

    One that was joined by meaning may itself be the survivor of a cluster of its own.
    """

    id: str
    survivor: Entry
    why_survivor: str
    duplicates: tuple[Duplicate, ...]


class DuplicateIndex:
    """Finds the earlier text that a text repeats, in time that does not grow with their number.

    A text is looked up by its exact words, then by what likeness leaves alone (`Form.blocks`). The
    few texts found are compared.
    """

    def __init__(self) -> None:
        self._forms: list[Form] = []
        self._places: dict[str, tuple[int, ...]] = {}

    def add(self, form: Form) -> None:
        """Add a text; the first is number 0."""
        for key in _keys(form):
            places = self._places.get(key, ())
            if len(places) < _BUCKET:
                self._places[key] = (*places, len(self._forms))
        self._forms.append(form)

    def find(self, form: Form) -> tuple[int, Match] | None:
        """Return the first added text that says the same, exact ones before near ones."""
        seen: set[int] = set()
        for key in _keys(form):
            for number in self._places.get(key, ()):
                if number in seen:
                    continue
                seen.add(number)
                if match := compare(form, self._forms[number]):
                    return number, match
        return None


def find_clusters(
    entries: Iterable[Entry],
    *,
    vectors: Vectors | None = None,
    threshold: float = 0.95,
) -> list[Cluster]:
    """Return the groups of two and more, in the order of their survivors' ids.

    The survivor is the pinned entry, else the most read, else the newest, else the longest, else
    the first by id. The result does not depend on the order of `entries`.

    Args:
        entries: What to group; ids are unique within it.
        vectors: Given, texts of the same meaning are joined too, numbers, negations and names
            permitting.
        threshold: Cosine from which on two vectors mean the same (seed 002: 0.95).
    """
    ranked = sorted(entries, key=_preference)
    indexes: dict[str, DuplicateIndex] = defaultdict(DuplicateIndex)
    leaders: dict[str, list[Entry]] = defaultdict(list)
    members: dict[str, list[Duplicate]] = {}
    for entry in ranked:
        form = form_of(entry.text)
        found = indexes[entry.group].find(form)
        if found is None:
            indexes[entry.group].add(form)
            leaders[entry.group].append(entry)
            members[entry.id] = []
        else:
            number, match = found
            members[leaders[entry.group][number].id].append(Duplicate(entry, match))
    if vectors is not None:
        _join_meanings(leaders, members, vectors, threshold)
    clusters = [
        _cluster(leader, members[leader.id])
        for group in leaders.values()
        for leader in group
        if members[leader.id]
    ]
    return sorted(clusters, key=lambda cluster: cluster.survivor.id)


def _join_meanings(
    leaders: dict[str, list[Entry]],
    members: dict[str, list[Duplicate]],
    vectors: Vectors,
    threshold: float,
) -> None:
    for group in leaders.values():
        texts = [leader.text for leader in group]
        for joined, kept, cosine in join_by_meaning(texts, vectors(texts), threshold):
            sentence = f"It means the same, in other words ({cosine:.0%} alike)."
            match = Match(Likeness.MEANING, round(100 * cosine, 1), sentence)
            members[group[kept].id].append(Duplicate(group[joined], match))


def _cluster(survivor: Entry, duplicates: Sequence[Duplicate]) -> Cluster:
    return Cluster(
        id=hashlib.sha256(survivor.id.encode(errors="surrogatepass")).hexdigest()[:8],
        survivor=survivor,
        why_survivor=_why(survivor, [duplicate.entry for duplicate in duplicates]),
        duplicates=tuple(sorted(duplicates, key=lambda duplicate: duplicate.entry.id)),
    )


def _preference(entry: Entry) -> tuple[bool, int, float, int, str]:
    at = entry.at.timestamp() if entry.at else float("-inf")
    return not entry.pinned, -entry.reads, -at, -len(entry.text), entry.id


def _why(survivor: Entry, others: Sequence[Entry]) -> str:
    if survivor.pinned and not all(other.pinned for other in others):
        return "It is pinned."
    if survivor.reads > max(other.reads for other in others if other.pinned == survivor.pinned):
        return f"It is read most, {survivor.reads:,} times."
    if survivor.at is not None and all(
        other.at is None or other.at < survivor.at for other in others
    ):
        return f"It is the newest, of {survivor.at:%Y-%m-%d}."
    if all(len(other.text) < len(survivor.text) for other in others):
        return "It is the longest."
    return "It is the first; nothing else tells them apart."


def _keys(form: Form) -> tuple[str, ...]:
    return (f"={' '.join(form.words)}", *form.blocks)
