"""Prove that a migration lost nothing: compare all records of both sides as multisets.

The reference compares only the texts of a workspace's first 100 rows; here every field counts.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from pydantic import computed_field

from memtui.contract import Model, NotFound, QueryRequest, Record, Scope
from memtui.migration.endpoints import Endpoints, ProgressFile
from memtui.migration.envelope import Envelope, living, unpack, unpack_clean
from memtui.migration.index import RecordIndex
from memtui.service import BindingView, BrowseAnswer
from memtui.service.usecases.checking import CheckedMemory, check_memory, lost_checks

_LISTED = 1_000
_SEARCHED = 200
"""Length of a search for a record by its text, in characters."""


class Mismatch(Model):
    """A record that differs, or is on one side only."""

    what: str
    """`missing`, `different` or `extra`."""
    source_id: str | None = None
    destination_id: str | None = None
    fields: tuple[str, ...] = ()
    """Which fields differ."""


class Verified(Model):
    """The result of a comparison, in records."""

    source_records: int
    """How many the source lists."""
    checked: int
    matched: int
    missing: int
    different: int
    extra: int
    """Records migrated from the source that are surplus: duplicates, or gone from the source."""
    others: int
    """Records of the destination that were not migrated from the source."""
    mismatches: tuple[Mismatch, ...] = ()
    """The first thousand."""
    source_at_least: bool = False
    """The source may hold more records than it lists; those were not compared."""
    source_unread: tuple[str, ...] = ()
    """Sentences on records that were not listed, and the setting that reads further."""
    destination_at_least: bool = False
    """The destination may hold more than it lists, so a missing record may be there unlisted."""
    destination_unread: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences on the parts of the source that cannot be read and were not compared."""
    sample: int | None = None
    seed: int | None = None
    lost_checks: tuple[CheckedMemory, ...] = ()
    """The checks that pass on the source and not on the destination."""

    @property
    def is_same(self) -> bool:
        """Whether everything compared is the same."""
        return not (self.missing or self.different or self.extra)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether every record of the source was read, for a sample before drawing it."""
        return not (self.source_at_least or self.problems)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether every record was read and everything compared is the same."""
        return self.is_same and self.complete and not self.lost_checks


def verdict(found: Verified, source: str, destination: str) -> str:
    """Return the result of a comparison in one line, with its limits."""
    same = f"{found.matched:,} of {found.checked:,} compared records are the same"
    if not found.is_same:
        wrong = found.missing + found.different + found.extra
        return f"✗ {wrong:,} not the same on both sides; {same}"
    unproven = {
        f"{destination} fails checks that {source} passes": found.lost_checks,
        f"not all of {source} can be read": found.problems,
        f"{source} cannot be listed completely and may have more": found.source_at_least,
    }
    if why := next((words for words, is_so in unproven.items() if is_so), None):
        return f"✗ {same}, but {why}"
    if found.checked < found.source_records:
        return f"✓ {same}; the others were not compared"
    if found.destination_at_least:
        return f"✓ all {found.checked:,} of {source} are the same in {destination}"
    return f"✓ the same on both sides: {found.checked:,}"


async def verify(
    endpoints: Endpoints,
    data: Path,
    *,
    sample: int | None = None,
    seed: int | None = None,
    checks: Path | None = None,
    report: Callable[[int], None] = lambda _read: None,
) -> Verified:
    """Compare every record, or a random sample of the source's.

    The same `seed` gives the same sample; None draws a seed. `checks` is a file of checks that both
    sides are asked. `report` receives the number of records read. A secret that a migration removes
    is not a difference.
    """
    drawn = seed if seed is not None or sample is None else random.SystemRandom().getrandbits(32)
    chosen = None if sample is None else _Sample(sample, drawn or 0)
    lost = await _lost_checks(endpoints, checks) if checks else ()
    with RecordIndex(endpoints.source.key, endpoints.destination.key) as index:

        def take_source(records: Sequence[Record]) -> int:
            envelopes = living(records, unpack_clean)
            (chosen.offer if chosen else index.add_source)(envelopes)
            return len(envelopes)

        def take_destination(records: Sequence[Record]) -> int:
            index.add(living(records, unpack))
            return len(records)

        read, source = await _read(endpoints, endpoints.source, take_source, report)
        if chosen:
            await asyncio.to_thread(index.add_source, chosen.taken())
        _, destination = await _read(
            endpoints, endpoints.destination, take_destination, lambda there: report(read + there)
        )
        await asyncio.to_thread(index.pair, sampled=sample is not None)
        if destination.at_least:
            await _look_for_missing(endpoints, index)
            await asyncio.to_thread(index.pair, sampled=sample is not None)
        if source.at_least and sample is None:
            read += await _look_for_extra(endpoints, index)
            await asyncio.to_thread(index.pair, sampled=False)
        counts, mismatches = await asyncio.to_thread(lambda: (index.counts(), _mismatches(index)))
    answer = Verified(
        **counts,
        source_records=read,
        mismatches=mismatches,
        source_at_least=source.at_least,
        source_unread=source.unread,
        destination_at_least=destination.at_least,
        destination_unread=destination.unread,
        problems=tuple(one.sentence() for one in source.problems),
        sample=sample,
        seed=drawn,
        lost_checks=lost,
    )
    if endpoints.part.is_all:
        await asyncio.to_thread(_note, ProgressFile(data, endpoints), answer)
    return answer


