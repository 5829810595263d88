"""Answers searches of the memory plugin from queries and lists of the service."""

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memtui.channels.http.plugin_binding import NamedMemory, ServedBinding, is_past
from memtui.channels.http.plugin_wire import DEFAULT_ROWS, Kind, MemoryBody, SearchBody, SearchReply
from memtui.contract import BrowseRequest, QueryRequest, Record, Scope, Snippet, own_filter, owned
from memtui.provider_kit.pages import read_cursor, write_cursor

_PAGE = 1_000
_WIDEN = 5
"""Factor for the next request if too few of the results may be shown."""
_AT_ONCE = 8
"""Scopes searched at once, where the provider cannot search several in one call."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchPart:
    """A scope to search, the owners whose records count, and the requested namespaces.

    Only memories of these namespaces are returned, even if a provider returns others.
    """

    scope: Scope
    owners: tuple[Scope, ...]
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted kinds of memories, and the most to return."""

    kinds: frozenset[Kind]
    limit: int


async def search(served: ServedBinding, asked: SearchBody) -> SearchReply:
    """Answer a search, without expired memories and expired namespaces."""
    names = await _living(served, asked.namespaces)
    wanted = Wanted(frozenset(asked.kinds or ()), asked.limit or DEFAULT_ROWS)
    if asked.ids is not None:
        return _found(await _by_ids(served, names, asked.ids))
    parts = await _parts(served, names)
    if asked.cursor is not None:
        return await _listed(served, parts, wanted, asked.cursor)
    if (asked.query or "").strip() or asked.embedding:
        ranked = await _together(parts, lambda part: _queried(served, part, wanted, asked))
        ranked.sort(key=_pinned_then_best)
    else:
        ranked = await _together(parts, lambda part: _newest(served, part, wanted))
        ranked.sort(key=_pinned_then_newest)
    return _found(ranked[: wanted.limit])


async def _parts(served: ServedBinding, names: Sequence[str]) -> list[SearchPart]:
    """Return the parts to search: one for all scopes if the provider can rank them together."""
    by_scope: dict[Scope, set[str]] = {}
    for name in names:
        by_scope.setdefault(served.places.scope_of(name), set()).add(name)
    if len(by_scope) > 1 and (await served.binding()).capabilities.chosen_owners:
        company = Scope(company_id=served.caller.company_id)
        return [SearchPart(company, tuple(by_scope), frozenset(names))]
    return [SearchPart(scope, (scope,), frozenset(own)) for scope, own in by_scope.items()]


