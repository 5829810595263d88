"""The plugin's namespaces: those known, and making, changing and deleting one."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial

from memtui.contract import Invalid, Json, Namespace, Scope

from .config import is_namespace
from .plugin import Plugin, together
from .scoping import kind_of
from .wire import NamespaceReply


async def known(plugin: Plugin, scope: Scope) -> list[Namespace]:
    """Return the namespaces that memtui knows of; the plugin cannot list them.

    Of one that holds as many records as a search shows, or more, `records` is None, and
    `metadata["at_least"]` says how many that are.
    """
    met = await asyncio.to_thread(plugin.notebook.namespaces)

    async def one(name: str) -> Namespace:
        hits = await plugin.search([name])
        expires_at, metadata = met.get(name, (None, {}))
        return Namespace(
            name=name,
            kind=kind_of(name),
            records=None if hits.capped else len(hits.rows),
            expires_at=expires_at,
            metadata=metadata | ({"at_least": hits.returned} if hits.capped else {}),
        )

    return await together(partial(one, name) for name in await plugin.readable(scope))


async def create(
    plugin: Plugin, name: str, expires_at: datetime | None, metadata: Json | None
) -> Namespace:
    """Create a namespace, or replace one whole. Raises `Invalid` for a name that is none."""
    if not is_namespace(name):
        raise Invalid(
            f"{name!r} is no namespace; name it like workspace:web, small letters before the first "
            "colon, and letters, digits and _ : . - after it."
        )
    made = await plugin.client.put_namespace(name, kind_of(name), expires_at, metadata)
    return await _met(plugin, made)


async def patch(
    plugin: Plugin, name: str, expires_at: datetime | None, metadata: Json | None
) -> Namespace:
    """Set an expiry or the metadata. Raises `Invalid` where neither is given."""
    if expires_at is None and metadata is None:
        raise Invalid("Give an expiry or metadata to set.")
    return await _met(plugin, await plugin.client.patch_namespace(name, expires_at, metadata))


async def delete(plugin: Plugin, name: str) -> None:
    """Remove a namespace with all that is in it."""
    plugin.generation += 1
    await plugin.client.delete_namespace(name)
    await asyncio.to_thread(plugin.notebook.leave, name)


async def _met(plugin: Plugin, reply: NamespaceReply) -> Namespace:
    found = Namespace(
        name=reply.name, kind=reply.kind, expires_at=reply.expires_at, metadata=reply.metadata
    )
    await asyncio.to_thread(plugin.notebook.meet, [found])
    return found
