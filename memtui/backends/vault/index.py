"""The index of a vault's files: one SQLite file with full-text search, derived and deletable.

A damaged index is discarded and built again. Where no file can be written, as on a full disk, an
index in memory replaces it.
"""

# ruff: noqa: S608  # the SQL is put together from constants, values are bound
from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from memtui.contract import (
    Invalid,
    Json,
    Location,
    Problem,
    Record,
    Scope,
    Snippet,
    Unavailable,
    folded,
    has_tag,
)
from memtui.fuzzy import finds
from memtui.provider_kit.derived import Broken, DerivedDatabase, scrub
from memtui.text_analysis import DATED, TOKENIZER, indexed
from memtui.text_analysis import folded as folded_text

from . import changes, notes
from .files import VaultFolder
from .history import FactsDocument
from .layout import (
    FACTS,
    HISTORY,
    WORKSPACE,
    Area,
    StoredRecord,
    handle_of,
    history_path,
    is_document,
    place_of,
    places_of,
    source_fields,
    source_of,
    split_id,
)
from .markdown import link_name

T = TypeVar("T")
VERSION = 9
"""Increment it whenever the tables or the analysis of their texts change."""
_BATCH = 1000
_CHARS_AT_ONCE = 16_000_000
_BEGINNINGS = 3
_RECENT_NS = 100_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_FOUND = "title, shown, topic, tags, names, dates, places"
# No SQLModel: this is a cache with a full-text table, and importing SQLAlchemy is slow for hooks.
_SCHEMA = f"""
CREATE TABLE files (
  path TEXT PRIMARY KEY, signature TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE problems (
  path TEXT NOT NULL, shown TEXT NOT NULL, line INTEGER NOT NULL, message TEXT NOT NULL
);
CREATE INDEX problems_path ON problems (path);
CREATE TABLE written (
  path TEXT PRIMARY KEY, digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
  rowid INTEGER PRIMARY KEY,
  id TEXT NOT NULL, is_current INTEGER NOT NULL, pinned INTEGER NOT NULL, expires INTEGER,
  area TEXT NOT NULL, project_id TEXT, agent_id TEXT, subject_id TEXT, issue_id TEXT, run_id TEXT,
  beside TEXT, step INTEGER NOT NULL, created INTEGER, updated INTEGER, valid_from INTEGER,
  valid_to INTEGER, line INTEGER NOT NULL, meaning INTEGER, kind TEXT NOT NULL, topic TEXT,
  tags TEXT NOT NULL, fact_key TEXT, size INTEGER NOT NULL, path TEXT NOT NULL,
  revision TEXT NOT NULL, created_by TEXT, source_kind TEXT, source TEXT, title TEXT,
  summary TEXT, names TEXT NOT NULL, places TEXT NOT NULL, metadata TEXT NOT NULL,
  problem TEXT, text TEXT NOT NULL,
  shown TEXT GENERATED ALWAYS AS (COALESCE(summary, text)) VIRTUAL,
  dates TEXT GENERATED ALWAYS AS (
    strftime('{DATED}', COALESCE(created, valid_from) / 1000000, 'unixepoch')
  ) VIRTUAL
);
CREATE INDEX records_path ON records (path);
CREATE INDEX records_id ON records (id);
CREATE INDEX records_updated ON records (COALESCE(updated, 0), id);
CREATE INDEX records_key ON records (fact_key) WHERE fact_key IS NOT NULL;
CREATE INDEX records_beside ON records (beside, step, updated, line)
  WHERE beside IS NOT NULL AND is_current;
CREATE INDEX records_pinned ON records (pinned) WHERE pinned;
CREATE INDEX records_meaning ON records (meaning);
CREATE VIRTUAL TABLE search USING fts5 (
  {_FOUND}, content = '',
  tokenize = "{TOKENIZER}"
);
CREATE TABLE names (
  id TEXT NOT NULL, name TEXT NOT NULL, whole TEXT NOT NULL, rank INTEGER NOT NULL
);
CREATE INDEX names_id ON names (id);
CREATE INDEX names_name ON names (name);
CREATE TABLE links (
  id TEXT NOT NULL, path TEXT NOT NULL, line INTEGER NOT NULL, name TEXT NOT NULL,
  target TEXT NOT NULL, heading TEXT, words TEXT, relation TEXT
);
CREATE INDEX links_id ON links (id);
CREATE INDEX links_name ON links (name);
"""
"""`names` has the names by which notes can be linked, and `links` the links as written. They join
on `name`: the last part of the path, case-folded."""
FILE, _TITLE, _ALIAS = range(3)
"""Origins of a note's names, by precedence."""
_CHOSEN = "SELECT value FROM json_each(?)"
_ANALYSED = ", ".join(f"memtui_indexed({column})" for column in _FOUND.split(", "))
_UNFOUND_ROWS = (
    f"INSERT INTO search (search, rowid, {_FOUND}) SELECT 'delete', rowid, {_ANALYSED} FROM records"
)
_UNFOUND = f"{_UNFOUND_ROWS} WHERE path IN ({_CHOSEN})"
_MADE_FOUND = f"""
INSERT INTO search (rowid, {_FOUND}) SELECT rowid, {_ANALYSED} FROM records WHERE rowid > ?
"""
"""One statement for many rows is several times as fast as a trigger per row."""
_SCOPE = ("project_id", "agent_id", "subject_id", "issue_id", "run_id")
_SAME = (
    "kind", "text", "revision", "topic", "title", "summary", "created_by", "pinned", "problem",
)  # fmt: skip
_MOMENTS = {
    "created": "created_at", "updated": "updated_at", "expires": "expires_at",
    "valid_from": "valid_from", "valid_to": "valid_to",
}  # fmt: skip
"""Columns, and the record fields that they store."""


