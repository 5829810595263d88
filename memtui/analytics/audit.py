"""Prove that no operation was altered, removed or inserted; export the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memtui.analytics.engine import guarded, opened
from memtui.analytics.layout import TABLES, ArchiveFolder, Segment, sha256_of
from memtui.analytics.rows import fetch
from memtui.analytics.source import SELECTS, head, load_raw
from memtui.contract import (
    Conflict,
    Invalid,
    Model,
    OperationStatus,
    OperationType,
    Unavailable,
    UtcDatetime,
)
from memtui.paths import replacing
from memtui.store.database import Database, DatabaseConnection
from memtui.store.digest import CONTROL, GENESIS, LogHead, document_of, fields, is_intact, salt_of
from memtui.store.erasing import purged
from memtui.store.operation import Operation, why_altered, why_damaged

Visible = Callable[[Operation], bool]
"""Whether somebody may see an operation."""
Watch = Callable[[int, int], None]
"""Called with the numbers of checked and of all operations; an exception stops the check."""

_SPAN = 16_384
_WATCHED_EVERY = 1_000
"""Operations between two calls of `Watch`."""
_MEMORY_MB = 256


class Gap(Model):
    """Operations that are lost, as the operation of a repair lists them."""

    seq: int
    """The number of the repair's operation."""
    at: UtcDatetime
    lost_from: int
    lost_through: int | None = None
    """The last known one; None: their number is unknown."""


class AuditCheck(Model):
    """The result of a check of the chain. A later check must agree with its `seq` and `digest`."""

    company_id: str
    seq: int
    """The number of the last operation, and so of all operations."""
    digest: str
    """The digest of the last operation, which covers all of them."""
    broken_seq: int | None = None
    """The first operation that is not as it was written; None: there is none."""
    problem: str | None = None
    """The problem there, as a sentence."""
    seen_seq: int | None = None
    """The last operation that this machine had noted, which the log must have; None: no note, so a
    cut at the log's end would not be noticed."""
    expected_digest: str | None = None
    """The digest of the operation that the check was asked about; None: not asked, or absent."""
    gaps: tuple[Gap, ...] = ()
    """Where the chain continues after a repair, newest first."""


class _Log:
    """A snapshot of a company's log, read in order."""

    def __init__(self, duck: Any, connection: DatabaseConnection, folder: ArchiveFolder) -> None:
        self._duck = duck
        self._connection = connection
        self.folder = folder
        self.digests: dict[int, str] = {}
        """The digests of some operations by number, once they are read."""
        # The snapshot comes before the manifest, so that each operation is in at least one of them.
        self.head = head(connection, folder.company_id)
        manifest = folder.read()
        # Hot operations of the snapshot count as hot: their sealing is not logged in it.
        self.segments = [one for one in manifest.segments if one.first_seq < self.head.hot_first]

    def operations(self) -> Iterator[tuple[int, Operation | None]]:
        """Yield every number from 1 to the head with its operation, None if it is missing.

        Raises:
            _Unreadable: a segment cannot be read.
        """
        seq = 0
        for segment in self.segments:
            for first in range(segment.first_seq, segment.last_seq + 1, _SPAN):
                last = min(first + _SPAN - 1, segment.last_seq)
                yield from self._span(first, last, segment)
                seq = last
        for first in range(seq + 1, self.head.seq + 1, _SPAN):
            last = min(first + _SPAN - 1, self.head.seq)
            yield from self._span(first, last)

    def _span(
        self, first: int, last: int, segment: Segment | None = None
    ) -> Iterator[tuple[int, Operation | None]]:
        """Read a span; on failure its halves, down to the damaged operation."""
        try:
            with guarded():
                if segment is None:
                    load_raw(self._duck, self._connection, self.folder.company_id, first, last)
                sources = {
                    table: self.folder.parquet([segment], table)
                    if segment
                    else f"({SELECTS[table]})"
                    for table in TABLES
                }
                found = fetch(self._duck, sources, f"seq BETWEEN {first} AND {last}")
        except (Unavailable, ValueError, TypeError, ArithmeticError) as error:
            if segment is not None or first == last:
                raise _Unreadable(first, last, segment) from error
            middle = (first + last) // 2
            yield from self._span(first, middle)
            yield from self._span(middle + 1, last)
            return
        yield from ((seq, found.get(seq)) for seq in range(first, last + 1))


