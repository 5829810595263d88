"""Prove that no operation was altered, removed or put in between; export the proof."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memtui.analytics.columns import RAW, SELECTS, load_raw
from memtui.analytics.documents import Document, digest_of, documents
from memtui.analytics.engine import opened, quoted
from memtui.analytics.layout import TABLES, Folder, Manifest
from memtui.analytics.operations import select_list
from memtui.analytics.source import Source, head, open_source
from memtui.contract import Conflict, Invalid, Model
from memtui.store.database import Database
from memtui.store.digest import GENESIS

_SPAN = 16_384
_MEMORY_MB = 256


class AuditCheck(Model):
    """What a check of the chain found. A later check must agree with its `seq` and `digest`."""

    company_id: str
    seq: int
    """How many operations the log has, and the number of its last."""
    digest: str
    """Of the last operation; it stands for all of them."""
    broken_seq: int | None = None
    """The first operation that is not as it was written; None: all are."""
    problem: str | None = None
    """What is wrong there, as a sentence."""


class _Log:
    """One state of a company's log, read in order."""

    def __init__(self, duck: Any, source: Source, folder: Folder) -> None:
        self._duck = duck
        self._source = source
        self._folder = folder
        # The snapshot comes before the manifest: what is sealed by then is in one of them.
        self.head, digest = head(source, duck, folder.company_id)
        self.head_digest = digest or GENESIS
        self.manifest: Manifest = folder.read()

    def documents(self) -> Iterator[tuple[int, Document | None]]:
        """Yield every number from 1 to the head with its document, None where there is none."""
        seq = 0
        for segment in self.manifest.segments:
            sources = {
                table: f"read_parquet({quoted(self._folder.file(segment, table))})"
                for table in TABLES
            }
            for first in range(segment.first_seq, segment.last_seq + 1, _SPAN):
                last = min(first + _SPAN - 1, segment.last_seq)
                yield from self._span(sources, first, last)
                seq = last
        copied = {table: f"({SELECTS[table]})" for table in TABLES}
        for first in range(seq + 1, self.head + 1, _SPAN):
            last = min(first + _SPAN - 1, self.head)
            load_raw(self._duck, self._source, self._folder.company_id, first, last)
            yield from self._span(copied, first, last)

    def _span(
        self, sources: dict[str, str], first: int, last: int
    ) -> Iterator[tuple[int, Document | None]]:
        rows = (
            self._duck.execute(
                f"SELECT {select_list(table)} FROM {sources[table]} "
                f"WHERE seq BETWEEN {first} AND {last}"
            ).fetchall()
            for table in RAW
        )
        found = documents(*rows)
        yield from ((seq, found.get(seq)) for seq in range(first, last + 1))


def verify(database: Database, root: Path, company_id: str) -> AuditCheck:
    """Check every operation's digest and its place in the chain, hot and sealed. Blocking.

    An alteration that made all later digests anew shows only against a digest that was noted
    before: keep the one of an earlier `AuditCheck`, or an export.

    Raises:
        Unavailable: the database or the archive cannot be read.
    """
    with _opened(database, root, company_id) as log:
        broken = _first_broken(log)
        return AuditCheck(
            company_id=company_id,
            seq=log.head,
            digest=log.head_digest,
            broken_seq=broken[0] if broken else None,
            problem=broken[1] if broken else None,
        )


def export(database: Database, root: Path, company_id: str, target: Path) -> int:
    """Write every operation to a JSONL file, in order, with its digest; returns how many. Blocking.

    `docs/audit.md` has the script by which anybody can verify the file.

    Raises:
        Conflict: the log has a gap.
        Invalid: the file cannot be written.
        Unavailable: the database or the archive cannot be read.
    """
    fresh = target.with_name(f".{target.name}.new")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise Invalid(f"Cannot write {target} ({error.strerror}); choose another place.") from error
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            count = _write(database, root, company_id, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return count


def _write(database: Database, root: Path, company_id: str, file: Any) -> int:
    with _opened(database, root, company_id) as log:
        for seq, document in log.documents():
            if document is None:
                raise Conflict(f"Operation {seq} of {company_id} is missing; nothing was exported.")
            file.write(json.dumps(document, separators=(",", ":")) + "\n")
        return log.head


@contextmanager
def _opened(database: Database, root: Path, company_id: str) -> Iterator[_Log]:
    with opened(memory_mb=_MEMORY_MB) as duck, open_source(database) as source:
        yield _Log(duck, source, Folder(root, company_id))


def _first_broken(log: _Log) -> tuple[int, str] | None:
    previous, seq = GENESIS, 0
    for seq, document in log.documents():
        if document is None:
            return seq, f"Operation {seq} is missing."
        if document["previous_digest"] != previous:
            return seq, f"Operation {seq} is not chained to the one before it."
        if digest_of(document) != document["digest"]:
            return seq, f"Operation {seq} was altered: it does not fit its digest."
        previous = document["digest"]
    if (seq, previous) != (log.head, log.head_digest):
        return seq, f"Operation {seq} is the last, but the log's end says {log.head}."
    return None
