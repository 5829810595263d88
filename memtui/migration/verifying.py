"""Prove that a migration lost nothing: both sides compared as multisets, past any page.

Unlike the reference, which compares the texts of a workspace's first 100 rows, every field counts.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from pydantic import computed_field

from memtui.contract import Model, NotFound, QueryRequest, Record, Scope
from memtui.migration.ends import Ends, ProgressFile
from memtui.migration.index import Index, Pairing
from memtui.migration.parcel import Parcel, living, unpack, unpack_clean
from memtui.service import BindingView, BrowseAnswer

_LISTED = 1_000
_SEARCHED = 200
"""Characters of a text by which it is searched for."""


class Mismatch(Model):
    """A record that is not the same on both sides."""

    what: str
    """`missing`, `different` or `extra`."""
    source_id: str | None = None
    destination_id: str | None = None
    fields: tuple[str, ...] = ()
    """Which fields differ."""


class Verified(Model):
    """What was compared, in records."""

    source_records: int
    """How many the source lists."""
    checked: int
    matched: int
    missing: int
    different: int
    extra: int
    """Migrated from the source, and no longer in it or there more than once."""
    others: int
    """The destination's own."""
    mismatches: tuple[Mismatch, ...] = ()
    """The first thousand."""
    source_at_least: bool = False
    """The source may hold more than it lists, and that was not compared."""
    source_unread: tuple[str, ...] = ()
    """In sentences, what that is and which setting reads further."""
    destination_at_least: bool = False
    """The destination may hold more than it lists: what is missing may be there out of reach."""
    destination_unread: tuple[str, ...] = ()
    sample: int | None = None
    seed: int | None = None

    @property
    def is_same(self) -> bool:
        """Whether all that was compared is the same."""
        return not (self.missing or self.different or self.extra)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether everything that the source holds was read; of a sample, drawn from."""
        return not self.source_at_least

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether all that was to be compared was read, and is the same."""
        return self.is_same and self.complete


def verdict(found: Verified, source: str, destination: str) -> str:
    """Return in one line what a comparison says, and no more than it knows."""
    same = f"{found.matched:,} of {found.checked:,} compared records are the same"
    if not found.is_same:
        wrong = found.missing + found.different + found.extra
        return f"✗ {wrong:,} not the same on both sides; {same}"
    if found.source_at_least:
        return f"✗ {same}, but {source} cannot be listed whole and may hold more"
    if found.checked < found.source_records:
        return f"✓ {same}; the others were not compared"
    if found.destination_at_least:
        return f"✓ all {found.checked:,} of {source} are the same in {destination}"
    return f"✓ the same on both sides: {found.checked:,}"


async def verify(
    ends: Ends,
    data: Path,
    *,
    sample: int | None = None,
    seed: int | None = None,
    report: Callable[[int], None] = lambda _read: None,
) -> Verified:
    """Compare every record, or a random sample of the source's.

    The same `seed` takes the same sample; None draws one. `report` is told how many records were
    read. A secret that a migration takes out is no difference.
    """
    drawn = seed if seed is not None or sample is None else random.SystemRandom().getrandbits(32)
    with Index() as index:
        pairing = Pairing(index, ends)
        source = await _read_source(ends, pairing, sample, drawn or 0, report)
        destination = await _read_destination(ends, index, source.records, report)
        await asyncio.to_thread(pairing.pair, sampled=sample is not None)
        if destination.at_least:
            await _look_for_missing(ends, index, pairing)
            await asyncio.to_thread(pairing.pair, sampled=sample is not None)
        if source.at_least and sample is None:
            source.records += await _look_for_surplus(ends, pairing)
            await asyncio.to_thread(pairing.pair, sampled=False)
        found = await asyncio.to_thread(_found, pairing)
    answer = found.model_copy(
        update={
            "source_records": source.records,
            "source_at_least": source.at_least,
            "source_unread": source.unread,
            "destination_at_least": destination.at_least,
            "destination_unread": destination.unread,
            "sample": sample,
            "seed": drawn,
        }
    )
    if ends.part.is_all:
        await asyncio.to_thread(_note, ProgressFile(data, ends), answer)
    return answer


def _note(kept: ProgressFile, answer: Verified) -> None:
    if answer.is_same and answer.checked < answer.source_records:
        return  # a part that is the same says nothing of the rest
    known = kept.read()
    verified_at = datetime.now(UTC) if answer.is_same else None
    update = {"verified_at": verified_at, "verified_whole": answer.passed}
    kept.write(known.model_copy(update=update))


@dataclass(slots=True)
class _Read:
    """How much of a side was read, and what was not."""

    records: int = 0
    at_least: bool = False
    unread: tuple[str, ...] = ()

    def add(self, page: BrowseAnswer, records: int) -> None:
        self.records += records
        self.at_least, self.unread = self.at_least or page.at_least, page.unread


