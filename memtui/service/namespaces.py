"""The partitions of a provider, and what serving a binding as a memory plugin keeps (seed 001).

That is namespaces with their kind, expiry and metadata, for providers that know none, and which
record is meant by which memory's id. Changing one is an operation; the ids follow from operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial

from memtui.contract import (
    BrowseRequest,
    Conflict,
    Denied,
    ForgetRequest,
    Json,
    Model,
    Namespace,
    NotFound,
    OperationType,
    RecordHandle,
    Scope,
    UtcDatetime,
)
from memtui.service.core import Group, in_thread, to_its_end
from memtui.service.recorder import RunningOperation
from memtui.service.redaction import redact_json
from memtui.service.visibility import Caller
from memtui.store import bindings, plugins
from memtui.store.compiled import BindingRow
from memtui.store.database import Connection
from memtui.store.settings import NAMESPACE
from memtui.store.tables import NamespaceRow, PluginIdRow


class NamespaceDeleted(Model):
    """What removing a namespace took away."""

    name: str
    records: int
    """How many were listed and forgotten."""
    at_least: bool
    """True: there were more, which nobody listed and nobody can bring back."""
    forget_operation_id: str | None
    """Undoing it writes the listed records again; None where there were none."""


class Namespaces(Group):
    """The partitions of providers."""

    async def all(self, caller: Caller, binding_key: str | None = None) -> tuple[Namespace, ...]:
        """List the partitions of a provider."""
        scope = Scope(company_id=caller.company_id)
        recording = self._core.recorder.recorded(OperationType.NAMESPACES, caller, scope, {})
        async with recording as entry:
            connection = await self._core.connect(entry, binding_key, needs="namespaces")
            found = tuple(await connection.read(connection.adapter.namespaces))
            entry.result_count = len(found)
        return found

    @to_its_end
    async def put(
        self, caller: Caller, binding_key: str, name: str, *, expires_at: datetime | None = None
    ) -> Namespace:
        """Make a namespace, or set the expiry of one and keep its metadata; None: no expiry.

        Raises:
            Invalid: the provider takes no namespace of this name.
            Unsupported: it makes none.
        """
        asked: Json = {"namespace": name, "expires_at": expires_at and expires_at.isoformat()}
        scope = Scope(company_id=caller.company_id)
        recording = self._core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked)
        async with recording as entry:
            entry.lasting = (
                f"`memtui bindings namespace put` sets another expiry of {name}, "
                "and `memtui bindings namespace delete` removes it."
            )
            connection = await self._core.connect(entry, binding_key, needs="namespace_changes")
            there = {one.name: one for one in await connection.read(connection.adapter.namespaces)}
            metadata = there[name].metadata if name in there else {}
            await self._core.recorder.begin(entry, [])
            made = await entry.mutate(
                connection,
                partial(
                    connection.adapter.create_namespace,
                    name,
                    expires_at=expires_at,
                    metadata={key: value for key, value in metadata.items() if key != "at_least"},
                ),
            )
            entry.result_count = 1
        return made

    @to_its_end
    async def delete(
        self, caller: Caller, binding_key: str, name: str, *, unseen: bool = False
    ) -> NamespaceDeleted:
        """Forget every record that can be listed, as one operation, then remove the namespace.

        `unseen`: also where it holds more than can be listed, which then cannot be undone.

        Raises:
            NotFound: there is no such namespace.
            Conflict: it holds more than can be listed, and `unseen` is False.
        """
        handles, at_least = await self._held(caller, binding_key, name)
        if at_least and not unseen:
            raise Conflict(
                f"{name} holds more than the {len(handles):,} records that can be listed, and the "
                "others could not be brought back; nothing was removed. Say that they may go too."
            )
        forgotten: str | None = None
        scope = Scope(company_id=caller.company_id)
        if handles:
            gone = ForgetRequest(scope=scope, handles=handles, binding_key=binding_key)
            forgotten = (await self._service.forget(caller, gone)).operation_id
        asked: Json = {"delete_namespace": name, "records": len(handles), "at_least": at_least}
        recording = self._core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked)
        async with recording as entry:
            entry.lasting = f"`memtui bindings namespace put` makes {name} again" + (
                f", and then `memtui undo {forgotten}` writes its records." if forgotten else "."
            )
            connection = await self._core.connect(entry, binding_key, needs="namespace_changes")
            await self._core.recorder.begin(entry, [])
            await entry.mutate(connection, partial(connection.adapter.delete_namespace, name))
            entry.result_count = 1
        return NamespaceDeleted(
            name=name, records=len(handles), at_least=at_least, forget_operation_id=forgotten
        )

    async def _held(
        self, caller: Caller, binding_key: str, name: str
    ) -> tuple[tuple[RecordHandle, ...], bool]:
        """Return the records of a namespace that can be listed, and whether there may be more."""
        scope = Scope(company_id=caller.company_id)
        asked: Json = {"namespace": name, "for": "delete_namespace"}
        recording = self._core.recorder.recorded(OperationType.BROWSE, caller, scope, asked)
        async with recording as entry:
            connection = await self._core.connect(entry, binding_key, needs="namespace_changes")
            there = await connection.read(connection.adapter.namespaces)
            if name not in {one.name for one in there}:
                raise NotFound(f"{binding_key} has no namespace {name} that memtui knows of.")
            request = BrowseRequest(scope=scope, namespace=name, sort="created_at")
            pages = [page async for page in connection.pages(request, whole=True)]
            handles = tuple(record.handle for page in pages for record in page.records)
            entry.result_count, entry.capped = len(handles), pages[-1].at_least
        return handles, pages[-1].at_least


class KeptNamespace(Model):
    """A namespace as the control plane keeps it."""

    name: str
    kind: str
    expires_at: UtcDatetime | None = None
    """From this moment on its memories are not returned."""
    metadata: Json | None = None
    created_at: UtcDatetime


class MemoryName(Model):
    """Which record a memory's id stands for, and the namespace it is in."""

    memory_id: str
    record_id: str
    namespace: str
    mark: Json | None = None
    """What the record's own metadata would hold, where the provider keeps none."""


