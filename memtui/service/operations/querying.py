"""How one binding is asked a question: without secrets, by topic first, until enough passes.

What the log keeps of a question and of its answer's stages is here too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from memtui.contract import (
    ContextBundle,
    ExplainStage,
    Filter,
    Json,
    Matching,
    QueryRequest,
    Scope,
    Usage,
    owner_of,
)
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC, matcher
from memtui.service.operations.redaction import redact, redact_json
from memtui.store.details import QueryDetails, without_empty

if TYPE_CHECKING:
    from memtui.service.connections import Connection
    from memtui.service.visibility import R

LOGGED_CHARS = 4_000
LOGGED_OWNERS = 100
"""The log keeps so much of a query, and of the owners that it is narrowed to."""
_LOGGED_RANKS = 50
"""Of so many records a query's log says what each stage gave them."""
_LEAST_SNIPPETS, _MOST_SNIPPETS = 50, 1_000
"""What a provider is asked for that does not narrow by a filter itself."""


def redacted_query(request: QueryRequest) -> tuple[QueryRequest, QueryDetails]:
    """Return a query without its secrets, and what the log says of it."""
    clean = request.model_copy(
        update={
            "query": redact(request.query)[0],
            "topic": request.topic and redact(request.topic)[0],
            "filter": redacted_filter(request.filter),
            "metadata_filter": redact_json(request.metadata_filter)[0],
        }
    )
    optional: QueryDetails = {
        "topic": clean.topic,
        "filter": filter_json(clean.filter),
        "owners": owners_json(clean.owners),
        "metadata_filter": clean.metadata_filter,
    }
    if clean.matching is Matching.AGENTS:
        optional["matching"] = clean.matching
    return clean, {
        "query": clean.query[:LOGGED_CHARS],
        "intent": clean.intent,
        "top_k": clean.top_k,
        **without_empty(optional),
    }


def redacted_filter(wanted: Filter) -> Filter:
    """Return a filter without the secrets in its words."""
    words = wanted.model_dump(include={"text", "topic", "tag", "kind"})
    lists = {"fuzzy": list(wanted.fuzzy), "terms": [list(one.values) for one in wanted.terms]}
    clean, labels = redact_json({**words, **lists})
    if not labels:
        return wanted
    terms = tuple(
        one.model_copy(update={"values": tuple(values)})
        for one, values in zip(wanted.terms, clean["terms"], strict=True)
    )
    return wanted.model_copy(update={**clean, "fuzzy": tuple(clean["fuzzy"]), "terms": terms})


def filter_json(wanted: Filter) -> Json:
    """Return what the log says of a filter."""
    return wanted.model_dump(mode="json", exclude_defaults=True)


def owners_json(owners: Sequence[Scope]) -> list[str]:
    """Return what the log says of the owners that a question is narrowed to."""
    return [" ".join(owner_of(scope)) for scope in owners[:LOGGED_OWNERS]]


async def by_topic(connection: Connection, request: QueryRequest) -> tuple[ContextBundle, bool]:
    """Answer a query by its topic first; also say whether every topic was looked through."""
    bundle = await _narrowed(connection, request)
    fitting = of_topic(bundle.snippets, request.topic)
    if len(fitting) < len(bundle.snippets):  # the provider has done so itself
        return bundle, True
    if request.topic is None or len(fitting) >= min(ENOUGH_OF_TOPIC, request.top_k):
        return bundle, False
    whole = await _narrowed(connection, request.model_copy(update={"topic": None}))
    return whole.model_copy(update={"usage": bundle.usage + whole.usage}), True


def of_topic(found: Sequence[R], topic: str | None) -> list[R]:
    """Return what is eligible for a topic: what has none is so for any."""
    return [one for one in found if topic is None or one.topic in {None, topic}]


async def _narrowed(connection: Connection, request: QueryRequest) -> ContextBundle:
    """Answer a query with what passes its filter.

    Where a provider returns what does not, it is asked for more until enough passes.
    """
    passes, asked = matcher(request.filter), request.top_k
    usage: tuple[Usage, ...] = ()
    while True:
        wider = request.model_copy(update={"top_k": asked})
        bundle = await connection.read(partial(connection.adapter.query, wider))
        usage += bundle.usage
        found = tuple(filter(passes, bundle.snippets))
        more = bundle.capped and len(bundle.snippets) >= asked and asked < _MOST_SNIPPETS
        if not more or len(found) == len(bundle.snippets) or len(found) >= request.top_k:
            return bundle.model_copy(
                update={
                    "snippets": found[: request.top_k],
                    "capped": bundle.capped or len(found) > request.top_k,
                    "usage": usage,
                }
            )
        asked = min(_MOST_SNIPPETS, max(_LEAST_SNIPPETS, 4 * asked))


def stages_of(stages: Iterable[ExplainStage], ids: Container[str]) -> tuple[ExplainStage, ...]:
    """Return stages with what they say of these records alone."""
    return tuple(
        one.model_copy(update={"scores": {k: v for k, v in one.scores.items() if k in ids}})
        for one in stages
    )


def stages_json(stages: Iterable[ExplainStage], ids: Sequence[str]) -> list[Json]:
    """Return the stages of an answer as a request holds them: scores by rank, no record's id.

    `Operation.stages` reads them.
    """
    found = []
    for stage in stages:
        scores = [stage.scores.get(one) for one in ids[:_LOGGED_RANKS]]
        by_rank = {"scores": scores} if any(score is not None for score in scores) else {}
        found.append({"name": stage.name, "detail": stage.detail, **by_rank})
    return found
