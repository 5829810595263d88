"""The archive's integrity: gaps to the hot tables, recovery after a killed seal, verification."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from memtui.analytics.engine import opened
from memtui.analytics.layout import (
    SEGMENT,
    UNFINISHED,
    ArchiveFolder,
    LogEnds,
    Manifest,
    Segment,
    is_settled,
    log_ends,
    sha256_of,
    usable,
)
from memtui.analytics.source import HOT, load_raw
from memtui.contract import (
    Conflict,
    Filter,
    Model,
    OperationStatus,
    OperationType,
    Scope,
    Unavailable,
)
from memtui.store import appending
from memtui.store.database import Database, quoted
from memtui.store.digest import GENESIS
from memtui.store.log import OperationStore
from memtui.store.operation import OperationDraft

MEMTUI = "memtui"
"""The principal and the channel of operations that nobody requested."""

PATIENCE_S = 10.0
"""How long sealing waits for a process that only checks for recovery."""

_MEMORY_MB = 512
_NEWEST = 50
"""How many of the newest purges are searched for the segments of a waiting manifest."""


def refuse_gap(manifest: Manifest, ends: LogEnds) -> None:
    """Check that archive and database are of one log, and that together they lack no operation.

    Raises:
        Unavailable: they are of different logs, or operations are missing.
    """
    sealed = manifest.sealed_through
    if ends.head < sealed:
        raise Unavailable(
            f"The archive of {manifest.company_id} ends at operation {sealed} and its database at "
            f"{ends.head}; restore the database that the archive belongs to."
        )
    if ends.hot_first > sealed + 1:
        raise Unavailable(
            f"Operations {sealed + 1} to {ends.hot_first - 1} of {manifest.company_id} are neither "
            "in the database nor in the archive; `memtui ops archive fetch` gets operations "
            "that other machines sealed, or copy the archive folder that has them to this machine."
        )


def recover(database: Database, root: Path, company_id: str) -> int:
    """Clean up after a killed seal; return how many operations left the hot tables. Blocking.

    Does nothing while another process seals.

    Raises:
        Conflict: the hot rows left differ from the sealed ones.
        Unavailable: the database or the archive cannot be read, or the archive is ahead of it.
    """
    folder = ArchiveFolder(root, company_id)
    if is_settled(database, folder):
        return 0
    try:
        with locked(folder, patience_s=0):
            return recover_locked(database, folder)
    except Busy:
        return 0


class Busy(Conflict):
    """Another process has locked the folder."""


@contextmanager
def locked(folder: ArchiveFolder, *, patience_s: float | None = None) -> Iterator[None]:
    """Lock the folder for the block.

    Cleaning up after a killed seal locks it for a moment too, so waiting is worthwhile:
    `PATIENCE_S`, unless another time is given.

    Raises:
        Busy: another process kept it locked for all that time.
        Unavailable: the folder cannot be used.
    """
    from filelock import FileLock, Timeout

    timeout = PATIENCE_S if patience_s is None else patience_s
    with usable(folder):
        try:
            with FileLock(folder.lock_file, timeout=timeout, mode=0o600):
                yield
        except Timeout as error:
            raise Busy(
                f"Another memtui is sealing the log of {folder.company_id}; try again when it is "
                "done."
            ) from error


def remove_hot(
    database: Database,
    company_id: str,
    segment: Segment,
    channel: str,
    step: Callable[[str], None] = lambda _name: None,
) -> None:
    """Log the sealing of a segment and remove its rows from the hot tables, in one transaction.

    `step` is called after each table.

    Raises:
        Conflict: the number of these rows differs from the segment's.
    """
    with database.write() as connection:
        appending.append(connection, _sealing(company_id, segment, channel))
        for table, hot in reversed(HOT.items()):
            gone = connection.execute(
                delete(hot).where(
                    hot.c.company_id == company_id,
                    hot.c.seq.between(segment.first_seq, segment.last_seq),
                )
            ).rowcount
            step("removing")
            if gone != segment.files[table].rows:
                raise Conflict(
                    f"The operation log of {company_id} changed while it was sealed; nothing was "
                    "removed from it, check it with memtui audit verify."
                )


def _sealing(company_id: str, segment: Segment, channel: str) -> OperationDraft:
    return OperationDraft(
        operation_id=uuid.uuid4().hex,
        operation_type=OperationType.SEAL,
        status=OperationStatus.OK,
        scope=Scope(company_id=company_id),
        principal=segment.sealed_by,
        channel=channel,
        request={"segments": [segment.proof()]},
        result_count=segment.count,
        started_at=segment.sealed_at,
        latency_ms=None,
    )


def recover_locked(database: Database, folder: ArchiveFolder) -> int:
    """As `recover`, in a folder that the caller has locked."""
    _end_rewriting(database, folder)
    manifest = folder.read()
    ends = log_ends(database, folder.company_id)
    _remove_unnamed(folder, manifest, ends)
    refuse_gap(manifest, ends)
    removed = 0
    for segment in manifest.segments:
        if segment.last_seq >= ends.hot_first:
            _refuse_difference(database, folder, segment)
            remove_hot(database, folder.company_id, segment, MEMTUI)
            removed += segment.count
    return removed


def _end_rewriting(database: Database, folder: ArchiveFolder) -> None:
    """Put a waiting manifest in force if the chain names its segments, else remove it."""
    if not folder.waiting_file.exists():
        return
    known = folder.read().segments
    waiting = [one for one in folder.read(waiting=True).segments if one not in known]
    chosen = Filter(operation_type=OperationType.PURGE)
    with database.read() as connection:
        newest = (
            OperationStore(connection, folder.company_id).page(chosen, limit=_NEWEST).operations
        )
    named = [part for one in newest for part in one.request.get("segments", ())]
    if all(one.proof() in named for one in waiting):
        folder.accept_waiting()
    else:
        folder.waiting_file.unlink()


def remove_older(folder: ArchiveFolder, manifest: Manifest) -> None:
    """Remove the folders of segments in other revisions than the manifest's."""
    names = {segment.name for segment in manifest.segments}
    spans = {segment.span for segment in manifest.segments}
    for path in folder.path.iterdir():
        is_segment = path.is_dir() and not path.is_symlink()
        if is_segment and path.name not in names and path.name.partition(".")[0] in spans:
            shutil.rmtree(path)


