"""Stores, corrects, forgets and restores memories.

The contract has no conditional writes: a revision is checked by reading just before, so a change by
another client within those milliseconds goes unnoticed.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Container, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from memtui.contract import (
    Conflict,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    NotFound,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import check_revision, together
from memtui.provider_kit.servers import json_bytes

from .config import kind_of
from .memories import (
    details_for,
    details_of,
    foreign,
    handle,
    handle_of,
    is_ours,
    places,
    propagation,
    split,
    wire_id,
)
from .plugin import Embedded, Lookup, Plugin
from .wire import KINDS, SOURCES, Place, PluginMemory, moment, read_memory

T = TypeVar("T")

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_CONFIRM_SECONDS = 1.0
_FOREIGN_SNAPSHOT = "The snapshot is not of a memory plugin; it cannot be restored."


async def unsent(call: Awaitable[T]) -> T:
    """Await a read before a change; its failure is raised as `Unavailable` with `sent` False."""
    try:
        return await call
    except Unavailable as error:
        raise Unavailable(str(error)) from error


def out_of_reach(record_id: str, found: Lookup) -> NotFound:
    """Return the error for a record that does not exist, or is out of reach."""
    if found.certain:
        return NotFound(f"There is no record {record_id} in this scope.")
    return NotFound(
        f"The record {record_id} is not among those that the plugin shows; it has no lookup by id, "
        "so query for the record's own words first."
    )


def _refuse_lost(plugin: Plugin, *, expires_at: datetime | None, pinned: bool | None) -> None:
    """Raise `Unsupported` for an expiry or a pin that the plugin would silently drop."""
    if expires_at is not None and not plugin.abilities.keeps("ttl"):
        raise Unsupported("This plugin keeps no expiry (ttl); write the record without one.")
    if pinned and not plugin.abilities.keeps("pin"):
        raise Unsupported("This plugin keeps no pins; write the record unpinned.")


# Storing


async def write(plugin: Plugin, request: WriteRequest) -> WriteReply:
    """Store a record under the given id, or else under a new UUID of ours.

    A record of that id that is out of reach is replaced unread; the snapshot says so.

    Raises:
        Conflict: another record has the given id, and the mode is not upsert.
        Unsupported: the request has an expiry or a pin that the plugin does not keep.
    """
    _refuse_lost(plugin, expires_at=request.expires_at, pinned=request.pinned)
    place, given = _place(plugin, request, await plugin.readable(request.scope))
    found = Lookup()
    if request.record_id:
        found = await unsent(plugin.find([place], text=request.content))
        await _refuse_taken(plugin, request, place, found)
    body = _body(plugin, request, place[1], given, found)
    stored, embedded = await _post(plugin, place[0], body)
    if plugin.abilities.details_seen is None:  # the first write shows whether details come back
        back = (await plugin.find([(place[0], stored)], text=request.content)).memory
        if back is not None:
            await plugin.learn("details", seen=is_ours(back))
    keeps = stored == place[1] and plugin.abilities.keeps_details
    written = handle(given if given and keeps else f"{place[0]}/{stored}")
    before = (_snapshot_of(plugin, written, found),) if plugin.abilities.is_exact else ()
    return WriteReply(
        records=(written,), before=before, usage=embedded.usage, lacking=embedded.lacking
    )


def _place(
    plugin: Plugin, request: WriteRequest, readable: Sequence[str]
) -> tuple[Place, str | None]:
    """Return the place of a new record, and the caller's id if it is not the plugin's id."""
    given = request.record_id
    named = split(given) if given else None
    if named is not None and Plugin.is_company_wide(request.scope):
        company_namespace(named[0], readable)
    if named is not None and named[0] in readable:
        return named, None
    namespace = plugin.namespaces.target(request.scope)
    if not given:
        return (namespace, str(uuid.uuid4())), None
    return (namespace, wire_id(namespace, given)), None if named else given


def company_namespace(name: str, known: Container[str]) -> str:
    """Return the namespace that the id of a company's record names.

    Raises:
        Invalid: it is not one that the binding reads, so the record would get lost in another.
    """
    if name not in known:
        raise Invalid(
            f"The record belongs to {name}, which the binding does not name; add it to its "
            "namespaces."
        )
    return name


async def _refuse_taken(plugin: Plugin, request: WriteRequest, place: Place, found: Lookup) -> None:
    taken = None
    if request.mode is not WriteMode.UPSERT and found.memory is not None:
        taken = found.memory if found.memory.content != request.content else None
    homes = await asyncio.to_thread(plugin.cache.homes, place[1])
    elsewhere = [(name, place[1]) for name in homes if name != place[0]]
    if found.memory is None and elsewhere:
        # Writing the same id would move the record here from its other namespace.
        taken = (await unsent(plugin.find(elsewhere, text=request.content))).memory
    if taken is not None:
        raise Conflict(
            f"Another record {request.record_id} exists already; write with mode upsert in that "
            "record's scope, or give another id.",
            current=plugin.record(taken),
            proposed=request.content,
        )


def _body(
    plugin: Plugin, request: WriteRequest, identity: str, given: str | None, found: Lookup
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
        "propagation": propagation(details, {**foreign(found.memory), **others}),
    }
    if request.expires_at is not None:
        body["expires_at"] = request.expires_at.isoformat()
    if request.embedding and abilities.has("embedding"):
        body["embedding"] = list(request.embedding)
    return body


def _source(request: WriteRequest) -> str:
    """Return the contract's `source` value: the kind of author."""
    author = (request.created_by or "").partition(":")[0]
    if author in SOURCES:
        return author
    if request.source is None or request.source.kind is SourceKind.ACTIVITY:
        return "runtime"
    return "user" if request.source.kind is SourceKind.MANUAL_NOTE else "agent"


