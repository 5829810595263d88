"""What writing, correcting and forgetting make of the stand-in's contents: pure functions."""

from __future__ import annotations

import hashlib
from datetime import datetime

from memtui.contract import (
    Conflict,
    CorrectRequest,
    ForgetRequest,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    WriteMode,
    WriteRequest,
)
from memtui.demo.hosted_store import Contents, Held


def sees(scope: Scope, record: Record) -> bool:
    """Whether a record is in scope; who works on a project sees what others wrote there."""
    fields = ["project_id", "subject_id"]
    if record.scope.project_id is None:
        fields.append("agent_id")
    pairs = [(getattr(scope, field), getattr(record.scope, field)) for field in fields]
    return all(asked is None or held is None or asked == held for asked, held in pairs)


def stored(
    contents: Contents, request: WriteRequest, provider_key: str, now: datetime
) -> tuple[Contents, RecordHandle]:
    """Add the record of a write; an upsert of a known id replaces that one."""
    number = contents.stored + 1
    replaced = request.record_id if request.mode is WriteMode.UPSERT else None
    known = replaced is not None and any(
        held.record.handle.provider_record_id == replaced for held in contents.held
    )
    name = replaced if replaced and known else _new_id(number, request.content)
    handle = RecordHandle(provider_key=provider_key, provider_record_id=name)
    record = Record(
        handle=handle,
        text=request.content,
        scope=request.scope,
        source=request.source,
        title=request.title,
        summary=_first_sentence(request),
        kind=request.kind,
        topic=request.topic,
        tags=request.tags,
        created_at=request.created_at or now,
        updated_at=now,
        created_by=request.created_by,
        expires_at=request.expires_at,
        pinned=request.pinned,
        revision=f"r{number}",
        metadata=request.metadata,
    )
    kept = tuple(held for held in contents.held if held.record.handle != handle)
    return Contents(stored=number, held=(*kept, Held(record=record))), handle


def removed(
    contents: Contents, request: ForgetRequest, *, now: datetime, gone_at: datetime | None
) -> tuple[Contents, tuple[RecordHandle, ...]]:
    """Remove records, or let them go at `gone_at`; return the handles that named none.

    Raises:
        Conflict: a record is not at the revision that the caller saw.
    """
    present = {
        held.record.handle: held.record
        for held in contents.held
        if (held.gone_at is None or held.gone_at > now) and sees(request.scope, held.record)
    }
    going = [handle for handle in request.handles if handle in present]
    for handle in going:
        seen = request.revisions.get(handle.provider_record_id)
        _require_revision(present[handle], seen, proposed=None)
    missing = tuple(handle for handle in request.handles if handle not in present)
    held = tuple(
        Held(record=one.record, gone_at=gone_at) if one.record.handle in going else one
        for one in contents.held
        if gone_at is not None or one.record.handle not in going
    )
    return contents.model_copy(update={"held": held}), missing


def corrected(
    contents: Contents, request: CorrectRequest, now: datetime
) -> tuple[Contents, Record]:
    """Change one record and return it.

    Raises:
        NotFound: there is no such record in this scope.
        Conflict: it is not at the revision that the change is based on.
    """
    record = next(
        (
            held.record
            for held in contents.held
            if held.record.handle == request.handle
            and held.gone_at is None
            and sees(request.scope, held.record)
        ),
        None,
    )
    if record is None:
        raise NotFound(f"There is no record {request.handle.provider_record_id} here.")
    _require_revision(record, request.revision, proposed=request.text)
    number = contents.stored + 1
    given = {
        name: value
        for name in ("text", "pinned", "topic", "tags")
        if (value := getattr(request, name)) is not None
    }
    if request.sets_expiry:
        given["expires_at"] = request.expires_at
    changed = record.model_copy(update={**given, "updated_at": now, "revision": f"r{number}"})
    held = tuple(
        Held(record=changed) if one.record.handle == request.handle else one
        for one in contents.held
    )
    return Contents(stored=number, held=held), changed


def _require_revision(record: Record, seen: str | None, *, proposed: str | None) -> None:
    if seen is not None and seen != record.revision:
        raise Conflict(
            f"The record {record.handle.provider_record_id} changed since it was read; "
            "look at both versions and try again.",
            current=record,
            proposed=proposed,
        )


def _new_id(number: int, text: str) -> str:
    return "mem_" + hashlib.sha256(f"{number}\n{text}".encode("utf-8", "replace")).hexdigest()[:16]


def _first_sentence(request: WriteRequest) -> str | None:
    if request.mode is not WriteMode.SUMMARIZE:
        return None
    return request.content.split(". ", 1)[0][:200]
