"""Store a memory: make its body, make its namespace where there is none, see what was kept."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TypeVar

from memtui.contract import (
    Conflict,
    Invalid,
    Json,
    Namespace,
    NotFound,
    RecordHandle,
    Snapshot,
    SourceKind,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteReply,
    WriteRequest,
)

from .details import details_for, foreign, is_ours, propagation
from .lookup import Found, find
from .plugin import Plugin
from .records import Place, handle, split, wire_id
from .scoping import kind_of
from .transport import encoded
from .wire import KINDS, SOURCES

T = TypeVar("T")

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_CONFIRM_SECONDS = 1.0


async def write(plugin: Plugin, request: WriteRequest) -> WriteReply:
    """Store a record under the given id, else under a new UUID of ours.

    An id that stands in a namespace out of reach is replaced unseen; the snapshot says so.

    Raises:
        Conflict: another record has the given id, and the mode is not upsert.
        Unsupported: the plugin keeps no expiry or no pin, and one is asked for.
    """
    refuse_lost(plugin, expires_at=request.expires_at, pinned=request.pinned)
    place, given = _place(plugin, request, await plugin.readable(request.scope))
    found = Found()
    if request.record_id:
        found = await unsent(find(plugin, [place], text=request.content))
        await _refuse_taken(plugin, request, place, found)
    stored = await post(plugin, place[0], _body(plugin, request, place[1], given, found))
    await _prove(plugin, (place[0], stored), request.content)
    abilities = plugin.abilities
    keeps = stored == place[1] and abilities.keeps_details
    written = handle(given if given and keeps else f"{place[0]}/{stored}")
    exact = abilities.keeps_ids and abilities.keeps_details
    before = (snapshot_of(plugin, written, found),) if exact else ()
    return WriteReply(records=(written,), before=before)


def snapshot_of(plugin: Plugin, asked: RecordHandle, found: Found) -> Snapshot:
    """Return a record's state, its row as it came; of one out of reach it says that."""
    if found.row is None:
        return Snapshot(handle=asked, record=None, state={} if found.certain else {"unknown": True})
    record = plugin.reader.record(found.row)
    return Snapshot(handle=asked, record=record, state={"row": json.dumps(found.row.raw)})


def refuse_lost(plugin: Plugin, *, expires_at: datetime | None, pinned: bool | None) -> None:
    """Refuse what the plugin would lose in silence. Raises `Unsupported`."""
    if expires_at is not None and not plugin.abilities.keeps_expiry:
        raise Unsupported("This plugin keeps no expiry (ttl); write the record without one.")
    if pinned and not plugin.abilities.keeps_pin:
        raise Unsupported("This plugin keeps no pins; write the record unpinned.")


async def unsent(call: Awaitable[T]) -> T:
    """Await a read that comes before a change: where it fails, nothing was changed."""
    try:
        return await call
    except Unavailable as error:
        raise Unavailable(str(error)) from error


async def post(plugin: Plugin, namespace: str, body: Json) -> str:
    """Store a body and return the id it is under; a namespace that is not there is made.

    An answer that cannot be read is looked into: the id is ours, so the memory is found by it.

    Raises:
        Invalid: the record holds a NUL, which the reference server's database cannot keep.
        Unavailable: with `sent` where the memory may have been stored.
    """
    if _NUL.search(encoded(body)):
        raise Invalid("A memory plugin cannot keep a NUL character; take it out of the record.")
    plugin.generation += 1
    try:
        stored = await _post_somewhere(plugin, namespace, body)
    except Unavailable as error:
        if not error.sent or not await _is_there(plugin, namespace, body):
            raise
        stored = str(body["id"])
    if "id" in body:
        await plugin.learn(ids=stored == body["id"])
    await asyncio.to_thread(plugin.notebook.note, [(namespace, stored, body["content"])])
    return stored