def segments_beyond(folder: ArchiveFolder, manifest: Manifest) -> list[Path]:
    """Return the finished segments after the last that the manifest names.

    A seal was killed before it named them. The database that it read still has their operations;
    beside another database these files may be the only copy.
    """
    return [
        path
        for path in sorted(folder.path.iterdir() if folder.path.is_dir() else ())
        if (found := SEGMENT.fullmatch(path.name)) and int(found[1]) > manifest.sealed_through
    ]


def _remove_unnamed(folder: ArchiveFolder, manifest: Manifest, ends: LogEnds) -> None:
    """Remove segments that the manifest does not name, if their operations are still hot."""
    remove_older(folder, manifest)
    named = {segment.name for segment in manifest.segments}
    for path in folder.path.iterdir():
        if path.is_symlink() or not path.is_dir() or path.name in named:
            continue
        if UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path)
        elif found := SEGMENT.fullmatch(path.name):
            if ends.hot_first > ends.head or int(found[1]) < ends.hot_first:
                is_gone = not folder.manifest_file.exists()
                way = "`memtui doctor --repair` rebuilds it, or restore" if is_gone else "restore"
                raise Unavailable(
                    f"The manifest of {folder.path} does not name {path.name}, whose operations "
                    f"are nowhere else; {way} it from a backup."
                )
            shutil.rmtree(path)


