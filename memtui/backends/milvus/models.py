"""Embedding models of a binding: the configured one, and those of existing collections."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from memtui.contract import BindingContext, Denied, Invalid, MemtuiError, Unavailable, Usage
from memtui.embedding import Embedder, EmbeddingConfig, open_embedder

from .rows import VECTOR
from .store import Collection


class Models:
    """Embeds texts, one call at a time."""

    def __init__(self, config: EmbeddingConfig, context: BindingContext) -> None:
        self.own = open_embedder(config, context)
        self.trouble: str | None = None
        """Why the last query could not be embedded."""
        self._config, self._context = config, context
        self._others: dict[str, Embedder | None] = {}
        self._turn = threading.Lock()

    def of(self, collection: Collection) -> Embedder | None:
        """Return the model that made a collection's vectors, None if it cannot be had."""
        own = self.own
        if own is None or collection.model in {None, own.name}:
            return own
        if collection.model not in self._others:
            try:
                other = open_embedder(self._config, self._context, name=collection.model)
            except MemtuiError:  # it is not installed here, or is none of ours
                other = None
            self._others[collection.model] = other
        return self._others[collection.model]

    def vectors(
        self, model: Embedder, texts: Sequence[str], *, is_query: bool = False
    ) -> tuple[list[list[float]], tuple[Usage, ...]]:
        """Embed texts. Raises `Unavailable`, `Invalid`, `Denied`."""
        with self._turn:
            found = model.embed(texts, is_query=is_query)
        return found.vectors.tolist(), found.usage

    def document(
        self, text: str, collection: Collection | None
    ) -> tuple[list[float], tuple[Usage, ...]]:
        """Embed a text that is to be written into a collection, or to begin one.

        In a collection that is to be indexed anew it has no vector until then: zeros.

        Raises:
            Invalid: its vectors are of another size, or no model is set.
        """
        if self.own is None:
            raise Invalid("No embedding is set, so nothing new can be written; set one.")
        if collection is not None and (said := self.mismatch(collection)):
            raise Invalid(said)
        if collection is not None and self.is_outdated(collection):
            return [0.0] * (collection.dimensions or 0), ()
        [vector], usage = self.vectors(self.own, [text])
        # Only now the dimensions of any model are known.
        if collection is not None and (said := self.mismatch(collection)):
            raise Invalid(said)
        return vector, usage

    def mismatch(self, collection: Collection) -> str | None:
        """Say in a sentence why documents cannot be written into a collection; None: they can."""
        own, name = self.own, collection.name
        if lacks := [one for one in collection.lacks if one in {"content", VECTOR}]:
            return f"The collection {name} has no field {' and no '.join(lacks)}."
        if collection.dimensions is None:
            return f"The vectors of the collection {name} are not of 32-bit numbers, or unindexed."
        if own is None or self.is_outdated(collection):
            return None
        if own.dimensions not in {None, collection.dimensions}:
            return (
                f"The vectors of {name} have {collection.dimensions} dimensions, and {own.name} "
                f"makes {own.dimensions}: another program made it; set embedding to its model."
            )
        return None

    def is_outdated(self, collection: Collection) -> bool:
        """Whether memtui made a collection with another model than the config's."""
        return self.own is not None and collection.model not in {None, self.own.name}

    def outdated(self, collections: Sequence[Collection]) -> str | None:
        """Say in a sentence that collections need a re-index, None where none does."""
        found = [one for one in collections if self.is_outdated(one)]
        needs = "1 collection needs" if len(found) == 1 else f"{len(found)} collections need"
        made = self._to_reindex({one.model or "" for one in found})
        return f"{needs} a re-index: {made}" if found else None

    def _to_reindex(self, made_with: set[str]) -> str:
        own, key = self.own, self._context.binding_key
        was = " and ".join(sorted(made_with))
        return (
            f"the vectors are of {was}, and the binding is set to {own.name if own else 'none'}. "
            f"`memtui bindings embedding {key} --build` rebuilds them; or set embedding to {was}."
        )


class QueryVectors:
    """A query's vectors, made once a model, where a collection needs one."""

    def __init__(self, models: Models, query: str) -> None:
        self._models, self._query = models, query
        self._known: dict[str, list[float] | None] = {}
        self.usage: list[Usage] = []
        models.trouble = None

    def of(self, collection: Collection) -> list[float] | None:
        """Return the vector for a collection; None where its own cannot be compared."""
        model = self._models.of(collection)
        if model is None:
            return None
        if model.name not in self._known:
            self._known[model.name] = self._made(model)
        vector = self._known[model.name]
        fits = vector is not None and len(vector) == collection.dimensions
        return vector if fits else None

    def _made(self, model: Embedder) -> list[float] | None:
        """Embed the query; if the model fails, words are searched and `trouble` is set."""
        try:
            [vector], usage = self._models.vectors(model, [self._query], is_query=True)
        except (Unavailable, Denied) as error:
            self._models.trouble = str(error)
            return None
        self.usage += usage
        return vector
