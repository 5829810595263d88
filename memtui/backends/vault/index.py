"""The derived index: what files hold, kept in step with them, and rebuilt from them at will."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from memtui.contract import Location, Problem, Unavailable

from . import units
from .database import Broken, Damaged, Database, InMemory, Unusable
from .entries import Entry
from .files import Folder
from .layout import Area

T = TypeVar("T")
_BATCH = 1000
_BEGINNINGS = 3
_RECENT_NS = 100_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COLUMNS = (
    "id", "path", "line", "area", "kind", "text", "revision", "project_id", "agent_id",
    "subject_id", "issue_id", "run_id", "topic", "tags", "title", "created", "updated", "expires",
    "pinned", "created_by", "source", "source_kind", "metadata", "valid_from", "valid_to",
    "is_current", "names", "fact_key", "size",
)  # fmt: skip
_INSERT = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


class Index:
    """Full-text and field index over one vault."""

    def __init__(self, path: Path, folder: Folder, refresh_seconds: float) -> None:
        self._path = path
        self._database: Database | InMemory = Database(path)
        self._beginnings = 0
        """How often the index was begun anew."""
        self._folder = folder
        self._refresh_seconds = refresh_seconds
        self._scanning = threading.Lock()
        self._scanned = float("-inf")
        self.is_watched = False
        self.trouble = ""
        """Why the index could not follow the last change; empty when all is well."""
        self._unusable = ""

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection.

        A damaged index is thrown away and built anew once. One that cannot be written, as on a
        full or read-only disk, is left alone; an index in memory takes its place, read from the
        files.

        Raises:
            Unavailable: the index is busy, or the vault is gone.
        """
        beginning = self._beginnings
        try:
            return self._database.run(work)
        except Broken as error:
            with self._scanning:
                # Another thread may have begun it anew while this one waited.
                if beginning == self._beginnings:
                    self._begin_anew(error)
                    self._scan()
        try:
            return self._database.run(work)
        except Broken as error:
            raise Unavailable(f"The index of the vault cannot be used: {error}.") from error

    def _begin_anew(self, error: Broken) -> None:
        self._beginnings += 1
        self._scanned = float("-inf")
        if isinstance(error, Damaged):
            try:
                self._database.discard()
            except Unusable as refusal:
                error = refusal
            else:
                return
        self._database.close()
        self._database = InMemory()
        self._unusable = str(error)

    def rebuild(self) -> tuple[int, int, int]:
        """Read every file again, whatever the index says; return records seen, changed, removed."""
        with self._scanning:
            if self._unusable:  # it may be usable by now
                self._database.close()
                self._database, self._unusable = Database(self._path), ""
                self._beginnings += 1
        before = self.read(_revisions)
        self.read(lambda connection: connection.execute("UPDATE files SET signature = ''"))
        self.refresh(force=True)
        after = self.read(_revisions)
        changed = sum(before.get(key) != revision for key, revision in after.items())
        return len(after), changed, sum(key not in after for key in before)

    def refresh(self, *, force: bool = False) -> None:
        """Follow what changed on disk; without `force` at most once in the configured seconds.

        Raises:
            Unavailable: the vault is gone; what the index knew of it stays.
        """
        self.check()
        pause = self._refresh_seconds * (15 if self.is_watched else 1)
        if not force and time.monotonic() - self._scanned < pause and not self.trouble:
            return
        with self._scanning:
            if not force and time.monotonic() - self._scanned < pause and not self.trouble:
                return
            self._scan()

    def _scan(self) -> None:
        """Follow what changed on disk; whoever calls this holds the lock."""
        for _ in range(_BEGINNINGS):
            try:
                self._follow_files()
            except Broken as error:
                self._begin_anew(error)
            else:
                self._scanned = time.monotonic()
                self.trouble = ""
                return
        raise Unavailable(f"The index {self._path} breaks again and again; `memtui doctor` helps.")

    def _follow_files(self) -> None:
        found = self._folder.scan()
        now = units.signatures(found.signatures)
        known: dict[str, str] = self._database.run(
            lambda c: dict(map(tuple, c.execute("SELECT path, signature FROM files")))
        )
        changed = [path for path, signature in now.items() if known.get(path) != signature]
        changed += [path for path in known if path not in now]
        for start in range(0, len(changed), _BATCH):
            batch = sorted(changed[start : start + _BATCH])
            self._database.run(partial(self._update, paths=batch, is_ours=False))
        self._database.run(lambda connection: _put_problems(connection, "", found.problems))
        if found.leftovers:
            self.leftovers = found.leftovers

    leftovers: Sequence[Path] = ()
    """Temporary files of writers that were killed, as the last scan saw them."""

    def update(self, paths: Iterable[str], *, is_ours: bool = False) -> list[str]:
        """Read these files again and return the ids of the records that changed.

        Files are read inside the write transaction, so that a slow reader never puts an older
        state over a newer one. `is_ours` remembers what memtui left there, for undo.
        """
        wanted = sorted(set(paths))
        return self.read(partial(self._update, paths=wanted, is_ours=is_ours))

    def _update(
        self, connection: sqlite3.Connection, paths: list[str], *, is_ours: bool
    ) -> list[str]:
        connection.execute("BEGIN IMMEDIATE")
        changed: list[str] = []
        for path in paths:
            unit = units.load(self._folder, path)
            changed += _put_unit(connection, path, unit)
            if is_ours:
                digest = unit.entries[0].revision if unit and unit.entries else ""
                connection.execute("REPLACE INTO written VALUES (?, ?)", (path, digest))
        connection.execute("COMMIT")
        return changed

    def written(self, path: str) -> str | None:
        """Return the digest of what memtui last left at a note's path; None if not known."""
        query = "SELECT digest FROM written WHERE path = ?"
        row = self.read(lambda connection: connection.execute(query, (path,)).fetchone())
        return None if row is None else str(row[0])

    def follow(self, paths: Iterable[str]) -> None:
        """Take in our own write. The files are safe already, so trouble here only delays search."""
        try:
            self.update(paths, is_ours=True)
        except Unavailable as error:
            self.trouble = str(error)

    @property
    def unusable(self) -> Problem | None:
        """Why no index can be kept in a file, where that is so."""
        if not self._unusable:
            return None
        message = (
            f"The index cannot be used ({self._unusable}), so the files themselves are read; "
            "make room for it or open its folder for writing."
        )
        return Problem(message=message, location=Location(path=str(self._path)))

    def problems(self, limit: int) -> list[Problem]:
        """Return what cannot be read, by path."""
        query = "SELECT shown, line, message FROM problems ORDER BY shown, line LIMIT ?"
        rows = self.read(lambda connection: connection.execute(query, (limit,)).fetchall())
        return [
            Problem(message=row["message"], location=Location(path=row["shown"], line=row["line"]))
            for row in rows
        ]

    def check(self) -> None:
        """Raise `Unavailable` if the vault is gone."""
        self._folder.check()

    @property
    def is_empty(self) -> bool:
        """Whether it has never seen a file, or sees none any more."""
        return self.read(lambda c: c.execute("SELECT 1 FROM files LIMIT 1").fetchone()) is None

    def scrub(self) -> bool:
        """Keep nothing of what is gone: not a word, not a page, not a name.

        Full-text search marks words as deleted and keeps them until it merges, and SQLite keeps
        freed pages and its write-ahead log. Returns False where another process still holds that.
        """
        self.refresh(force=True)
        return self.read(_scrub)

    def close(self) -> None:
        """Close the index file."""
        self._database.close()


