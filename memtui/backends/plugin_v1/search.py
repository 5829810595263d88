"""Answer a query: what the plugin found, cleaned, and where that is nothing, a look from here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from memtui.contract import ExplainStage, QueryRequest, Record, Snippet
from memtui.provider_kit import TextIndex

from .plugin import Hits, Plugin
from .records import handle_of
from .wire import Row

_QUERY_CHARACTERS = 2000
"""What is sent of a query."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Snippets, best first, and how they came about."""

    snippets: tuple[Snippet, ...]
    capped: bool
    stages: tuple[ExplainStage, ...]


async def query(plugin: Plugin, request: QueryRequest) -> Answer:
    """Search the namespaces of the scope in one call.

    The reference server finds nothing for stop words, beginnings of words and text without spaces;
    then the newest records are searched here. So they are where the plugin lists no full text: it
    may have ignored the query.
    """
    names = await plugin.readable(request.scope)
    embedding = request.embedding if plugin.abilities.has("embedding") else None
    asked = request.query.replace("\0", " ").strip()[:_QUERY_CHARACTERS]
    narrows = bool(request.metadata_filter or request.topic)
    most = plugin.config.page_size
    limit = most if narrows else min(most, request.top_k + 1)
    hits = await plugin.search(names, query=asked, limit=limit, embedding=embedding)
    trusted = plugin.abilities.has("fts") or embedding is not None or not asked
    stages = [_reach(plugin, names), _served(hits, limit, request)]
    found: list[Snippet] = []
    if trusted:
        found = [plugin.reader.snippet(row, row.score) for row in _ranked(hits.rows)]
        found = [snippet for snippet in found if _fits(snippet, request)]
    capped = hits.capped
    if asked and not found and (plugin.config.local_fallback or not trusted):
        newest = await plugin.search(names)
        found = await _look(plugin, request, asked, hits if not trusted else Hits(), newest)
        capped = newest.capped
        stages.append(_looked(found, newest, trusted=trusted))
    stages.append(_dropped(hits))
    top = tuple(found[: request.top_k])
    return Answer(top, capped or len(found) > len(top), tuple(stages))


async def _look(
    plugin: Plugin, request: QueryRequest, asked: str, hits: Hits, newest: Hits
) -> list[Snippet]:
    rows = {(row.namespace, row.id): row for row in (*hits.rows, *newest.rows)}

    def run() -> list[Snippet]:
        records = [
            record for record in plugin.reader.records(rows.values()) if _fits(record, request)
        ]
        index = TextIndex(records)
        found = [Snippet(**dict(record), score=score) for record, score in index.search(asked)]
        index.close()
        return sorted(found, key=lambda one: not one.pinned)

    return await asyncio.to_thread(run)


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """Return the pinned rows first, by score where there are scores, else as they came."""

    def place(row: Row) -> tuple[bool, float]:
        return not row.pin, -row.score if row.score is not None else float("inf")

    return sorted(rows, key=place)


def _fits(record: Record, request: QueryRequest) -> bool:
    held = record.metadata
    return (request.topic is None or record.topic == request.topic) and all(
        name in held and held[name] == value for name, value in request.metadata_filter.items()
    )


def _reach(plugin: Plugin, names: Sequence[str]) -> ExplainStage:
    listed = plugin.abilities.listed
    can = "says nothing of its abilities" if listed is None else f"offers {_list(sorted(listed))}"
    return ExplainStage(name="namespaces", detail=f"Asked {_list(names)}; the plugin {can}.")


def _served(hits: Hits, limit: int, request: QueryRequest) -> ExplainStage:
    how = " and its embedding" if request.embedding else ""
    more = "; it may hold more" if hits.capped else ""
    return ExplainStage(
        name="plugin",
        detail=f"Of at most {limit} for the query{how} it returned {len(hits.rows)}{more}.",
        scores={
            handle_of(row).provider_record_id: row.score
            for row in hits.rows
            if row.score is not None
        },
    )


def _looked(found: Sequence[Snippet], newest: Hits, *, trusted: bool) -> ExplainStage:
    why = "The plugin found nothing" if trusted else "The plugin lists no full text"
    return ExplainStage(
        name="local fallback",
        detail=f"{why}, so its newest {len(newest.rows)} records were searched here: "
        f"{len(found)} match.",
        scores={one.handle.provider_record_id: one.score or 0.0 for one in found},
    )


def _dropped(hits: Hits) -> ExplainStage:
    return ExplainStage(
        name="dropped",
        detail=f"Left out of the plugin's answer: {hits.expired} expired, {hits.strangers} of "
        f"namespaces or kinds not asked for, {hits.unreadable} unreadable.",
    )


def _list(words: Sequence[str]) -> str:
    shown = ", ".join(words[:5]) or "none"
    return f"{shown} and {len(words) - 5} more" if len(words) > 5 else shown
