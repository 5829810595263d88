"""Answers queries (seed 002 §6; the memory-scoping weights of seed 002 §7).

Documents are found by meaning; facts, which have no vectors, by key and words. The nearest scope
counts most. If at least three results have the topic, only those are returned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from memtui.contract import ExplainStage, Explanation, QueryRequest, Record, Usage, owner_of
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC, has_metadata, matcher
from memtui.text_analysis import Words, folded, take_apart, terms_of

from .expressions import all_of, one_of, quoted
from .facts import facts_of
from .naming import may_hold, weight
from .rows import DOCUMENT, KV, TEMPORAL, Row, is_empty, record_of
from .store import Collection, MilvusStore

Embed = Callable[[Collection], "Sequence[float] | None"]
"""Returns the query's vector for a collection; None where its vectors cannot be compared."""

_LEAST_HITS, _MOST_HITS = 50, 16_000
"""Hits requested at first, and at most; those that are not visible are removed afterwards."""
_MOST_READ = 5_000
"""Most entries of a collection that are searched by words."""


@dataclass(slots=True)
class Hit:
    """A record with its score from each stage."""

    record: Record
    weight: float
    is_key: bool = False
    words: float = 0.0
    """The share of the query's words that it contains."""
    similarity: float = 0.0

    @property
    def score(self) -> float:
        """Higher is better; a key match ranks above all others."""
        own = max(self.words, self.similarity)
        return self.weight * own + (1.0 + self.weight if self.is_key else 0.0)


@dataclass(slots=True)
class MilvusHits:
    """The hits, best first, and how they were found."""

    words: Words
    hits: list[Hit]
    is_topic_dropped: bool = False
    by_words: list[str] = field(default_factory=list)
    """Collections whose documents were searched by words, as their vectors cannot be compared."""
    is_cut: bool = False
    """Whether some entries were not searched."""
    usage: tuple[Usage, ...] = ()


def search(
    store: MilvusStore, collections: Sequence[Collection], request: QueryRequest, now: datetime,
    embed: Embed,
) -> MilvusHits:  # fmt: skip
    """Answer a query with all matches, best first."""
    found = _Query(store, collections, request, now, embed, topic=request.topic).run()
    if request.topic is not None and len(found.hits) < min(ENOUGH_OF_TOPIC, request.top_k):
        found = _Query(store, collections, request, now, embed, topic=None).run()
        found.is_topic_dropped = True
    return found


