"""Prove that a migration lost nothing: both sides compared as multisets, past any page.

Unlike the reference, which compares the texts of a workspace's first 100 rows, every field counts.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from memtui.contract import Model, NotFound
from memtui.migration.ends import Ends
from memtui.migration.index import Index
from memtui.migration.pairing import Pairing
from memtui.migration.passport import Parcel, living, unpack, unpack_clean
from memtui.migration.progress_file import ProgressFile

_LISTED = 1_000


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
    destination_at_least: bool = False
    sample: int | None = None
    seed: int | None = None

    @property
    def passed(self) -> bool:
        """Whether all that was checked is the same."""
        return not (self.missing or self.different or self.extra)


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
        total, source_at_least = await _read_source(ends, pairing, sample, drawn or 0, report)
        destination_at_least = await _read_destination(ends, index, total, report)
        await asyncio.to_thread(pairing.pair, sampled=sample is not None)
        if destination_at_least:
            await _look_for_missing(ends, index, pairing)
            await asyncio.to_thread(pairing.pair, sampled=sample is not None)
        found = await asyncio.to_thread(_found, pairing)
    answer = found.model_copy(
        update={
            "source_records": total,
            "source_at_least": source_at_least,
            "destination_at_least": destination_at_least,
            "sample": sample,
            "seed": drawn,
        }
    )
    if ends.part.is_all:
        await asyncio.to_thread(_note, ProgressFile(data, ends), answer)
    return answer


def _note(kept: ProgressFile, answer: Verified) -> None:
    if answer.passed and answer.checked < answer.source_records:
        return  # a part that is the same says nothing of the rest
    known = kept.read()
    verified_at = datetime.now(UTC) if answer.passed else None
    whole = answer.passed and not answer.source_at_least
    kept.write(known.model_copy(update={"verified_at": verified_at, "verified_whole": whole}))


async def _read_source(
    ends: Ends, pairing: Pairing, sample: int | None, seed: int, report: Callable[[int], None]
) -> tuple[int, bool]:
    drawn = _Sample(sample, seed)
    total, at_least = 0, False
    async for page in ends.pages(ends.source):
        parcels = await asyncio.to_thread(living, page.records, unpack_clean)
        if sample is None:
            await asyncio.to_thread(pairing.add_source, parcels)
        else:
            drawn.offer(parcels)
        total, at_least = total + len(parcels), at_least or page.at_least
        report(total)
    if sample is not None:
        await asyncio.to_thread(pairing.add_source, drawn.taken())
    return total, at_least


async def _read_destination(
    ends: Ends, index: Index, seen: int, report: Callable[[int], None]
) -> bool:
    at_least = False
    async for page in ends.pages(ends.destination):
        parcels = await asyncio.to_thread(living, page.records, unpack)
        await asyncio.to_thread(index.add, parcels)
        at_least |= page.at_least
        seen += len(page.records)
        report(seen)
    return at_least


async def _look_for_missing(ends: Ends, index: Index, pairing: Pairing) -> None:
    """Ask by id for what a destination that does not list everything did not list."""
    for names, scope in await asyncio.to_thread(pairing.missing_names):
        for name in names:
            try:
                answer = await ends.service.get(
                    ends.caller, name, scope, binding_key=ends.destination.key
                )
            except NotFound:
                continue
            found = unpack(answer.record)
            if await asyncio.to_thread(index.named, found.record_id) is None:
                await asyncio.to_thread(index.add, [found])
            break


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