def _refuse_difference(database: Database, folder: ArchiveFolder, segment: Segment) -> None:
    """Check that the files contain the hot rows before these are removed.

    Raises:
        Conflict: they differ.
        Unavailable: a file is missing or damaged.
    """
    for table, file in segment.files.items():
        path = folder.file(segment, table)
        if not path.is_file() or sha256_of(path) != file.sha256:
            raise Unavailable(
                f"The archive's file {path} is missing or damaged; restore it from a backup."
            )
    with opened(memory_mb=_MEMORY_MB) as duck:
        with database.read() as connection:
            load_raw(duck, connection, folder.company_id, segment.first_seq, segment.last_seq)
        sealed = quoted(folder.file(segment, "operations"))
        different = duck.execute(
            f"SELECT 1 FROM raw_operations FULL JOIN read_parquet({sealed}) sealed "
            "USING (seq, digest) WHERE raw_operations.seq IS NULL OR sealed.seq IS NULL LIMIT 1"
        ).fetchone()
    if different is not None:
        raise Conflict(
            f"Operations {segment.first_seq} to {segment.last_seq} of {folder.company_id} differ "
            "between the database and the archive; compare both with memtui audit verify."
        )


class ArchiveCheck(Model):
    """The result of checking the archive; intact if there are no problems."""

    company_id: str
    segments: int
    operations: int
    bytes: int
    problems: tuple[str, ...] = ()
    """One sentence each, with the file or the operation it is about."""


def verify(root: Path, company_id: str, database: Database | None = None) -> ArchiveCheck:
    """Check every file's SHA-256 and row count, and that the digests link up. Blocking.

    With the database, also check that no operation is missing between archive and hot tables.
    Whether each digest matches its operation is checked by `memtui.analytics.audit`.

    Raises:
        Unavailable: the manifest is damaged, or the archive may not be read.
    """
    folder = ArchiveFolder(root, company_id)
    manifest = folder.read()
    problems: list[str] = []
    if database is not None:
        try:
            refuse_gap(manifest, log_ends(database, company_id))
        except Unavailable as error:
            problems.append(str(error))
    seq, digest = 0, GENESIS
    with usable(folder), opened() as duck:
        for segment in manifest.segments:
            if segment.first_seq != seq + 1 or segment.previous_digest != digest:
                problems.append(f"Segment {segment.name} does not continue the one before it.")
            problems.extend(_of_segment(duck, folder, segment))
            seq, digest = segment.last_seq, segment.last_digest
    return ArchiveCheck(
        company_id=company_id,
        segments=len(manifest.segments),
        operations=sum(segment.count for segment in manifest.segments),
        bytes=sum(segment.bytes for segment in manifest.segments),
        problems=tuple(problems),
    )


def _of_segment(duck: Any, folder: ArchiveFolder, segment: Segment) -> list[str]:
    problems = []
    for table, file in segment.files.items():
        path = folder.file(segment, table)
        if not path.is_file() or path.is_symlink():
            problems.append(f"The file {path} is missing.")
        elif sha256_of(path) != file.sha256:
            problems.append(f"The file {path} was changed after it was sealed.")
    if problems:
        return problems
    for table, file in segment.files.items():
        path = folder.file(segment, table)
        [rows] = duck.execute(f"SELECT count(*) FROM read_parquet({quoted(path)})").fetchone()
        if rows != file.rows:
            problems.append(f"The file {path} has {rows} rows, its manifest says {file.rows}.")
    operations = folder.file(segment, "operations")
    broken = broken_link(duck, operations, segment.first_seq, segment.previous_digest)
    if broken is not None:
        problems.append(f"Operation {broken} is not chained to the one before it.")
    return problems


def broken_link(duck: Any, operations: Path, first_seq: int, previous: str) -> int | None:
    """Return the first operation of a file that breaks the chain; None: none does."""
    [found] = duck.execute(
        f"""
        SELECT min(seq) FROM (
            SELECT seq, seq <> {first_seq} + row_number() OVER (ORDER BY seq) - 1
                OR previous_digest <> lag(digest, 1, {quoted(previous)})
                    OVER (ORDER BY seq) AS broken
            FROM read_parquet({quoted(operations)})
        ) WHERE broken
        """
    ).fetchone()
    return None if found is None else int(found)