class _Query:
    def __init__(
        self, store: MilvusStore, collections: Sequence[Collection], request: QueryRequest,
        now: datetime, embed: Embed, *, topic: str | None,
    ) -> None:  # fmt: skip
        self._store, self._request, self._now = store, request, now
        self._embed, self._topic = embed, topic
        self._passes = matcher(request.filter)
        self._collections = [
            one for one in collections if one.is_readable and may_hold(request.scope, one.owner)
        ]
        self._words = take_apart(request.query)
        self._owners = frozenset(map(owner_of, request.owners))
        self._found = MilvusHits(self._words, [])

    def run(self) -> MilvusHits:
        for collection in self._collections:
            self._facts(collection)
            self._documents(collection)
        self._found.hits.sort(key=lambda hit: (-hit.score, hit.record.handle.provider_record_id))
        return self._found

    def _hit(self, record: Record, collection: Collection) -> Hit | None:
        """Return a record as a hit; None if the request excludes it."""
        request, moment = self._request, self._request.as_of or self._now
        counts = weight(request.scope, collection.owner, record.scope)
        may_be = (
            counts > 0
            and (record.expires_at is None or record.expires_at > moment)
            and (self._topic is None or record.topic in {None, self._topic})
            and (not self._owners or owner_of(record.scope) in self._owners)
            and has_metadata(record, request.metadata_filter)
            and self._passes(record)
        )
        return Hit(record, counts) if may_be else None

    def _facts(self, collection: Collection) -> None:
        if not (self._words.terms or self._words.keys):
            return
        keys = {*self._words.keys, *self._request.query[:2_000].split()}
        for record in self._facts_in(collection):
            hit = self._hit(record, collection)
            if hit is None:
                continue
            key = record.text.partition(":")[0]
            hit.is_key = key in keys or folded(key) in keys
            hit.words = self._share(record)
            if hit.is_key or hit.words:
                self._found.hits.append(hit)

    def _facts_in(self, collection: Collection) -> list[Record]:
        is_fact = one_of("entry_type", [KV, TEMPORAL])
        rows = self._read(collection, is_fact)
        name, owner, as_of = collection.name, collection.owner, self._request.as_of
        found = [record_of(row, name, owner) for row in rows if row["entry_type"] == KV]
        for fact in facts_of(rows):
            version = fact.at(as_of or self._now)
            if version is not None:
                found.append(fact.record(version, name, owner))
        return found

    def _read(self, collection: Collection, expression: str) -> list[Row]:
        rows = self._store.rows(collection, expression, most=_MOST_READ)
        self._found.is_cut |= len(rows) >= _MOST_READ
        return rows

    def _share(self, record: Record) -> float:
        said = f"{record.title or ''}\n{record.text}\n{record.summary or ''}\n{record.topic or ''}"
        words, pairs = terms_of(said)
        parts = {*words, *pairs, *"".join(pairs)}
        wanted = [one in parts for one in self._words.terms]
        return sum(wanted) / len(wanted) if wanted else 0.0

    def _documents(self, collection: Collection) -> None:
        parts = [f"entry_type == {quoted(DOCUMENT)}"]
        if self._topic is not None and "topic" in collection.fields:
            parts.append(one_of("topic", ["", self._topic]))
        expression = all_of(parts)
        vector = self._embed(collection)
        if vector is None:
            self._found.by_words.append(collection.name)
            for row in self._read(collection, expression):
                hit = self._document(row, collection)
                if hit is not None and (share := self._share(hit.record)):
                    hit.words = share
                    self._found.hits.append(hit)
            return
        if not any(vector):  # the model knows no word of the query
            return
        limit = max(_LEAST_HITS, self._request.top_k + 1)
        while True:
            rows = self._store.near(collection, vector, expression, limit)
            near = (self._near(row, similarity, collection) for row, similarity in rows)
            hits = [hit for hit in near if hit is not None and hit.score > 0]
            is_all = len(rows) < limit or (bool(rows) and rows[-1][1] <= 0)
            if is_all or len(hits) > self._request.top_k or limit >= _MOST_HITS:
                self._found.hits += hits
                self._found.is_cut |= not is_all and len(hits) <= self._request.top_k
                return
            limit = min(limit * 4, _MOST_HITS)

    def _near(self, row: Row, similarity: float, collection: Collection) -> Hit | None:
        """Return a document from a vector search, scored by words if it has no vector yet."""
        hit = self._document(row, collection)
        if hit is not None:
            hit.similarity = max(similarity, 0.0)
            hit.words = 0.0 if similarity else self._share(hit.record)
        return hit

    def _document(self, row: Row, collection: Collection) -> Hit | None:
        record = record_of(row, collection.name, collection.owner)
        as_of = self._request.as_of
        if is_empty(row) or (as_of is not None and (record.created_at or as_of) > as_of):
            return None
        return self._hit(record, collection)


def explain(found: MilvusHits, top_k: int) -> Explanation:
    """Return the words that counted, and what each stage contributed."""
    kept, dropped = (
        ", ".join(words) or "none" for words in (found.words.terms, found.words.dropped)
    )
    asked = ExplainStage(name="query", detail=f"Looked for: {kept}. Dropped: {dropped}.")
    return Explanation(stages=(asked, *stages_of(found, top_k)), usage=found.usage)


def stages_of(found: MilvusHits, top_k: int) -> tuple[ExplainStage, ...]:
    """Return each stage's part in the returned records, without words of the query or of them."""
    hits = found.hits[:top_k]
    ids = [(hit.record.handle.provider_record_id, hit) for hit in hits]
    told: dict[str, tuple[str, dict[str, float]]] = {
        "keys": (
            "A fact whose key the query names comes first.",
            {name: 1.0 for name, hit in ids if hit.is_key},
        ),
        "words": (
            "The share of the query's words that a fact holds.",
            {name: round(hit.words, 6) for name, hit in ids if hit.words},
        ),
        "meaning": (
            "Documents by the similarity of their vector to the query's.",
            {name: round(hit.similarity, 6) for name, hit in ids if hit.similarity},
        ),
        "scope": ("The nearest scope counts most.", {name: hit.weight for name, hit in ids}),
    }
    stages = [
        ExplainStage(name=name, detail=detail, scores=scores)
        for name, (detail, scores) in told.items()
    ]
    if found.by_words:
        named = ", ".join(found.by_words)
        detail = f"Searched by words only, because the vectors cannot be compared: {named}."
        stages.append(ExplainStage(name="needs re-index", detail=detail))
    if found.is_topic_dropped:
        detail = f"Fewer than {ENOUGH_OF_TOPIC} in the topic, so every topic was searched."
        stages.append(ExplainStage(name="topic", detail=detail))
    return tuple(stages)