async def _post_somewhere(plugin: Plugin, namespace: str, body: Json) -> str:
    try:
        return await plugin.client.write(namespace, body)
    except NotFound:
        async with plugin.changing_namespaces:
            return await _post_to_new(plugin, namespace, body)


async def _post_to_new(plugin: Plugin, namespace: str, body: Json) -> str:
    try:
        return await plugin.client.write(namespace, body)  # somebody else may have made it by now
    except NotFound:
        made = await plugin.client.put_namespace(namespace, kind_of(namespace))
    known = Namespace(
        name=namespace, kind=made.kind, expires_at=made.expires_at, metadata=made.metadata
    )
    await asyncio.to_thread(plugin.notebook.meet, [known])
    return await plugin.client.write(namespace, body)


async def _is_there(plugin: Plugin, namespace: str, body: Json) -> bool:
    if "id" not in body:
        return False
    try:
        async with asyncio.timeout(_CONFIRM_SECONDS):
            row = (await find(plugin, [(namespace, body["id"])], text=body["content"])).row
    except (TimeoutError, Unavailable):
        return False
    return row is not None and (row.content, row.pin, row.raw.get("propagation") or {}) == (
        body["content"], body.get("pin", False), body.get("propagation") or {},
    )  # fmt: skip


async def _prove(plugin: Plugin, place: Place, text: str) -> None:
    """See once, on the first write, whether `propagation` comes back."""
    if plugin.abilities.details_seen is None:
        row = (await find(plugin, [place], text=text)).row
        if row is not None:
            await plugin.learn(details=is_ours(row))


def _place(
    plugin: Plugin, request: WriteRequest, readable: Sequence[str]
) -> tuple[Place, str | None]:
    """Return where to store a record, and the caller's own id where it is not the plugin's."""
    given = request.record_id
    named = split(given) if given else None
    if named is not None and named[0] in readable:
        return named, None
    namespace = plugin.namespaces.target(request.scope)
    if not given:
        return (namespace, str(uuid.uuid4())), None
    return (namespace, wire_id(namespace, given)), None if named else given


async def _refuse_taken(plugin: Plugin, request: WriteRequest, place: Place, found: Found) -> None:
    if request.mode is WriteMode.UPSERT:
        taken = None
    else:
        taken = found.row if found.row and found.row.content != request.content else None
    homes = await asyncio.to_thread(plugin.notebook.homes, place[1])
    elsewhere = [(name, place[1]) for name in homes if name != place[0]]
    if taken is None and found.row is None and elsewhere:
        # The same id in another namespace would take the record away from there.
        taken = (await unsent(find(plugin, elsewhere, text=request.content))).row
    if taken is not None:
        raise Conflict(
            f"There is already another record {request.record_id} in {taken.namespace}; "
            "write it with mode upsert in its own scope, or give another id.",
            current=plugin.reader.record(taken),
            proposed=request.content,
        )


def _body(
    plugin: Plugin, request: WriteRequest, identity: str, given: str | None, found: Found
) -> Json:
    abilities = plugin.abilities
    details, others = details_for(
        request,
        given_id=given,
        carry_expiry=not abilities.has("ttl"),
        carry_pin=not abilities.has("pin"),
    )
    body: Json = {
        "id": identity,
        "content": request.content,
        "kind": request.kind if request.kind in KINDS else "fact",
        "source": _source(request),
        "pin": request.pinned,
        "propagation": propagation(details, {**foreign(found.row), **others}),
    }
    if request.expires_at is not None:
        body["expires_at"] = request.expires_at.isoformat()
    if request.embedding and abilities.has("embedding"):
        body["embedding"] = list(request.embedding)
    return body


def _source(request: WriteRequest) -> str:
    """Return the wire's word for who wrote it."""
    author = (request.created_by or "").partition(":")[0]
    if author in SOURCES:
        return author
    if request.source.kind is SourceKind.MANUAL_NOTE:
        return "user"
    return "runtime" if request.source.kind is SourceKind.ACTIVITY else "agent"