class _Unreadable(Unavailable):
    """Rows that are not operations."""

    def __init__(self, first: int, last: int, segment: Segment | None) -> None:
        self.first = first
        super().__init__(
            why_damaged(first)
            if segment is None
            else f"Operations {first} to {last} cannot be read: the segment {segment.name} is "
            "missing or damaged; `memtui ops archive verify` names the file."
        )


def verify(
    database: Database,
    root: Path,
    company_id: str,
    watch: Watch = lambda _checked, _all: None,
    *,
    noted: LogHead | None = None,
    expected: int | None = None,
) -> AuditCheck:
    """Check every operation's digest and its place in the chain, hot and sealed. Blocking.

    An alteration that recomputed all later digests, or a cut at the end, shows only against an
    earlier digest: keep that of an `AuditCheck`, or an export. `noted` is the log's end when it was
    last seen. `expected` is the number of an operation whose digest is returned, whoever may see
    it. `watch` is called with the progress.

    Raises:
        Unavailable: the database or the archive cannot be read.
    """
    with _opened(database, root, company_id) as log:
        seq, problem = _first_broken(log, watch, noted, expected)
        pending = [one.name for one in log.segments if one.first_seq <= (seq or 0) <= one.last_seq]
        if problem and pending and pending[0] not in problem:
            problem = f"{problem} It is in the segment {pending[0]}."
        return AuditCheck(
            company_id=company_id,
            seq=log.head.seq,
            digest=log.head.digest,
            broken_seq=seq,
            problem=problem,
            seen_seq=noted.seq if noted else None,
            expected_digest=log.digests.get(expected or 0),
        )


def export(
    database: Database,
    root: Path,
    company_id: str,
    target: Path,
    *,
    visible: Visible = lambda _operation: True,
) -> int:
    """Write the proof of every operation to a JSONL file, in order; returns how many. Blocking.

    A line has the operation's document, its digest, and its values with their salts.
    `docs/audit.md` has the script by which anybody can verify the file.

    Args:
        database: The control plane's.
        root: The archive folder of all companies.
        company_id: The company of the log.
        target: The file.
        visible: Which operations are written in full; of the others only the digest is written,
            and of sealing and erasing the document too.

    Raises:
        Conflict: the log has a gap, or an operation does not match its digest.
        Invalid: the file cannot be written.
        Unavailable: the database or the archive cannot be read.
    """
    try:
        with replacing(target) as fresh, fresh.open("w", encoding="ascii") as file:
            return _write(database, root, company_id, file, visible)
    except OSError as error:
        raise Invalid(f"Cannot write {target} ({error.strerror}); choose another place.") from error


def _write(database: Database, root: Path, company_id: str, file: Any, visible: Visible) -> int:
    with _opened(database, root, company_id) as log:
        previous = GENESIS
        for seq, operation in log.operations():
            if operation is None:
                raise Conflict(f"Operation {seq} of {company_id} is missing; nothing was exported.")
            if problem := _misfit(operation, previous, log.head.salt):
                raise Conflict(
                    f"{problem} Nothing was exported, because an export would prove nothing; "
                    "`memtui ops export` writes the operations as they are."
                )
            previous = operation.digest
            file.write(_line(operation, log.head.salt, visible=visible(operation)))
        return log.head.seq


def _line(operation: Operation, company: bytes, *, visible: bool) -> str:
    if not visible and operation.operation_type not in CONTROL:
        return f'{{"digest":"{operation.digest}","seq":{operation.seq}}}\n'
    document = document_of(
        operation,
        seq=operation.seq,
        previous_digest=operation.previous_digest,
        salt=operation.salt,
        company=company,
    )
    values = ""
    if visible:
        kept = (
            f'"{path}":["{salt_of(operation, path, value, operation.salt, company).hex()}",{value}]'
            for path, value in sorted(fields(operation))
            if path not in operation.absent
        )
        values = f',"values":{{{",".join(kept)}}}'
    return f'{{"digest":"{operation.digest}","document":{document}{values}}}\n'


@contextmanager
def _opened(database: Database, root: Path, company_id: str) -> Iterator[_Log]:
    with opened(memory_mb=_MEMORY_MB) as duck, database.read() as connection:
        yield _Log(duck, connection, ArchiveFolder(root, company_id))


