"""The partitions of a provider: those there are, making one, its expiry, and removing it."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from memtui.contract import (
    BrowseRequest,
    Conflict,
    ForgetRequest,
    Json,
    Model,
    Namespace,
    NotFound,
    OperationType,
    RecordHandle,
    Scope,
)
from memtui.service.answers import Caller
from memtui.service.core import Core, Group, to_its_end
from memtui.service.mutations import Mutations


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

    def __init__(self, core: Core, memory: Mutations) -> None:
        super().__init__(core)
        self._memory = memory

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
            forgotten = (await self._memory.forget(caller, gone)).operation_id
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
