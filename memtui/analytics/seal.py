"""Move the oldest operations of the hot tables into immutable Parquet segments.

The manifest decides where an operation is: up to `sealed_through` in the archive, above it in the
hot tables. Files are written first, then the manifest names them; last, one transaction appends an
operation of type `seal` with the SHA-256 of the files and removes the hot rows. So a crash leaves
either files that no manifest names or hot rows that do not count; `recover` removes both.
The undo journal, the intents and the head of the log stay in the database.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import func, select

from memtui.analytics.archive import (
    MEMTUI,
    broken_link,
    locked,
    recover_locked,
    remove_hot,
    remove_older,
)
from memtui.analytics.engine import DuckDb, guarded, opened
from memtui.analytics.layout import (
    TABLES,
    ArchiveFolder,
    Manifest,
    Segment,
    SegmentFile,
    sha256_of,
    usable,
)
from memtui.analytics.rows import among, fetch
from memtui.analytics.source import SELECTS, create_raw, load_raw
from memtui.contract import Conflict, Model, OperationType
from memtui.paths import sync_folder
from memtui.store.appending import Stored, handle_rows, operation_row, usage_rows
from memtui.store.columns import UtcMicroseconds
from memtui.store.database import Database, DatabaseConnection, quoted
from memtui.store.digest import is_intact
from memtui.store.erasing import erased, newly_absent
from memtui.store.log import company_salt, parts
from memtui.store.tables import OPERATIONS

SEGMENT_ROWS = 250_000
"""The most operations in one segment: they are removed from the hot table in one transaction."""

_ROW_GROUP = 16_384
_MEMORY_MB = 512
_NEW = ".new-"
_AT_ONCE = 4_096

Step = Callable[[str], None]
"""Called at each step of a seal: written, renamed, named, removing, removed."""


class SealReport(Model):
    """The result of a seal."""

    operations: int
    segments: tuple[Segment, ...] = ()
    sealed_through: int
    blocked_by: int | None = None
    """The first operation that is too new, if older ones follow it in the log."""
    waiting: int = 0
    """Number of older operations that follow it, and so are not sealed yet."""


def seal(
    database: Database,
    root: Path,
    company_id: str,
    *,
    before: datetime | None = None,
    now: datetime | None = None,
    segment_rows: int = SEGMENT_ROWS,
    principal: str = MEMTUI,
    channel: str = MEMTUI,
    step: Step = lambda _name: None,
) -> SealReport:
    """Seal the operations that began before a moment; None: all. Blocking.

    Only a beginning of the log is sealed: an older operation that was logged after a too new one is
    not sealed yet.

    Args:
        database: The control plane's database.
        root: The archive folder of all companies.
        company_id: The company of the log.
        before: The begin of the hot window, UTC.
        now: The time of sealing to note, UTC; None: the present.
        segment_rows: The most operations in one segment.
        principal: The principal that seals.
        channel: The channel it uses.
        step: Called at every step; tests interrupt it there.

    Raises:
        Conflict: another process seals this log, its chain is broken, or somebody altered it.
        Unavailable: the database or the archive cannot be read or written.
    """
    folder = ArchiveFolder(root, company_id)
    with usable(folder):
        folder.create()
    with locked(folder), closing(DuckDb(memory_mb=_MEMORY_MB)) as engine:
        recover_locked(database, folder)
        manifest = folder.read()
        if not manifest.segments:
            with database.read() as connection:
                salt = company_salt(connection, company_id)
            manifest = manifest.model_copy(update={"salt": salt.hex()})
        last = _last_to_seal(database, company_id, before)
        fresh: list[Segment] = []
        while manifest.sealed_through < last:
            first = manifest.sealed_through + 1
            end = min(last, first + segment_rows - 1)
            work = folder.path / f"{_NEW}{first}-{end}"
            made = Made(at=now or datetime.now(UTC), by=principal)
            with guarded():
                duck = engine.connection
                with database.read() as connection:
                    load_raw(duck, connection, company_id, first, end)
                _refuse_altered(duck, manifest, (first, end))
                segment = write_files(duck, work, manifest, (first, end), made)
            step("written")
            work.rename(folder.segment(segment))
            sync_folder(folder.path)
            step("renamed")
            manifest = manifest.with_segment(segment)
            folder.write(manifest)
            step("named")
            remove_hot(database, company_id, segment, channel, step)
            step("removed")
            fresh.append(segment)
        blocked_by, waiting = _waiting(database, company_id, before)
    return SealReport(
        operations=sum(segment.count for segment in fresh),
        segments=tuple(fresh),
        sealed_through=manifest.sealed_through,
        blocked_by=blocked_by,
        waiting=waiting,
    )


def _refuse_altered(duck: Any, manifest: Manifest, span: tuple[int, int]) -> None:
    """Raise `Conflict` for a loaded operation that does not match its digest."""
    company = bytes.fromhex(manifest.salt)
    sources = {table: f"({SELECTS[table]})" for table in TABLES}
    for first in range(span[0], span[1] + 1, _ROW_GROUP):
        last = min(first + _ROW_GROUP - 1, span[1])
        try:
            found = fetch(duck, sources, f"seq BETWEEN {first} AND {last}")
        except (ValueError, TypeError, ArithmeticError) as error:
            altered = f"One of the operations {first} to {last}", "it is none that can be read"
            raise _altered(manifest, span, *altered) from error
        for seq, operation in sorted(found.items()):
            if not is_intact(operation, company):
                altered = f"Operation {seq}", "it does not fit its digest"
                raise _altered(manifest, span, *altered)


def _altered(manifest: Manifest, span: tuple[int, int], which: str, why: str) -> Conflict:
    return Conflict(
        f"{which} of {manifest.company_id} was altered: {why}, so nothing from {span[0]} on was "
        "sealed. `memtui audit verify` tells more; restore the log with `memtui backup restore`."
    )


def _last_to_seal(database: Database, company_id: str, before: datetime | None) -> int:
    """Return the number to seal up to; trailing operations of type `seal` stay hot."""
    column = OPERATIONS.c
    own = column.company_id == company_id
    with database.read() as connection:
        last = connection.execute(
            select(func.max(column.seq)).where(own, column.operation_type != OperationType.SEAL)
        ).scalar()
        kept = None if before is None else _first_kept(connection, company_id, before)
    last = last or 0
    return int(last if kept is None else min(last, kept - 1))


def _first_kept(connection: DatabaseConnection, company_id: str, before: datetime) -> int | None:
    """Return the first operation that began at a moment or later; None: there is none."""
    column = OPERATIONS.c
    newer = (column.company_id == company_id, column.started_at >= before)
    return connection.execute(select(func.min(column.seq)).where(*newer)).scalar()


def _waiting(
    database: Database, company_id: str, before: datetime | None
) -> tuple[int | None, int]:
    """Return the first operation that is too new, and how many older ones follow it."""
    if before is None:
        return None, 0
    column = OPERATIONS.c
    with database.read() as connection:
        kept = _first_kept(connection, company_id, before)
        if kept is None:
            return None, 0
        behind = (column.company_id == company_id, column.seq > kept, column.started_at < before)
        count = connection.execute(select(func.count()).where(*behind)).scalar() or 0
    return (kept, count) if count else (None, 0)


class Made(NamedTuple):
    """When, in UTC, and by whom a segment is made, and its revision."""

    at: datetime
    by: str
    revision: int = 0


def write_files(
    duck: Any,
    work: Path,
    manifest: Manifest,
    span: tuple[int, int],
    made: Made,
    *,
    selects: Mapping[str, str] = SELECTS,
) -> Segment:
    """Write rows to durable files in `work`.

    Args:
        duck: A DuckDB with the rows.
        work: The folder to create; it becomes the segment's.
        manifest: The manifest up to the segment before.
        span: Their first and last numbers.
        made: When and by whom they are sealed.
        selects: The queries of the rows by table; by default those of
            `memtui.analytics.source.load_raw`.

    Raises:
        Conflict: they do not continue the chain.
    """
    work.mkdir(mode=0o700)
    for table in TABLES:
        path = work / f"{table}.parquet"
        dictionary = f", DICTIONARY_SIZE_LIMIT {_ROW_GROUP}" if table == "handles" else ""
        duck.execute(
            f"COPY ({selects[table]}) TO {quoted(path)} "
            # As a dictionary, ids have a Bloom filter, by which one is looked up without a scan.
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP}"
            f"{dictionary})"
        )
        path.chmod(0o600)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    segment = described(duck, work, manifest, span, made)
    sync_folder(work)
    return segment


def described(
    duck: Any, work: Path, manifest: Manifest, span: tuple[int, int], made: Made
) -> Segment:
    """Read the files back and check that they continue the chain."""
    first, last = span
    operations, previous = work / "operations.parquet", manifest.last_digest
    rows, first_digest, last_digest, started_from, started_to = duck.execute(
        "SELECT count(*), arg_min(digest, seq), arg_max(digest, seq), epoch_us(min(started_at)), "
        f"epoch_us(max(started_at)) FROM read_parquet({quoted(operations)})"
    ).fetchone()
    if rows != last - first + 1 or broken_link(duck, operations, first, previous) is not None:
        raise Conflict(
            f"The operation log of {manifest.company_id} is broken between {first} and {last} and "
            "was not sealed; find the place with memtui audit verify."
        )
    return Segment(
        first_seq=first,
        last_seq=last,
        previous_digest=previous,
        first_digest=first_digest,
        last_digest=last_digest,
        started_from=_moment(started_from),
        started_to=_moment(started_to),
        sealed_at=made.at,
        sealed_by=made.by,
        revision=made.revision,
        files={table: _describe_file(duck, work / f"{table}.parquet") for table in TABLES},
    )


def _describe_file(duck: Any, path: Path) -> SegmentFile:
    [rows] = duck.execute(f"SELECT count(*) FROM read_parquet({quoted(path)})").fetchone()
    return SegmentFile(sha256=sha256_of(path), rows=rows, bytes=path.stat().st_size)


def _moment(microseconds: int) -> datetime:
    found = UtcMicroseconds.loaded(microseconds)
    assert found is not None  # noqa: S101 — an operation always has one
    return found


# A purge rewrites segments without the erased values; their digests stay valid. First come the new
# files, then a waiting manifest beside the one in force, then the operation that names the files
# in the chain; last the waiting manifest replaces the other and the old files are removed. After a
# kill `recover` completes this if the chain names the new files, else it undoes it.


class Rewritten(NamedTuple):
    """A rewritten segment, beside the one that it will replace."""

    segment: Segment
    erased: dict[int, tuple[str, ...]]
    """The fields that lost their value, by `seq`."""


def rewrite(
    folder: ArchiveFolder,
    manifest: Manifest,
    segment: Segment,
    doomed: Mapping[int, Collection[str]],
    company: bytes,
) -> Rewritten | None:
    """Rewrite a segment with fields erased, beside the old one; None: no field has a value.

    Blocking; the caller has locked the folder.

    Args:
        folder: The company's archive folder.
        manifest: Its manifest.
        segment: One of its segments.
        doomed: The paths to erase by `seq` (`memtui.store.erasing.erased`).
        company: The company's salt.

    Raises:
        Conflict: a digest does not match afterwards, so nothing is replaced.
        Unavailable: a file cannot be read or written.
    """
    before = manifest.model_copy(
        update={"segments": tuple(s for s in manifest.segments if s.last_seq < segment.first_seq)}
    )
    made = Made(at=segment.sealed_at, by=segment.sealed_by, revision=segment.revision + 1)
    span = (segment.first_seq, segment.last_seq)
    work = folder.path / f".new-{span[0]}-{span[1]}"
    if work.exists():
        shutil.rmtree(work)
    with guarded(), opened(memory_mb=_MEMORY_MB) as duck:
        files = {table: folder.parquet([segment], table) for table in TABLES}
        gone = _load_erased(duck, files, doomed, company)
        if not gone:
            return None
        kept = "WHERE seq NOT IN (SELECT seq FROM raw_operations)"
        selects = {
            table: f"SELECT * FROM {files[table]} {kept} UNION ALL BY NAME ({SELECTS[table]}) "
            f"ORDER BY {order}"
            for table, order in _ORDER.items()
        }
        fresh = write_files(duck, work, before, span, made, selects=selects)
        target = folder.segment(fresh)
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
        sync_folder(folder.path)
        for part in parts(sorted(gone), _AT_ONCE):
            files = {table: folder.parquet([fresh], table) for table in TABLES}
            for operation in fetch(duck, files, among(part)).values():
                if not is_intact(operation, company):
                    raise Conflict(
                        f"Operation {operation.seq} of {folder.company_id} would not match its "
                        "digest after the erasure; find the place with memtui audit verify."
                    )
    return Rewritten(fresh, gone)


_ORDER = {"operations": "seq", "usage": "seq, ordinal", "handles": "seq, rank"}


def _load_erased(
    duck: Any, files: dict[str, str], doomed: Mapping[int, Collection[str]], company: bytes
) -> dict[int, tuple[str, ...]]:
    """Load operations into DuckDB with fields erased; returns the erased ones, by `seq`."""
    create_raw(duck)
    gone: dict[int, tuple[str, ...]] = {}
    for part in parts(sorted(doomed), _AT_ONCE):
        arriving: dict[str, list[Stored]] = {table: [] for table in TABLES}
        for seq, operation in fetch(duck, files, among(part)).items():
            fresh = erased(operation, doomed[seq], company)
            if fresh is operation:
                continue
            gone[seq] = newly_absent(operation, fresh)
            row = operation_row(fresh, seq, fresh.previous_digest, fresh.digest, fresh.salt)
            arriving["operations"].append(row)
            arriving["usage"] += usage_rows(fresh, seq)
            arriving["handles"] += handle_rows(fresh, seq)
        for table, rows in arriving.items():
            with duck.appender(f"raw_{table}") as appender:
                appender.append_rows(rows)
    return gone


def replace_waiting(folder: ArchiveFolder) -> None:
    """Put the waiting manifest in force, and remove the segments that it replaced."""
    folder.accept_waiting()
    remove_older(folder, folder.read())
