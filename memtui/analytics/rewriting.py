"""Write sealed segments anew without values that are erased; their digests hold as before.

The new files come first, then a manifest that waits beside the one in force, then the operation of
the chain that names the new files; last the waiting manifest takes the other's place and the old
files go. `recovery` ends or takes back what a kill left: it is done once the chain says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from memtui.analytics.engine import guarded, opened, quoted
from memtui.analytics.layout import TABLES, Folder, Manifest, Segment, sync_folder
from memtui.analytics.recovery import remove_older
from memtui.analytics.rows import fetch
from memtui.analytics.seal import Made, write_files
from memtui.analytics.source import columns_of, stored_text
from memtui.contract import Conflict
from memtui.store.digest import is_intact
from memtui.store.erasing import erased, newly_absent, row_of
from memtui.store.operation import Operation
from memtui.store.values import stored_json

_MEMORY_MB = 512
_AT_ONCE = 4_096
_NUMBER = {"usage": "ordinal", "handles": "rank"}
_EMPTY = {"usage": ("details", "'{}'"), "handles": ("provider_record_id", "''")}
"""Which column of an operation's parts is emptied, and what stands there then."""
_VALUES = (
    "binding_reason",
    "subject_id",
    "source_activity_id",
    "source_comment_id",
    "source_document_key",
    "source_external_ref",
    "request",
    "error_message",
    "salt",
    "salts",
    "absent",
)
"""The columns of an operation that erasing may change."""


class Rewritten(NamedTuple):
    """A segment that lies beside the one it is to replace."""

    segment: Segment
    erased: dict[int, tuple[str, ...]]
    """The fields that have no value any more, by `seq`."""


def rewrite(
    folder: Folder,
    manifest: Manifest,
    segment: Segment,
    doomed: Mapping[int, Collection[str]],
    company: bytes,
) -> Rewritten | None:
    """Write a segment anew beside itself, with fields erased; None: none of them has a value.

    Blocking, and in a folder that the caller holds.

    Args:
        folder: The company's.
        manifest: What is sealed.
        segment: One of its segments.
        doomed: The paths to erase by `seq` (`memtui.store.erasing.erased`).
        company: The company's salt.

    Raises:
        Conflict: a digest does not hold afterwards, so nothing is replaced.
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
        gone = _load(duck, _files(folder, segment), doomed, company)
        if not gone:
            return None
        fresh = write_files(
            duck, work, before, span, made, selects=_selects(_files(folder, segment))
        )
        target = folder.segment(fresh)
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
        sync_folder(folder.path)
        for part in _parts(sorted(gone)):
            for operation in fetch(duck, _files(folder, fresh), part).values():
                if not is_intact(operation, company):
                    raise Conflict(
                        f"Operation {operation.seq} of {folder.company_id} does not fit its digest "
                        "without what was to be erased; find the place with memtui audit verify."
                    )
    return Rewritten(fresh, gone)


def _files(folder: Folder, segment: Segment) -> dict[str, str]:
    return {table: f"read_parquet({quoted(folder.file(segment, table))})" for table in TABLES}


def _load(
    duck: Any, files: dict[str, str], doomed: Mapping[int, Collection[str]], company: bytes
) -> dict[int, tuple[str, ...]]:
    """Put what changes into tables of DuckDB; returns the fields that go, by `seq`."""
    columns = {"seq": "BIGINT"} | {name: columns_of("operations")[name] for name in _VALUES}
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    duck.execute(f"CREATE TABLE changed_operations ({listed})")
    for table, number in _NUMBER.items():
        duck.execute(f"CREATE TABLE changed_{table} (seq BIGINT, {number} BIGINT)")
    gone: dict[int, tuple[str, ...]] = {}
    for part in _parts(sorted(doomed)):
        found = fetch(duck, files, part)
        changed: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        for seq, operation in found.items():
            fresh = erased(operation, doomed[seq], company)
            if fresh is operation:
                continue
            gone[seq] = newly_absent(operation, fresh)
            changed["operations"].append((seq, *_stored(fresh)))
            for path in gone[seq]:
                table, _, rest = path.partition(".")
                if table in _EMPTY:
                    changed[table].append((seq, int(rest.partition(".")[0])))
        for table, rows in changed.items():
            with duck.appender(f"changed_{table}") as appender:
                appender.append_rows(rows)
    return gone


def _stored(operation: Operation) -> tuple[Any, ...]:
    row = row_of(operation)
    return tuple(
        stored_text(value)
        if isinstance(value, str)
        else stored_json(value)
        if isinstance(value, dict)
        else value
        for value in (row[name] for name in _VALUES)
    )


def _selects(files: dict[str, str]) -> dict[str, str]:
    """Return the queries of the rows without what is erased, by table."""
    replaced = ", ".join(
        f"CASE WHEN c.seq IS NULL THEN o.{name} ELSE c.{name} END AS {name}" for name in _VALUES
    )
    found = {
        "operations": f"SELECT o.* REPLACE ({replaced}) FROM {files['operations']} o "
        "LEFT JOIN changed_operations c ON c.seq = o.seq ORDER BY o.seq"
    }
    for table, (column, empty) in _EMPTY.items():
        key = _NUMBER[table]
        found[table] = (
            f"SELECT t.* REPLACE (CASE WHEN c.seq IS NULL THEN t.{column} ELSE {empty} END AS "
            f"{column}) FROM {files[table]} t LEFT JOIN changed_{table} c "
            f"ON c.seq = t.seq AND c.{key} = t.{key} ORDER BY t.seq, t.{key}"
        )
    return found


def _parts(seqs: list[int]) -> list[list[int]]:
    return [seqs[start : start + _AT_ONCE] for start in range(0, len(seqs), _AT_ONCE)]


def wait(folder: Folder, manifest: Manifest) -> None:
    """Put the manifest that names the new files beside the one in force."""
    folder.write(manifest, waiting=True)


def replace(folder: Folder) -> None:
    """Let the waiting manifest count, and remove what it does not name any more."""
    folder.waiting_file.replace(folder.manifest_file)
    sync_folder(folder.path)
    remove_older(folder, folder.read())