async def _together(
    parts: Sequence[SearchPart], look: Callable[[SearchPart], Awaitable[list[NamedMemory]]]
) -> list[NamedMemory]:
    """Return the results of all parts, a few searched at a time."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(part: SearchPart) -> list[NamedMemory]:
        async with turn:
            return await look(part)

    return [named for found in await asyncio.gather(*map(one, parts)) for named in found]


async def _living(served: ServedBinding, names: Sequence[str]) -> list[str]:
    """Return the namespaces that are not expired, each once."""
    once = list(dict.fromkeys(names))
    known = await served.service.plugin.named(served.caller, served.key, once)
    return [name for name in once if name not in known or not is_past(known[name].expires_at)]


async def _queried(
    served: ServedBinding, part: SearchPart, wanted: Wanted, asked: SearchBody
) -> list[NamedMemory]:
    """Return a query's results in a part.

    Results of other owners and of unwanted kinds are dropped. If a full reply then leaves too few,
    or the provider has pins and may have omitted a pinned memory, more are requested.
    """
    pins = (await served.binding()).capabilities.pin
    request = QueryRequest(
        scope=part.scope,
        query=asked.query or "",
        binding_key=served.key,
        top_k=wanted.limit,
        owners=part.owners,
        embedding=tuple(asked.embedding) if asked.embedding else None,
    )
    while True:
        answer = await served.service.query(served.caller, request)
        fit = await _fit(served, part, wanted, answer.snippets)
        is_enough = len(fit) >= wanted.limit and not pins
        if is_enough or not answer.capped or request.top_k >= _PAGE:
            return fit
        top_k = _PAGE if pins else min(_PAGE, request.top_k * _WIDEN)
        request = request.model_copy(update={"top_k": top_k})


async def _newest(served: ServedBinding, part: SearchPart, wanted: Wanted) -> list[NamedMemory]:
    """Return the pinned memories of a part and its newest ones.

    Even the oldest memory may be pinned, so a provider that keeps pins is read completely.
    """
    pins = (await served.binding()).capabilities.pin
    request = _list_request(served, part, "-created_at", _PAGE)
    best: list[NamedMemory] = []
    async for page in served.service.pages(served.caller, request):
        best += await _fit(served, part, wanted, page.records)
        best.sort(key=_pinned_then_newest)
        del best[wanted.limit :]
        if len(best) == wanted.limit and not pins:
            break
    return best


async def _listed(
    served: ServedBinding, parts: Sequence[SearchPart], wanted: Wanted, cursor: str
) -> SearchReply:
    """Return a page of all memories, part by part, the oldest first."""
    asked = [[sorted(part.names) for part in parts], sorted(wanted.kinds)]
    mark = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
    place, within = read_cursor(cursor, mark, int, (str, type(None))) if cursor else (0, None)
    place = max(place, 0)  # the cursor is foreign input
    found: list[NamedMemory] = []
    while place < len(parts) and len(found) < wanted.limit:
        request = _list_request(served, parts[place], "created_at", wanted.limit - len(found))
        page = await served.service.browse(
            served.caller, request.model_copy(update={"cursor": within})
        )
        memories = [one for one in page.records if not one.read_only]
        found += await _fit(served, parts[place], wanted, memories)
        within = page.next_cursor
        place += within is None
    more = write_cursor(mark, place, within) if place < len(parts) else None
    return _found(found, more)


async def _by_ids(
    served: ServedBinding, names: Sequence[str], ids: Sequence[str]
) -> list[NamedMemory]:
    named_record = [await served.named_record(memory_id) for memory_id in dict.fromkeys(ids)]
    return await served.name([one[1] for one in named_record if one is not None], names)


def _list_request(served: ServedBinding, part: SearchPart, sort: str, limit: int) -> BrowseRequest:
    return BrowseRequest(
        scope=part.scope,
        binding_key=served.key,
        filter=own_filter(part.scope, kind=None),
        owners=part.owners,
        sort=sort,
        limit=limit,
    )


async def _fit(
    served: ServedBinding, part: SearchPart, wanted: Wanted, records: Sequence[Record]
) -> list[NamedMemory]:
    """Return the records that are memories of a part and of the wanted kinds."""
    living = [one for one in owned(records, part.scope) if not is_past(one.expires_at)]
    named = await served.name(living, part.names)
    return [one for one in named if not wanted.kinds or one.mark.kind in wanted.kinds]


def _found(named: Sequence[NamedMemory], next_cursor: str | None = None) -> SearchReply:
    return SearchReply(memories=[_memory(one) for one in named], next_cursor=next_cursor)


def _memory(one: NamedMemory) -> MemoryBody:
    record, mark = one.record, one.mark
    return MemoryBody.like(
        mark,
        content=mark.text_of(record),
        expires_at=record.expires_at,
        propagation=mark.propagated,
        pin=record.pinned,
        created_at=record.created_at or record.updated_at or _LONG_AGO,
        score=_score(one),
    )


def _score(one: NamedMemory) -> float | None:
    score = one.record.score if isinstance(one.record, Snippet) else None
    return score if score is not None and math.isfinite(score) else None


def _age(one: NamedMemory) -> float:
    return (one.record.created_at or one.record.updated_at or _LONG_AGO).timestamp()


def _pinned_then_newest(one: NamedMemory) -> tuple[bool, float]:
    return not one.record.pinned, -_age(one)


def _pinned_then_best(one: NamedMemory) -> tuple[bool, float, float]:
    return not one.record.pinned, -(_score(one) or 0.0), -_age(one)
