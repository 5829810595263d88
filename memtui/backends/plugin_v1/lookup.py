"""Find memories by id on a wire that has no such call, unless it lists the extension `memtui.ids`.

A namespace of fewer than 100 memories is read whole, so an id that is not in it does not exist.
In a larger one the newest 100, the newest 100 of each kind, and a search by the words that the
memory was last seen with are all that can be asked; past those nobody can say whether it exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from .plugin import Hits, Plugin, together
from .records import Place, is_uuid
from .wire import IDS, KINDS, Row
from .words import telling_words


@dataclass(frozen=True, slots=True)
class Found:
    """`row` None and `certain`: it does not exist. Not certain: it was not within reach."""

    row: Row | None = None
    certain: bool = True


async def find(plugin: Plugin, places: Sequence[Place], *, text: str = "") -> Found:
    """Return the memory at one of `places`; `text` is what it may hold."""
    return (await find_all(plugin, [places], text=text))[0]


async def find_all(
    plugin: Plugin, wanted: Sequence[Sequence[Place]], *, text: str = ""
) -> list[Found]:
    """Return, in order, the memory at one of the places of each list."""
    names = list(dict.fromkeys(place[0] for places in wanted for place in places))
    if plugin.abilities.has(IDS):
        return await _by_ids(plugin, wanted, names)
    rows, whole = await _newest(plugin, names)

    def missing() -> list[Place]:
        open_lists = [places for places in wanted if not any(place in rows for place in places)]
        return [place for places in open_lists for place in places if place[0] not in whole]

    for searched in await together(
        partial(_by_words, plugin, place, text) for place in dict.fromkeys(missing())
    ):
        rows |= searched
    deep = list(dict.fromkeys(place[0] for place in missing()))
    for name, (found, is_whole) in zip(
        deep, await together(partial(by_kinds, plugin, name) for name in deep), strict=True
    ):
        rows |= found
        if is_whole and not holds_strange_kinds(rows, name):
            whole.add(name)
    return [_found(places, rows, whole) for places in wanted]


async def _by_ids(
    plugin: Plugin, wanted: Sequence[Sequence[Place]], names: Sequence[str]
) -> list[Found]:
    """Return the memories of these ids; one that is no UUID names none of our servers'."""
    ids = dict.fromkeys(place[1] for places in wanted for place in places if is_uuid(place[1]))
    hits = await plugin.by_ids(names, list(ids))
    rows = keyed(hits)
    return [_found(places, rows, set() if hits.unreadable else set(names)) for places in wanted]


def _found(places: Sequence[Place], rows: dict[Place, Row], whole: set[str]) -> Found:
    row = next((rows[place] for place in places if place in rows), None)
    return Found(row, row is not None or all(place[0] in whole for place in places))


async def _newest(plugin: Plugin, names: Sequence[str]) -> tuple[dict[Place, Row], set[str]]:
    """Return the newest rows of namespaces, and the namespaces that were read whole."""
    hits = await plugin.search(names)
    if hits.whole:
        return keyed(hits), set(names)
    if len(names) == 1:
        return keyed(hits), set()
    rows, whole = keyed(hits), set()
    found = await together(partial(plugin.search, [name]) for name in names)
    for name, alone in zip(names, found, strict=True):
        rows |= keyed(alone)
        if alone.whole:
            whole.add(name)
    return rows, whole


async def by_kinds(plugin: Plugin, name: str) -> tuple[dict[Place, Row], bool]:
    """Return the newest rows of each kind in a namespace, and whether those are all it holds."""
    found = await together(partial(plugin.search, [name], kinds=[kind]) for kind in KINDS)
    rows: dict[Place, Row] = {}
    for hits in found:
        rows |= keyed(hits)
    return rows, all(hits.whole for hits in found)


def holds_strange_kinds(rows: Mapping[Place, Row], name: str) -> bool:
    """Whether a namespace holds a kind that the contract does not know, so that more may hide."""
    return any(row.namespace == name and row.kind not in KINDS for row in rows.values())


async def _by_words(plugin: Plugin, place: Place, text: str) -> dict[Place, Row]:
    noted = await asyncio.to_thread(plugin.notebook.words, place)
    queries: list[str] = []
    for words in (noted.split(), telling_words(text)):
        if words:  # all of them for a full-text search, the longest for one of substrings
            queries += [" ".join(words), words[0]]
    rows: dict[Place, Row] = {}
    for query in dict.fromkeys(queries):
        rows |= keyed(await plugin.search([place[0]], query=query))
        if place in rows:
            break
    return rows


def keyed(hits: Hits) -> dict[Place, Row]:
    """Return rows by their place."""
    return {(row.namespace, row.id): row for row in hits.rows}