def _scrub(connection: sqlite3.Connection) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM written WHERE path NOT IN (SELECT path FROM files)")
    connection.execute("INSERT INTO search (search) VALUES ('rebuild')")
    connection.execute("COMMIT")
    connection.execute("VACUUM")
    [busy, *_] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _revisions(connection: sqlite3.Connection) -> dict[str, str]:
    query = "SELECT id, revision FROM records WHERE is_current"
    return {row["id"]: row["revision"] for row in connection.execute(query)}


def _put_unit(connection: sqlite3.Connection, path: str, unit: units.Unit | None) -> list[str]:
    query = "SELECT id, revision FROM records WHERE path = ? AND is_current"
    before = {row["id"]: row["revision"] for row in connection.execute(query, (path,))}
    connection.execute("DELETE FROM records WHERE path = ?", (path,))
    _put_problems(connection, path, unit.problems if unit else ())
    if unit is None:
        connection.execute("DELETE FROM files WHERE path = ?", (path,))
        return list(before)
    connection.executemany(_INSERT, map(_values, unit.entries))
    signature = "" if _is_recent(unit.signature) else unit.signature
    connection.execute("REPLACE INTO files VALUES (?, ?)", (path, signature))
    after = {entry.id: entry.revision for entry in unit.entries if entry.is_current}
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


