"""Namespaces of providers, and the ledger of bindings served as memory plugins (seed 001).

The ledger has namespaces with kind, expiry and metadata, for providers without them, and maps
memory ids to records. Changes of namespaces are logged as operations, changes of ids are not.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TypeVar

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
    Scope,
    UtcDatetime,
)
from memtui.service.connections import Connection
from memtui.service.operations.memories import Operations
from memtui.service.operations.redaction import redact_json
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, find_binding, refuse_unreviewed, to_its_end
from memtui.service.visibility import Caller
from memtui.store import plugins
from memtui.store.database import DatabaseConnection as Database
from memtui.store.details import BrowseDetails, CommonDetails, SettingDetails
from memtui.store.rows import NamespaceRow, PluginIdRow
from memtui.store.settings import NAMESPACE
from memtui.threads import in_thread

T = TypeVar("T")


class NamespaceDeleted(Model):
    """The result of removing a namespace."""

    name: str
    records: int
    """Number of records that were listed and forgotten."""
    at_least: bool
    """True: it had more records, which were not listed and cannot be restored."""
    forget_operation_id: str | None
    """The operation to undo to restore the listed records; None: there were none."""


class Namespaces(ServiceModule):
    """The namespaces of providers."""

    @asynccontextmanager
    async def _connected(
        self,
        operation_type: OperationType,
        caller: Caller,
        asked: CommonDetails,
        binding_key: str | None,
        needs: str = "namespace_changes",
    ) -> AsyncIterator[tuple[RunningOperation, Connection, tuple[Namespace, ...]]]:
        """Run an operation; also yields the list of the provider's namespaces."""
        scope = Scope(company_id=caller.company_id)
        async with self._runtime.connected(
            operation_type, caller, scope, asked, binding_key, needs=needs
        ) as (entry, connection):
            yield entry, connection, tuple(await connection.read(connection.adapter.namespaces))

    async def all(self, caller: Caller, binding_key: str | None = None) -> tuple[Namespace, ...]:
        """List the namespaces of a provider."""
        async with self._connected(
            OperationType.NAMESPACES, caller, {}, binding_key, "namespaces"
        ) as (entry, _, there):
            entry.result_count = len(there)
        return there

    @to_its_end
    async def put(
        self, caller: Caller, binding_key: str, name: str, *, expires_at: datetime | None = None
    ) -> Namespace:
        """Create a namespace, or set the expiry of an existing one (None: no expiry).

        An existing one keeps its metadata.

        Raises:
            Invalid: the provider does not accept this name.
            Unsupported: the provider cannot create namespaces.
        """
        asked = SettingDetails(
            namespace=name, expires_at=expires_at.isoformat() if expires_at else None
        )
        changing = self._connected(OperationType.CONFIGURE, caller, asked, binding_key)
        async with changing as (entry, connection, there):
            entry.irreversible = (
                f"`memtui bindings namespace put` sets another expiry of {name}, "
                "and `memtui bindings namespace delete` removes it."
            )
            refuse_unreviewed(entry, "makes no namespace, and lets none expire,")
            metadata = next((one.metadata for one in there if one.name == name), {})
            await self._runtime.recorder.begin(entry, [])
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
        """Forget every listed record of a namespace, as one operation, then remove the namespace.

        `unseen`: remove it even if it has more records than can be listed; their removal cannot be
        undone.

        Raises:
            NotFound: there is no such namespace.
            Conflict: it has more records than can be listed, and `unseen` is False.
            Denied: some of its records may not be forgotten; the namespace stays.
        """
        scope = Scope(company_id=caller.company_id)
        listed = BrowseDetails(namespace=name, purpose="delete_namespace")
        listing = self._connected(OperationType.BROWSE, caller, listed, binding_key)
        async with listing as (entry, connection, there):
            refuse_unreviewed(entry, "removes no namespace")
            if name not in {one.name for one in there}:
                raise NotFound(f"{binding_key} has no namespace {name} that memtui knows of.")
            request = BrowseRequest(scope=scope, namespace=name, sort="created_at")
            pages = [page async for page in connection.pages(request, whole=True)]
            records = [record for page in pages for record in page.records]
            entry.result_count, entry.capped = len(records), pages[-1].at_least
        at_least = pages[-1].at_least
        if at_least and not unseen:
            raise Conflict(
                f"{name} holds more than the {len(records):,} records that can be listed, and the "
                "others could not be brought back; nothing was removed."
            )
        forgotten: str | None = None
        if records:
            gone = ForgetRequest.of(records, scope, binding_key)
            answer = await self._runtime.module(Operations).forget(caller, gone)
            forgotten = answer.operation_id
            if answer.refused:
                why = next(iter(answer.refused.values()))
                raise Denied(f"{why} {name} stays; `memtui undo {forgotten}` brings the rest back.")
        asked = SettingDetails(delete_namespace=name, records=len(records), at_least=at_least)
        async with self._runtime.connected(
            OperationType.CONFIGURE, caller, scope, asked, binding_key, needs="namespace_changes"
        ) as (entry, connection):
            entry.irreversible = f"`memtui bindings namespace put` makes {name} again" + (
                f", and then `memtui undo {forgotten}` writes its records." if forgotten else "."
            )
            await self._runtime.recorder.begin(entry, [])
            await entry.mutate(connection, partial(connection.adapter.delete_namespace, name))
            entry.result_count = 1
        return NamespaceDeleted(
            name=name, records=len(records), at_least=at_least, forget_operation_id=forgotten
        )


