"""Lists a plugin's memories by searches, one page each: by namespace, by kind, then by word.

With the extension `memtui.cursor`, all pages are read. The contract itself has no cursor: there, a
namespace or kind that returns less than a page is complete. In a larger one, the known words of
earlier and just found memories are searched for, and if a word returns a full page, the phrases
that begin with it, until a whole round finds nothing new. Such a list never counts as complete.

One call goes as far as the binding's `max_searches` and `search_seconds` allow; the next one
continues from there.
"""

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import monotonic

from memtui.provider_kit import together

from .id_cache import phrases, plain_words
from .plugin import Plugin, holds_strange_kinds
from .wire import CURSOR, KINDS, Hits, Place, PluginMemory

_BATCH = 8
_FRUITLESS = 128
"""Searches in a row without new memories that end a call, but not the list."""
_FRUITLESS_PAGES = 128
_KEPT_SECONDS = 120.0
_LONGEST_PHRASE = 3
_PROBED_WORDS = 4
_SUSPECT = 5
"""A reply with fewer memories is not suspected of having been truncated silently."""


@dataclass(frozen=True, slots=True)
class _Search:
    """One search in namespaces, optionally by a kind and by words."""

    names: Sequence[str]
    kind: str | None = None
    words: str | None = None


_Searches = Generator[list[_Search], list[Hits], None]
"""Yields the next searches, and receives their hits."""


@dataclass(slots=True)
class Listing:
    """The memories found so far. `finished`: there are no further searches."""

    memories: dict[Place, PluginMemory] = field(default_factory=dict)
    finished: bool = False
    larger: tuple[str, ...] = ()
    """The namespaces with more memories than a search returns."""
    unreadable: int = 0
    """Number of memories that could not be read."""
    endless: bool = False
    """Pages kept coming without new memories."""


