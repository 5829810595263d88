"""The binding that is served as a memory plugin, and its records under the contract's names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from memtui.contract import NotFound, Record, Scope, Unsupported
from memtui.doors.http.app import Served
from memtui.doors.http.plugin_marks import Mark, kind_of, made_id, maker_of, mark_of
from memtui.doors.http.plugin_places import Places
from memtui.service import BindingView, Caller, MemoryName, MemoryService

DOOR = "plugin"
ANONYMOUS = "plugin:anonymous"
_FRESH_SECONDS = 2.0
_LINE_KEEPERS = ("facts", "facts-http")


@dataclass(frozen=True, slots=True)
class Named:
    """A record, and the memory that it is to a plugin's clients."""

    record: Record
    mark: Mark


class Shelf:
    """One binding, as one principal may see and change it."""

    def __init__(self, service: MemoryService, caller: Caller, binding: BindingView) -> None:
        self.service = service
        self.caller = caller
        self.key = binding.key
        self.places = Places(caller.company_id, binding)
        self.keeps_lines = binding.provider_key in _LINE_KEEPERS
        """Whether the provider keeps single lines only."""
        self._binding = binding
        self._seen_at = monotonic()

    async def binding(self, *, now: bool = False) -> BindingView:
        """Return the binding as it was a moment ago, or as it is `now`.

        Raises:
            NotFound: it was removed.
        """
        if not now and monotonic() - self._seen_at < _FRESH_SECONDS:
            return self._binding
        for view in await self.service.bindings.all(self.caller):
            if view.binding_id == self._binding.binding_id:
                self._binding, self._seen_at = view, monotonic()
                return view
        raise NotFound(f"There is no binding {self.key} any more; stop this server.")

    async def name(self, records: Sequence[Record], within: Collection[str]) -> list[Named]:
        """Return those of the records that are in some namespaces, as memories.

        What a client has seen it may name later, so the ids are noted.
        """
        known = await self.service.plugin.names(
            self.caller,
            self.key,
            memory_ids=[mark.id for record in records if (mark := mark_of(record))],
            record_ids=[record.handle.provider_record_id for record in records],
        )
        by_memory = {one.memory_id: one for one in known}
        by_record = {one.record_id: one for one in known}
        named: list[Named] = []
        notes: list[MemoryName] = []
        for record in records:
            record_id = record.handle.provider_record_id
            noted = by_record.get(record_id)
            mark = mark_of(record, noted.mark if noted else None)
            namespace = self.places.name_of(record.scope, mark.namespace if mark else None)
            if namespace is None or namespace not in within:
                continue
            memory_id = await self._id_of(record, mark, noted, by_memory)
            named.append(Named(record, _marked(record, mark, memory_id, namespace)))
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
        """Return a record's id; one that another record bears as well is its own no more."""
        own = by_memory.get(mark.id) if mark else None
        if mark is not None and (own is None or own.record_id == record.handle.provider_record_id):
            return mark.id
        if noted is not None:
            return noted.memory_id
        if mark is not None and own is not None and await self._held(own) is None:
            return mark.id
        return made_id(self._binding.binding_id, record)

    async def held(self, memory_id: str) -> tuple[MemoryName, Record] | None:
        """Return a memory's record, None where there is none that is not expired."""
        known = await self.service.plugin.names(self.caller, self.key, memory_ids=[memory_id])
        record = await self._held(known[0]) if known else None
        return (known[0], record) if record else None

    async def _held(self, known: MemoryName) -> Record | None:
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
        """Whether a memory's record has gone, and another memory's is in its place.

        A copy bears the id of the record that it was copied from, and is no other.
        """
        mark = mark_of(record)
        if mark is None or mark.id == memory_id:
            return False
        known = await self.service.plugin.names(self.caller, self.key, memory_ids=[mark.id])
        return not known or known[0].record_id == record.handle.provider_record_id

    async def look(self, memory_id: str, scope: Scope) -> None:
        """Look for a memory that is not there, so that a refused call too is an operation."""
        try:
            await self.service.get(self.caller, memory_id, scope, binding_key=self.key)
        except NotFound:
            return


async def open_shelf(served: Served, key: str, principal: str) -> Shelf:
    """Return a binding to serve.

    Raises:
        NotFound: there is no such binding.
        Invalid: the templates of its config do not fit.
        Unsupported: its provider cannot list what it holds, or stores something else or later.
    """
    caller = Caller(company_id=served.company_id, principal=principal, door=DOOR)
    scope = Scope(company_id=served.company_id)
    resolved = await served.service.resolve(caller, scope, key)
    views = await served.service.bindings.all(caller)
    binding = next(view for view in views if view.key == resolved.binding_key)
    can = binding.capabilities
    if not can.browse or can.async_ingestion or can.provider_managed_extraction:
        raise Unsupported(
            f"The provider {binding.provider_key} of {key} cannot be a memory plugin: a plugin "
            "lists what it holds, and keeps what it is given as it is and at once."
        )
    return Shelf(served.service, caller, binding)


def is_past(moment: datetime | None) -> bool:
    """Whether a moment is over."""
    return moment is not None and moment <= datetime.now(UTC)


def _marked(record: Record, mark: Mark | None, memory_id: str, namespace: str) -> Mark:
    if mark is not None:
        return mark.model_copy(update={"id": memory_id, "namespace": namespace})
    return Mark(id=memory_id, namespace=namespace, kind=kind_of(record), source=maker_of(record))