async def _read_source(
    ends: Ends, pairing: Pairing, sample: int | None, seed: int, report: Callable[[int], None]
) -> _Read:
    drawn, read = _Sample(sample, seed), _Read()
    async for page in ends.pages(ends.source, report):
        parcels = await asyncio.to_thread(living, page.records, unpack_clean)
        if sample is None:
            await asyncio.to_thread(pairing.add_source, parcels)
        else:
            drawn.offer(parcels)
        read.add(page, len(parcels))
        report(read.records)
    if sample is not None:
        await asyncio.to_thread(pairing.add_source, drawn.taken())
    return read


async def _read_destination(
    ends: Ends, index: Index, seen: int, report: Callable[[int], None]
) -> _Read:
    read = _Read()
    async for page in ends.pages(ends.destination, lambda found: report(seen + found)):
        parcels = await asyncio.to_thread(living, page.records, unpack)
        await asyncio.to_thread(index.add, parcels)
        read.add(page, len(page.records))
        report(seen + read.records)
    return read


async def _look_for_missing(ends: Ends, index: Index, pairing: Pairing) -> None:
    """Ask by id for what a destination that does not list everything did not list."""
    for own, names, scope in await asyncio.to_thread(pairing.missing_names):
        found = await _found_by_id(ends, ends.destination, names, scope)
        if found is None and (known := await _found_by_id(ends, ends.source, [own], scope)):
            await _search_for(ends, ends.destination, known)
            found = await _found_by_id(ends, ends.destination, names, scope)
        if found is None:
            continue
        parcel = unpack(found)
        if await asyncio.to_thread(index.named, parcel.record_id) is None:
            await asyncio.to_thread(index.add, [parcel])


async def _look_for_surplus(ends: Ends, pairing: Pairing) -> int:
    """Ask a source that does not list everything for what was migrated and it did not list.

    Returns how many records it has after all.
    """
    added = 0
    for name, scope in await asyncio.to_thread(pairing.surplus_names):
        held = await _found_by_id(ends, ends.destination, [name], scope)
        passport = unpack(held).passport if held else None
        if held is None or passport is None:
            continue
        names = [passport.record_id]
        found = await _found_by_id(ends, ends.source, names, scope)
        if found is None:
            await _search_for(ends, ends.source, held)
            found = await _found_by_id(ends, ends.source, names, scope)
        parcels = living([found] if found else [], unpack_clean)
        await asyncio.to_thread(pairing.add_source, parcels)
        added += len(parcels)
    return added


async def _found_by_id(
    ends: Ends, binding: BindingView, names: Sequence[str], scope: Scope
) -> Record | None:
    for name in names:
        try:
            answer = await ends.service.get(ends.caller, name, scope, binding_key=binding.key)
        except NotFound:
            continue
        return answer.record
    return None


async def _search_for(ends: Ends, binding: BindingView, record: Record) -> None:
    """Let a provider meet a record by its first words: then it can be asked for by its id.

    An explained query is no retrieval, so the record's history stays as it is.
    """
    text = record.text.strip()
    words = text if len(text) <= _SEARCHED else text[:_SEARCHED].rsplit(None, 1)[0]
    if words and binding.capabilities.explain:
        asked = QueryRequest(scope=record.scope, query=words, binding_key=binding.key, top_k=99)
        await ends.service.explain(ends.caller, asked)


def _found(pairing: Pairing) -> Verified:
    mismatches = [
        *(Mismatch(what="missing", source_id=one) for one in pairing.missing(_LISTED)),
        *(
            Mismatch(what="different", source_id=left, destination_id=right, fields=fields)
            for left, right, fields in pairing.different(_LISTED)
        ),
        *(Mismatch(what="extra", destination_id=one) for one in pairing.surplus(_LISTED)),
    ]
    counts = pairing.counts()
    return Verified(
        source_records=counts.checked, mismatches=tuple(mismatches[:_LISTED]), **counts._asdict()
    )


class _Sample:
    """The records whose seeded hashes are smallest: a uniform sample, whatever the order."""

    def __init__(self, size: int | None, seed: int) -> None:
        self._size = size or 0
        self._key = seed.to_bytes(16, "big", signed=True)
        self._heap: list[tuple[int, int, Parcel]] = []
        self._count = 0

    def offer(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            name = parcel.record_id.encode("utf-8", "surrogatepass")
            digest = blake2b(name, key=self._key, digest_size=8).digest()
            self._count += 1
            entry = (-int.from_bytes(digest, "big"), self._count, parcel)
            if len(self._heap) < self._size:
                heapq.heappush(self._heap, entry)
            else:
                heapq.heappushpop(self._heap, entry)

    def taken(self) -> list[Parcel]:
        return [parcel for _, _, parcel in self._heap]
