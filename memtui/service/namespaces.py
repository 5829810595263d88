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
from memtui.service import mutations
from memtui.service.answers import Caller
from memtui.service.connections import Connection
from memtui.service.core import Core

_PAGE = 1000


class NamespaceDeleted(Model):
    """What removing a namespace took away."""

    name: str
    records: int
    """How many were listed and forgotten."""
    at_least: bool
    """True: there were more, which nobody listed and nobody can bring back."""
    forget_operation_id: str | None
    """Undoing it writes the listed records again; None where there were none."""


async def known(core: Core, caller: Caller, binding_key: str | None) -> tuple[Namespace, ...]:
    """List the partitions of a provider."""
    scope = Scope(company_id=caller.company_id)
    async with core.recorder.recorded(OperationType.NAMESPACES, caller, scope, {}) as entry:
        connection = await core.connect(entry, binding_key, needs="namespaces")
        found = tuple(await connection.read(connection.adapter.namespaces))
        entry.result_count = len(found)
    return found


async def put(
    core: Core, caller: Caller, binding_key: str, name: str, expires_at: datetime | None
) -> Namespace:
    """Make a namespace, or set the expiry of one and keep its metadata.

    Raises:
        Invalid: the provider takes no namespace of this name.
        Unsupported: it makes none.
    """
    asked: Json = {"namespace": name, "expires_at": expires_at and expires_at.isoformat()}
    scope = Scope(company_id=caller.company_id)
    async with core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked) as entry:
        entry.lasting = (
            f"`memtui bindings namespace put` sets another expiry of {name}, "
            "and `memtui bindings namespace delete` removes it."
        )
        connection = await core.connect(entry, binding_key, needs="namespace_changes")
        there = {one.name: one for one in await connection.read(connection.adapter.namespaces)}
        metadata = there[name].metadata if name in there else {}
        await core.recorder.begin(entry, [])
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


async def delete(
    core: Core, caller: Caller, binding_key: str, name: str, *, unseen: bool
) -> NamespaceDeleted:
    """Forget every record that can be listed, as one operation, then remove the namespace.

    Raises:
        NotFound: there is no such namespace.
        Conflict: it holds more than can be listed, and `unseen` is False.
    """
    handles, at_least = await _held(core, caller, binding_key, name)
    if at_least and not unseen:
        raise Conflict(
            f"{name} holds more than the {len(handles):,} records that can be listed, and the "
            "others could not be brought back; nothing was removed. Say that they may go too."
        )
    forgotten: str | None = None
    scope = Scope(company_id=caller.company_id)
    if handles:
        gone = ForgetRequest(scope=scope, handles=handles, binding_key=binding_key)
        forgotten = (await mutations.forget(core, caller, gone)).operation_id
    asked: Json = {"delete_namespace": name, "records": len(handles), "at_least": at_least}
    async with core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked) as entry:
        entry.lasting = f"`memtui bindings namespace put` makes {name} again" + (
            f", and then `memtui undo {forgotten}` writes its records." if forgotten else "."
        )
        connection = await core.connect(entry, binding_key, needs="namespace_changes")
        await core.recorder.begin(entry, [])
        await entry.mutate(connection, partial(connection.adapter.delete_namespace, name))
        entry.result_count = 1
    return NamespaceDeleted(
        name=name, records=len(handles), at_least=at_least, forget_operation_id=forgotten
    )


async def _held(
    core: Core, caller: Caller, binding_key: str, name: str
) -> tuple[tuple[RecordHandle, ...], bool]:
    """Return the records of a namespace that can be listed, and whether there may be more."""
    scope = Scope(company_id=caller.company_id)
    asked: Json = {"namespace": name, "for": "delete_namespace"}
    async with core.recorder.recorded(OperationType.BROWSE, caller, scope, asked) as entry:
        connection = await core.connect(entry, binding_key, needs="namespace_changes")
        there = await connection.read(connection.adapter.namespaces)
        if name not in {one.name for one in there}:
            raise NotFound(f"{binding_key} has no namespace {name} that memtui knows of.")
        handles, at_least = await _listed(connection, name)
        entry.result_count, entry.capped = len(handles), at_least
    return handles, at_least


async def _listed(connection: Connection, name: str) -> tuple[tuple[RecordHandle, ...], bool]:
    handles: list[RecordHandle] = []
    cursor: str | None = None
    while True:
        request = BrowseRequest(
            scope=Scope(company_id=connection.binding.company_id),
            binding_key=connection.binding.key,
            namespace=name,
            sort="created_at",
            cursor=cursor,
            limit=_PAGE,
        )
        page = await connection.read(partial(connection.adapter.browse, request))
        while page.unfinished and cursor is None:
            page = await connection.read(partial(connection.adapter.browse, request))
        handles.extend(record.handle for record in page.records)
        if (cursor := page.next_cursor) is None:
            return tuple(handles), page.at_least
