"""Move records. An interrupted run can be repeated: it continues and duplicates nothing.

Each migrated record carries its migration record, so a run begins by reading those from the
destination. A separate ledger could disagree with the destination; there is none.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Literal

from pydantic import computed_field

from memtui.contract import (
    Conflict,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    Problem,
    Record,
    RecordHandle,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
)
from memtui.migration.endpoints import Endpoints, MigrationState, ProgressFile, check_writable
from memtui.migration.envelope import (
    Envelope,
    Loss,
    differing,
    digest_of,
    filled_fields,
    identity_of,
    is_empty,
    living,
    losses,
    pack,
    print_of,
    unable,
    unpack,
    unpack_clean,
    why_left,
)
from memtui.migration.index import DestinationRecord, RecordIndex
from memtui.service import MutationAnswer

_BETWEEN_SECONDS = 0.1
"""Least time between two reports, in seconds."""
_WINDOW_SECONDS = 10.0
"""The rate covers the last seconds only: a resumed run first skips quickly over moved records."""
_AT_ONCE = 8
_LISTED_FAILURES = 1_000
_FAILURES_TO_STOP = 10

_Outcome = Literal["written", "replaced", "unchanged"]
_Found = tuple[DestinationRecord | None, str | None]


class MigrationProgress(Model):
    """How far a run has come."""

    done: int
    total: int | None
    """None: not known yet."""
    found: int = 0
    """Records found so far, while the source is still being searched."""
    failed: int
    rate: float
    """Records a second, in the last ten seconds."""
    seconds_left: float | None


class Pace:
    """Counts finished records, and reports them at most ten times a second."""

    def __init__(
        self, report: Callable[[MigrationProgress], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self.done = 0
        self.failed = 0
        self.total: int | None = None
        """None: not known yet."""
        self._report = report
        self._clock = clock
        self._marks = deque([(clock(), 0)])
        self._reported_at = float("-inf")

    def add(self, records: int = 1) -> None:
        """Count records as finished."""
        self.done += records
        if self._clock() - self._reported_at >= _BETWEEN_SECONDS:
            self.tell()

    def search(self, found: int) -> None:
        """Report that the source is still being searched."""
        nothing = MigrationProgress(
            done=0, total=None, found=found, failed=0, rate=0.0, seconds_left=None
        )
        self._report(nothing)

    def tell(self) -> None:
        """Report now."""
        now = self._reported_at = self._clock()
        self._marks.append((now, self.done))
        while len(self._marks) > 2 and self._marks[1][0] <= now - _WINDOW_SECONDS:
            self._marks.popleft()
        began, before = self._marks[0]
        rate = (self.done - before) / max(now - began, 1e-6)
        left = None if self.total is None or not rate else max(0, self.total - self.done) / rate
        self._report(
            MigrationProgress(
                done=self.done, total=self.total, failed=self.failed, rate=rate, seconds_left=left
            )
        )


class Failure(Model):
    """A record that was not moved, and why."""

    record_id: str
    reason: str


class Applied(Model):
    """What a run did, in records."""

    seen: int = 0
    written: int = 0
    replaced: int = 0
    """Records migrated before that changed in the source since."""
    unchanged: int = 0
    """Records already in the destination."""
    failed: int = 0
    redacted: int = 0
    """Records whose secrets were removed."""
    failures: tuple[Failure, ...] = ()
    """The first thousand."""
    source_at_least: bool = False
    """The source may hold more records than it lists."""
    source_unread: tuple[str, ...] = ()
    """Sentences on records that were not listed, and the setting that reads further."""
    problems: tuple[str, ...] = ()
    """Sentences on unreadable parts of the source, which may have records that were not moved."""
    losses: tuple[Loss, ...] = ()
    """Losses among the records moved in this run."""
    limited: bool = False
    """It stopped at the limit; a further run goes on."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether every record of the source was read."""
        return not (self.source_at_least or self.problems or self.limited)


