"""memtui's fields of memories, for a server without a place for them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from memtui.backends.mcp.memories import marked
from memtui.contract import (
    BindingContext,
    EraseReply,
    EraseRequest,
    Json,
    MemtuiError,
    Scope,
    Unavailable,
)
from memtui.provider_kit.kept import KeptFields
from memtui.provider_kit.known import KNOWN, KnownFile, remains
from memtui.provider_kit.server_provider import ServerRows

_STAYS = f"What {KNOWN} has of deleted memories stays: the list of the others is not whole."


class KeptHere:
    """The file `known.json` of a binding; nothing is in it where the server keeps all."""

    def __init__(self, context: BindingContext, *, is_here: bool) -> None:
        self.is_here, self._company = is_here, context.company_id
        self._file = KnownFile(
            context.data_dir, KeptFields, f"the memories of {context.binding_key}"
        )

    async def now(self) -> Mapping[str, KeptFields]:
        """Return the kept fields, by a memory's id, or by its text where no id is known."""
        return await asyncio.to_thread(self._file.read) if self.is_here else {}

    async def change(self, changes: Mapping[str, KeptFields | None]) -> None:
        """Store some changes, of which None removes a memory's."""
        if self.is_here and changes:
            await asyncio.to_thread(self._file.change_alone, changes)

    @asynccontextmanager
    async def during(
        self, kept: KeptFields, text: str, known_id: str = ""
    ) -> AsyncIterator[list[str]]:
        """Keep a memory's fields while it is being stored; the body fills in its ids.

        It is kept by the text at first, so that the memory is never everybody's, and stays so if
        nobody learns the id.
        """
        mark, ids = known_id or marked(text), list[str]()
        before = await self.now()
        await self.change({mark: kept})
        try:
            yield ids
        except MemtuiError as error:
            if not (isinstance(error, Unavailable) and error.sent):
                await self.change({mark: before.get(mark)})
            raise
        if ids:
            await self.change({mark: None, **dict.fromkeys(ids, kept)})

    async def erase(self, request: EraseRequest, rows: ServerRows[Json] | None) -> EraseReply:
        """Erase the kept fields of memories that are not in `rows`, the server's whole list."""
        if rows is None or rows.more or rows.unreadable:
            return EraseReply(beyond=(_STAYS,))
        known = await self.now()
        owners = {name: Scope(company_id=self._company, **one.ids) for name, one in known.items()}
        there = {name for one in rows.items for name in (one["id"], marked(one["text"]))}
        found = remains(owners, there, request)
        if request.apply:
            await self.change(dict.fromkeys(found.record_ids))
        return found
