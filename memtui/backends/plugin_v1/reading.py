"""Queries and pages: cleans, sorts and filters the plugin's replies."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    ContextBundle,
    ExplainStage,
    Filter,
    Invalid,
    QueryRequest,
    Record,
    Scope,
    Snippet,
    Unavailable,
)
from memtui.provider_kit.kept import not_shown
from memtui.provider_kit.matching import has_metadata, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.search import ranked

from .listing import Lister, Listing
from .memories import handle_of
from .plugin import SCOPE_IDS, Embedded, Plugin
from .wire import Hits, Place

_RANK_WEIGHT = 60
"""Weakens the first ranks of a search beside those that both searches find."""
_QUERY_CHARACTERS = 2000
"""Most characters of a query that are sent."""


async def query(
    plugin: Plugin, request: QueryRequest
) -> tuple[ContextBundle, tuple[ExplainStage, ...]]:
    """Search the namespaces of the scope in one call; return the results and the stages.

    The reference server finds nothing for stop words, prefixes of words and text without spaces;
    then the newest records are searched here. The same applies to plugins that do not list
    full-text search, since they may have ignored the query.
    """
    names = await plugin.readable(request.scope)
    given = request.embedding if plugin.abilities.has("embedding") else None
    asked = request.query.replace("\0", " ").strip()[:_QUERY_CHARACTERS]
    narrows = bool(request.metadata_filter or request.topic or request.filter != Filter())
    most = plugin.config.page_size
    limit = most if narrows else min(most, request.top_k + 1)
    embedded = await plugin.embed(asked, is_query=True) if given is None else Embedded()
    hits = await plugin.search(names, query=asked, limit=limit, embedding=given)
    if embedded.vector is not None:
        try:
            near = await plugin.search(names, query=asked, limit=limit, embedding=embedded.vector)
        except (Invalid, Unavailable) as error:  # what the words found is left
            lacking = f"The plugin did not search by the query's vector: {error}"
            embedded = Embedded(None, embedded.usage, lacking)
        else:
            hits = _fused(hits, near) if plugin.abilities.has("fts") else near
    by_vector = bool(given or embedded.vector)
    trusted = plugin.abilities.has("fts") or by_vector or not asked
    stages = [_reach(plugin, names), _served(hits, limit, by_vector=by_vector)]
    found: list[Snippet] = []
    if trusted:
        # Pinned memories first, then by score, or in the plugin's order without scores.
        last = float("-inf")
        ranked = sorted(
            hits.memories, key=lambda one: (one.pin, last if one.score is None else one.score),
            reverse=True,
        )  # fmt: skip
        found = [Snippet(**dict(plugin.record(one)), score=one.score) for one in ranked]
        found = [snippet for snippet in found if _fits(snippet, request)]
    capped = hits.capped
    if asked and not found and (plugin.config.local_fallback or not trusted):
        newest = await plugin.search(names)
        pending = newest if trusted else hits.joined(newest)
        found = await asyncio.to_thread(_looked_through, plugin, request, asked, pending)
        capped = newest.capped
        stages.append(_looked(found, newest, trusted=trusted))
    stages.append(
        ExplainStage(
            name="dropped",
            detail=f"Left out of the plugin's answer: {hits.expired} expired, {hits.strangers} of "
            f"namespaces or kinds not asked for, {hits.unreadable} unreadable.",
        )
    )
    if embedded.lacking:
        stages.append(ExplainStage(name="meaning", detail=embedded.lacking))
    top = tuple(found[: request.top_k])
    is_capped = capped or len(found) > len(top)
    return ContextBundle(snippets=top, capped=is_capped, usage=embedded.usage), tuple(stages)


def _fused(words: Hits, near: Hits) -> Hits:
    """Return the hits by words and by meaning, scored by their ranks in both."""
    scores: dict[Place, float] = {}
    for hits in (words, near):
        for rank, place in enumerate(hits.by_place()):
            scores[place] = scores.get(place, 0.0) + 1 / (_RANK_WEIGHT + rank)
    both = words.joined(near)
    memories = both.by_place()
    scored = tuple(replace(memories[place], score=scores[place]) for place in scores)
    return replace(both, memories=scored)


def _looked_through(
    plugin: Plugin, request: QueryRequest, asked: str, pending: Hits
) -> list[Snippet]:
    records = [plugin.record(memory) for memory in pending.by_place().values()]
    found = ranked([record for record in records if _fits(record, request)], asked)
    return sorted(found, key=lambda one: not one.pinned)


def _fits(record: Record, request: QueryRequest) -> bool:
    is_of_topic = request.topic is None or record.topic == request.topic
    fits = matcher(request.filter)
    return is_of_topic and fits(record) and has_metadata(record, request.metadata_filter)


def _reach(plugin: Plugin, names: Sequence[str]) -> ExplainStage:
    listed = plugin.abilities.listed
    can = "says nothing of its abilities" if listed is None else f"offers {_list(sorted(listed))}"
    return ExplainStage(name="namespaces", detail=f"Asked {_list(names)}; the plugin {can}.")


def _served(hits: Hits, limit: int, *, by_vector: bool) -> ExplainStage:
    how = " and its vector" if by_vector else ""
    more = "; it may hold more" if hits.capped else ""
    return ExplainStage(
        name="plugin",
        detail=f"For the query{how} it returned {len(hits.memories)} of at most {limit} records"
        f"{more}.",
        scores={
            handle_of(one).provider_record_id: one.score
            for one in hits.memories
            if one.score is not None
        },
    )


def _looked(found: Sequence[Snippet], newest: Hits, *, trusted: bool) -> ExplainStage:
    why = "The plugin found nothing" if trusted else "The plugin lists no full text"
    return ExplainStage(
        name="local fallback",
        detail=f"{why}, so its newest {len(newest.memories)} records were searched here: "
        f"{len(found)} match.",
        scores={one.handle.provider_record_id: one.score or 0.0 for one in found},
    )


def _list(words: Sequence[str]) -> str:
    shown = ", ".join(words[:5]) or "none"
    return f"{shown} and {len(words) - 5} more" if len(words) > 5 else shown


async def browse(plugin: Plugin, lister: Lister, request: BrowseRequest) -> BrowsePage:
    """Return a page of the scope's namespaces, or of the requested one.

    `at_least` is set unless all of their memories were read. For a whole company this is unknown,
    as a plugin cannot list its namespaces, unless the config names them.
    """
    names = await _names(plugin, request.scope, request.filter)
    if request.namespace is not None:
        names = tuple(name for name in names if name == request.namespace)
    listing = await lister.list(names, request.filter.text, fresh=request.cursor is None)
    return await asyncio.to_thread(_page, plugin, listing, request)


async def _names(plugin: Plugin, scope: Scope, chosen: Filter) -> tuple[str, ...]:
    names = await plugin.readable(scope)
    asked = {
        name: values
        for name in SCOPE_IDS
        if getattr(scope, name) is None and (values := chosen.any_of(name))
    }
    narrower = (
        name
        for ids in product(*asked.values())
        for name in plugin.namespaces.readable(
            scope.model_copy(update=dict(zip(asked, ids, strict=True))), wider=False
        )
    )
    return tuple(dict.fromkeys((*narrower, *names))) if asked else names


def _page(plugin: Plugin, listing: Listing, request: BrowseRequest) -> BrowsePage:
    records = map(plugin.record, listing.memories.values())
    found = page(list(filter(matcher(request.filter), records)), request)
    is_named = request.namespace is not None or bool(plugin.config.namespaces)
    unlisted = plugin.is_company_wide(request.scope) and not is_named
    unread = tuple(_unread(plugin, listing, unlisted=unlisted))
    update = {"at_least": bool(unread), "unread": unread, "unfinished": not listing.finished}
    return found.model_copy(update=update)


def _unread(plugin: Plugin, listing: Listing, *, unlisted: bool) -> Iterator[str]:
    """Yield sentences on memories that may be missing, and on the setting to read further."""
    if unlisted:
        yield (
            "A plugin cannot list its namespaces, so memtui reads only those that it has used "
            "before and those that `namespaces` in the binding's config names."
        )
    if listing.larger:
        names = listing.larger[0]
        if more := len(listing.larger) - 1:
            names += f" and {more:,} more"
        yield (
            f"{names} may contain more records than were found, because a search returns "
            f"{plugin.page_rows:,} at most; raise `page_size` in the binding's config if the "
            "plugin allows more."
        )
    if not listing.finished:
        yield (
            "Time ran out before everything was searched; list again to go on, or raise "
            "`search_seconds` and `max_searches` in the binding's config."
        )
    if listing.endless:
        yield "The plugin kept returning pages without new records, so memtui stopped reading."
    if listing.unreadable:
        yield not_shown(listing.unreadable, "that the plugin returned")