def _database(path: Path | None) -> DerivedDatabase:
    return DerivedDatabase(
        path, _SCHEMA, version=VERSION, what="The vault's index", functions=_FUNCTIONS
    )


def _has(metadata: str, key: str, wanted: str) -> bool:
    fields = json.loads(metadata)
    return key in fields and canonical(fields[key]) == wanted


def _tagged(tags: str, wanted: str) -> bool:
    return _as_json(wanted) in folded(tags) and has_tag(json.loads(tags), wanted)


@lru_cache(maxsize=64)
def _as_json(tag: str) -> str:
    return json.dumps(folded(tag), ensure_ascii=False)[1:-1]


def canonical(value: Any) -> str:
    """Return the form in which the index compares a metadata value."""
    return json.dumps(value, sort_keys=True, default=str)


_FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "memtui_folded": (1, folded_text),
    "memtui_indexed": (1, indexed),
    "memtui_finds": (2, finds),
    "memtui_has": (3, _has),
    "memtui_tagged": (2, _tagged),
}


class VaultIndex:
    """Full-text and field index over one vault."""

    def __init__(
        self, path: Path, folder: VaultFolder, refresh_seconds: float, *, writable: bool = True
    ) -> None:
        """Set up the index; if `writable`, manual edits of facts are added to their history."""
        self._path = path
        self._database = _database(path)
        self._beginnings = 0
        """How often the index was started again from an empty database."""
        self._folder = folder
        self._refresh_seconds = refresh_seconds
        self._scanning = threading.Lock()
        self._scanned = float("-inf")
        self.is_watched = False
        self._trouble = ""
        """Why the index could not take in the last change; empty if it could."""
        self._unusable = ""
        self._writable = writable
        self._unnoted: dict[str, str] = {}
        """Facts files whose manual edits could not be added to the history, and why."""
        self.leftovers: Sequence[Path] = ()
        """Temporary files of killed writers that the last scan found."""

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection.

        A damaged index is discarded and built again once. One that cannot be written, as on a full
        or read-only disk, stays as it is; an index in memory, built from the files, replaces it.

        Raises:
            Unavailable: the index is busy, or the vault is gone.
        """
        beginning = self._beginnings
        try:
            return self._database.run(work)
        except Broken as error:
            with self._scanning:
                # Another thread may have started it again while this one waited.
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
        if error.is_damaged:
            try:
                self._database.discard()
            except Broken as refusal:
                error = refusal
            else:
                return
        self._database.close()
        self._database = _database(None)
        self._unusable = str(error)

    def rebuild(self) -> tuple[int, int, int]:
        """Read every file again; return the numbers of records seen, changed and removed."""
        with self._scanning:
            if self._unusable:  # the disk may be writable by now
                self._database.close()
                self._database, self._unusable = _database(self._path), ""
                self._beginnings += 1
        before = self.read(_revisions)
        self.read(lambda connection: connection.execute("UPDATE files SET signature = ''"))
        self.refresh(force=True)
        after = self.read(_revisions)
        changed = sum(before.get(key) != revision for key, revision in after.items())
        return len(after), changed, sum(key not in after for key in before)

    def refresh(self, *, force: bool = False) -> None:
        """Read changed files; without `force`, at most once in the configured seconds.

        Raises:
            Unavailable: the vault is gone; the index stays unchanged.
        """
        self._folder.check()
        if force or self._is_due():
            with self._scanning:
                if force or self._is_due():
                    self._scan()

    def _is_due(self) -> bool:
        pause = self._refresh_seconds * (15 if self.is_watched else 1)
        return time.monotonic() - self._scanned >= pause or bool(self._trouble)

    def _scan(self) -> None:
        """Read changed files; the caller holds the lock."""
        for _ in range(_BEGINNINGS):
            try:
                self._follow_files()
            except Broken as error:
                self._begin_anew(error)
            else:
                self._scanned = time.monotonic()
                self._trouble = ""
                return
        raise Unavailable(f"The index {self._path} keeps breaking; run `memtui doctor`.")

    def _follow_files(self) -> None:
        found = self._folder.scan()
        now = _signatures(found.signatures)
        known: dict[str, str] = self._database.run(
            lambda c: dict(map(tuple, c.execute("SELECT path, signature FROM files")))
        )
        changed = [path for path, signature in now.items() if known.get(path) != signature]
        changed += [path for path in known if path not in now]
        for start in range(0, len(changed), _BATCH):
            batch = sorted(changed[start : start + _BATCH])
            self._note_hand_edits(batch)
            self._database.run(partial(self._update, paths=batch, is_ours=False))
        self._database.run(lambda connection: _put_problems(connection, "", found.problems))
        if found.leftovers:
            self.leftovers = found.leftovers

    def update(self, paths: Iterable[str], *, is_ours: bool = False) -> list[str]:
        """Read these files again and return the ids of the records that changed.

        Files are read inside the write transaction, so that a slow reader cannot overwrite a newer
        state with an older one. `is_ours`: memtui wrote them; their digests are stored for undo.
        """
        wanted = sorted(set(paths))
        if not is_ours:
            self._note_hand_edits(wanted)
        return self.read(partial(self._update, paths=wanted, is_ours=is_ours))

    def _note_hand_edits(self, paths: Iterable[str]) -> None:
        """Add the earlier values of manually edited facts to their history.

        Only the index still has those values, until it takes in the files.
        """
        for path in paths if self._writable else ():
            self._unnoted.pop(path, None)
            known = self._database.run(partial(_known_facts, path=path))
            if known is None or not place_of(path).is_facts:
                continue
            try:
                changes.note_hand_edits(self._folder, path, known)
            except (Unavailable, Invalid) as error:
                self._unnoted[path] = str(error)

    def _update(
        self, connection: sqlite3.Connection, paths: list[str], *, is_ours: bool
    ) -> list[str]:
        connection.execute("BEGIN IMMEDIATE")
        changed: list[str] = []
        for some in _read_in_parts(self._folder, paths):
            changed += _put_units(connection, some)
            if is_ours:
                connection.executemany(
                    "REPLACE INTO written VALUES (?, ?)",
                    [
                        (path, unit.records[0].record.revision if unit and unit.records else "")
                        for path, unit in some.items()
                    ],
                )
        connection.execute("COMMIT")
        return changed

    def document(self, path: str) -> StoredRecord | None:
        """Return a workspace file's record from the index; None if the file is not included."""
        query = "SELECT * FROM records WHERE id = ?"
        row = self.read(lambda connection: connection.execute(query, (path,)).fetchone())
        return StoredRecord(record_of(row, self._folder), Area(row["area"])) if row else None

    def follow(self, paths: Iterable[str]) -> None:
        """Take in memtui's own write; a failure only delays search, as the files are on disk."""
        try:
            self.update(paths, is_ours=True)
        except Unavailable as error:
            self._trouble = str(error)

    def written(self, path: str) -> str | None:
        """Return the digest of memtui's last write to a note's path; None if unknown."""
        query = "SELECT digest FROM written WHERE path = ?"
        row = self.read(lambda connection: connection.execute(query, (path,)).fetchone())
        return None if row is None else str(row[0])

    @property
    def troubles(self) -> list[Problem]:
        """Problems of the index itself: it cannot be stored, or it fell behind."""
        found = []
        if self._unusable:
            message = (
                f"The index cannot be used ({self._unusable}), so the files themselves are read; "
                "free some disk space, or make its folder writable."
            )
            found.append(Problem(message=message, location=Location(path=str(self._path))))
        if self._trouble:
            found.append(Problem(message=f"Search may miss recent changes: {self._trouble}"))
        found += [
            Problem(
                message=f"A manual edit is missing from its history: {message}",
                location=self._folder.location(path, 1),
            )
            for path, message in self._unnoted.items()
        ]
        return found

    def problems(self, limit: int = -1) -> list[Problem]:
        """Return the problems of files, sorted by path; at most `limit`, all if negative."""
        query = "SELECT shown, line, message FROM problems ORDER BY shown, line LIMIT ?"
        rows = self.read(lambda connection: connection.execute(query, (limit,)).fetchall())
        return [
            Problem(message=row["message"], location=Location(path=row["shown"], line=row["line"]))
            for row in rows
        ]

    @property
    def is_empty(self) -> bool:
        """Whether the index has no file of the vault itself; workspace files do not count."""
        own = "SELECT 1 FROM files WHERE instr(path, ?) = 0 LIMIT 1"
        return self.read(lambda c: c.execute(own, (f"/{WORKSPACE}/",)).fetchone()) is None

    def without(self, ids: Collection[str], now: datetime) -> VaultIndex:
        """Return a copy in memory in which some records are forgotten; it is never refreshed.

        Raises:
            Unavailable: the index is busy, or the vault is gone.
        """

        def fill(copy: sqlite3.Connection) -> None:
            self.read(lambda ours: ours.backup(copy))
            _forget(copy, ids, now)

        return _Still(self._folder, fill)

    def scrub(self) -> bool:
        """Remove every trace of deleted records from the index file.

        Full-text search only marks words as deleted until it merges, and SQLite keeps freed pages
        and its write-ahead log. Returns False if another process prevents it.
        """
        self.refresh(force=True)
        return self.read(_scrub)

    def close(self) -> None:
        """Close the index file."""
        self._database.close()


