"""Re-index a collection with another model, or rewrite it without deleted entries.

The new collection is built while the old one answers, and takes its name once complete. Vectors
from a killed process are reused by the next one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from memtui.contract import Scope, Usage

from .rows import DOCUMENT, DOCUMENTS, EVERY, VECTOR, Row, text_to_embed
from .store import Collection, MilvusStore

Embed = Callable[[Sequence[str]], tuple[list[list[float]], tuple[Usage, ...]]]

BESIDE = "memtui_reindex_"
"""Name prefix of the new collection while it is built."""


class Reindex:
    """The re-index of one collection to another model."""

    def __init__(self, store: MilvusStore, collection: Collection, model: str) -> None:
        self._store, self._collection, self._model = store, collection, model
        self._name = f"{BESIDE}{collection.name}"
        new = store.find(self._name, collection.owner)
        if new is not None and new.model != model:
            store.drop(self._name)
            new = None
        self._new = new
        self._todo = self._missing()
        self.embedded = store.count(collection, DOCUMENTS) - len(self._todo)
        """Documents that have a vector of the new model."""

    def _missing(self) -> list[Row]:
        """Return the documents that the new collection lacks or has with another text."""
        rows = self._store.rows(self._collection, DOCUMENTS)
        known = self._store.rows(self._new, DOCUMENTS) if self._new else []
        done = {(row["entry_id"], text_to_embed(row)) for row in known}
        return [row for row in rows if (row["entry_id"], text_to_embed(row)) not in done]

    def step(self, embed: Embed, most: int) -> tuple[bool, tuple[Usage, ...]]:
        """Embed some documents; return whether the new collection replaced the old one."""
        batch, self._todo = self._todo[:most], self._todo[most:]
        usage: tuple[Usage, ...] = ()
        if batch or self._new is None:
            texts = [text_to_embed(row) for row in batch] or [self._name]
            vectors, usage = embed(texts)
            if self._new is None:
                made = self._collection.made
                self._store.create(self._name, len(vectors[0]), self._model, made=made)
                self._new = replace(
                    self._collection, name=self._name, dimensions=len(vectors[0]), model=self._model
                )
            for row, vector in zip(batch, vectors, strict=False):
                row[VECTOR] = vector
            self._store.put(self._new, batch)
            self.embedded += len(batch)
        if not self._todo:
            self._todo = self._missing()
        return not self._todo and self._swap(self._new), usage

    def _swap(self, new: Collection) -> bool:
        rows = self._store.rows(self._collection, EVERY, whole=True)
        vectors = {row["entry_id"]: row[VECTOR]
                   for row in self._store.rows(new, DOCUMENTS, whole=True)}  # fmt: skip
        if {row["entry_id"] for row in rows if row["entry_type"] == DOCUMENT} - vectors.keys():
            self._todo = self._missing()  # another program has just written documents
            return False
        for row in rows:
            is_document = row["entry_type"] == DOCUMENT
            row[VECTOR] = vectors[row["entry_id"]] if is_document else [0.0] * (new.dimensions or 0)
        self._store.put(new, rows)
        self._store.delete(new, sorted(vectors.keys() - {row["entry_id"] for row in rows}))
        self._store.rename(self._name, self._collection.name)
        return True


def write_anew(store: MilvusStore, collection: Collection) -> None:
    """Replace a collection by a copy, so that no file contains deleted entries."""
    name = f"{BESIDE}{collection.name}"
    store.drop(name)
    store.create(name, collection.dimensions or 0, collection.model or "", made=collection.made)
    store.put(replace(collection, name=name), store.rows(collection, EVERY, whole=True))
    store.rename(name, collection.name)


def embedded(store: MilvusStore, collection: Collection, model: str) -> int:
    """Return the number of documents with a vector of a model, in a collection or its re-index."""
    if collection.model == model:
        return store.count(collection, DOCUMENTS)
    new = store.find(f"{BESIDE}{collection.name}", collection.owner)
    return store.count(new, DOCUMENTS) if new is not None and new.model == model else 0


def finish(store: MilvusStore, prefix: str, owner: Scope) -> None:
    """Clean up after a killed process.

    If the old collection is gone, the new one is complete and takes its name. A copy with the same
    model was an unfinished rewrite for erasing, and is dropped.
    """
    names = store.names()
    for name in names:
        base = name.removeprefix(BESIDE)
        if name == base or not base.startswith(prefix):
            continue
        if base not in names:
            store.rename(name, base)
            continue
        new, old = store.find(name, owner), store.find(base, owner)
        if new is None or old is None or new.model == old.model:
            store.drop(name)