async def apply(
    endpoints: Endpoints,
    data: Path,
    report: Callable[[MigrationProgress], None] = lambda _progress: None,
    *,
    limit: int | None = None,
) -> Applied:
    """Write every record of the source into the destination; the source stays as it is.

    `data` is memtui's data folder; `report` receives the progress, a few times a second. A record
    that cannot be moved does not stop the run; a provider that stays unavailable does. `limit`: the
    most records to write or replace; a further run goes on with the next.

    Raises:
        Denied: the destination is read-only.
        Conflict: another migration into it is running.
        Unsupported: a second run could not determine what the first one moved.
        Unavailable: a provider failed ten times in a row; a further run continues.
    """
    await check_writable(endpoints)
    kept = ProgressFile(data, endpoints)
    with kept.alone(), RecordIndex(endpoints.source.key, endpoints.destination.key) as index:
        known = await asyncio.to_thread(kept.stored)
        await _read_destination(endpoints, index)
        begun = MigrationState(
            begun_at=datetime.now(UTC), switched=known.switched, closed=known.closed
        )
        await asyncio.to_thread(kept.write, begun)
        mover = _Mover(endpoints, index, Pace(report), limit)
        async for page in endpoints.pages(endpoints.source, mover.pace.search):
            if page.total is not None and not page.at_least:
                mover.pace.total = page.total
            await mover.move_all(page.records, page.problems)
            mover.pace.tell()
            if mover.limited:
                break
        else:
            ended = begun.model_copy(update={"applied_at": datetime.now(UTC)})
            await asyncio.to_thread(kept.write, ended)
    return Applied(
        seen=mover.pace.done,
        failed=mover.pace.failed,
        failures=tuple(mover.failures),
        source_at_least=page.at_least,
        source_unread=page.unread,
        problems=tuple(one.sentence() for one in page.problems),
        losses=mover.losses,
        limited=mover.limited,
        **mover.counts,
    )


async def _read_destination(endpoints: Endpoints, index: RecordIndex) -> None:
    async for page in endpoints.pages(endpoints.destination):
        if page.at_least and not endpoints.destination.capabilities.keeps_ids:
            raise Unsupported(
                f"{endpoints.destination.key} stores no ids and cannot be listed completely, so "
                "memtui cannot tell which records were moved before; migrate into an empty "
                "namespace."
            )
        await asyncio.to_thread(index.add, map(unpack, page.records))


