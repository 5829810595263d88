"""Search for texts wherever a copy may be: bytes, database rows, Parquet, JSON, gzip.

The bytes of a file, including freed pages of a database, are searched for every encoding of a text
(UTF-8, UTF-16, the escapes of JSON, Base64). Rows of databases and Parquet are searched too, as
their texts may be compressed, split over pages or nested. Parts of a text in freed pages, and words
in full-text indexes, are not searched: rewriting the files removes them.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import SQLModel

from memtui.analytics.engine import DuckDb
from memtui.contract import Model
from memtui.store.database import Database, quoted
from memtui.store.erasing import SHORTEST

_CHUNK = 4 << 20
_ROWS = 5_000
_SQLITE = b"SQLite format 3\0"
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_BASE64_BYTES = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")
_DEPTH = 4
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]+")


class Trace(Model):
    """A place that still has a text."""

    place: str
    """A file, with table and column if it is a database; or a table of PostgreSQL."""
    text: str
    """The text that was found."""
    key: str = ""
    """The row: the values of its key columns, or else of its first columns."""
    times: int = 1


class TraceReport(Model):
    """The result of a search; `traces` empty: nothing was found."""

    texts: int
    """Number of texts searched for."""
    files: int = 0
    bytes: int = 0
    traces: tuple[Trace, ...] = ()
    unread: tuple[str, ...] = ()
    """Files that could not be read."""


def searchable(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are long enough to search for, each once, the longest first.

    Shorter ones would be found everywhere.
    """
    wanted = {text.strip() for text in texts}
    return tuple(
        sorted((one for one in wanted if len(one) >= SHORTEST), key=lambda one: (-len(one), one))
    )


def look(
    places: Sequence[Path], texts: Sequence[str], database: Database | None = None
) -> TraceReport:
    """Search for texts in files and folders, and in a PostgreSQL control plane. Blocking.

    Args:
        places: Files, and folders with all their contents; links are not followed.
        texts: The texts to search for, as `searchable` returns them.
        database: The control plane's database; SQLite is searched only as a file in `places`.
    """
    if not texts:
        return TraceReport(texts=0)
    with closing(DuckDb()) as engine:
        search = _Search(texts, engine)
        for path in _files(places):
            search.file(path)
    if database is not None and database.dialect == "postgresql":
        search.control_plane(database)
    return TraceReport(
        texts=len(texts),
        files=search.files,
        bytes=search.bytes,
        traces=tuple(
            Trace(place=place, key=key, text=text, times=times)
            for (place, key, text), times in sorted(search.found.items())
        ),
        unread=tuple(search.unread),
    )


