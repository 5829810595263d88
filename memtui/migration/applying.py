"""Move records. Stopped at any moment and run again, it goes on and doubles nothing.

What the destination holds decides what is left to do: each migrated record carries its passport,
so a run begins by reading those, and needs no ledger that could disagree with the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import computed_field

from memtui.contract import MemtuiError, Model, Record, Unavailable, Unsupported
from memtui.migration.ends import Ends, check_writable
from memtui.migration.index import Index
from memtui.migration.moving import Found, Mover, Outcome
from memtui.migration.passport import Parcel, living, unpack, unpack_clean
from memtui.migration.progress import Pace, Progress
from memtui.migration.progress_file import MigrationState, ProgressFile

_AT_ONCE = 8
_LISTED_FAILURES = 1_000
_FAILURES_TO_STOP = 10


class Failure(Model):
    """A record that was not moved, and why."""

    record_id: str
    reason: str


class Applied(Model):
    """What a run did, in records."""

    seen: int = 0
    written: int = 0
    replaced: int = 0
    """Migrated before, and changed in the source since."""
    unchanged: int = 0
    """Already there."""
    failed: int = 0
    redacted: int = 0
    """Whose secrets were taken out."""
    failures: tuple[Failure, ...] = ()
    """The first thousand."""
    source_at_least: bool = False
    """The source may hold more than it lists."""
    source_unread: tuple[str, ...] = ()
    """In sentences, what that is and which setting reads further."""
    carried: tuple[str, ...] = ()
    """What the destination has no field for, so that the metadata carries it."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether this was all that the source holds."""
        return not self.source_at_least


@dataclass(slots=True)
class _Tally:
    pace: Pace
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    failures: list[Failure] = field(default_factory=list)
    redacted: int = 0
    unavailable: int = 0
    at_least: bool = False
    unread: tuple[str, ...] = ()

    def count(self, parcel: Parcel, outcome: Outcome) -> None:
        self.unavailable = 0
        self.outcomes[outcome] += 1
        self.redacted += bool(parcel.redacted) and outcome is not Outcome.UNCHANGED
        self.pace.add()

    def fail(self, parcel: Parcel, error: MemtuiError) -> None:
        self.pace.failed += 1
        self.pace.add()
        self.unavailable = self.unavailable + 1 if isinstance(error, Unavailable) else 0
        if len(self.failures) < _LISTED_FAILURES:
            self.failures.append(Failure(record_id=parcel.record_id, reason=str(error)))
        if self.unavailable >= _FAILURES_TO_STOP:
            raise error

    def answer(self, carried: tuple[str, ...]) -> Applied:
        return Applied(
            seen=self.pace.done,
            written=self.outcomes[Outcome.WRITTEN],
            replaced=self.outcomes[Outcome.REPLACED],
            unchanged=self.outcomes[Outcome.UNCHANGED],
            failed=self.pace.failed,
            redacted=self.redacted,
            failures=tuple(self.failures),
            source_at_least=self.at_least,
            source_unread=self.unread,
            carried=carried,
        )


async def apply(
    ends: Ends, data: Path, report: Callable[[Progress], None] = lambda _progress: None
) -> Applied:
    """Write every record of the source into the destination; the source stays as it is.

    `data` is memtui's data folder; `report` is told as records are finished, a few times a second.
    A record that cannot be moved does not keep the others; a provider that stays unavailable does.

    Raises:
        Denied: the destination is read-only.
        Conflict: another migration into it is running.
        Unsupported: a second run could not tell what the first has moved.
        Unavailable: a provider failed ten times in a row; run it again to go on.
    """
    await check_writable(ends)
    kept = ProgressFile(data, ends)
    with kept.alone(), Index() as index:
        known = await asyncio.to_thread(kept.read)
        await _read_destination(ends, index)
        begun = MigrationState(begun_at=datetime.now(UTC), switched=known.switched)
        await asyncio.to_thread(kept.write, begun)
        mover, tally = Mover(ends, index), _Tally(Pace(report))
        async for page in ends.pages(ends.source, tally.pace.search):
            if page.total is not None and not page.at_least:
                tally.pace.total = page.total
            tally.at_least, tally.unread = tally.at_least or page.at_least, page.unread
            await _move_all(mover, tally, page.records)
            tally.pace.tell()
        ended = begun.model_copy(update={"applied_at": datetime.now(UTC)})
        await asyncio.to_thread(kept.write, ended)
    return tally.answer(mover.carried)


async def _read_destination(ends: Ends, index: Index) -> None:
    async for page in ends.pages(ends.destination):
        if page.at_least and not ends.destination.capabilities.keeps_ids:
            raise Unsupported(
                f"{ends.destination.key} keeps no ids and cannot be listed whole, so nobody can "
                "tell what was moved before; migrate into an empty namespace."
            )
        await asyncio.to_thread(index.add, map(unpack, page.records))


async def _move_all(mover: Mover, tally: _Tally, records: Sequence[Record]) -> None:
    def look() -> list[tuple[Parcel, Found]]:
        return [(parcel, mover.find(parcel)) for parcel in living(records, unpack_clean)]

    room = asyncio.Semaphore(_AT_ONCE)

    async def one(parcel: Parcel, found: Found) -> None:
        async with room:
            try:
                outcome = await mover.move(parcel, found)
            except MemtuiError as error:
                tally.fail(parcel, error)
            else:
                tally.count(parcel, outcome)

    looked = await asyncio.to_thread(look)
    tally.pace.add(len(records) - len(looked))  # those that should have expired
    try:
        async with asyncio.TaskGroup() as group:
            for parcel, found in looked:
                group.create_task(one(parcel, found))
    except ExceptionGroup as stopped:
        raise _first(stopped) from stopped


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
