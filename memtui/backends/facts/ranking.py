"""Which facts answer a query: all of them for a prompt, those that match for a person."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.contract import ContextBundle, QueryIntent, QueryRequest, Record, Snippet, Usage
from memtui.provider_kit import TextIndex

_QUERY_CHARS = 1_000
"""What is looked at of a query: a fact is far shorter."""


def answer(records: Sequence[Record], request: QueryRequest, usage: Usage) -> ContextBundle:
    """Return at most `top_k` facts out of `records`, which are the scope's, oldest first.

    A preamble gets every fact in the order they were made (seed 004 §5.3): what the user sees is
    what the model sees. So does a query without words. Else those with any of the query's words
    come, ranked by BM25.
    """
    wanted = request.metadata_filter.items()
    fitting = [r for r in records if all(r.metadata.get(name) == value for name, value in wanted)]
    scored: list[tuple[Record, float | None]]
    if request.intent is QueryIntent.AGENT_PREAMBLE or not request.query.strip():
        scored = [(record, None) for record in fitting]
    else:
        scored = _search(fitting, request.query[:_QUERY_CHARS])
    chosen = scored[: request.top_k]
    return ContextBundle(
        snippets=tuple(Snippet(**dict(record), score=score) for record, score in chosen),
        capped=len(scored) > request.top_k,
        usage=(usage,),
    )


def _search(records: Sequence[Record], query: str) -> list[tuple[Record, float | None]]:
    index = TextIndex(records)
    try:
        return list(index.search(query))
    finally:
        index.close()
