"""A binding that is served as a memory plugin."""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Self
from weakref import WeakValueDictionary

from memtui.channels.http.app import Served
from memtui.channels.http.plugin_records import (
    KEY,
    Mark,
    Places,
    made_id,
    mark_for,
    mark_of,
    marked,
    record_kind,
    source_for,
)
from memtui.channels.http.plugin_wire import (
    MemoryWrite,
    NamespaceBody,
    NamespacePatch,
    NamespacePut,
    PendingBody,
    Written,
)
from memtui.contract import (
    BrowseRequest,
    Capabilities,
    Conflict,
    Denied,
    ForgetRequest,
    Json,
    NotFound,
    Record,
    Scope,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
    own_filter,
)
from memtui.service import BindingView, Caller, MemoryService, MutationAnswer, PendingChange
from memtui.service.operations.namespaces import MemoryName, no_namespace
from memtui.service.visibility import PLUGIN_DOOR

ANONYMOUS = "plugin:anonymous"
_FRESH_SECONDS = 2.0
_AT_ONCE = 8
"""Writes sent to the provider at once; others wait here, where no time-out applies."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class NamedMemory:
    """A record, with its mark: its identity as a memory for the plugin's clients."""

    record: Record
    mark: Mark


class ServedBinding:
    """One binding, with one principal's rights; every call goes through logged operations."""

    def __init__(
        self, service: MemoryService, caller: Caller, binding: BindingView, *, only_facts: bool
    ) -> None:
        self.service = service
        self.caller = caller
        self.key = binding.key
        self.places = Places(caller.company_id, binding, only_facts=only_facts)
        self.keeps_lines = only_facts
        """Whether the provider only stores single lines."""
        self._binding = binding
        self._seen_at = monotonic()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(cls, served: Served, key: str, principal: str) -> Self:
        """Return a binding to serve.

        Raises:
            NotFound: there is no such binding.
            Invalid: the templates of its config are invalid.
            Unsupported: its provider cannot list records, or stores other texts or later.
        """
        caller = Caller(company_id=served.company_id, principal=principal, channel=PLUGIN_DOOR)
        scope = Scope(company_id=served.company_id)
        resolved = await served.service.resolve(caller, scope, key)
        views = await served.service.bindings.all(caller)
        binding = next(view for view in views if view.key == resolved.binding_key)
        can = binding.capabilities
        if not can.browse or can.async_ingestion or can.provider_managed_extraction:
            raise Unsupported(
                f"The provider {binding.provider_key} of {key} cannot be a memory plugin: a plugin "
                "lists its records, and stores each text unchanged and at once."
            )
        provider = await asyncio.to_thread(served.service.bindings.provider, binding.provider_key)
        return cls(served.service, caller, binding, only_facts=provider.only_facts)

    async def binding(self, *, now: bool = False) -> BindingView:
        """Return the binding, cached for a moment unless `now`.

        Raises:
            NotFound: it was removed.
        """
        if not now and monotonic() - self._seen_at < _FRESH_SECONDS:
            return self._binding
        for view in await self.service.bindings.all(self.caller):
            if view.binding_id == self._binding.binding_id:
                self._binding, self._seen_at = view, monotonic()
                return view
        raise NotFound(f"The binding {self.key} was removed; stop this server.")

    async def name(self, records: Sequence[Record], within: Collection[str]) -> list[NamedMemory]:
        """Return the records that are in these namespaces, as memories.

        Their ids are stored, as clients may refer to them later.
        """
        known = await self.service.plugin.names(
            self.caller,
            self.key,
            memory_ids=[mark.id for record in records if (mark := mark_of(record))],
            record_ids=[record.handle.provider_record_id for record in records],
        )
        by_memory = {one.memory_id: one for one in known}
        by_record = {one.record_id: one for one in known}
        named: list[NamedMemory] = []
        notes: list[MemoryName] = []
        for record in records:
            record_id = record.handle.provider_record_id
            noted = by_record.get(record_id)
            mark = mark_of(record, noted.mark if noted else None)
            namespace = self.places.name_of(record.scope, mark.namespace if mark else None)
            if namespace is None or namespace not in within:
                continue
            memory_id = await self._id_of(record, mark, noted, by_memory)
            named.append(NamedMemory(record, marked(record, mark, memory_id, namespace)))
            if noted is None or (noted.memory_id, noted.namespace) != (memory_id, namespace):
                kept = noted.mark if noted else None
                notes.append(
                    MemoryName(
                        memory_id=memory_id, record_id=record_id, namespace=namespace, mark=kept
                    )
                )
        await self.service.plugin.note(self.caller, self.key, notes)
        return named

    async def _id_of(
        self,
        record: Record,
        mark: Mark | None,
        noted: MemoryName | None,
        by_memory: dict[str, MemoryName],
    ) -> str:
        """Return a record's memory id; if another record owns the id in its mark, another one."""
        own = by_memory.get(mark.id) if mark else None
        if mark is not None and (own is None or own.record_id == record.handle.provider_record_id):
            return mark.id
        if noted is not None:
            return noted.memory_id
        if mark is not None and own is not None and await self._read(own) is None:
            return mark.id
        return made_id(self._binding.binding_id, record)

    async def named_record(self, memory_id: str) -> tuple[MemoryName, Record] | None:
        """Return a memory's name and record; None if there is none, or it has expired."""
        known = await self.service.plugin.names(self.caller, self.key, memory_ids=[memory_id])
        record = await self._read(known[0]) if known else None
        return (known[0], record) if record else None

    async def _read(self, known: MemoryName) -> Record | None:
        scope = self.places.scope_of(known.namespace)
        try:
            answer = await self.service.get(
                self.caller, known.record_id, scope, binding_key=self.key
            )
        except NotFound:
            return None
        record = answer.record
        if is_past(record.expires_at) or await self._is_other(record, known.memory_id):
            return None
        return record

    async def _is_other(self, record: Record, memory_id: str) -> bool:
        """Whether another memory's record has replaced a memory's record.

        A copy, whose mark has the id of the original, does not count as another memory.
        """
        mark = mark_of(record)
        if mark is None or mark.id == memory_id:
            return False
        known = await self.service.plugin.names(self.caller, self.key, memory_ids=[mark.id])
        return not known or known[0].record_id == record.handle.provider_record_id

    async def look(self, memory_id: str, scope: Scope) -> None:
        """Read a missing memory, so that a refused call is logged as an operation too."""
        try:
            await self.service.get(self.caller, memory_id, scope, binding_key=self.key)
        except NotFound:
            return

    async def put(self, name: str, body: NamespacePut) -> NamespaceBody:
        """Create or replace a namespace."""
        kept = await self.service.plugin.put(self.caller, self.key, name, **dict(body))
        return NamespaceBody.model_validate(dict(kept))

    async def patch(self, name: str, body: NamespacePatch) -> NamespaceBody:
        """Set the given fields of a namespace."""
        kept = await self.service.plugin.patch(self.caller, self.key, name, **dict(body))
        return NamespaceBody.model_validate(dict(kept))

    async def drop(self, name: str) -> None:
        """Forget every memory of a namespace, and then the namespace.

        Raises:
            Denied: the deletions are pending review, so the namespace stays.
        """
        if name in await self.service.plugin.named(self.caller, self.key, [name]):
            await self._forget_all(name)
        await self.service.plugin.remove(self.caller, self.key, name, self.places.scope_of(name))
        await self._forget_all(name)  # memories written meanwhile

    async def _forget_all(self, name: str) -> None:
        scope = self.places.scope_of(name)
        while records := await self._page_of(name, scope):
            answer = await self._forget(scope, *records)
            if answer.pending is not None:
                raise Denied(f"{answer.pending.sentence} {name} stays with its memories.")

    async def _page_of(self, name: str, scope: Scope) -> Sequence[Record]:
        """Return some of a namespace's records; empty once none is left."""
        request = BrowseRequest(
            scope=scope,
            binding_key=self.key,
            filter=own_filter(scope, kind=None),
            sort="created_at",
            limit=_PAGE,
            owners=(scope,),
            expired=True,
        )
        while True:
            page = await self.service.browse(self.caller, request)
            named = await self.name(page.records, [name])
            records = [one.record for one in named if not one.record.read_only]
            if records or page.next_cursor is None:
                return records
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def write(self, name: str, body: MemoryWrite) -> Written | PendingBody:
        """Store a memory; it replaces the one with its id.

        Raises:
            NotFound: there is no such namespace.
            Unsupported: the memory has a pin or an expiry that the provider does not keep.
        """
        memory_id = body.id or str(uuid.uuid4())
        async with self._alone(memory_id), self._turn:
            if name not in await self.service.plugin.named(self.caller, self.key, [name]):
                await self.look(memory_id, self.places.scope_of(name))
                raise no_namespace(name)
            can = (await self.binding()).capabilities
            _refuse_lost(can, body)
            mark = await asyncio.to_thread(
                mark_for, memory_id, name, body, as_line=self.keeps_lines
            )
            known = await self.named_record(memory_id) if body.id else None
            if known is None:
                answer = await self._add(mark, body, can)
            else:
                answer = await self._replace(mark, body, can, known)
            if answer.pending is not None:
                return _waiting(memory_id, name, answer.pending)
            await self._note(mark, answer)
        return Written(id=memory_id, namespace=name)

    async def _add(self, mark: Mark, body: MemoryWrite, can: Capabilities) -> MutationAnswer:
        """Store a new memory, under its own id if the provider keeps ids."""
        request = self._request(mark, body)
        if not can.keeps_ids:
            return await self.service.write(self.caller, request)
        mode = WriteMode.UPSERT if body.id else WriteMode.APPEND
        try:
            return await self.service.write(
                self.caller, request.model_copy(update={"record_id": mark.id, "mode": mode})
            )
        except Conflict:  # an expired record of another scope has the id
            return await self.service.write(self.caller, request)

    async def _replace(
        self, mark: Mark, body: MemoryWrite, can: Capabilities, known: tuple[MemoryName, Record]
    ) -> MutationAnswer:
        """Replace a memory's record; its creation time stays."""
        name, old = known
        request = self._request(mark, body, old)
        handle = old.handle
        if name.namespace == mark.namespace and (can.keeps_ids or not _clears(request, old)):
            update: Json = {"record_id": handle.provider_record_id, "mode": WriteMode.UPSERT}
            answer = await self.service.write(self.caller, request.model_copy(update=update))
            if handle in answer.handles or answer.pending is not None:
                return answer
        else:
            answer = await self.service.write(self.caller, request)
        if answer.pending is None:
            await self._forget(self.places.scope_of(name.namespace), old)
        return answer

    def _request(self, mark: Mark, body: MemoryWrite, old: Record | None = None) -> WriteRequest:
        others = {name: value for name, value in old.metadata.items() if name != KEY} if old else {}
        return WriteRequest(
            scope=self.places.scope_of(mark.namespace),
            source=source_for(body.source, self.caller.company_id),
            content=mark.line or body.content,
            binding_key=self.key,
            metadata={**others, KEY: mark.as_json()},
            kind=record_kind(body.kind),
            pinned=bool(body.pin),
            created_at=old.created_at if old else None,
            expires_at=body.expires_at,
            embedding=tuple(body.embedding) if body.embedding else None,
        )

    async def _note(self, mark: Mark, answer: MutationAnswer) -> None:
        """Store which record a memory is, and its mark if the record does not contain it."""
        if not answer.handles:
            raise Unavailable("The provider does not say where it stored the memory.", sent=True)
        is_kept = any(mark_of(record) == mark for record in answer.records)
        name = MemoryName(
            memory_id=mark.id,
            record_id=answer.handles[0].provider_record_id,
            namespace=mark.namespace,
            mark=None if is_kept else mark.as_json(),
        )
        await self.service.plugin.note(self.caller, self.key, [name])

    async def forget(self, memory_id: str, requested_by: str) -> PendingBody | None:
        """Delete a memory on behalf of its namespace; None: it is deleted.

        Raises:
            NotFound: there is no such memory.
            Denied: it belongs to another namespace.
        """
        async with self._alone(memory_id), self._turn:
            known = await self.named_record(memory_id)
            if known is None:
                await self.look(memory_id, self.places.scope_of(requested_by))
                raise NotFound(f"There is no memory {memory_id}.")
            name, record = known
            if name.namespace != requested_by:
                raise Denied(f"The memory {memory_id} is not in {requested_by}.")
            scope = self.places.scope_of(requested_by)
            change = (await self._forget(scope, record)).pending
        return _waiting(memory_id, requested_by, change) if change else None

    def _alone(self, memory_id: str) -> asyncio.Lock:
        """Return the lock of one memory, so that only one call at a time changes it."""
        return self._locks.setdefault(memory_id, asyncio.Lock())

    async def _forget(self, scope: Scope, *records: Record) -> MutationAnswer:
        request = ForgetRequest.of(records, scope, self.key)
        answer = await self.service.forget(self.caller, request)
        if answer.ghosts:
            raise Unavailable(
                "The provider says that the memory is deleted, and still returns it; try again."
            )
        return answer


def _waiting(memory_id: str, namespace: str, change: PendingChange) -> PendingBody:
    return PendingBody.like(change, id=memory_id, namespace=namespace, reasons=list(change.reasons))


def _refuse_lost(can: Capabilities, body: MemoryWrite) -> None:
    if body.pin and not can.pin:
        raise Unsupported("This plugin keeps no pins (capability pin); leave pin out.")
    if body.expires_at and not can.expiry:
        raise Unsupported("This plugin keeps no expiry (capability ttl); leave expires_at out.")


def _clears(new: WriteRequest, old: Record) -> bool:
    """Whether a write removes a pin or an expiry, or changes the kind.

    A provider may treat such values as not given and keep the old ones.
    """
    return (
        (old.pinned and not new.pinned)
        or (old.expires_at is not None and new.expires_at is None)
        or old.kind != new.kind
    )


def is_past(moment: datetime | None) -> bool:
    """Whether a moment is over."""
    return moment is not None and moment <= datetime.now(UTC)
