"""What changes through the memory plugin: each call is operations of the service, and no more."""

from __future__ import annotations

import asyncio
import uuid
from weakref import WeakValueDictionary

from memtui.contract import (
    BrowseRequest,
    Capabilities,
    Conflict,
    Denied,
    ForgetRequest,
    Json,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
    own_filter,
)
from memtui.doors.http.plugin_marks import (
    KEY,
    Mark,
    mark_for,
    mark_of,
    record_kind,
    source_for,
)
from memtui.doors.http.plugin_shelf import Shelf
from memtui.doors.http.plugin_wire import (
    MemoryWrite,
    Namespace,
    NamespaceKind,
    NamespacePatch,
    NamespacePut,
    Written,
)
from memtui.service import KeptNamespace, MemoryName, MutationAnswer
from memtui.service.plugin_ledger import no_namespace

_AT_ONCE = 8
"""Writes that wait for the provider together: the others wait here, where no timeout runs."""
_PAGE = 500


class PluginCalls:
    """The changes of one served binding."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def put(self, name: str, body: NamespacePut) -> Namespace:
        """Create a namespace, or replace it whole."""
        shelf = self.shelf
        kept = await shelf.service.plugin.put(
            shelf.caller,
            shelf.key,
            name,
            body.kind,
            expires_at=body.expires_at,
            metadata=body.metadata,
        )
        return _told(kept)

    async def patch(self, name: str, body: NamespacePatch) -> Namespace:
        """Set what is given of a namespace."""
        shelf = self.shelf
        kept = await shelf.service.plugin.patch(
            shelf.caller, shelf.key, name, expires_at=body.expires_at, metadata=body.metadata
        )
        return _told(kept)

    async def drop(self, name: str) -> None:
        """Forget every memory of a namespace, and then the namespace."""
        shelf = self.shelf
        if name in await shelf.service.plugin.named(shelf.caller, shelf.key, [name]):
            await self._forget_all(name)
        await shelf.service.plugin.remove(shelf.caller, shelf.key, name)
        await self._forget_all(name)  # what was written meanwhile

    async def _forget_all(self, name: str) -> None:
        scope = self.shelf.places.scope_of(name)
        while handles := await self._page_of(name, scope):
            await self._forget(scope, handles)

    async def _page_of(self, name: str, scope: Scope) -> tuple[RecordHandle, ...]:
        """Return the handles of some of a namespace's records, none where none is left."""
        shelf = self.shelf
        request = BrowseRequest(
            scope=scope,
            binding_key=shelf.key,
            filter=own_filter(scope, kind=None),
            sort="created_at",
            limit=_PAGE,
            owners=(scope,),
            expired=True,
        )
        while True:
            page = await shelf.service.browse(shelf.caller, request)
            named = await shelf.name(page.records, [name])
            handles = tuple(one.record.handle for one in named)
            if handles or page.next_cursor is None:
                return handles
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def write(self, name: str, body: MemoryWrite) -> Written:
        """Store a memory, in place of the one that has its id.

        Raises:
            NotFound: there is no such namespace.
            Unsupported: the provider keeps no pins or no expiry, and one is asked for.
        """
        shelf = self.shelf
        memory_id = body.id or str(uuid.uuid4())
        async with self._alone(memory_id), self._turn:
            if name not in await shelf.service.plugin.named(shelf.caller, shelf.key, [name]):
                await shelf.look(memory_id, shelf.places.scope_of(name))
                raise no_namespace(name)
            can = (await shelf.binding()).capabilities
            _refuse_lost(can, body)
            mark = await asyncio.to_thread(
                mark_for, memory_id, name, body, as_line=shelf.keeps_lines
            )
            known = await shelf.held(memory_id) if body.id else None
            if known is None:
                answer = await self._add(mark, body, can)
            else:
                answer = await self._replace(mark, body, can, known)
            await self._note(mark, answer)
        return Written(id=memory_id, namespace=name)

    async def _add(self, mark: Mark, body: MemoryWrite, can: Capabilities) -> MutationAnswer:
        """Store a memory anew, under its own id where the provider keeps ids."""
        request = self._request(mark, body)
        if not can.keeps_ids:
            return await self._store(request)
        mode = WriteMode.UPSERT if body.id else WriteMode.APPEND
        try:
            return await self._store(
                request.model_copy(update={"record_id": mark.id, "mode": mode})
            )
        except Conflict:  # an expired record of another scope has the id
            return await self._store(request)

    async def _replace(
        self, mark: Mark, body: MemoryWrite, can: Capabilities, known: tuple[MemoryName, Record]
    ) -> MutationAnswer:
        """Put a memory in the place of its record; when it came to be stays."""
        name, old = known
        request = self._request(mark, body, old)
        handle = old.handle
        if name.namespace == mark.namespace and (can.keeps_ids or not _clears(request, old)):
            update: Json = {"record_id": handle.provider_record_id, "mode": WriteMode.UPSERT}
            answer = await self._store(request.model_copy(update=update))
            if handle in answer.handles:
                return answer
        else:
            answer = await self._store(request)
        await self._forget(self.shelf.places.scope_of(name.namespace), (handle,))
        return answer

    def _request(self, mark: Mark, body: MemoryWrite, old: Record | None = None) -> WriteRequest:
        shelf = self.shelf
        others = {name: value for name, value in old.metadata.items() if name != KEY} if old else {}
        return WriteRequest(
            scope=shelf.places.scope_of(mark.namespace),
            source=source_for(body.source, shelf.caller.company_id),
            content=mark.line or body.content,
            binding_key=shelf.key,
            metadata={**others, KEY: mark.as_json()},
            kind=record_kind(body.kind),
            pinned=bool(body.pin),
            created_at=old.created_at if old else None,
            expires_at=body.expires_at,
            embedding=tuple(body.embedding) if body.embedding else None,
        )

    async def _store(self, request: WriteRequest) -> MutationAnswer:
        return await self.shelf.service.write(self.shelf.caller, request)

    async def _note(self, mark: Mark, answer: MutationAnswer) -> None:
        """Keep which record it is, and the mark where the record does not."""
        shelf = self.shelf
        if not answer.handles:
            raise Unavailable("The provider does not say where it stored the memory.", sent=True)
        is_kept = any(mark_of(record) == mark for record in answer.records)
        name = MemoryName(
            memory_id=mark.id,
            record_id=answer.handles[0].provider_record_id,
            namespace=mark.namespace,
            mark=None if is_kept else mark.as_json(),
        )
        await shelf.service.plugin.note(shelf.caller, shelf.key, [name])

    async def forget(self, memory_id: str, requested_by: str) -> None:
        """Delete a memory in the name of its namespace.

        Raises:
            NotFound: there is no such memory.
            Denied: it is another namespace's.
        """
        shelf = self.shelf
        async with self._alone(memory_id), self._turn:
            known = await shelf.held(memory_id)
            if known is None:
                await shelf.look(memory_id, shelf.places.scope_of(requested_by))
                raise NotFound(f"There is no memory {memory_id}.")
            name, record = known
            if name.namespace != requested_by:
                raise Denied(f"The memory {memory_id} is not in {requested_by}.")
            await self._forget(shelf.places.scope_of(requested_by), (record.handle,))

    def _alone(self, memory_id: str) -> asyncio.Lock:
        """Return the lock of one memory: no two calls change it at a time."""
        return self._locks.setdefault(memory_id, asyncio.Lock())

    async def _forget(self, scope: Scope, handles: tuple[RecordHandle, ...]) -> None:
        shelf = self.shelf
        request = ForgetRequest(scope=scope, handles=handles, binding_key=shelf.key)
        answer = await shelf.service.forget(shelf.caller, request)
        if answer.ghosts:
            raise Unavailable(
                "The provider says that the memory is deleted, and still returns it; try again."
            )


def _refuse_lost(can: Capabilities, body: MemoryWrite) -> None:
    if body.pin and not can.pin:
        raise Unsupported("This plugin keeps no pins (capability pin); leave pin out.")
    if body.expires_at and not can.expiry:
        raise Unsupported("This plugin keeps no expiry (capability ttl); leave expires_at out.")


def _clears(new: WriteRequest, old: Record) -> bool:
    """Whether something is taken away, or becomes what a provider may take for not given."""
    return (
        (old.pinned and not new.pinned)
        or (old.expires_at is not None and new.expires_at is None)
        or old.kind != new.kind
    )


def _told(kept: KeptNamespace) -> Namespace:
    return Namespace(
        name=kept.name,
        kind=NamespaceKind(kept.kind),
        expires_at=kept.expires_at,
        metadata=kept.metadata,
        created_at=kept.created_at,
    )