class _Mover:
    """Moves and counts one source's records; learns which fields the destination lacks."""

    def __init__(
        self, endpoints: Endpoints, index: RecordIndex, pace: Pace, limit: int | None
    ) -> None:
        self.pace = pace
        self.limited = False
        """Whether the limit was reached, so that records were left for a further run."""
        self._limit = limit
        self.counts: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self._endpoints = endpoints
        self._index = index
        self._facts = asyncio.Lock()
        self._in_a_row = 0
        """Consecutive failures with `Unavailable`."""
        self._unable = unable(endpoints.destination.capabilities)
        self._lost: set[tuple[str, str]] = set()
        self._added: set[str] = set()
        self._lacking: Counter[str] = Counter()
        """Number of moved records by field that the destination does not store."""
        self._carries = True
        """False: the destination stores no metadata either."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses among the records moved so far."""
        return tuple(losses(self._lacking, carried=self._carries))

    async def move_all(self, records: Sequence[Record], problems: Sequence[Problem]) -> None:
        """Move a page of records, several at once."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(envelope: Envelope, found: _Found) -> None:
            async with room:
                try:
                    if why := why_left(envelope.record, problems):
                        raise Invalid(why)
                    outcome = await self._move(envelope, found)
                except MemtuiError as error:
                    self._fail(envelope, error)
                else:
                    self._in_a_row = 0
                    self.counts[outcome] += 1
                    if outcome != "unchanged":
                        self._count(envelope)
                    self.pace.add()

        envelopes = await asyncio.to_thread(living, records, unpack_clean)
        looked = await asyncio.to_thread(lambda: [(one, self._find(one)) for one in envelopes])
        self.pace.add(len(records) - len(looked))  # the others have expired
        while looked and not self.limited:
            part, looked = self._within_limit(looked)
            self.limited = bool(looked) and not part
            try:
                async with asyncio.TaskGroup() as group:
                    for envelope, found in part:
                        group.create_task(one(envelope, found))
            except ExceptionGroup as stopped:
                error: Exception = stopped
                while isinstance(error, ExceptionGroup):
                    error = error.exceptions[0]
                raise error from stopped

    def _within_limit(
        self, looked: list[tuple[Envelope, _Found]]
    ) -> tuple[list[tuple[Envelope, _Found]], list[tuple[Envelope, _Found]]]:
        """Return the first records, as many as may still be written, and the others."""
        if self._limit is None:
            return looked, []
        left = self._limit - self.counts["written"] - self.counts["replaced"]
        for place, (envelope, (copy, base)) in enumerate(looked):
            if not _is_there(envelope, copy, base):
                if left == 0:
                    return looked[:place], looked[place:]
                left -= 1
        return looked, []

    def _count(self, envelope: Envelope) -> None:
        self.counts["redacted"] += bool(envelope.redacted)
        self._lacking.update(filled_fields(envelope.record, self._lost_of(envelope)))
        self._lacking["id"] += not self._endpoints.destination.capabilities.keeps_ids

    def _lost_of(self, envelope: Envelope) -> set[str]:
        return {name for kind, name in self._lost if kind == envelope.record.kind} | self._unable

    def _fail(self, envelope: Envelope, error: MemtuiError) -> None:
        self.pace.failed += 1
        self.pace.add()
        self._in_a_row = self._in_a_row + 1 if isinstance(error, Unavailable) else 0
        if len(self.failures) < _LISTED_FAILURES:
            self.failures.append(Failure(record_id=envelope.record_id, reason=str(error)))
        if self._in_a_row >= _FAILURES_TO_STOP:
            raise error

    def _find(self, envelope: Envelope) -> _Found:
        """Return the record's counterpart in the destination, and the state both began with.

        The state is None where neither has a migration record: then nobody knows which side
        changed, and the destination's record is left as it is.
        """
        copy = self._index.migrated(identity_of(self._endpoints.source.key, envelope.record_id))
        if copy is not None:
            return copy, copy.state
        migration_record = envelope.migration_record
        if (
            migration_record is not None
            and migration_record.binding == self._endpoints.destination.key
        ):
            copy = self._index.named(migration_record.record_id)
            if copy is not None:
                return copy, migration_record.state
        return self._index.take_alike(envelope.prints), None

    async def _move(self, envelope: Envelope, found: _Found) -> _Outcome:
        """Write a record to the destination, unless it is there unchanged.

        Raises:
            Conflict: the record was changed in the destination since it was migrated.
            Invalid: the destination refuses the record, or stored another text.
        """
        copy, base = found
        if copy is None:
            copy = await self._write_new(envelope)
            if copy is None:
                return "written"
            base = copy.state
        if base is None or _is_there(envelope, copy, base):
            return "unchanged"
        self._refuse_edited(envelope, copy, base)
        await self._settle(envelope, await self._replace(envelope, copy))
        return "replaced"

    def _refuse_edited(self, envelope: Envelope, copy: DestinationRecord, base: str) -> None:
        if digest_of(copy.prints) == base:
            return
        destination = self._endpoints.destination
        can = destination.capabilities
        kept = {"text": True, "pinned": can.pin, "expires_at": can.expiry}
        edited = [
            name
            for name in differing(copy.prints, envelope.prints)
            if kept.get(name, name in {"topic", "tags"} and not is_empty(copy.prints, name))
        ]
        if edited:
            raise Conflict(
                f"Its {' and '.join(edited).replace('_', ' ')} changed in {destination.key} "
                f"(as {copy.id}) since it was migrated; forget it there to have the source's again."
            )

    async def _write_new(self, envelope: Envelope) -> DestinationRecord | None:
        """Write a record; if its id holds an earlier copy of it, return that copy instead."""
        request = self._packed(envelope)
        try:
            answer = await self._write(request)
        except Conflict as error:
            own = identity_of(self._endpoints.source.key, envelope.record_id)
            occupant = error.current and DestinationRecord.of(unpack(error.current))
            if occupant and occupant.identity == own:
                return occupant
            # Another record has the id, so use a fresh one.
            answer = await self._write(request.model_copy(update={"record_id": own}))
        await self._settle(envelope, answer)
        return None

    async def _settle(self, envelope: Envelope, answer: MutationAnswer) -> None:
        """Compare the stored record with the one sent; put lost fields into the metadata.

        Raises:
            Invalid: the destination stored another text, or lost a field even so.
        """
        if not answer.records:
            return
        key, metadata = self._endpoints.destination.key, envelope.record.metadata
        stored = unpack(answer.records[0])
        if print_of(stored.prints, "text") != print_of(envelope.prints, "text"):
            raise Invalid(f"{key} stored a different text.")
        if "metadata" in answer.filled_in:  # the answer's metadata comes from memtui's log
            self._carries = False
            self._lost |= {(envelope.record.kind, name) for name in answer.not_kept}
            return
        lost = set(differing(stored.prints, envelope.prints))
        if stored.migration_record is None:
            self._carries = False
            self._lost |= {(envelope.record.kind, name) for name in lost}
        if stored.migration_record is None or not lost:
            return
        actual = stored.record.metadata
        extra = actual.keys() - metadata.keys()
        if extra and all(actual.get(name) == value for name, value in metadata.items()):
            self._added |= extra
            lost.discard("metadata")
        self._lost |= {(envelope.record.kind, name) for name in lost}
        again = await self._replace(envelope, DestinationRecord.of(stored))
        left = unpack(again.records[0]) if again.records else stored
        if left.prints != envelope.prints:
            names = ", ".join(differing(left.prints, envelope.prints)).replace("_", " ")
            raise Invalid(f"{key} did not keep its {names}.")

    async def _replace(self, envelope: Envelope, copy: DestinationRecord) -> MutationAnswer:
        request, destination = self._packed(envelope), self._endpoints.destination
        can = destination.capabilities
        # Forgetting and rewriting a fact would add a false version to its past.
        in_place = can.keeps_ids or (can.validity and request.kind == "fact")
        if in_place and copy.scope == envelope.record.scope:
            update = {"record_id": copy.id, "mode": WriteMode.UPSERT}
            return await self._write(request.model_copy(update=update))
        # Forgotten and rewritten at once; the source still has the record.
        handle = RecordHandle(provider_key=destination.provider_key, provider_record_id=copy.id)
        await self._endpoints.service.forget(
            self._endpoints.caller,
            ForgetRequest(
                scope=copy.scope.outside_run(),
                handles=(handle,),
                binding_key=destination.key,
                revisions={copy.id: copy.revision} if copy.revision else {},
            ),
        )
        return await self._write(request)

    async def _write(self, request: WriteRequest) -> MutationAnswer:
        if request.kind != "fact":
            return await self._endpoints.service.write(self._endpoints.caller, request, copied=True)
        async with self._facts:  # one at a time, because their number is limited
            return await self._endpoints.service.write(self._endpoints.caller, request, copied=True)

    def _packed(self, envelope: Envelope) -> WriteRequest:
        endpoints, lost = self._endpoints, self._lost_of(envelope)
        return pack(envelope, endpoints.source.key, endpoints.destination.key, lost, self._added)


def _is_there(envelope: Envelope, copy: DestinationRecord | None, base: str | None) -> bool:
    """Whether a record is in the destination already, unchanged, or by nobody's migration."""
    return copy is not None and (copy.prints == envelope.prints or base is None)