class _Still(VaultIndex):
    """An index in memory that does not follow the files."""

    def __init__(self, folder: VaultFolder, fill: Callable[[sqlite3.Connection], None]) -> None:
        super().__init__(Path(), folder, 0, writable=False)
        self._database = _database(None)
        self._database.run(fill)

    def refresh(self, *, force: bool = False) -> None:
        """Do nothing."""


def _forget(connection: sqlite3.Connection, ids: Collection[str], now: datetime) -> None:
    """Change rows as forgetting their records would.

    A note's row is removed. A fact's row becomes a past version, whose words still count towards
    word frequencies.
    """
    connection.execute("BEGIN")
    gone = json.dumps([one for one in ids if split_id(one)[1] is None])
    connection.execute(f"{_UNFOUND_ROWS} WHERE id IN ({_CHOSEN})", (gone,))
    connection.execute(f"DELETE FROM records WHERE id IN ({_CHOSEN})", (gone,))
    connection.execute(
        f"UPDATE records SET is_current = 0, valid_to = ? WHERE is_current AND id IN ({_CHOSEN})",
        (microseconds(now), json.dumps(list(ids))),
    )
    connection.execute("COMMIT")


def _scrub(connection: sqlite3.Connection) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM written WHERE path NOT IN (SELECT path FROM files)")
    connection.execute("INSERT INTO search (search) VALUES ('delete-all')")
    connection.execute(_MADE_FOUND, (0,))
    connection.execute("COMMIT")
    return scrub(connection)


