"""A write of `key: value` whose key exists already changes that fact (seed 002 §6).

So a key has one value in a scope, for every writer and channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Record,
    Scope,
    Unsupported,
    WriteMode,
    WriteRequest,
    owner_scope,
    owner_words,
)
from memtui.fact_values import FACT, FactPair, entry_of, pair_of

if TYPE_CHECKING:
    from memtui.service.connections import Connection
    from memtui.store.visibility import Visibility


async def own_facts(
    connection: Connection, scope: Scope, visibility: Visibility | None = None
) -> list[Record]:
    """Return the facts of a scope's owner; none where the provider cannot list."""
    from memtui.service.context.contexts import own_records

    if not connection.adapter.capabilities.browse:
        return []
    pages = own_records(connection, [owner_scope(scope)], visibility, kind=FACT)
    return [one async for _, records in pages for one in records]


def of_same_key(facts: Iterable[Record], request: WriteRequest) -> list[Record]:
    """Return the facts with the same key as a write, ignoring case.

    Only facts with the topic of the request match, the empty topic meaning none; topic None matches
    any. A text that is not `key: value` has no key.
    """
    pair = pair_of(request.content.strip())
    if pair is None:
        return []
    topic = None if request.topic is None else request.topic.strip().casefold()
    entries = ((one, entry_of(one)) for one in facts)
    return [
        one
        for one, entry in entries
        if entry and entry.key == pair.key.casefold() and topic in {None, entry.namespace}
    ]


def refuse_several(same: Sequence[Record], request: WriteRequest) -> None:
    """Refuse a write whose key has several facts, or one with another id than requested.

    Raises:
        Conflict: the message has the ids of these facts.
    """
    ids = [one.handle.provider_record_id for one in same]
    if not ids or ids == [request.record_id] or (len(ids) == 1 and request.record_id is None):
        return
    key = request.content.partition(":")[0].strip()
    times = "" if len(ids) == 1 else f" {len(ids)} times"
    raise Conflict(
        f"{owner_words(request.scope).capitalize()} has {key} already{times}, as "
        f"{' and '.join(ids)}, so nothing was written; change one of these by its id"
        + ("." if len(ids) == 1 else ", name its heading, or let `memtui facts prune` find them."),
        current=same[0],
        proposed=request.content,
    )


def as_change(
    connection: Connection, request: WriteRequest, old: Record
) -> WriteRequest | CorrectRequest:
    """Return the request that changes the existing fact `old` to the written value.

    The spelling and topic of its key stay, and so does each field that the request does not set.
    A correction loses no field, but only an upserting write can set a validity window.

    Raises:
        Unsupported: the provider cannot change the metadata.
    """
    able, standing = connection.adapter.capabilities, pair_of(old.text)
    key, value = pair_of(request.content.strip()) or FactPair("", "")
    text = f"{standing.key if standing else key}: {value}".rstrip()
    tags = tuple(dict.fromkeys((*old.tags, *request.tags)))
    has_window = request.valid_from is not None or request.valid_to is not None
    if not able.correction or (able.validity and (has_window or request.metadata)):
        update = {
            "content": text,
            "mode": WriteMode.UPSERT,
            "record_id": old.handle.provider_record_id,
            "topic": old.topic,
            "tags": tags,
            "pinned": request.pinned or old.pinned,
            "expires_at": request.expires_at or old.expires_at,
            "created_at": None,
        }
        return request.model_copy(update=update)
    if request.metadata and "metadata" not in connection.adapter.lacks:
        raise Unsupported(
            f"{key} stands in {connection.binding.key} already, as "
            f"{old.handle.provider_record_id}, and its metadata cannot be changed there; leave the "
            "metadata out."
        )
    return CorrectRequest(
        scope=request.scope,
        handle=old.handle,
        binding_key=request.binding_key,
        text=text,
        revision=old.revision,
        pinned=request.pinned or None,
        tags=tags if request.tags else None,
        expires_at=request.expires_at,
        source=request.source,
        created_by=request.created_by,
    )
