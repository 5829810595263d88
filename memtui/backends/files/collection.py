"""Loaded records, kept while the files they come from stay as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from memtui.backends.files.reading import FileReader
from memtui.contract import ContextBundle, Problem, QueryRequest, Record, Snippet
from memtui.provider_kit import TextIndex, sees

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """The records of one load, in the files' order, and what could not be read."""

    by_id: dict[str, Record]
    problems: tuple[Problem, ...]
    index: Callable[[], TextIndex]

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record."""
        return tuple(self.by_id.values())


class Collection:
    """Loads when something changed, and lets one thread at a time use what is loaded."""

    def __init__(self, load: Callable[[FileReader], dict[str, Record]]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._reader = FileReader()
        self._view: View | None = None
        self._index: TextIndex | None = None
        self._indexed: View | None = None

    def use(self, work: Callable[[View], T]) -> T:
        """Return what `work` makes of the records as they are now. Blocking.

        Raises:
            Unavailable: the files are gone.
        """
        with self._lock:
            return work(self._fresh())

    def folders(self) -> list[Path]:
        """Return the existing folders in which a change would be seen. Blocking."""
        with self._lock:
            places = set(self._reader.seen) | {path.parent for path in self._reader.seen}
        return sorted(path for path in places if path.is_dir())

    def close(self) -> None:
        """Free the index. Blocking."""
        with self._lock:
            if self._index is not None:
                self._index.close()

    def _fresh(self) -> View:
        if self._view is None or self._reader.changed():
            self._view = None
            reader = FileReader(memo=self._reader.memo)
            by_id = self._load(reader)
            for path in reader.memo.keys() - reader.seen.keys():
                del reader.memo[path]
            self._reader = reader
            self._view = View(by_id, tuple(reader.problems), self._filled_index)
        return self._view

    def _filled_index(self) -> TextIndex:
        if self._index is None:
            self._index = TextIndex()
        if self._indexed is not self._view and self._view is not None:
            self._index.fill(self._view.records)
            self._indexed = self._view
        return self._index


def find(view: View, request: QueryRequest) -> ContextBundle:
    """Return the request's snippets, best first; a topic keeps records without one."""
    found = (
        Snippet(**dict(record), score=score)
        for record, score in view.index().search(request.query)
        if sees(request.scope, record.scope)
        and (request.topic is None or record.topic in {None, request.topic})
        and all(
            record.metadata.get(name) == value for name, value in request.metadata_filter.items()
        )
    )
    snippets = tuple(islice(found, request.top_k))
    return ContextBundle(snippets=snippets, capped=next(found, None) is not None)