def _known_facts(connection: sqlite3.Connection, path: str) -> dict[str, changes.ReadFact] | None:
    """Return a file's facts as the index last read them, by name; None: the file is new."""
    if connection.execute("SELECT 1 FROM files WHERE path = ?", (path,)).fetchone() is None:
        return None
    query = "SELECT id, text, topic, valid_from FROM records WHERE path = ? AND is_current"
    return {
        split_id(row["id"])[1] or "": changes.ReadFact(
            row["text"], row["topic"], moment(row["valid_from"])
        )
        for row in connection.execute(query, (path,))
    }


def _revisions(connection: sqlite3.Connection) -> dict[str, str]:
    query = "SELECT id, revision FROM records WHERE is_current"
    return {row["id"]: row["revision"] for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class _Unit:
    """The records of one file; a facts file and its history are one unit."""

    signature: str
    records: Sequence[StoredRecord] = ()
    problems: Sequence[Problem] = ()
    is_ahead: bool = False
    """A fact in it starts or ends at a future time."""


def _signatures(found: dict[str, str]) -> dict[str, str]:
    """Return the signature of each unit from those of its files."""
    units: dict[str, str] = {}
    for path, signature in found.items():
        if not path.endswith(HISTORY):
            is_facts = path.endswith(FACTS) and place_of(path).is_facts
            beside = found.get(history_path(path), "") if is_facts else ""
            units[path] = f"{signature}|{beside}" if is_facts else signature
        elif (facts_path := unit_path(path)) and facts_path not in found:
            units[facts_path] = f"|{signature}"
    return units


def unit_path(path: str) -> str | None:
    """Return the path of a file's unit in the index; None if the file is not indexed."""
    if not path.endswith(HISTORY):
        return path
    facts_path = path.removesuffix(HISTORY) + FACTS
    return facts_path if place_of(facts_path).is_facts else None


def _load_note(folder: VaultFolder, path: str, *, is_plain: bool = False) -> _Unit | None:
    file = folder.read(path, is_plain=is_plain)
    if file is None:
        return None
    if isinstance(file, Problem):
        return _Unit(folder.signature(path), problems=[file])
    problems = [file.problem] if file.problem else []
    if is_document(path):
        document = notes.read_document(folder, path, file)
        return _Unit(file.signature, [document] if document else [], problems)
    note = notes.read(folder, path, file)
    if isinstance(note, Problem):
        return _Unit(file.signature, problems=[folder.problem(path, note.message)])
    problems += [folder.problem(path, one) for one in note[1].problems]
    return _Unit(file.signature, [note[1]], problems)


def _load_facts(folder: VaultFolder, path: str) -> _Unit | None:
    beside = history_path(path)
    loaded = FactsDocument.read(folder, path)
    if isinstance(loaded, Problem):
        signature = f"{folder.signature(path)}|{folder.signature(beside)}"
        return _Unit(signature, problems=[loaded])
    files = (loaded.file, loaded.history)
    if files == (None, None):
        return None
    problems = [file.problem for file in files if file and file.problem]
    if loaded.content.problem:
        problems.append(folder.problem(path, loaded.content.problem.message))
    problems += [folder.problem(beside, words, line) for line, words in loaded.ledger.problems]
    signature = "|".join(file.signature if file else "" for file in files)
    return _Unit(signature, loaded.records(), problems, loaded.is_ahead)


def _read_in_parts(folder: VaultFolder, paths: Sequence[str]) -> Iterator[dict[str, _Unit | None]]:
    """Read files, and yield them in parts of limited size, to bound memory."""
    part: dict[str, _Unit | None] = {}
    chars = 0
    inside: str | None = None
    for path in paths:
        if place_of(path).is_facts:
            unit = _load_facts(folder, path)
        else:
            before, inside = inside, path.rpartition("/")[0]
            is_plain = inside == before and unit is not None and not unit.problems
            unit = _load_note(folder, path, is_plain=is_plain)
        part[path] = unit
        chars += sum(len(stored.record.text) for stored in unit.records) if unit else 0
        if chars > _CHARS_AT_ONCE:
            yield part
            part, chars = {}, 0
    yield part


def _put_units(connection: sqlite3.Connection, units: Mapping[str, _Unit | None]) -> list[str]:
    """Replace the rows of files; return the ids of the records that changed."""
    chosen = json.dumps(list(units))
    query = f"SELECT id, revision, meaning FROM records WHERE path IN ({_CHOSEN}) AND is_current"
    rows = connection.execute(query, (chosen,)).fetchall()
    before = {row["id"]: row["revision"] for row in rows}
    meaning = {(row["id"], row["revision"]): row["meaning"] for row in rows}
    for one in before:
        connection.execute("DELETE FROM names WHERE id = ?", (one,))
        connection.execute("DELETE FROM links WHERE id = ?", (one,))
    connection.execute(_UNFOUND, (chosen,))
    connection.execute(f"DELETE FROM records WHERE path IN ({_CHOSEN})", (chosen,))
    [last] = connection.execute("SELECT COALESCE(max(rowid), 0) FROM records").fetchone()
    read = {path: unit for path, unit in units.items() if unit is not None}
    connection.executemany(
        _INSERT,
        (
            (*_row(path, one), meaning.get((one.id, one.record.revision)))
            for path, unit in read.items()
            for one in unit.records
        ),
    )
    connection.execute(_MADE_FOUND, (last,))
    query = f"SELECT DISTINCT path FROM problems WHERE path IN ({_CHOSEN})"
    had_problems = {row["path"] for row in connection.execute(query, (chosen,))}
    for path, unit in units.items():
        if path in had_problems or (unit and unit.problems):
            _put_problems(connection, path, unit.problems if unit else ())
    connection.execute(f"DELETE FROM files WHERE path IN ({_CHOSEN})", (chosen,))
    connection.executemany(
        "INSERT INTO files VALUES (?, ?)",
        (
            # A future version starts by time alone, so such a file is read at each scan.
            (path, "" if unit.is_ahead or _is_recent(unit.signature) else unit.signature)
            for path, unit in read.items()
        ),
    )
    current = [(path, one) for path, unit in read.items() for one in unit.records if one.is_current]
    _put_links(connection, current)
    after = {one.id: one.record.revision for _, one in current}
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


def _put_links(connection: sqlite3.Connection, stored: Iterable[tuple[str, StoredRecord]]) -> None:
    """Store the links of records, each given with its file, and the names of notes."""
    names: list[tuple[str, str, str, int]] = []
    links: list[tuple[str | int | None, ...]] = []
    for path, one in stored:
        if one.id == path:
            names += _names_of(path, one.record.title, one.aliases)
        first = one.record.location.line if one.record.location else 1
        links += [
            (
                one.id,
                path,
                first + link.line,
                _last(link_name(link.target)),
                link.target,
                link.heading,
                link.words,
                link.relation,
            )
            for link in one.links
        ]
    connection.executemany("INSERT INTO names VALUES (?, ?, ?, ?)", names)
    if links:
        connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", links)


def _names_of(
    path: str, title: str | None, aliases: Sequence[str]
) -> Iterator[tuple[str, str, str, int]]:
    whole = link_name(path)
    last = _last(whole)
    yield path, last, whole, FILE
    for rank, words in ((_TITLE, title), *((_ALIAS, alias) for alias in aliases)):
        if words and (name := folded(words)) != last:
            yield path, _last(name), name, rank


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _is_recent(signature: str) -> bool:
    """Whether a file is so new that another change could have the same modification time.

    Such a file is read again at the next scan.
    """
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
    """Return a moment in microseconds since 1970, as the index stores it."""
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment(value: int | None) -> datetime | None:
    """Return the moment of a column of the index."""
    return None if value is None else _EPOCH + value * _MICROSECOND


_COLUMNS = (
    "id", "path", "line", "area", "is_current", "names", "tags", "source", "source_kind",
    "metadata", "fact_key", "size", "places", "beside", "step", *_SAME, *_SCOPE, *_MOMENTS,
    "meaning",
)  # fmt: skip
_INSERT = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


def _row(path: str, stored: StoredRecord) -> tuple[object, ...]:
    record, source = stored.record, stored.record.source
    key = record.metadata.get("key", "") if record.kind == "fact" else ""
    return (
        record.handle.provider_record_id,
        path,
        record.location.line if record.location else 1,
        stored.area.value,
        stored.is_current,
        stored.names,
        json.dumps(record.tags, ensure_ascii=False),
        json.dumps(source_fields(source)) if source else None,
        source.kind.value if source else None,
        json.dumps(record.metadata),
        folded_text(str(key)) or None,
        len(record.text),
        " ".join(places_of(stored.area, record.scope)),
        *_beside(path, record),
        *(getattr(record, name) for name in _SAME),
        *(getattr(record.scope, name) for name in _SCOPE),
        *(microseconds(getattr(record, field)) for field in _MOMENTS.values()),
    )


def _beside(path: str, record: Record) -> tuple[str | None, int]:
    """Return a record's sequence, the run or facts file, and its place there; None: it has none."""
    if run := record.scope.run_id:
        return f"run {run}", microseconds(record.created_at or record.updated_at) or 0
    if place_of(path).is_facts:
        return path, record.location.line if record.location else 1
    return None, 0


def record_of(row: sqlite3.Row, folder: VaultFolder) -> Record:
    """Return the record of a row of `records`."""
    return Record(**_fields(row, folder))


def snippet_of(row: sqlite3.Row, folder: VaultFolder, score: float) -> Snippet:
    """Return the snippet of a row of `records`."""
    return Snippet(**_fields(row, folder), score=score)


def _fields(row: sqlite3.Row, folder: VaultFolder) -> Json:
    company_id = folder.company_id
    return dict(
        handle=handle_of(row["id"]),
        scope=Scope(company_id=company_id, **{name: row[name] for name in _SCOPE}),
        source=source_of(json.loads(row["source"]), company_id) if row["source"] else None,
        tags=tuple(json.loads(row["tags"])) if row["tags"] != "[]" else (),
        location=folder.location(row["path"], row["line"]),
        read_only=is_document(row["path"]),
        metadata=json.loads(row["metadata"]) if row["metadata"] != "{}" else {},
        **{name: row[name] for name in _SAME},
        **{field: moment(row[name]) for name, field in _MOMENTS.items()},
    )