class PluginLedger(Group):
    """Keeps the namespaces and the ids of a company's bindings, by the bindings' keys.

    Every method raises `NotFound` for a binding that is not there, and `Denied` where the company
    has members and the caller is none.
    """

    @in_thread
    def namespaces(self, caller: Caller, key: str) -> list[KeptNamespace]:
        """Return a binding's namespaces, by name. Not an operation."""
        with self._reading(caller, key) as (database, of):
            return [_kept(row) for row in plugins.namespaces(database, of)]

    @in_thread
    def named(self, caller: Caller, key: str, names: Sequence[str]) -> dict[str, KeptNamespace]:
        """Return those of the named namespaces that there are. Not an operation."""
        with self._reading(caller, key) as (database, of):
            found = plugins.namespaces_named(database, of, names)
            return {name: _kept(row) for name, row in found.items()}

    @in_thread
    def names(
        self,
        caller: Caller,
        key: str,
        *,
        memory_ids: Sequence[str] = (),
        record_ids: Sequence[str] = (),
    ) -> list[MemoryName]:
        """Return what is known of memories, by their own ids or their records'."""
        with self._reading(caller, key) as (database, of):
            found = plugins.known_ids(database, of, memory_ids=memory_ids, record_ids=record_ids)
            named = set(MemoryName.model_fields)
            return [MemoryName.model_validate(row.model_dump(include=named)) for row in found]

    @contextmanager
    def _reading(self, caller: Caller, key: str) -> Iterator[tuple[Connection, plugins.Binding]]:
        self._core.sight(caller)
        with self._core.database.read() as database:
            row = _binding(database, caller, key)
            yield database, (row.company_id, row.binding_id)

    @in_thread
    def note(self, caller: Caller, key: str, names: Iterable[MemoryName]) -> None:
        """Keep which records memories' ids stand for, in place of what was known of either."""
        noted = list(names)
        if not noted or self._core.read_only:
            return
        self._core.sight(caller)
        # What a power cut takes is noted again when the record is next seen: it has a mark.
        durable = any(name.mark is not None for name in noted)
        with self._core.database.write(durable=durable) as database:
            row = _binding(database, caller, key)
            of = row.company_id, row.binding_id
            rows = [PluginIdRow(company_id=of[0], binding_id=of[1], **dict(name)) for name in noted]
            plugins.set_ids(database, of, rows)

    async def put(
        self,
        caller: Caller,
        key: str,
        name: str,
        kind: str,
        *,
        expires_at: UtcDatetime | None = None,
        metadata: Json | None = None,
    ) -> KeptNamespace:
        """Create a namespace, or replace it whole but for the time it was created at."""
        whole: Json = {"kind": kind, "expires_at": expires_at, "attributes": _clean(metadata)}

        def make(known: NamespaceRow | None) -> Json:
            return {"created_at": known.created_at if known else self._core.clock(), **whole}

        asked = {"put_namespace": name, "kind": kind, "binding_key": key}
        return await self._change(caller, key, name, asked, make)

    async def patch(
        self,
        caller: Caller,
        key: str,
        name: str,
        *,
        expires_at: UtcDatetime | None = None,
        metadata: Json | None = None,
    ) -> KeptNamespace:
        """Set a namespace's expiry, or its metadata whole. Raises `NotFound`."""
        given = {"expires_at": expires_at, "attributes": _clean(metadata)}

        def make(known: NamespaceRow | None) -> Json:
            if known is None:
                raise no_namespace(name)
            update = {field: value for field, value in given.items() if value is not None}
            return {**known.model_dump(), **update}

        asked = {"patch_namespace": name, "binding_key": key}
        return await self._change(caller, key, name, asked, make)

    async def remove(self, caller: Caller, key: str, name: str) -> None:
        """Remove a namespace, after its memories were forgotten. Raises `NotFound`."""

        def change(database: Connection) -> None:
            row = _binding(database, caller, key)
            if not plugins.remove_namespace(database, (row.company_id, row.binding_id), name):
                raise no_namespace(name)

        asked = {"remove_namespace": name, "binding_key": key}
        async with self._changing(caller, key, asked) as entry:
            await self._core.configure(entry, change, (NAMESPACE,))

    async def _change(
        self,
        caller: Caller,
        key: str,
        name: str,
        asked: Json,
        make: Callable[[NamespaceRow | None], Json],
    ) -> KeptNamespace:
        """Keep a namespace as `make` says from what is known of it."""

        def change(database: Connection) -> NamespaceRow:
            binding = _binding(database, caller, key)
            of = binding.company_id, binding.binding_id
            known = plugins.namespaces_named(database, of, [name]).get(name)
            place = {"company_id": of[0], "binding_id": of[1], "name": name}
            row = NamespaceRow(**{**make(known), **place})
            plugins.set_namespace(database, row)
            return row

        async with self._changing(caller, key, asked) as entry:
            return _kept(await self._core.configure(entry, change, (NAMESPACE,)))

    @asynccontextmanager
    async def _changing(
        self, caller: Caller, key: str, asked: Json
    ) -> AsyncIterator[RunningOperation]:
        def find() -> BindingRow:
            with self._core.database.read() as database:
                return _binding(database, caller, key)

        async with self._core.configured(caller, asked) as entry:
            entry.binding = await asyncio.to_thread(find)
            if entry.binding.read_only:
                raise Denied(f"The binding {key} is read-only, and its namespaces with it.")
            yield entry


def no_namespace(name: str) -> NotFound:
    """Return the error for a namespace that is not there."""
    return NotFound(f"There is no namespace {name}; create it with PUT first.")


def _binding(database: Connection, caller: Caller, key: str) -> BindingRow:
    found = bindings.binding(database, caller.company_id, key)
    if found is None:
        raise NotFound(f"There is no binding {key} in {caller.company_id}.")
    return found


def _kept(row: NamespaceRow) -> KeptNamespace:
    return KeptNamespace(
        name=row.name,
        kind=row.kind,
        expires_at=row.expires_at,
        metadata=row.attributes,
        created_at=row.created_at,
    )


def _clean(metadata: Json | None) -> Json | None:
    return None if metadata is None else redact_json(metadata)[0]
