"""Correct and forget memories.

The wire has no condition on a write: a revision is checked by reading just before, so a change by
another client within those milliseconds is not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from memtui.contract import (
    Conflict,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    NotFound,
    Unavailable,
    Unsupported,
)

from .details import KEY, details_of, foreign, propagation
from .lookup import Found, find, find_all
from .plugin import Plugin, together
from .records import Place, handle, handle_of, places, split
from .wire import Row, moment
from .writing import post, refuse_lost, unsent


async def correct(plugin: Plugin, request: CorrectRequest) -> CorrectReply:
    """Write the row again under its id with every field, and read it back.

    A plugin that keeps no ids gets a new memory, and the old one is forgotten; the reply names the
    new one. An embedding is not returned by the wire, so a correction loses it.

    Raises:
        NotFound: there is no such record, or none within reach.
        Conflict: it changed since its revision was read.
        Unavailable: with `sent` where the plugin did not do what it answered.
    """
    readable = await plugin.readable(request.scope)
    record_id = request.handle.provider_record_id
    async with plugin.changing:
        found = await unsent(find(plugin, places(record_id, readable)))
        if found.row is None:
            raise out_of_reach(record_id, found)
        row = found.row
        if request.revision not in {None, row.revision}:
            raise Conflict(
                "The record changed since you read it; look at both versions.",
                current=plugin.reader.record(row),
                proposed=request.text,
            )
        body = _corrected(plugin, row, request)
        stored = await post(plugin, row.namespace, body)
        place = (row.namespace, stored)
        changed = await _read_back(plugin, place, body)
        if stored != row.id:
            await _drop_old(plugin, row, stored)
    return CorrectReply(handle=handle_of(changed) if changed else handle("/".join(place)))


def out_of_reach(record_id: str, found: Found) -> NotFound:
    """Return the error for a record that is not there, or not to be seen."""
    if found.certain:
        return NotFound(f"There is no record {record_id} in this scope.")
    return NotFound(
        f"The record {record_id} is not among those that the plugin shows; it has no lookup by id, "
        "so query for the record's own words first."
    )


def _corrected(plugin: Plugin, row: Row, request: CorrectRequest) -> Json:
    refuse_lost(plugin, expires_at=request.expires_at, pinned=request.pinned)
    body = resent(row)
    if request.text is not None:
        body["content"] = request.text
    if request.pinned is not None:
        body["pin"] = request.pinned
    if request.expires_at is not None:
        body["expires_at"] = request.expires_at.isoformat()
    elif request.never_expires:
        body.pop("expires_at", None)
    details = details_of(row)
    labels = {
        name: value for name in ("topic", "tags") if (value := getattr(request, name)) is not None
    }
    if labels and not plugin.abilities.keeps_details:
        raise Unsupported("This plugin keeps no topic and no tags; correct the text alone.")
    if details is None:
        if labels:
            raise Invalid(
                f"memtui cannot read the record's own {KEY!r} part, so its topic and tags cannot "
                "be corrected; correct the text alone."
            )
        return body
    update = {
        **labels,
        "updated_at": plugin.now(),
        "created_at": details.created_at or row.created_at,
        **_carried(plugin, request),
    }
    body["propagation"] = propagation(details.model_copy(update=update), foreign(row))
    return body


def _carried(plugin: Plugin, request: CorrectRequest) -> Json:
    carried: Json = {}
    if request.pinned is not None:
        carried["pinned"] = request.pinned and not plugin.abilities.has("pin")
    if request.sets_expiry:
        kept = plugin.abilities.has("ttl")
        carried["expires_at"] = None if kept else request.expires_at
    return carried


def resent(row: Row) -> Json:
    """Return a row as a write that changes nothing: an upsert resets every field left out."""
    body: Json = {
        "id": row.id,
        "content": row.content,
        "kind": row.kind,
        "source": row.source,
        "pin": row.pin,
    }
    for name in ("expires_at", "propagation"):
        if row.raw.get(name):
            body[name] = row.raw[name]
    return body


async def _read_back(plugin: Plugin, place: Place, body: Json) -> Row | None:
    """Return the row as it is now, None where it is out of reach."""
    try:
        found = await find(plugin, [place], text=body["content"])
    except Unavailable as error:
        raise Unavailable(str(error), sent=True) from error
    row = found.row
    if row is None and found.certain and not _ends(plugin, body):
        raise Unavailable(
            "The plugin took the correction, and the record is no longer there; look it up again.",
            sent=True,
        )
    if row is not None and row.content != body["content"]:
        raise Unavailable(
            "The plugin took the correction and still returns the old text; it may lag behind.",
            sent=True,
        )
    return row


def _ends(plugin: Plugin, body: Json) -> bool:
    """Whether what was written is past its time already, so that nothing returns it."""
    ends = moment(body.get("expires_at"))
    return ends is not None and ends <= plugin.now()


async def _drop_old(plugin: Plugin, row: Row, stored: str) -> None:
    """Forget the memory that a correction replaced by a new one."""
    try:
        await plugin.client.forget(row.id, row.namespace)
    except (Unavailable, NotFound, Invalid, Unsupported) as error:
        raise Unavailable(
            f"The corrected record is stored as {row.namespace}/{stored}, but the old one could "
            f"not be removed ({str(error).rstrip('.')}); forget {row.namespace}/{row.id} by hand.",
            sent=True,
        ) from error
    await asyncio.to_thread(plugin.notebook.strike, [(row.namespace, row.id)])


async def forget(plugin: Plugin, request: ForgetRequest) -> ForgetReply:
    """Remove records; one that is out of reach is removed by its namespace and id alone.

    Raises:
        Conflict: a revision is stale; nothing is removed.
        NotFound: a record that must be looked at first is out of reach; nothing is removed.
    """
    readable = await plugin.readable(request.scope)
    ids = [one.provider_record_id for one in request.handles]
    wanted = [places(record_id, readable) for record_id in ids]
    # A plugin with ids of its own may not check the namespace, so its rows are looked at first.
    trusted = plugin.abilities.keeps_ids
    unseen = [
        number
        for number, record_id in enumerate(ids)
        if not trusted or record_id in request.revisions or split(record_id) is None
    ]
    looked = await unsent(find_all(plugin, [wanted[number] for number in unseen]))
    for number, found in zip(unseen, looked, strict=True):
        asked = request.revisions.get(ids[number])
        if found.row is None:
            if not found.certain and (asked is not None or not trusted):
                raise out_of_reach(ids[number], found)
            wanted[number] = [] if found.certain else wanted[number]
            continue
        if asked not in {None, found.row.revision}:
            raise Conflict(
                "The record changed since you read it, so nothing was forgotten.",
                current=plugin.reader.record(found.row),
            )
        wanted[number] = [(found.row.namespace, found.row.id)]
    removed = await remove(plugin, wanted)
    missing = [one for one, done in zip(request.handles, removed, strict=True) if not done]
    return ForgetReply(missing=tuple(missing))


async def remove(plugin: Plugin, wanted: Sequence[Sequence[Place]]) -> list[bool]:
    """Remove the memory at one of the places of each list; False where there was none."""
    plugin.generation += 1
    done = [False] * len(wanted)

    async def one(number: int, candidates: Sequence[Place]) -> None:
        for namespace, identity in candidates:
            if await plugin.client.forget(identity, namespace):
                done[number] = True
                await asyncio.to_thread(plugin.notebook.strike, [(namespace, identity)])
                return

    try:
        await together(partial(one, number, each) for number, each in enumerate(wanted))
    except Unavailable as error:
        if any(done):
            raise Unavailable(
                f"{sum(done)} of {len(done)} records are forgotten, then: {error}", sent=True
            ) from error
        raise
    return done