class Lister:
    """Makes lists and caches the newest, so that later pages come from the same one."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._walk: _Walk | None = None
        self._turn = asyncio.Lock()

    async def list(self, names: Sequence[str], text: str | None, *, fresh: bool) -> Listing:
        """Return the memories of namespaces; `text` is searched for as well.

        A `fresh` list continues one that ran out of time, or else starts again.
        """
        key = (tuple(names), text, self._plugin.generation)
        async with self._turn:
            walk = self._walk
            is_old = walk is None or monotonic() - walk.used_at > _KEPT_SECONDS or walk.key != key
            if walk is None or is_old or (fresh and walk.listing.finished):
                walk = self._walk = _Walk(self._plugin, key)
                fresh = True
            if fresh:
                try:
                    await walk.go()
                except asyncio.CancelledError:
                    self._walk = None  # a walk cancelled in the middle cannot be continued
                    raise
            walk.used_at = monotonic()
            return walk.listing


class _Walk:
    """One list in progress. A failed call can be repeated."""

    def __init__(self, plugin: Plugin, key: tuple[tuple[str, ...], str | None, int]) -> None:
        self.key = key
        self.listing = Listing()
        self.used_at = monotonic()
        self._plugin = plugin
        self._names, self._text, _ = key
        self._cursor: str | None = "" if self._names else None
        self._searches = self._plan()
        self._batch: list[_Search] = []
        """The next searches; kept until they are answered."""

    async def go(self) -> None:
        """Search up to the limits of one call."""
        config = self._plugin.config
        until = monotonic() + config.search_seconds
        if self._plugin.abilities.has(CURSOR):
            await self._read_pages(config.max_searches, until)
        else:
            await self._search_on(config.max_searches, until)

    async def _read_pages(self, left: int, until: float) -> None:
        """Read page after page, as long as they contain new memories."""
        listing, fruitless = self.listing, 0
        while self._cursor is not None and left > 0 and monotonic() < until:
            left -= 1
            before = len(listing.memories)
            hits = await self._plugin.page(self._names, self._cursor)
            self._cursor = hits.cursor
            listing.memories |= hits.by_place()
            listing.unreadable += hits.unreadable
            fruitless = 0 if len(listing.memories) > before else fruitless + 1
            if fruitless == _FRUITLESS_PAGES:
                listing.endless, self._cursor = True, None
        listing.finished = self._cursor is None

    async def _search_on(self, left: int, until: float) -> None:
        listing, fruitless = self.listing, 0
        if not self._batch:
            self._batch = await asyncio.to_thread(next, self._searches, [])
        while self._batch and left > 0 and monotonic() < until and fruitless < _FRUITLESS:
            before = len(listing.memories)
            found = await together(
                partial(self._plugin.search, one.names, query=one.words, kind=one.kind)
                for one in self._batch
            )
            left -= len(self._batch)
            fruitless += len(self._batch)
            for hits in found:
                listing.memories |= hits.by_place()
                listing.unreadable = max(listing.unreadable, hits.unreadable)
            if len(listing.memories) > before:
                fruitless = 0
            self._batch = await asyncio.to_thread(self._after, found)
        listing.finished = not self._batch

    def _after(self, found: list[Hits]) -> list[_Search]:
        try:
            return self._searches.send(found)
        except StopIteration:
            return []

    def _plan(self) -> _Searches:
        if not self._names:
            return
        asked = [_Search(self._names, words=self._text)] if self._text else []
        hits, *_ = yield [_Search(self._names), *asked]
        if not hits.capped and (yield from self._is_all(hits)):
            return
        found = yield [_Search([name]) for name in self._names]
        large = [name for name, hits in zip(self._names, found, strict=True) if hits.capped]
        groups: list[tuple[str, str | None]] = [(name, kind) for name in large for kind in KINDS]
        found = yield [_Search([name], kind) for name, kind in groups]
        groups = [one for one, hits in zip(groups, found, strict=True) if hits.capped]
        memories = self.listing.memories
        groups += [(name, None) for name in large if holds_strange_kinds(memories, name)]
        self.listing.larger = tuple(dict.fromkeys(name for name, _ in groups))
        searched = [_Words(self, name, kind) for name, kind in groups]
        before = -1
        while len(memories) > before:
            before = len(memories)
            for group in searched:
                yield from group.searches()

    def _is_all(self, hits: Hits) -> Generator[list[_Search], list[Hits], bool]:
        """Check whether a reply of less than a page was truncated silently, and record the result.

        If so, a narrower search finds more, and repeating the search returns the same number.
        """
        number = hits.returned
        if number < max(_SUSPECT, self._plugin.honest_rows):
            return True
        before = set(self.listing.memories)
        known = Counter(word for one in hits.memories for word in plain_words(one.content))
        yield [
            *(_Search(self._names, kind) for kind in KINDS),
            *(_Search(self._names, words=word) for word, _ in known.most_common(_PROBED_WORDS)),
        ]
        hidden = set(self.listing.memories) - before
        [again] = yield [_Search(self._names)]
        if again.capped:
            return False
        if hidden and again.returned == number and hidden - set(again.by_place()):
            self._plugin.cut_at(number)
            return False
        self._plugin.trust(number)
        return True

    def noted(self, name: str) -> list[str]:
        """Return the cached words of a namespace's memories that are not in the list yet."""
        found, seen = self.listing.memories, self._plugin.cache.seen(name)
        unseen = [words for identity, words in seen if (name, identity) not in found]
        return list(dict.fromkeys(words for words in unseen if words))


class _Words:
    """The words by which a large namespace and kind is searched."""

    def __init__(self, walk: _Walk, name: str, kind: str | None) -> None:
        self._walk, self._name, self._kind = walk, name, kind
        self._asked: set[str] = set()
        self._full: set[str] = set()
        """Words that returned a full page, so that more memories may match them."""

    def searches(self) -> _Searches:
        """Search for known words that were not searched for yet, then for longer phrases.

        The commonest come first; a longer phrase refines one that returned a full page.
        """
        if not self._asked:
            yield from self._ask(self._walk.noted(self._name))
        for length in range(1, _LONGEST_PHRASE + 1):
            count: Counter[str] = Counter()
            for one in self._walk.listing.memories.values():
                if one.namespace == self._name and self._kind in {None, one.kind}:
                    count.update(phrases(one.content, length, self._full))
            yield from self._ask(
                [words for words, _ in count.most_common() if words not in self._asked]
            )

    def _ask(self, queries: Iterable[str]) -> _Searches:
        waiting = iter(queries)
        while batch := list(islice(waiting, _BATCH)):
            self._asked.update(batch)
            found = yield [_Search([self._name], self._kind, words) for words in batch]
            full = (one for one, hits in zip(batch, found, strict=True) if hits.capped)
            self._full.update(full)
