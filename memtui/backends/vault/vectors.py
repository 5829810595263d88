"""Vectors of the records' texts, derived and deletable like the index.

Each distinct text has one vector, under its digest. Each model has a folder: its name and
dimensions (seed 002 §8), the digests, and the vectors; files are only appended to. The file
`serving` names the folder that answers queries. After a change of model, the old one answers until
the new one has a vector of every text. One process at a time appends, the others read; half-written
data of a killed process is cut off.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memtui.contract import Embedding, Invalid, Unavailable, Usage
from memtui.embedding import Embedder, Embeddings
from memtui.paths import make_private, replacing

from .index import VaultIndex, moment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_CHARS = 6_000
"""Characters embedded of a text: 8,192 tokens fit them even at a token a character."""
_SAID = "subject_id, title, topic, created, valid_from, shown"
_FILLED_AT_ONCE = 1_000
_TEXTS_A_CALL, _INSTANT_TEXTS_A_CALL = 64, 2_048
_SHORT_CHARS = 1_000
"""Characters to retry with where the model refuses a text."""
_WAITED_FOR = 20_000
"""New texts that a search embeds before it answers, if the model is instant."""
_MODEL, _KEYS, _ROWS, _SERVING = "model.json", "keys", "rows", "serving"
_SAMPLE, _DIRECTIONS, _NOTHING_LEFT = 4_096, 4, 1e-6
"""Parameters of `_Common`, which is computed from a sample of the texts."""
_REST_SECONDS = 30.0
"""Seconds for which an unavailable model gets no further query."""
_WASTE = 1_000
"""Vectors of deleted texts are dropped once they are so many, and half of all."""


def _said(row: sqlite3.Row) -> str:
    """Return a record's text to embed: subject, title or topic, date, then its text."""
    at = moment(row["created"] if row["created"] is not None else row["valid_from"])
    date = f" ({at:%d %B %Y})" if at else ""
    names = (row["subject_id"], row["title"] or row["topic"])
    about = f"{' '.join(name for name in names if name)}{date}".strip()
    return (f"{about}: {row['shown']}" if about else str(row["shown"]))[:_MOST_CHARS]


_ENOUGH = 100
"""With fewer texts, the mean and deviation of the cosines are not reliable."""