async def _post(plugin: Plugin, namespace: str, body: Json) -> tuple[str, Embedded]:
    """Store a body with its vector; return its id, and the vector. A missing namespace is created.

    After an unreadable reply, the memory is looked up by its id, which is ours. If the plugin
    refuses the vector, such as one of another length, the memory is stored without one.

    Raises:
        Invalid: the record contains a NUL, which the reference server's database cannot store.
        Unavailable: with `sent` if the memory may have been stored.
    """
    if _NUL.search(json_bytes(body)):
        raise Invalid("A memory plugin cannot store a NUL character; remove it from the record.")
    plugin.generation += 1
    embedded = Embedded() if "embedding" in body else await plugin.embed(body["content"])
    whole = body if embedded.vector is None else {**body, "embedding": embedded.vector}
    try:
        try:
            stored = await _post_somewhere(plugin, namespace, whole)
        except Invalid as refused:
            if embedded.vector is None:
                raise
            stored = await _post_somewhere(plugin, namespace, body)
            size = f"The plugin took no vector of {len(embedded.vector)} numbers ({refused})"
            embedded = Embedded(None, embedded.usage, f"{size}, so the record has none.")
    except Unavailable as error:
        if not error.sent or not await _is_there(plugin, namespace, body):
            raise
        stored = str(body["id"])
    if "id" in body:
        await plugin.learn("ids", seen=stored == body["id"])
    await asyncio.to_thread(plugin.cache.note, [(namespace, stored, body["content"])])
    return stored, embedded


async def _post_somewhere(plugin: Plugin, namespace: str, body: Json) -> str:
    try:
        return await plugin.client.write(namespace, body)
    except NotFound:
        async with plugin.changing_namespaces:
            try:
                # Another client may have created the namespace by now.
                return await plugin.client.write(namespace, body)
            except NotFound:
                made = await plugin.client.put_namespace(namespace, kind_of(namespace))
            known = made.model_copy(update={"name": namespace})
            await asyncio.to_thread(plugin.cache.meet, known)
            return await plugin.client.write(namespace, body)


async def _is_there(plugin: Plugin, namespace: str, body: Json) -> bool:
    if "id" not in body:
        return False
    try:
        async with asyncio.timeout(_CONFIRM_SECONDS):
            found = await plugin.find([(namespace, body["id"])], text=body["content"])
    except (TimeoutError, Unavailable):
        return False
    one = found.memory
    return one is not None and (one.content, one.pin, one.raw.get("propagation") or {}) == (
        body["content"], body.get("pin", False), body.get("propagation") or {},
    )  # fmt: skip


# Correcting


