"""Which bindings of other companies lie in the same store: companies share none.

A provider tells where its records lie (`Adapter.places`). Only bindings of one control plane can be
compared; two homes that point at one folder know nothing of each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from memtui.contract import Conflict
from memtui.service.core import Core
from memtui.store import bindings as table
from memtui.store.tables import BindingRow

_Place = tuple[str, ...]


async def refuse_shared(core: Core, row: BindingRow) -> None:
    """Raise `Conflict` where a binding would lie in the store of another company's."""
    if row.binding_id in await shared(core, [row], load=True):
        raise Conflict(
            f"Where {row.key} would keep its memories, another company's already lie, in the same "
            "place or inside it or around it; companies share no store, so choose another place."
        )


async def shared(core: Core, rows: Iterable[BindingRow], *, load: bool = False) -> set[str]:
    """Return the ids of those bindings, of one company, that share a store with another's.

    Another package's provider that is not loaded is asked only where it is to be.
    """
    asked = list(rows)
    others = await asyncio.to_thread(_others, core, {row.company_id for row in asked})
    if not others:
        return set()
    theirs = [await core.connections.places(row, load=load) for row in others]
    mine = {row.binding_id: await core.connections.places(row, load=load) for row in asked}
    return {name for name, own in mine.items() if any(_meet(own, places) for places in theirs)}


def _others(core: Core, companies: set[str]) -> list[BindingRow]:
    with core.database.read() as database:
        return [
            row
            for company in table.companies(database)
            if company.company_id not in companies
            for row in table.bindings(database, company.company_id)
        ]


def _meet(own: Collection[_Place], theirs: Collection[_Place]) -> bool:
    return any(
        one[: len(other)] == other or other[: len(one)] == one for one in own for other in theirs
    )