def _files(places: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for place in places:
        if place.is_file():
            found: Iterable[Path] = [place]
        else:
            found = (
                Path(folder, name) for folder, _, names in os.walk(place) for name in sorted(names)
            )
        for path in found:
            whole = Path(os.path.realpath(path.parent)) / path.name
            if whole not in seen and not path.is_symlink() and path.is_file():
                seen.add(whole)
                yield path


class _Search:
    def __init__(self, texts: Sequence[str], engine: DuckDb) -> None:
        self._texts = texts
        self._engine = engine
        self._forms = [_Form(text, written) for text in texts for written in as_bytes(text)]
        self._plain = [_Form(text, _utf8(text)) for text in texts]
        self._overlap = max(len(one.written) for one in self._forms)
        self.found: Counter[tuple[str, str, str]] = Counter()
        self.files = 0
        self.bytes = 0
        self.unread: list[str] = []

    def file(self, path: Path) -> None:
        place = str(path)
        self.files += 1
        for text in self._texts:
            if text in place:
                self.found[place, "its name", text] += 1
        try:
            self.bytes += path.stat().st_size
            with path.open("rb") as stream:
                head = stream.read(16)
                stream.seek(0)
                self._raw(place, stream)
            if head.startswith(_SQLITE):
                self._sqlite(path)
            elif head.startswith(b"PAR1"):
                self._parquet(path)
            elif head.startswith(b"\x1f\x8b"):
                with gzip.open(path) as stream:
                    self._raw(place, stream)
        except Exception as error:  # noqa: BLE001  # a damaged file must not end the search
            self.unread.append(f"{place} ({type(error).__name__})")

    def control_plane(self, database: Database) -> None:
        for table in SQLModel.metadata.sorted_tables:
            keys = [column.name for column in table.primary_key.columns]
            with database.read() as connection:
                rows = connection.execute(select(table).execution_options(yield_per=_ROWS))
                names = list(rows.keys())
                while batch := rows.fetchmany(_ROWS):
                    self._rows(table.name, names, keys, [tuple(row) for row in batch])

    def _raw(self, place: str, stream: Any) -> None:
        rest = b""
        while chunk := stream.read(_CHUNK):
            data = rest + chunk
            hidden = b"\0".join(_unpacked(data))
            words = _Words(data, hidden)
            found = (
                one.text
                for one in self._forms
                if words.may_hold(one) and (one.written in data or one.written in hidden)
            )
            self.found.update((place, "", text) for text in set(found))
            rest = data[-self._overlap :]

    def _sqlite(self, path: Path) -> None:
        if path.name.endswith(("-wal", "-shm")):
            return
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            found = connection.execute(
                "SELECT name FROM sqlite_master "
                "WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            for (table,) in found:
                named = '"' + table.replace('"', '""') + '"'
                rows = connection.execute(f"SELECT * FROM {named}")
                names = [column[0] for column in rows.description]
                while batch := rows.fetchmany(_ROWS):
                    self._rows(f"{path}: {table}", names, names[:3], batch)

    def _parquet(self, path: Path) -> None:
        with self._engine.asking() as duck:
            rows = duck.execute(f"SELECT * FROM read_parquet({quoted(path)})")
            names = [column[0] for column in rows.description]
            keys = [name for name in ("seq", "rank", "ordinal") if name in names]
            while batch := rows.fetchmany(_ROWS):
                self._rows(str(path), names, keys, batch)

    def _rows(
        self, place: str, names: Sequence[str], keys: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        at = [names.index(key) for key in keys]
        for place_in_row, name in enumerate(names):
            values = [_read(row[place_in_row]) for row in rows]
            words = _Words(_utf8("\0".join(values)))
            for text in (one.text for one in self._plain if words.may_hold(one)):
                for row, value in zip(rows, values, strict=True):
                    if text in value:
                        key = " ".join(str(row[one])[:80] for one in at)
                        self.found[f"{place}.{name}", key, text] += 1


class _Form:
    """One encoding of a text, and a word of it that must be there if the text is.

    Zero bytes are ignored in words, since UTF-16 has one beside each letter of most alphabets.
    """

    def __init__(self, text: str, written: bytes) -> None:
        self.text = text
        self.written = written
        squeezed = written.replace(b"\0", b"")
        words = [(len(one[0]), one.start(), one[0]) for one in _WORD.finditer(squeezed)]
        self.word = max(words)[2] if words else b""
        inner = [one for one in words if one[1] > 0 and sum(one[:2]) < len(squeezed)]
        self.whole_word = max(inner)[2] if inner else b""
        """A word inside the text, so that it is also a whole word in a file with the text."""


class _Words:
    """The words of some bytes, a quick filter before many thousand texts are searched for."""

    def __init__(self, *parts: bytes) -> None:
        self._all: set[bytes] = set()
        for part in parts:
            self._all.update(_WORD.findall(part))
            if b"\0" in part:
                self._all.update(_WORD.findall(part.replace(b"\0", b"")))
        self._joined = b" ".join(self._all)

    def may_hold(self, form: _Form) -> bool:
        """Whether the bytes may contain a text."""
        if form.whole_word:
            return form.whole_word in self._all
        return form.word in self._joined


def _read(value: object) -> str:
    """Return a value with the strings in its JSON, and the texts in its Base64."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    elif isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return ""
    return "\0".join(_layers(value, _DEPTH))


def _layers(text: str, depth: int) -> Iterator[str]:
    yield text
    if depth == 0:
        return
    if text[:1] in {"{", "[", '"'} and "\\" in text:
        with suppress(ValueError, RecursionError):
            yield from _strings(json.loads(text), depth - 1)
    for match in _BASE64.finditer(text):
        with suppress(ValueError):
            yield from _layers(base64.b64decode(match[0], validate=True).decode(), depth - 1)


def _strings(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _layers(value, depth)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _strings(one, depth)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, depth)


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the texts encoded as Base64 in some bytes, nested ones too."""
    for match in _BASE64_BYTES.finditer(data):
        with suppress(ValueError):
            found = base64.b64decode(match[0], validate=True)
            found.decode()
            yield found
            yield from _unpacked(found)


def as_bytes(text: str) -> list[bytes]:
    """Return the encodings of a text to search for in a file's bytes."""
    in_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)]
    texts = {text, *in_json, *(one.replace("/", "\\/") for one in in_json)}
    wide = (text.encode(one, "surrogatepass") for one in ("utf-16-le", "utf-16-be"))
    return sorted({*map(_utf8, texts), *wide})


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