def _is_recent(signature: str) -> bool:
    """Whether a file is so new that a second change could bear the same time: read it again."""
    newest = max((int(s.split(":")[0]) for s in signature.split("|") if s), default=0)
    return abs(time.time_ns() - newest) < _RECENT_NS


def _put_problems(connection: sqlite3.Connection, path: str, problems: Sequence[Problem]) -> None:
    places = [(problem.location or Location(path=path), problem.message) for problem in problems]
    rows = [(path, where.path, where.line, message) for where, message in places]
    query = "SELECT path, shown, line, message FROM problems WHERE path = ?"
    if rows != [tuple(row) for row in connection.execute(query, (path,))]:
        connection.execute("DELETE FROM problems WHERE path = ?", (path,))
        connection.executemany("INSERT INTO problems VALUES (?, ?, ?, ?)", rows)


def microseconds(moment: datetime | None) -> int | None:
    """Return a moment as the index keeps it: microseconds since 1970."""
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _moment(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + value * _MICROSECOND


def _values(entry: Entry) -> tuple[object, ...]:
    return (
        entry.id, entry.path, entry.line, entry.area.value, entry.kind, entry.text, entry.revision,
        entry.project_id, entry.agent_id, entry.subject_id, entry.issue_id, entry.run_id,
        entry.topic, json.dumps(entry.tags, ensure_ascii=False), entry.title,
        microseconds(entry.created), microseconds(entry.updated), microseconds(entry.expires),
        entry.pinned, entry.created_by, json.dumps(entry.source) if entry.source else None,
        entry.source["kind"] if entry.source else None, json.dumps(entry.metadata),
        microseconds(entry.valid_from), microseconds(entry.valid_to), entry.is_current,
        entry.names, str(entry.metadata.get("key", "")).lower() or None
        if entry.kind == "fact" else None,
        len(entry.text),
    )  # fmt: skip


def entry_of(row: sqlite3.Row) -> Entry:
    """Return a row of `records` as an entry."""
    return Entry(
        id=row["id"],
        path=row["path"],
        line=row["line"],
        area=Area(row["area"]),
        kind=row["kind"],
        text=row["text"],
        revision=row["revision"],
        project_id=row["project_id"],
        agent_id=row["agent_id"],
        subject_id=row["subject_id"],
        issue_id=row["issue_id"],
        run_id=row["run_id"],
        topic=row["topic"],
        tags=() if row["tags"] == "[]" else tuple(json.loads(row["tags"])),
        title=row["title"],
        created=_moment(row["created"]),
        updated=_moment(row["updated"]),
        expires=_moment(row["expires"]),
        pinned=bool(row["pinned"]),
        created_by=row["created_by"],
        source=json.loads(row["source"]) if row["source"] else None,
        metadata={} if row["metadata"] == "{}" else json.loads(row["metadata"]),
        valid_from=_moment(row["valid_from"]),
        valid_to=_moment(row["valid_to"]),
        is_current=bool(row["is_current"]),
        names=row["names"],
    )