class KeptNamespace(Model):
    """A namespace in the control plane's ledger."""

    name: str
    kind: str
    expires_at: UtcDatetime | None = None
    """Its memories are not returned from this moment on."""
    metadata: Json | None = None
    created_at: UtcDatetime


class MemoryName(Model):
    """Maps a memory id to its record and namespace."""

    memory_id: str
    record_id: str
    namespace: str
    mark: Json | None = None
    """Metadata of the record, for a provider that cannot store them."""


class PluginLedger(ServiceModule):
    """Stores the namespaces and memory ids of a company's bindings, by binding key.

    Every method raises `NotFound` for an unknown binding, and `Denied` where the company has
    members and the caller is not one.
    """

    @in_thread
    def namespaces(self, caller: Caller, key: str) -> list[KeptNamespace]:
        """Return a binding's namespaces, by name. Not an operation."""
        with self._reading(caller, key) as (database, of):
            return [_kept(row) for row in plugins.namespaces(database, of)]

    @in_thread
    def named(self, caller: Caller, key: str, names: Sequence[str]) -> dict[str, KeptNamespace]:
        """Return those of the named namespaces that exist. Not an operation."""
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
        """Return ledger entries by memory ids or record ids."""
        with self._reading(caller, key) as (database, of):
            found = plugins.known_ids(database, of, memory_ids=memory_ids, record_ids=record_ids)
            return list(map(MemoryName.like, found))

    @contextmanager
    def _reading(self, caller: Caller, key: str) -> Iterator[tuple[Database, plugins.Binding]]:
        self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            row = find_binding(database, caller.company_id, key)
            yield database, (row.company_id, row.binding_id)

    @in_thread
    def note(self, caller: Caller, key: str, names: Iterable[MemoryName]) -> None:
        """Map memory ids to records, replacing earlier entries of either. Nothing if read-only."""
        noted = list(names)
        if not noted or self._runtime.settings.read_only:
            return
        self._runtime.visibility(caller)
        # Entries without a mark need not be durable: the next read of the record rebuilds them.
        durable = any(name.mark is not None for name in noted)
        with self._runtime.database.write(durable=durable) as database:
            row = find_binding(database, caller.company_id, key)
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
        """Create a namespace, or replace all of it but its creation time."""
        whole: Json = {"kind": kind, "expires_at": expires_at, "attributes": _clean(metadata)}

        def change(database: Database, of: plugins.Binding) -> NamespaceRow:
            known = plugins.namespaces_named(database, of, [name]).get(name)
            created_at = known.created_at if known else self._runtime.clock()
            return _set(database, of, {"name": name, "created_at": created_at, **whole})

        asked = SettingDetails(put_namespace=name, kind=kind, binding_key=key)
        return _kept(await self._change(caller, key, asked, change))

    async def patch(
        self,
        caller: Caller,
        key: str,
        name: str,
        *,
        expires_at: UtcDatetime | None = None,
        metadata: Json | None = None,
    ) -> KeptNamespace:
        """Set a namespace's expiry and replace its metadata; None: unchanged. Raises `NotFound`."""
        given = {"expires_at": expires_at, "attributes": _clean(metadata)}

        def change(database: Database, of: plugins.Binding) -> NamespaceRow:
            known = plugins.namespaces_named(database, of, [name]).get(name)
            if known is None:
                raise no_namespace(name)
            update = {field: value for field, value in given.items() if value is not None}
            return _set(database, of, asdict(known) | update)

        asked = SettingDetails(patch_namespace=name, binding_key=key)
        return _kept(await self._change(caller, key, asked, change))

    async def remove(self, caller: Caller, key: str, name: str, scope: Scope) -> None:
        """Remove the namespace of a scope, after its memories were forgotten. Raises `NotFound`."""

        def change(database: Database, of: plugins.Binding) -> None:
            if not plugins.remove_namespace(database, of, name):
                raise no_namespace(name)

        asked = SettingDetails(remove_namespace=name, binding_key=key)
        await self._change(caller, key, asked, change, scope)

    async def _change(
        self,
        caller: Caller,
        key: str,
        asked: CommonDetails,
        change: Callable[[Database, plugins.Binding], T],
        scope: Scope | None = None,
    ) -> T:
        def run(database: Database) -> T:
            row = find_binding(database, caller.company_id, key)
            if row.read_only:
                raise Denied(f"The binding {key} is read-only, and its namespaces with it.")
            return change(database, (row.company_id, row.binding_id))

        return await self._runtime.change(
            caller, asked, run, binding_key=key, kinds=(NAMESPACE,), scope=scope
        )


def no_namespace(name: str) -> NotFound:
    """Return the error for an unknown namespace."""
    return NotFound(f"There is no namespace {name}; create it first.")


def _set(database: Database, of: plugins.Binding, values: Json) -> NamespaceRow:
    row = NamespaceRow(**{**values, "company_id": of[0], "binding_id": of[1]})
    plugins.set_namespace(database, row)
    return row


def _kept(row: NamespaceRow) -> KeptNamespace:
    return KeptNamespace.like(row, metadata=row.attributes)


def _clean(metadata: Json | None) -> Json | None:
    return None if metadata is None else redact_json(metadata)[0]