async def correct(plugin: Plugin, request: CorrectRequest) -> CorrectReply:
    """Write the memory again under its id with every field, and read it back.

    In a plugin that keeps no ids, a new memory is stored and the old one forgotten; the reply names
    the new one. A vector that another client gave is lost, as searches do not return it.

    Raises:
        NotFound: there is no such record, or none within reach.
        Conflict: it changed since its revision was read.
        Unavailable: with `sent` if the plugin confirmed the change but did not make it.
    """
    readable = await plugin.readable(request.scope)
    record_id = request.handle.provider_record_id
    async with plugin.changing:
        found = await unsent(plugin.find(places(record_id, readable)))
        if found.memory is None:
            raise out_of_reach(record_id, found)
        old = found.memory
        check_revision(plugin.record(old), request.revision, request.text)
        body = _corrected(plugin, old, request)
        stored, embedded = await _post(plugin, old.namespace, body)
        changed = await _read_back(plugin, (old.namespace, stored), body)
        if stored != old.id:
            await _drop_old(plugin, old, stored)
    new = handle_of(changed) if changed else handle(f"{old.namespace}/{stored}")
    return CorrectReply(handle=new, usage=embedded.usage, lacking=embedded.lacking)


def _corrected(plugin: Plugin, old: PluginMemory, request: CorrectRequest) -> Json:
    _refuse_lost(plugin, expires_at=request.expires_at, pinned=request.pinned)
    body = _resent(old)
    if request.text is not None:
        body["content"] = request.text
    if request.pinned is not None:
        body["pin"] = request.pinned
    if request.expires_at is not None:
        body["expires_at"] = request.expires_at.isoformat()
    elif request.never_expires:
        body.pop("expires_at", None)
    abilities, details = plugin.abilities, details_of(old)
    labels = request.changes("summary", "topic", "tags")
    if labels and not abilities.keeps_details:
        raise Unsupported("This plugin keeps no summary, topic or tags; correct the text alone.")
    update: Json = {
        **labels,
        "updated_at": plugin.now(),
        "created_at": details.created_at or old.created_at,
    }
    if request.pinned is not None:
        update["pinned"] = request.pinned and not abilities.has("pin")
    if request.sets_expiry:
        update["expires_at"] = None if abilities.has("ttl") else request.expires_at
    body["propagation"] = propagation(details.model_copy(update=update), foreign(old))
    return body


def _resent(memory: PluginMemory) -> Json:
    """Return the write that keeps a memory as it is: an upsert resets every field left out."""
    body: Json = {
        "id": memory.id,
        "content": memory.content,
        "kind": memory.kind,
        "source": memory.source,
        "pin": memory.pin,
    }
    for name in ("expires_at", "propagation"):
        if memory.raw.get(name):
            body[name] = memory.raw[name]
    return body


async def _read_back(plugin: Plugin, place: Place, body: Json) -> PluginMemory | None:
    """Return the present memory; None if it is out of reach."""
    try:
        found = await plugin.find([place], text=body["content"])
    except Unavailable as error:
        raise Unavailable(str(error), sent=True) from error
    ends = moment(body.get("expires_at"))
    is_past = ends is not None and ends <= plugin.now()  # then no search returns it
    if found.memory is None and found.certain and not is_past:
        raise Unavailable(
            "The plugin took the correction, and the record is no longer there; look it up again.",
            sent=True,
        )
    if found.memory is not None and found.memory.content != body["content"]:
        raise Unavailable(
            "The plugin took the correction and still returns the old text; it may lag behind.",
            sent=True,
        )
    return found.memory


async def _drop_old(plugin: Plugin, old: PluginMemory, stored: str) -> None:
    """Forget the memory that a correction replaced by a new one."""
    try:
        await plugin.client.forget(old.id, old.namespace)
    except (Unavailable, NotFound, Invalid, Unsupported) as error:
        raise Unavailable(
            f"The corrected record is stored as {old.namespace}/{stored}, but the old one could "
            f"not be removed ({str(error).rstrip('.')}); forget {old.namespace}/{old.id} by hand.",
            sent=True,
        ) from error
    await asyncio.to_thread(plugin.cache.strike, [(old.namespace, old.id)])


# Forgetting


async def forget(plugin: Plugin, request: ForgetRequest) -> ForgetReply:
    """Remove records; one that is out of reach is removed by its namespace and id alone.

    Raises:
        Conflict: a revision is stale; nothing is removed.
        NotFound: a record that must be checked first is out of reach; nothing is removed.
    """
    readable = await plugin.readable(request.scope)
    ids = [one.provider_record_id for one in request.handles]
    wanted = [places(record_id, readable) for record_id in ids]
    # A plugin with ids of its own may ignore the namespace, so its memories are checked first.
    trusted = plugin.abilities.keeps_ids
    unseen = [
        number
        for number, record_id in enumerate(ids)
        if not trusted or record_id in request.revisions or split(record_id) is None
    ]
    looked = await unsent(plugin.find_all([wanted[number] for number in unseen]))
    for number, found in zip(unseen, looked, strict=True):
        asked = request.revisions.get(ids[number])
        if found.memory is None:
            if not found.certain and (asked is not None or not trusted):
                raise out_of_reach(ids[number], found)
            wanted[number] = [] if found.certain else wanted[number]
            continue
        check_revision(plugin.record(found.memory), asked)
        wanted[number] = [(found.memory.namespace, found.memory.id)]
    removed = await _remove(plugin, wanted)
    missing = [one for one, done in zip(request.handles, removed, strict=True) if not done]
    return ForgetReply(missing=tuple(missing))