class _Proof:
    """Collects, from the chain's operations, the segments that they name and the absent values."""

    def __init__(self) -> None:
        self._unexplained: dict[int, set[str]] = {}
        self._segments: dict[str, tuple[int, dict[str, Any]]] = {}
        self._lost_from: int | None = None

    def read(self, operation: Operation) -> None:
        """Take the next operation of the chain."""
        gone = {
            path
            for path, absent in operation.absent.items()
            if not (absent.withheld and path in operation.salts)
        }
        if gone:
            self._unexplained[operation.seq] = gone
        if operation.operation_type is OperationType.REPAIR:
            lost = operation.request.get("lost_from", operation.seq)
            self._lost_from = min(lost, self._lost_from or lost)
        if operation.operation_type in CONTROL and operation.status is OperationStatus.OK:
            for seqs, paths in purged(operation):
                few = seqs if len(seqs) < len(self._unexplained) else list(self._unexplained)
                for seq in few:
                    if seq in seqs and seq in self._unexplained:
                        self._unexplained[seq] -= paths
            for segment in operation.request.get("segments", ()):
                span = segment["name"].partition(".")[0]
                self._segments[span] = (operation.seq, segment)

    @property
    def unexplained(self) -> dict[int, set[str]]:
        """Absent values that no purge in the chain lists: fields by `seq`."""
        return {seq: paths for seq, paths in sorted(self._unexplained.items()) if paths}

    def is_lost(self, seq: int) -> bool:
        """Whether a repair in the log lists this operation as lost."""
        return self._lost_from is not None and self._lost_from <= seq

    def missing_value(self) -> tuple[int, str] | None:
        """Return the first operation with an absent value no purge lists, and the problem."""
        for seq, paths in self.unexplained.items():
            return seq, f"Operation {seq} has no {min(paths)}, and no purge in the log erased it."
        return None

    def broken_segment(
        self, folder: ArchiveFolder, segments: Sequence[Segment]
    ) -> tuple[int, str] | None:
        """Return the first operation of a segment that differs from the log, and the problem."""
        for segment in segments:
            seq, logged = self._segments.pop(segment.span, (0, {}))
            if logged.get("name") != segment.name:
                actual = f"operation {seq} names {logged['name']}" if seq else "the log does not"
                return segment.first_seq, (
                    f"The manifest names the segment {segment.name}, but {actual}."
                )
            for table in TABLES:
                path = folder.file(segment, table)
                if not path.is_file() or sha256_of(path) != logged["files"][table]["sha256"]:
                    return segment.first_seq, (
                        f"The file {path} of segment {segment.name} does not have the SHA-256 that "
                        f"operation {seq} names."
                    )
        for seq, logged in self._segments.values():
            return seq, (
                f"Operation {seq} names the segment {logged['name']}, and the manifest does not."
            )
        return None


def unexplained(operations: Iterable[Operation]) -> dict[int, set[str]]:
    """Return the absent fields, by `seq`, that no purge or repair among the operations lists.

    Operations without absent values may be left out, except those of `CONTROL`.
    """
    proof = _Proof()
    for operation in operations:
        proof.read(operation)
    return proof.unexplained


def _misfit(operation: Operation, previous: str, salt: bytes) -> str | None:
    """Return the problem with an operation or its place in the chain; None: none."""
    if operation.previous_digest != previous:
        return f"Operation {operation.seq} is not chained to the one before it."
    return None if is_intact(operation, salt) else why_altered(operation.seq)


def _first_broken(
    log: _Log, watch: Watch, noted: LogHead | None, expected: int | None
) -> tuple[int | None, str | None]:
    previous, seq, proof = GENESIS, 0, _Proof()
    kept = {noted and noted.seq, expected}
    try:
        for seq, operation in log.operations():
            if seq % _WATCHED_EVERY == 0:
                watch(seq, log.head.seq)
            if operation is None:
                return seq, f"Operation {seq} is missing."
            if problem := _misfit(operation, previous, log.head.salt):
                return seq, problem
            previous = operation.digest
            if seq in kept:
                log.digests[seq] = previous
            proof.read(operation)
    except _Unreadable as error:
        return error.first, str(error)
    if (seq, previous) != (log.head.seq, log.head.digest):
        return seq, f"Operation {seq} is the last, but the log's end says {log.head.seq}."
    broken = proof.missing_value() or proof.broken_segment(log.folder, log.segments)
    at_noted = log.digests.get(noted.seq, GENESIS) if noted else None
    if not broken and noted and at_noted != noted.digest and not proof.is_lost(noted.seq):
        is_cut = noted.seq > seq
        but = f"but the log ends at {seq}" if is_cut else "which had another digest"
        why = "its end was cut off" if is_cut else "it was rewritten"
        return min(noted.seq, seq + 1), (
            f"This machine has seen operation {noted.seq}, {but}: {why}, or an older database was "
            "restored."
        )
    return broken or (None, None)
