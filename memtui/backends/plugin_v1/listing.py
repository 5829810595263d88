"""List what a plugin holds, 100 memories a search: by namespace, by kind, then by word.

A plugin that lists the extension `memtui.cursor` is read to its end. The contract has no cursor:
there a namespace or kind that answers with fewer than 100 is known whole. Of a larger one as much
is found as the binding's `max_searches` and `search_seconds` allow: the words of memories seen
before, then the words of those found, commonest first, each search another 100. Such a list is
never called complete.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from .lookup import holds_strange_kinds, keyed
from .plugin import Hits, Plugin, together
from .records import Place
from .wire import CURSOR, KINDS, Row
from .words import plain_words

_BATCH = 8
_FRUITLESS = 128
"""So many searches in a row without anything new end a list."""
_KEPT_SECONDS = 120.0


@dataclass(slots=True)
class Listing:
    """What was found. `complete`: it is all there is."""

    rows: dict[Place, Row] = field(default_factory=dict)
    complete: bool = True


class Lister:
    """Makes lists and keeps the newest, so that the pages after the first are of the same one."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._kept: tuple[tuple[object, ...], float, Listing] | None = None

    async def list(self, names: Sequence[str], text: str | None, *, fresh: bool) -> Listing:
        """Return what namespaces hold; `text` is searched for besides."""
        key = (tuple(names), text, self._plugin.generation)
        if not fresh and self._kept is not None:
            known, made_at, listing = self._kept
            if known == key and monotonic() - made_at < _KEPT_SECONDS:
                return listing
        listing = await _Walk(self._plugin).walk(names, text)
        self._kept = (key, monotonic(), listing)
        return listing


class _Walk:
    """One list in the making."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._listing = Listing()
        self._left = plugin.config.max_searches
        self._until = monotonic() + plugin.config.search_seconds

    async def walk(self, names: Sequence[str], text: str | None) -> Listing:
        if self._plugin.abilities.has(CURSOR):
            await self._to_the_end(names)
            return self._listing
        if not any(await self._search([(names, None, None)])):
            return self._listing
        capped = await self._search([([name], None, None) for name in names])
        large = [name for name, more in zip(names, capped, strict=True) if more]
        if text and large:
            await self._search([(large, None, text)])
        if any(holds_strange_kinds(self._listing.rows, name) for name in large):
            self._listing.complete = False
        parts = [(name, kind) for name in large for kind in KINDS]
        capped = await self._search([([name], kind, None) for name, kind in parts])
        for (name, kind), more in zip(parts, capped, strict=True):
            if more:
                self._listing.complete = False
                await self._by_words(name, kind)
        return self._listing

    async def _to_the_end(self, names: Sequence[str]) -> None:
        """Read page after page, as long as they bring anything."""
        cursor: str | None = "" if names else None
        fruitless = 0
        while cursor is not None and fruitless < _FRUITLESS:
            before = len(self._listing.rows)
            hits, cursor = await self._plugin.page(names, cursor)
            self._listing.rows |= keyed(hits)
            self._listing.complete &= not hits.unreadable
            fruitless = 0 if len(self._listing.rows) > before else fruitless + 1
        self._listing.complete &= cursor is None

    async def _by_words(self, name: str, kind: str) -> None:
        noted = await asyncio.to_thread(self._plugin.notebook.seen, name, max(0, self._left))
        known = [words for identity, words in noted if (name, identity) not in self._listing.rows]
        asked: set[str] = set()
        fruitless = 0
        queue: Iterator[str] = iter(dict.fromkeys(words for words in known if words))
        while self._goes_on and fruitless < _FRUITLESS:
            batch = [word for _, word in zip(range(_BATCH), queue, strict=False)]
            if not batch:
                batch = self._common_words(name, kind, asked)
                queue = iter(())
            if not batch:
                return
            asked.update(batch)
            before = len(self._listing.rows)
            await self._search([([name], kind, word) for word in batch])
            fruitless = 0 if len(self._listing.rows) > before else fruitless + len(batch)

    def _common_words(self, name: str, kind: str, asked: set[str]) -> list[str]:
        count: Counter[str] = Counter()
        for row in self._listing.rows.values():
            if row.namespace == name and row.kind == kind:
                count.update(plain_words(row.content))
        return [word for word, _ in count.most_common(len(asked) + _BATCH) if word not in asked][
            :_BATCH
        ]

    @property
    def _goes_on(self) -> bool:
        return self._left > 0 and monotonic() < self._until

    async def _search(
        self, searches: Sequence[tuple[Sequence[str], str | None, str | None]]
    ) -> list[bool]:
        """Search for namespaces, kind and words; return of each whether there may be more.

        One that the budget does not allow is not made, and may hold more.
        """
        self._left -= len(searches)
        found = await together(partial(self._one, *search) for search in searches)
        for hits in found:
            self._listing.rows |= keyed(hits)
            self._listing.complete &= not hits.unreadable
        return [hits.capped for hits in found]

    async def _one(self, names: Sequence[str], kind: str | None, words: str | None) -> Hits:
        if monotonic() > self._until:
            self._listing.complete = False
            return Hits(capped=True)
        return await self._plugin.search(names, query=words, kinds=[kind] if kind else None)
