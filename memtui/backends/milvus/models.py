"""Embedding models of a binding: the configured one, and those of existing collections."""

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
        """Return the model of a collection's vectors; None if it is not available."""
        own = self.own
        if own is None or collection.model in {None, own.name}:
            return own
        if collection.model not in self._others:
            try:
                other = open_embedder(self._config, self._context, name=collection.model)
            except MemtuiError:  # not installed here, or not a model that memtui knows
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
        """Embed a text to write into a collection, or into a new one for None.

        In a collection that awaits a re-index, its vector is zeros until then.

        Raises:
            Invalid: the collection's vectors have another size, or no model is set.
        """
        if self.own is None:
            raise Invalid(
                "This binding has no embedding model, so nothing new can be written; set embedding."
            )
        if collection is not None and (said := self.mismatch(collection)):
            raise Invalid(said)
        if collection is not None and self.is_outdated(collection):
            return [0.0] * (collection.dimensions or 0), ()
        [vector], usage = self.vectors(self.own, [text])
        # Some models' dimensions are known only after the first text.
        if collection is not None and (said := self.mismatch(collection)):
            raise Invalid(said)
        return vector, usage

    def mismatch(self, collection: Collection) -> str | None:
        """Return why documents cannot be written into a collection; None: they can."""
        own, name = self.own, collection.name
        if lacks := [one for one in collection.lacks if one in {"content", VECTOR}]:
            return f"The collection {name} has no field {' and no '.join(lacks)}."
        if collection.dimensions is None:
            return f"The vectors of the collection {name} are not 32-bit numbers, or have no index."
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
        """Return a sentence on the collections that need a re-index; None if none does."""
        found = [one for one in collections if self.is_outdated(one)]
        if not found:
            return None
        needs = "1 collection needs" if len(found) == 1 else f"{len(found)} collections need"
        key, own = self._context.binding_key, self.own.name if self.own else "none"
        was = " and ".join(sorted({one.model or "" for one in found}))
        return (
            f"{needs} a re-index: the vectors are of {was}, and the binding is set to {own}. "
            f"`memtui bindings embedding {key} --build` rebuilds them; or set embedding to {was}."
        )


class QueryVectors:
    """A query's vectors: one per model, made when a collection first needs it."""

    def __init__(self, models: Models, query: str) -> None:
        self._models, self._query = models, query
        self._known: dict[str, list[float] | None] = {}
        self.usage: list[Usage] = []
        models.trouble = None

    def of(self, collection: Collection) -> list[float] | None:
        """Return the vector for a collection; None if the collection's vectors do not compare."""
        model = self._models.of(collection)
        if model is None:
            return None
        if model.name not in self._known:
            self._known[model.name] = self._made(model)
        vector = self._known[model.name]
        fits = vector is not None and len(vector) == collection.dimensions
        return vector if fits else None

    def _made(self, model: Embedder) -> list[float] | None:
        """Embed the query; if the model fails, set `trouble`, and words are searched instead."""
        try:
            [vector], usage = self._models.vectors(model, [self._query], is_query=True)
        except (Unavailable, Denied) as error:
            self._models.trouble = str(error)
            return None
        self.usage += usage
        return vector
