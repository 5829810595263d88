"""Rebuilds an archive's manifest from its segments, checked against the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from memtui.analytics.archive import locked, refuse_gap
from memtui.analytics.engine import opened
from memtui.analytics.layout import SEGMENT, ArchiveFolder, Manifest, Segment, log_ends
from memtui.analytics.seal import Made, described
from memtui.contract import Conflict, Filter, Json, OperationType, Unavailable
from memtui.store.database import Database, loaded_moment, quoted
from memtui.store.log import OperationStore, company_salt

if TYPE_CHECKING:
    from datetime import datetime

_NAMING = (OperationType.SEAL, OperationType.PURGE, OperationType.REPAIR)
"""Operations whose requests hold the proofs of segments."""
_MOST = 1_000


class _Named(NamedTuple):
    """An operation's proof of a segment."""

    seq: int
    proof: Json
    made: Made


def lacks_manifest(folder: ArchiveFolder) -> bool:
    """Whether there are segments and no manifest. Blocking."""
    return not folder.manifest_file.exists() and bool(_segments(folder))


def remake_manifest(database: Database, folder: ArchiveFolder) -> Manifest:
    """Rebuild the manifest. Blocking.

    Raises:
        Unavailable: a segment is missing or differs from its proof; nothing is written.
    """
    with locked(folder), opened() as duck:
        named = _named(database, folder, duck)
        with database.read() as connection:
            salt = company_salt(connection, folder.company_id)
        manifest = Manifest(company_id=folder.company_id, salt=salt.hex())
        for path in _segments(folder):
            manifest = manifest.with_segment(_segment(duck, manifest, path, named))
        refuse_gap(manifest, log_ends(database, folder.company_id))
        folder.write(manifest)
    return manifest


def _segments(folder: ArchiveFolder) -> list[Path]:
    """Return the folders of all segments in their newest revision, the oldest first."""
    found: dict[str, Path] = {}
    for path in folder.path.iterdir() if folder.path.is_dir() else ():
        if SEGMENT.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            span = path.name.partition(".")[0]
            if span not in found or _revision(path) > _revision(found[span]):
                found[span] = path
    return [found[span] for span in sorted(found)]


def _revision(path: Path) -> int:
    return int(path.name.partition(".")[2] or 0)


def _segment(duck: Any, manifest: Manifest, path: Path, named: dict[str, _Named]) -> Segment:
    logged = named.get(path.name)
    if logged is not None:
        first, _, last = path.name.partition(".")[0].partition("-")
        made = logged.made._replace(revision=_revision(path))
        try:
            segment = described(duck, path, manifest, (int(first), int(last)), made)
        except Conflict:
            segment = None
        if segment is not None and segment.proof() == logged.proof:
            return segment
    raise Unavailable(
        f"{path} does not match the log, so no manifest was written; restore the archive from a "
        "backup."
    )


def _named(database: Database, folder: ArchiveFolder, duck: Any) -> dict[str, _Named]:
    """Return, by segment name, the proof by the newest operation that names it."""
    found: dict[str, _Named] = {}
    for one in sorted(
        (*_in_files(folder, duck), *_in_database(database, folder)), key=attrgetter("seq")
    ):
        found[str(one.proof.get("name"))] = one
    return found


def _in_database(database: Database, folder: ArchiveFolder) -> Iterator[_Named]:
    with database.read() as connection:
        log = OperationStore(connection, folder.company_id)
        pages = [log.page(Filter(operation_type=one), limit=_MOST) for one in _NAMING]
    for page in pages:
        for one in page.operations:
            made = Made(one.started_at, one.principal)
            yield from (_Named(one.seq, proof, made) for proof in one.request.get("segments", ()))


def _in_files(folder: ArchiveFolder, duck: Any) -> Iterator[_Named]:
    names = ", ".join(quoted(path / "operations.parquet") for path in _segments(folder))
    types = ", ".join(quoted(one) for one in _NAMING)
    rows = duck.execute(
        f"SELECT seq, request, epoch_us(started_at), principal FROM read_parquet([{names}]) "
        f"WHERE operation_type IN ({types})"
    ).fetchall()
    for seq, request, started, principal in rows:
        made = Made(cast("datetime", loaded_moment(started)), principal)
        for proof in json.loads(request).get("segments", ()):
            yield _Named(seq, proof, made)