def _digest(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@dataclass(frozen=True)
class Scores:
    """The similarity of each text to a query: cosines by the texts' digests.

    The digest of a record's text is its row's `meaning` in the index.
    """

    model: Embedder
    keys: NDArray[np.int64]
    values: NDArray[np.float32]
    usage: tuple[Usage, ...] = ()

    def outstanding(self, deviations: float, most: int) -> dict[int, float]:
        """Return the digests and cosines of at most `most` outstanding texts, the best first.

        Their cosines are at least `deviations` standard deviations above the mean (fewer among few
        texts, where hardly any reaches that), and no less than the model's least.
        """
        import numpy as np

        values = self.values
        is_known = len(values) >= _ENOUGH
        least, least_best = (self.model.least, self.model.least_best) if is_known else (0.0, 0.0)
        if not len(values) or float(values.max()) < least_best:
            return {}
        asked = min(deviations, len(values) ** 0.5 / 2)
        floor = max(float(values.mean() + asked * values.std()), least)
        chosen = np.flatnonzero(values > (floor if len(values) > 1 else least))
        chosen = chosen[np.argsort(-values[chosen], kind="stable")[:most]]
        return dict(zip(self.keys[chosen].tolist(), values[chosen].tolist(), strict=True))


@dataclass(frozen=True)
class _Shelf:
    """One model's vectors in a folder of their own."""

    folder: Path
    model: str
    passage: str
    """Prefix put before each text when it was embedded."""
    dimensions: int

    @classmethod
    def read(cls, folder: Path) -> _Shelf | None:
        try:
            kept = json.loads((folder / _MODEL).read_bytes())
            return cls(folder, kept["model"], kept["passage"], int(kept["dimensions"]))
        except (OSError, ValueError, KeyError, TypeError):  # deleted, or never finished
            return None

    @classmethod
    def begin(cls, folder: Path, model: str, passage: str, dimensions: int) -> _Shelf:
        make_private(folder)
        kept = {"model": model, "passage": passage, "dimensions": dimensions}
        with replacing(folder / _MODEL) as fresh:
            fresh.write_text(json.dumps(kept))
        return cls(folder, model, passage, dimensions)

    def __len__(self) -> int:
        """Return the number of complete vectors: a digest is written after its row is on disk."""
        try:
            rows = (self.folder / _ROWS).stat().st_size // (4 * self.dimensions)
            return min(rows, (self.folder / _KEYS).stat().st_size // 8)
        except FileNotFoundError:
            return 0

    def keys(self) -> NDArray[np.int64]:
        import numpy as np

        count = len(self)
        if not count:
            return np.zeros(0, np.int64)
        return np.fromfile(self.folder / _KEYS, np.int64, count)

    def rows(self, count: int) -> NDArray[np.float32]:
        import numpy as np

        shape = (count, self.dimensions)
        if not count:
            return np.zeros(shape, np.float32)
        return np.memmap(self.folder / _ROWS, np.float32, "r", shape=shape)

    def append(self, keys: Sequence[int], rows: NDArray[np.float32]) -> None:
        """Add vectors; only one caller at a time."""
        import numpy as np

        count = len(self)
        for name, size, data in (
            (_ROWS, count * self.dimensions * 4, np.ascontiguousarray(rows, np.float32)),
            (_KEYS, count * 8, np.asarray(keys, np.int64)),
        ):
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
            with open(descriptor, "r+b") as file:  # noqa: PTH123 - its rights are given above
                file.truncate(size)
                file.seek(size)
                file.write(data.tobytes())
                file.flush()
                os.fsync(file.fileno())


@dataclass(frozen=True)
class _Common:
    """The common part of all vectors: their mean, and the directions in which they differ most.

    It says nothing about a single text. Without it, texts on one subject are easier to tell apart
    (Mu and Viswanath, "All-but-the-Top", 2018).
    """

    directions: NDArray[np.float32]
    """One per row, each of length 1."""
    mean: NDArray[np.float32]
    lengths: NDArray[np.float32]
    """Length of each vector without the common part."""

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> _Common | None:
        """Return the common part of vectors; None for too few."""
        import numpy as np

        if len(rows) < _ENOUGH:
            return None
        some = np.asarray(rows[:: max(1, len(rows) // _SAMPLE)], np.float32)
        mean = some.mean(axis=0)
        centred = some - mean
        _, vectors = np.linalg.eigh(centred.T @ centred)
        directions = np.ascontiguousarray(vectors[:, -_DIRECTIONS:].T, np.float32)
        squares = np.einsum("ij,ij->i", rows, rows) - 2 * (rows @ mean) + mean @ mean
        taken = rows @ directions.T - directions @ mean
        left = np.sqrt(np.maximum(squares - (taken * taken).sum(axis=1), 0))
        return cls(directions, mean, left.astype(np.float32))

    def cosines(self, rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosine of each row and the query, both without the common part."""
        import numpy as np

        asked = query - self.mean
        asked = asked - (self.directions @ asked) @ self.directions
        length = float(np.linalg.norm(asked))
        if length < _NOTHING_LEFT:
            return np.zeros(len(rows), np.float32)
        products = rows @ (asked / length) - self.mean @ (asked / length)
        found: NDArray[np.float32] = np.divide(
            products, self.lengths, out=np.zeros_like(products), where=self.lengths > _NOTHING_LEFT
        )
        return found


class _Loaded(NamedTuple):
    """The vectors of the serving model, in memory."""

    shelf: _Shelf
    model: Embedder
    keys: NDArray[np.int64]
    rows: NDArray[np.float32]
    common: _Common | None

    def cosines(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return each text's similarity to a query."""
        if self.common is None:
            found: NDArray[np.float32] = self.rows @ query
            return found
        return self.common.cosines(self.rows, query)


class Vectors:
    """The vectors of one vault."""

    def __init__(
        self,
        folder: Path,
        index: VaultIndex,
        wanted: Embedder,
        another: Callable[[str], Embedder | None],
    ) -> None:
        """Set up with the folder, the configured model, and a way to get another model."""
        self._folder, self._index = folder, index
        self._wanted, self._another = wanted, another
        self._known: tuple[object, set[int]] = (None, set())
        """A state of the index, and the digests of all its texts."""
        self._done_at: object = None
        """The state of the index at which every text had a vector."""
        self._refused: tuple[float, Unavailable | None] = (0.0, None)
        """When a query could last not be embedded, and why."""
        self._turn = threading.Lock()
        self._loaded: _Loaded | None = None

    def asks_a_server(self) -> bool:
        """Whether a server embeds the queries. Raises `Unavailable`."""
        with _in_files(self._folder):
            serving = self._serving()
        return serving is not None and serving.model.is_asked

    def fill(self) -> None:
        """Store missing digests in the index and, with an instant model, missing vectors.

        Raises `MemtuiError` where the model cannot be used.
        """
        self._fill()
        if self._wanted.is_instant:
            self.embed(_WAITED_FOR)

    def dimensions(self) -> int | None:
        """Return the length of the configured model's vectors; None: it is not known now."""
        try:
            shelf = self._shelf()
        except OSError:
            return None
        return shelf.dimensions if shelf else self._wanted.dimensions

    def unit(self, given: Sequence[float]) -> NDArray[np.float32]:
        """Return a given vector at length 1. Raises `Invalid` for one of another model."""
        import numpy as np

        row, length = np.array(given, np.float32), self.dimensions()
        if len(row) != length or not (norm := float(np.linalg.norm(row))) or not np.isfinite(norm):
            raise Invalid(
                f"The vectors of this vault's model {self._wanted.name} have {length} numbers that "
                f"are not all zero, and this one has {len(row)}; leave it out, and it is made here."
            )
        unit: NDArray[np.float32] = row / norm
        return unit

    def give(self, record_id: str, vector: NDArray[np.float32]) -> bool:
        """Store the vector of a record's text; False: another process embeds at this moment."""
        self._fill()
        query = "SELECT meaning FROM records WHERE id = ?"
        found = self._index.read(lambda one: one.execute(query, (record_id,)).fetchall())
        with _in_files(self._folder), self._building() as is_mine:
            if is_mine:
                shelf = self._shelf() or self._begin(len(vector))
                known = set(shelf.keys().tolist())
                keys = list({key for (key,) in found if key is not None} - known)
                shelf.append(keys, vector.reshape(1, -1).repeat(len(keys), 0))
        return is_mine

    def scores(self, query: str, given: Sequence[float] | None = None) -> Scores | None:
        """Compare a query with every text; None until a model has embedded all texts.

        A text without a vector yet has no score. `given`: the query's vector.

        Raises:
            MemtuiError: the query cannot be embedded now, and why.
        """
        if self._wanted.is_instant:
            self.embed(_WAITED_FOR)
        with _in_files(self._folder):
            serving = self._serving()
        if serving is None:
            return None
        if given is None:
            found = self._of_query(serving.model, query[:_MOST_CHARS])
        else:
            found = Embeddings(self.unit(given).reshape(1, -1))
        if found.vectors.shape[1] != serving.shelf.dimensions:
            with _in_files(self._folder), self._building() as is_mine:
                if is_mine:
                    shutil.rmtree(serving.shelf.folder)
            raise Invalid(
                f"The server has changed the model {serving.model.name}; all texts are "
                "embedded again."
            )
        cosines = serving.cosines(found.vectors[0])
        return Scores(serving.model, serving.keys, cosines, found.usage)

    def _of_query(self, model: Embedder, query: str) -> Embeddings:
        """Embed a query; a model that was unavailable is not retried at once."""
        since, error = self._refused
        if error is not None and time.monotonic() - since < _REST_SECONDS:
            raise error
        try:
            return model.embed([query], is_query=True)
        except Unavailable as error:
            self._refused = time.monotonic(), error
            raise

    def _serving(self) -> _Loaded | None:
        with self._turn:
            shelf = self._named()
            if shelf is None:
                self._loaded = None
                return None
            known = self._loaded
            if known is None or known.shelf != shelf or len(known.keys) != len(shelf):
                model = self._wanted if self._is_wanted(shelf) else self._another(shelf.model)
                if model is None:
                    return None
                keys = shelf.keys()
                rows = shelf.rows(len(keys))
                self._loaded = known = _Loaded(shelf, model, keys, rows, _Common.of(rows))
            return known

    def _named(self) -> _Shelf | None:
        try:
            name = (self._folder / _SERVING).read_text()
        except OSError:
            return None
        return _Shelf.read(self._folder / name)

    def _is_wanted(self, shelf: _Shelf) -> bool:
        wanted = self._wanted
        return (shelf.model, shelf.passage) == (wanted.name, wanted.prefixes.passage)

    def _shelf(self) -> _Shelf | None:
        """Return the configured model's shelf, complete or not."""
        serving = self._named()
        if serving is not None and self._is_wanted(serving):
            return serving
        folders = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        found = (_Shelf.read(folder) for folder in folders if folder.is_dir())
        return next((one for one in found if one and self._is_wanted(one)), None)

    def progress(self) -> Embedding:
        """Return the configured model's progress. Raises `Unavailable`."""
        with _in_files(self._folder):
            texts, shelf, serving = self._texts(), self._shelf(), self._named()
            have = texts.intersection(shelf.keys().tolist()) if shelf else ()
        return Embedding(
            model=self._wanted.name,
            dimensions=shelf.dimensions if shelf else self._wanted.dimensions,
            texts=len(texts) + self._index.read(_unfilled),
            embedded=len(have),
            serving=serving.model if serving else None,
            address=self._wanted.address,
            agreed=self._wanted.is_agreed,
        )

    def embed(self, most: int) -> tuple[Usage, ...]:
        """Embed at most `most` texts that lack a vector; after the last one, serve this model.

        While another process embeds, nothing is done.

        Raises:
            MemtuiError: the model cannot be used, or refuses a text.
        """
        if self._done_at == (self._index.read(_state), self._named()):
            return ()
        self._fill()
        if not most:
            return ()
        with _in_files(self._folder), self._building() as is_mine:
            return self._embed(most) if is_mine else ()

    def _embed(self, most: int) -> tuple[Usage, ...]:
        state = self._index.read(_state)
        wanted, shelf = self._texts(), self._shelf()
        have = set(shelf.keys().tolist()) if shelf else set()
        missing = sorted(wanted - have)
        size = _INSTANT_TEXTS_A_CALL if self._wanted.is_instant else _TEXTS_A_CALL
        usage: list[Usage] = []
        for start in range(0, min(most, len(missing)), size):
            texts = self._said(missing[start : min(start + size, most)])
            found = self._vectors(list(texts.values()))
            usage += found.usage
            if shelf is not None and texts and found.vectors.shape[1] != shelf.dimensions:
                shutil.rmtree(shelf.folder)  # the name meant another model when it was made
                return (*usage, *self._embed(most))
            if shelf is None and texts:
                shelf = self._begin(found.vectors.shape[1])
            if shelf is not None:
                shelf.append(list(texts), found.vectors)
        if len(missing) <= most:
            if shelf is not None:
                shelf = self._without_waste(shelf, wanted)
                self._serve(shelf)
            self._done_at = (state, shelf)
        return tuple(usage)

    def _vectors(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; a refused one by its beginning, or else as zeros."""
        import numpy as np

        try:
            return self._wanted.embed(texts)
        except Invalid as error:
            refusal = error
        tried = [self._vector(text) for text in texts]
        taken = [found for found in tried if found is not None]
        if not taken:
            raise refusal
        nothing = np.zeros_like(taken[0].vectors)
        return Embeddings(
            np.concatenate([nothing if found is None else found.vectors for found in tried]),
            tuple(one for found in taken for one in found.usage),
        )

    def _vector(self, text: str) -> Embeddings | None:
        for part in (text, text[:_SHORT_CHARS]):
            with suppress(Invalid):
                return self._wanted.embed([part])
        return None

    def _without_waste(self, shelf: _Shelf, wanted: set[int]) -> _Shelf:
        """Return the shelf, or a compacted copy if too many vectors are of deleted texts."""
        if len(shelf) - len(wanted) < max(_WASTE, len(wanted)):
            return shelf
        return self._copied(shelf, wanted)

    def _copied(self, shelf: _Shelf, wanted: set[int]) -> _Shelf:
        import numpy as np

        keys = shelf.keys()
        kept = np.isin(keys, np.fromiter(wanted, np.int64, len(wanted)))
        copy = self._begin(shelf.dimensions)
        copy.append(keys[kept].tolist(), shelf.rows(len(keys))[kept])
        return copy

    def _begin(self, dimensions: int) -> _Shelf:
        names = [int(one.name) for one in self._folder.iterdir() if one.name.isdigit()]
        folder = self._folder / str(max(names, default=0) + 1)
        model = self._wanted
        return _Shelf.begin(folder, model.name, model.prefixes.passage, dimensions)

    def _serve(self, shelf: _Shelf) -> None:
        """Let a shelf answer queries, and delete the others."""
        if self._named() != shelf:
            self._name(shelf)
        for other in self._folder.iterdir():
            if other.is_dir() and other != shelf.folder:
                shutil.rmtree(other, ignore_errors=True)

    def _name(self, shelf: _Shelf) -> None:
        with replacing(self._folder / _SERVING) as fresh:
            fresh.write_text(shelf.folder.name)

    @contextmanager
    def _building(self) -> Iterator[bool]:
        """Lock out other appending processes; yields False if another one has the lock."""
        from filelock import FileLock, Timeout

        make_private(self._folder)
        lock = FileLock(self._folder / "build.lock", mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def scrub(self) -> bool:
        """Delete the vectors of deleted texts, since a vector reveals its text.

        Returns False if another process is appending.
        """
        self._fill()
        with _in_files(self._folder), self._building() as is_mine:
            if not is_mine:
                return False
            wanted, serving = self._texts(), self._named()
            for folder in [one for one in self._folder.iterdir() if one.is_dir()]:
                shelf = _Shelf.read(folder)
                if shelf is not None and not set(shelf.keys().tolist()) - wanted:
                    continue
                if shelf is not None and shelf == serving:
                    self._name(self._copied(shelf, wanted))
                shutil.rmtree(folder)
        return True

    def close(self) -> None:
        """Cancel running calls of the models."""
        self._wanted.close()
        if self._loaded is not None:
            self._loaded[1].close()

    # The digests in the index

    def _fill(self) -> None:
        """Store the digest of every row of the index that lacks one."""
        while self._index.read(self._fill_some):
            pass

    def _fill_some(self, connection: sqlite3.Connection) -> bool:
        query = f"SELECT rowid, {_SAID} FROM records WHERE meaning IS NULL LIMIT ?"  # noqa: S608
        if connection.execute(query, (1,)).fetchone() is None:
            return False
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(query, (_FILLED_AT_ONCE,)).fetchall()
        connection.executemany(
            "UPDATE records SET meaning = ? WHERE rowid = ?",
            [(_digest(_said(row)), row["rowid"]) for row in rows],
        )
        connection.execute("COMMIT")
        return True

    def _texts(self) -> set[int]:
        def read(connection: sqlite3.Connection) -> tuple[object, set[int]]:
            state = _state(connection)
            if state == self._known[0]:
                return self._known
            query = "SELECT DISTINCT meaning FROM records WHERE meaning IS NOT NULL"
            return state, {number for (number,) in connection.execute(query)}

        self._known = self._index.read(read)
        return self._known[1]

    def _said(self, digests: Iterable[int]) -> dict[int, str]:
        """Return the texts of these digests; those of deleted records are left out."""
        query = f"SELECT meaning, {_SAID} FROM records JOIN json_each(?) ON meaning = value"  # noqa: S608
        rows = self._index.read(
            lambda connection: connection.execute(query, (json.dumps(list(digests)),)).fetchall()
        )
        return {row["meaning"]: _said(row) for row in rows}


@contextmanager
def _in_files(folder: Path) -> Iterator[None]:
    """Raise an `OSError` as `Unavailable`."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The vectors in {folder} cannot be used: {error.strerror or error}."
        ) from error


def _unfilled(connection: sqlite3.Connection) -> int:
    query = "SELECT count(*) FROM records WHERE meaning IS NULL"
    return int(connection.execute(query).fetchone()[0])


def _state(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return a value that differs after any change of the index, by any process."""
    [others] = connection.execute("PRAGMA data_version").fetchone()
    return id(connection), connection.total_changes, others
