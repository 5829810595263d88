"""One page of what a plugin holds, sorted and filtered here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from memtui.contract import BrowsePage, BrowseRequest, Filter, Scope
from memtui.provider_kit import matcher, page

from .listing import Lister, Listing
from .plugin import Plugin

_IDS = ("project_id", "agent_id", "subject_id")


async def browse(plugin: Plugin, lister: Lister, request: BrowseRequest) -> BrowsePage:
    """Return a page of the scope's namespaces, or of that one of them which is asked for.

    `at_least` unless everything in them was within reach. Of a whole company nobody knows, unless
    the config names its namespaces: a plugin cannot list them.
    """
    names = await _names(plugin, request.scope, request.filter)
    if request.namespace is not None:
        names = tuple(name for name in names if name == request.namespace)
    listing = await lister.list(names, request.filter.text, fresh=request.cursor is None)
    return await asyncio.to_thread(_page, plugin, listing, request)


async def _names(plugin: Plugin, scope: Scope, chosen: Filter) -> tuple[str, ...]:
    names = await plugin.readable(scope)
    asked = {
        name: value
        for name in _IDS
        if getattr(scope, name) is None and (value := getattr(chosen, name)) is not None
    }
    narrower = plugin.namespaces.readable(scope.model_copy(update=asked), wider=False)
    return tuple(dict.fromkeys((*narrower, *names))) if asked else names


def _page(plugin: Plugin, listing: Listing, request: BrowseRequest) -> BrowsePage:
    records = plugin.reader.records(listing.rows.values())
    found = page(list(filter(matcher(request.filter), records)), request)
    told = request.namespace is not None or bool(plugin.config.namespaces)
    unlisted = plugin.is_company_wide(request.scope) and not told
    unread = tuple(_unread(plugin, listing, unlisted=unlisted))
    update = {"at_least": bool(unread), "unread": unread, "unfinished": not listing.finished}
    return found.model_copy(update=update)


def _unread(plugin: Plugin, listing: Listing, *, unlisted: bool) -> Iterator[str]:
    """Say what may be there besides, and which setting of the binding reads further."""
    if unlisted:
        yield (
            "A plugin cannot list its namespaces: those that memtui has not met and that "
            "`namespaces` in the binding's config does not name are not read."
        )
    if listing.larger:
        names = listing.larger[0]
        if more := len(listing.larger) - 1:
            names += f" and {more:,} more"
        yield (
            f"{names} may hold more than what the words of the records found lead to, because a "
            f"search shows {plugin.page_rows:,} at most; a larger `page_size` in the binding's "
            "config reads further where the plugin gives more."
        )
    if not listing.finished:
        yield (
            "The time for one list was over before all was searched; listing again goes on, and "
            "`search_seconds` and `max_searches` in the binding's config give it more."
        )
    if listing.endless:
        yield "The plugin's pages go on without end and without anything new."
    if listing.unreadable:
        yield f"{listing.unreadable:,} records came in a form that cannot be read."