async def _remove(plugin: Plugin, wanted: Sequence[Sequence[Place]]) -> list[bool]:
    """Remove the memory at one of the places of each list; False if there was none."""
    plugin.generation += 1
    done = [False] * len(wanted)

    async def one(number: int, candidates: Sequence[Place]) -> None:
        for namespace, identity in candidates:
            if await plugin.client.forget(identity, namespace):
                done[number] = True
                await asyncio.to_thread(plugin.cache.strike, [(namespace, identity)])
                return

    try:
        await together(partial(one, number, each) for number, each in enumerate(wanted))
    except Unavailable as error:
        if any(done):
            raise Unavailable(
                f"{sum(done)} of {len(done)} records were forgotten, then it failed: {error}",
                sent=True,
            ) from error
        raise
    return done


# Restoring


async def snapshot(plugin: Plugin, handles: Sequence[RecordHandle], scope: Scope) -> list[Snapshot]:
    """Return each record's memory as the plugin sent it; the state marks one out of reach."""
    readable = await plugin.readable(scope)
    found = await plugin.find_all([places(one.provider_record_id, readable) for one in handles])
    return [_snapshot_of(plugin, one, each) for one, each in zip(handles, found, strict=True)]


def _snapshot_of(plugin: Plugin, asked: RecordHandle, found: Lookup) -> Snapshot:
    if found.memory is None:
        return Snapshot(handle=asked, record=None, state={} if found.certain else {"unknown": True})
    record = plugin.record(found.memory)
    return Snapshot(handle=asked, record=record, state={"row": json.dumps(found.memory.raw)})


async def restore(plugin: Plugin, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
    """Write memories again as they were, and remove those whose snapshot has no record.

    The contract cannot set `created_at`: for a deleted record it is stored in `propagation`, so
    memtui shows the old time and other clients that of the restore.

    Raises:
        Conflict: a snapshot could not tell whether there was a record; nothing is changed.
    """
    readable = await plugin.readable(scope)
    gone: list[list[Place]] = []
    back: list[PluginMemory] = []
    for one, memory in [(one, _kept(one)) for one in snapshots]:
        if memory is not None:
            # A deleted namespace is no longer known; a company-wide restore creates it again.
            if memory.namespace not in readable and not plugin.is_company_wide(scope):
                raise NotFound(f"The namespace {memory.namespace} does not belong to this scope.")
            back.append(memory)
            continue
        if one.state.get("unknown"):
            raise Conflict(
                f"memtui could not see whether a record {one.handle.provider_record_id} existed "
                "before, so it cannot be restored."
            )
        gone.append(places(one.handle.provider_record_id, readable))
    try:
        posted = await together(partial(_post, plugin, one.namespace, _whole(one)) for one in back)
        await _remove(plugin, gone)
    except Unavailable as error:
        raise Unavailable(str(error), sent=True) from error
    return WriteReply(
        records=tuple(
            handle_of(one) if stored == one.id else handle(f"{one.namespace}/{stored}")
            for one, (stored, _) in zip(back, posted, strict=True)
        ),
        usage=tuple(usage for _, embedded in posted for usage in embedded.usage),
        lacking=next((embedded.lacking for _, embedded in posted if embedded.lacking), ""),
    )


def _kept(taken: Snapshot) -> PluginMemory | None:
    """Return the memory of a snapshot. Raises `Invalid` for another provider's snapshot."""
    if taken.record is None:
        return None
    try:
        found = read_memory(json.loads(taken.state["row"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(_FOREIGN_SNAPSHOT) from error
    if found is None:
        raise Invalid(_FOREIGN_SNAPSHOT)
    return found


def _whole(memory: PluginMemory) -> Json:
    body = _resent(memory)
    details = details_of(memory)
    if details.created_at is None and memory.created_at is not None:
        details = details.model_copy(update={"created_at": memory.created_at})
        body["propagation"] = propagation(details, foreign(memory))
    return body
