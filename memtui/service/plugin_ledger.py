"""What serving a binding as a memory plugin needs beside its provider (seed 001).

Namespaces with their kind, expiry and metadata, for providers that know none, and which record is
meant by which memory's id. Changing a namespace is an operation; the ids follow from operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from memtui.contract import Denied, Json, Model, NotFound, UtcDatetime
from memtui.service.answers import Caller
from memtui.service.core import Group
from memtui.service.recorder import Entry
from memtui.service.redaction import redact_json
from memtui.store import bindings, plugins
from memtui.store.compiled import BindingRow
from memtui.store.connection import Connection
from memtui.store.settings import NAMESPACE
from memtui.store.tables import NamespaceRow, PluginIdRow


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


_Make = Callable[[Connection, NamespaceRow | None], NamespaceRow]
"""Makes a namespace's row from the one there is."""
_NAMED = set(MemoryName.model_fields)


class PluginLedger(Group):
    """Keeps the namespaces and the ids of a company's bindings, by the bindings' keys.

    Every method raises `NotFound` for a binding that is not there, and `Denied` where the company
    has members and the caller is none.
    """

    async def namespaces(self, caller: Caller, key: str) -> list[KeptNamespace]:
        """Return a binding's namespaces, by name. Not an operation."""

        def read() -> list[KeptNamespace]:
            self._core.sight(caller)
            with self._core.database.read() as database:
                of = _of(_binding(database, caller, key))
                return [_kept(row) for row in plugins.namespaces(database, of)]

        return await asyncio.to_thread(read)

    async def named(
        self, caller: Caller, key: str, names: Sequence[str]
    ) -> dict[str, KeptNamespace]:
        """Return those of the named namespaces that there are. Not an operation."""

        def read() -> dict[str, KeptNamespace]:
            self._core.sight(caller)
            with self._core.database.read() as database:
                of = _of(_binding(database, caller, key))
                found = plugins.namespaces_named(database, of, names)
                return {name: _kept(row) for name, row in found.items()}

        return await asyncio.to_thread(read)

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
        asked = {"put_namespace": name, "kind": kind, "binding_key": key}

        def change(database: Connection, known: NamespaceRow | None) -> NamespaceRow:
            row = _binding(database, caller, key)
            return NamespaceRow(
                company_id=row.company_id,
                binding_id=row.binding_id,
                name=name,
                kind=kind,
                expires_at=expires_at,
                attributes=_clean(metadata),
                created_at=known.created_at if known else self._core.clock(),
            )

        async with self._changing(caller, key, asked) as entry:
            return await self._change(entry, key, name, change)

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
        asked = {"patch_namespace": name, "binding_key": key}

        def change(_: Connection, known: NamespaceRow | None) -> NamespaceRow:
            if known is None:
                raise no_namespace(name)
            update: Json = {}
            if expires_at is not None:
                update["expires_at"] = expires_at
            if metadata is not None:
                update["attributes"] = _clean(metadata)
            return NamespaceRow(**{**known.model_dump(), **update})

        async with self._changing(caller, key, asked) as entry:
            return await self._change(entry, key, name, change)

    async def remove(self, caller: Caller, key: str, name: str) -> None:
        """Remove a namespace, after its memories were forgotten. Raises `NotFound`."""
        asked = {"remove_namespace": name, "binding_key": key}

        def change(database: Connection) -> None:
            of = _of(_binding(database, caller, key))
            if not plugins.remove_namespace(database, of, name):
                raise no_namespace(name)

        async with self._changing(caller, key, asked) as entry:
            await self._core.configure(entry, change, (NAMESPACE,))

    async def names(
        self,
        caller: Caller,
        key: str,
        *,
        memory_ids: Sequence[str] = (),
        record_ids: Sequence[str] = (),
    ) -> list[MemoryName]:
        """Return what is known of memories, by their own ids or their records'."""

        def read() -> list[MemoryName]:
            self._core.sight(caller)
            with self._core.database.read() as database:
                of = _of(_binding(database, caller, key))
                found = plugins.known_ids(
                    database, of, memory_ids=memory_ids, record_ids=record_ids
                )
                return [MemoryName.model_validate(row.model_dump(include=_NAMED)) for row in found]

        return await asyncio.to_thread(read)

    async def note(self, caller: Caller, key: str, names: Iterable[MemoryName]) -> None:
        """Keep which records memories' ids stand for, in place of what was known of either."""
        noted = list(names)
        if not noted or self._core.read_only:
            return

        def change(database: Connection) -> None:
            of = _of(_binding(database, caller, key))
            rows = [PluginIdRow(company_id=of[0], binding_id=of[1], **dict(name)) for name in noted]
            plugins.set_ids(database, of, rows)

        def write() -> None:
            self._core.sight(caller)
            # What a power cut takes is noted again when the record is next seen: it has a mark.
            durable = any(name.mark is not None for name in noted)
            with self._core.database.write(durable=durable) as database:
                change(database)

        await asyncio.to_thread(write)

    @asynccontextmanager
    async def _changing(self, caller: Caller, key: str, asked: Json) -> AsyncIterator[Entry]:
        async with self._core.configured(caller, asked) as entry:

            def find() -> BindingRow:
                with self._core.database.read() as database:
                    return _binding(database, caller, key)

            entry.binding = await asyncio.to_thread(find)
            if entry.binding.read_only:
                raise Denied(f"The binding {key} is read-only, and its namespaces with it.")
            yield entry

    async def _change(self, entry: Entry, key: str, name: str, make: _Make) -> KeptNamespace:
        def change(database: Connection) -> NamespaceRow:
            of = _of(_binding(database, entry.caller, key))
            known = plugins.namespaces_named(database, of, [name]).get(name)
            row = make(database, known)
            plugins.set_namespace(database, row)
            return row

        return _kept(await self._core.configure(entry, change, (NAMESPACE,)))


def no_namespace(name: str) -> NotFound:
    """Return the error for a namespace that is not there."""
    return NotFound(f"There is no namespace {name}; create it with PUT first.")


def _binding(database: Connection, caller: Caller, key: str) -> BindingRow:
    found = bindings.binding(database, caller.company_id, key)
    if found is None:
        raise NotFound(f"There is no binding {key} in {caller.company_id}.")
    return found


def _of(row: BindingRow) -> plugins.Binding:
    return row.company_id, row.binding_id


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