async def _lost_checks(endpoints: Endpoints, file: Path) -> tuple[CheckedMemory, ...]:
    both = [
        await check_memory(endpoints.service, endpoints.caller, file, binding_key=one.key)
        for one in (endpoints.source, endpoints.destination)
    ]
    return lost_checks(*both)


def _note(kept: ProgressFile, answer: Verified) -> None:
    is_same = answer.is_same and not answer.lost_checks
    if is_same and answer.checked < answer.source_records:
        return  # a matching sample proves nothing about the rest
    verified_at = datetime.now(UTC) if is_same else None
    update = {"verified_at": verified_at, "verified_whole": answer.passed}
    kept.write(kept.stored().model_copy(update=update))


async def _read(
    endpoints: Endpoints,
    binding: BindingView,
    take: Callable[[Sequence[Record]], int],
    report: Callable[[int], None],
) -> tuple[int, BrowseAnswer]:
    """Read every page of a binding; `take` returns how many of its records count.

    Returns the sum of those, and the last page.
    """
    read = 0
    async for page in endpoints.pages(binding, report):
        read += await asyncio.to_thread(take, page.records)
        report(read)
    return read, page


async def _look_for_missing(endpoints: Endpoints, index: RecordIndex) -> None:
    """Look up missing records by id, for a destination that does not list everything."""
    for own, names, scope in await asyncio.to_thread(index.missing):
        found = await _found_by_id(endpoints, endpoints.destination, names, scope)
        if found is None and (
            known := await _found_by_id(endpoints, endpoints.source, [own], scope)
        ):
            await _search_for(endpoints, endpoints.destination, known)
            found = await _found_by_id(endpoints, endpoints.destination, names, scope)
        if found is None:
            continue
        envelope = unpack(found)
        if await asyncio.to_thread(index.named, envelope.record_id) is None:
            await asyncio.to_thread(index.add, [envelope])


async def _look_for_extra(endpoints: Endpoints, index: RecordIndex) -> int:
    """Look up surplus records by id, for a source that does not list everything.

    Returns the number found.
    """
    added = 0
    for name, scope in await asyncio.to_thread(index.surplus):
        copy = await _found_by_id(endpoints, endpoints.destination, [name], scope)
        migration_record = unpack(copy).migration_record if copy else None
        if copy is None or migration_record is None:
            continue
        names = [migration_record.record_id]
        found = await _found_by_id(endpoints, endpoints.source, names, scope)
        if found is None:
            await _search_for(endpoints, endpoints.source, copy)
            found = await _found_by_id(endpoints, endpoints.source, names, scope)
        envelopes = living([found] if found else [], unpack_clean)
        await asyncio.to_thread(index.add_source, envelopes)
        added += len(envelopes)
    return added


async def _found_by_id(
    endpoints: Endpoints, binding: BindingView, names: Sequence[str], scope: Scope
) -> Record | None:
    asked = scope.outside_run()
    for name in names:
        try:
            answer = await endpoints.service.get(
                endpoints.caller, name, asked, binding_key=binding.key
            )
        except NotFound:
            continue
        return answer.record
    return None


async def _search_for(endpoints: Endpoints, binding: BindingView, record: Record) -> None:
    """Search for a record by its first words, so that the provider can then get it by id.

    An explained query is not a retrieval, so the record's usage is unchanged.
    """
    text = record.text.strip()
    words = text if len(text) <= _SEARCHED else text[:_SEARCHED].rsplit(None, 1)[0]
    if words and binding.capabilities.explain:
        scope = record.scope.outside_run()
        asked = QueryRequest(scope=scope, query=words, binding_key=binding.key, top_k=99)
        await endpoints.service.explain(endpoints.caller, asked)


def _mismatches(index: RecordIndex) -> tuple[Mismatch, ...]:
    found = [
        *(Mismatch(what="missing", source_id=one) for one, _, _ in index.missing(_LISTED)),
        *(
            Mismatch(what="different", source_id=left, destination_id=right, fields=fields)
            for left, right, fields in index.different(_LISTED)
        ),
        *(Mismatch(what="extra", destination_id=one) for one, _ in index.surplus(_LISTED)),
    ]
    return tuple(found[:_LISTED])


class _Sample:
    """The records with the smallest seeded hashes: a uniform sample in any order of input."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._key = seed.to_bytes(16, "big", signed=True)
        self._heap: list[tuple[int, int, Envelope]] = []
        self._count = itertools.count()

    def offer(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            name = envelope.record_id.encode("utf-8", "surrogatepass")
            digest = blake2b(name, key=self._key, digest_size=8).digest()
            heapq.heappush(self._heap, (-int.from_bytes(digest), next(self._count), envelope))
            if len(self._heap) > self._size:
                heapq.heappop(self._heap)

    def taken(self) -> list[Envelope]:
        return [envelope for _, _, envelope in self._heap]
