"""Look at a company's archive, and prove that it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memtui.analytics.engine import opened, quoted
from memtui.analytics.layout import Folder, Manifest, Segment, sha256_of
from memtui.analytics.recovery import log_ends, refuse_gap, usable
from memtui.contract import Model, Unavailable
from memtui.store.database import Database
from memtui.store.digest import GENESIS


class ArchiveCheck(Model):
    """What a check of the archive found; whole where there are no problems."""

    company_id: str
    segments: int
    operations: int
    bytes: int
    problems: tuple[str, ...] = ()
    """One sentence each, with the file or the operation it is about."""


def ls(root: Path, company_id: str) -> Manifest:
    """Return what is sealed of a company's log, oldest first. Blocking.

    Raises:
        Unavailable: the manifest is damaged.
    """
    return Folder(root, company_id).read()


def verify(root: Path, company_id: str, database: Database | None = None) -> ArchiveCheck:
    """Check every file's SHA-256 and row count, and that the digests link up. Blocking.

    With the database also that nothing lies between what is sealed and what it holds. That each
    digest fits its operation is for `memtui.analytics.audit` to prove.

    Raises:
        Unavailable: the manifest is damaged, or the archive may not be read.
    """
    folder = Folder(root, company_id)
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


def _of_segment(duck: Any, folder: Folder, segment: Segment) -> list[str]:
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
    if (broken := _broken_link(duck, folder, segment)) is not None:
        problems.append(f"Operation {broken} is not chained to the one before it.")
    return problems


def _broken_link(duck: Any, folder: Folder, segment: Segment) -> int | None:
    [found] = duck.execute(
        f"""
        SELECT min(seq) FROM (
            SELECT seq, seq <> {segment.first_seq} + row_number() OVER (ORDER BY seq) - 1
                OR previous_digest <> lag(digest, 1, {quoted(segment.previous_digest)})
                    OVER (ORDER BY seq) AS broken
            FROM read_parquet({quoted(folder.file(segment, "operations"))})
        ) WHERE broken
        """
    ).fetchone()
    return None if found is None else int(found)
