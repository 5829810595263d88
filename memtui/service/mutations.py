"""Operations that change records: write, correct, forget, sync.

Each takes the same way: route and authorise, redact, snapshot what is there, write the intent,
call the provider, read back, and log the outcome with every record before and after. Facts have
rules (seed 004 §6.2, §10): one line, short, and few enough to read them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    Json,
    MemtuiError,
    Model,
    NotFound,
    OperationType,
    RecordHandle,
    Scope,
    Snapshot,
    SourceRef,
    SyncReply,
    WriteMode,
    WriteRequest,
    own_filter,
    owned,
    owner_of,
    owner_scope,
)
from memtui.service.answers import MutationAnswer
from memtui.service.connections import Connection
from memtui.service.core import Group, to_its_end
from memtui.service.redaction import redact_json
from memtui.service.visibility import (
    Caller,
    for_caller,
    is_org,
    log_text,
    note_owner,
    without_prefix,
)
from memtui.store.operation import OperationHandle

FACT = "fact"
_LIMITED = ("subject_id", "project_id")
_PAGE = 1_000


class FactLimits(Model):
    """How long a fact may be, and how many a user or project may have; 0 sets no limit."""

    max_chars: int = 200
    max_count: int = 50


def check_text(text: str, limits: FactLimits) -> None:
    """Refuse a text that is no fact.

    Raises:
        Invalid: it has a line break, or is too long.
    """
    if len(text.splitlines()) > 1:
        raise Invalid("A fact is one line; take the line breaks out, or write a note instead.")
    if limits.max_chars and len(text) > limits.max_chars:
        raise Invalid(
            f"A fact has at most {limits.max_chars} characters and this one has {len(text)}; "
            "shorten it, or write a note instead."
        )


async def check_room(connection: Connection, request: WriteRequest, limits: FactLimits) -> None:
    """Refuse a fact more than its scope may hold; one that replaces another needs no room.

    Raises:
        Invalid: the scope is full.
    """
    if not limits.max_count or not connection.adapter.capabilities.browse:
        return
    scope = owner_scope(request.scope)
    if owner_of(scope)[0] not in _LIMITED:
        return
    asked = BrowseRequest(
        scope=scope,
        binding_key=connection.binding.key,
        filter=own_filter(scope, kind=FACT),
        limit=_PAGE,
    )
    page = await connection.read(lambda: connection.adapter.browse(asked))
    records = owned(page.records, scope)
    held = max(len(records), (page.total or 0) if page.next_cursor else 0)
    if held < limits.max_count:
        return
    key = request.content.partition(":")[0]
    replaced = {str(record.metadata.get("key")) for record in records}
    replaced |= {record.handle.provider_record_id for record in records}
    if request.mode is WriteMode.UPSERT and not replaced.isdisjoint({key, request.record_id}):
        return
    raise Invalid(
        f"This scope holds {held:,} facts and may hold "
        f"{limits.max_count}; prune some with `memtui facts prune`, or raise fact_max_count."
    )


_LOGGED_IDS = 1_000


class Mutations(Group):
    """Operations that change records."""

    @to_its_end
    async def write(self, caller: Caller, request: WriteRequest) -> MutationAnswer:
        """Store a record."""
        # In a thread: a megabyte takes a while, and others are served meanwhile.
        clean, labels = await asyncio.to_thread(redact_write, _unwrapped(caller, request))
        asked: Json = {
            "mode": clean.mode,
            "kind": clean.kind,
            "topic": clean.topic,
            "tags": list(clean.tags),
            "record_id": clean.record_id,
            "redacted": list(labels),
        }
        recording = self._core.recorder.recorded(
            OperationType.WRITE, caller, request.scope, _set_only(asked), clean.source
        )
        async with recording as entry, AsyncExitStack() as gate:
            log_text(entry, clean.content, withheld=is_org(request.scope))
            connection = await self._core.connect(entry, request.binding_key)
            routed = clean.model_copy(
                update={
                    "binding_key": connection.binding.key,
                    "created_by": clean.created_by or caller.principal,
                }
            )
            _refuse_empty(routed.content)
            if routed.kind == FACT:
                check_text(routed.content, self._core.fact_limits)
                await gate.enter_async_context(connection.adding_facts())
                await check_room(connection, routed, self._core.fact_limits)
            known = [connection.handle_of(routed.record_id)] if routed.record_id else []
            before = await connection.snapshots(known, request.scope)
            if routed.mode is WriteMode.UPSERT:
                await self._core.may_change(entry, [request.scope, *_scopes(before)])
                note_owner(entry, _scopes(before))
                if any(map(is_org, _scopes(before))):
                    log_text(entry, clean.content, withheld=True)
            await self._core.recorder.begin(entry, before)
            reply = await entry.mutate(connection, lambda: connection.adapter.write(routed))
            entry.usage = reply.usage
            entry.about(reply.records)
            replaced = aligned([*before, *reply.before], reply.records)
            entry.steps = [(snapshot, None) for snapshot in replaced]
            after = await connection.snapshots(reply.records, request.scope)
            entry.steps = list(zip(replaced, after, strict=True))
        return MutationAnswer(
            **entry.answer(),
            handles=reply.records,
            records=for_caller(caller, [step.record for step in after if step.record]),
            redacted=labels,
        )

    @to_its_end
    async def correct(self, caller: Caller, request: CorrectRequest) -> MutationAnswer:
        """Change one record, based on the revision the caller read."""
        if caller.by_ai and request.text is not None:
            request = request.model_copy(update={"text": without_prefix(request.text)})
        clean, labels = await asyncio.to_thread(_redact_correct, request)
        asked: Json = {
            "record_id": clean.handle.provider_record_id,
            "revision": clean.revision,
            "pinned": clean.pinned,
            "topic": clean.topic,
            "tags": list(clean.tags) if clean.tags is not None else None,
            "expires_at": clean.expires_at.isoformat() if clean.expires_at else None,
            "never_expires": clean.never_expires or None,
            "redacted": list(labels),
        }
        recording = self._core.recorder.recorded(
            OperationType.CORRECT, caller, request.scope, _set_only(asked), request.source
        )
        async with recording as entry:
            if clean.text is not None:  # whose memory it is shows only when it is found
                log_text(entry, clean.text, withheld=True)
            connection = await self._core.connect(entry, request.binding_key, needs="correction")
            if clean.text is not None:
                _refuse_empty(clean.text)
            record = await self._core.find(entry, connection, clean.handle)
            note_owner(entry, [record.scope])
            if clean.text is not None:
                log_text(entry, clean.text, withheld=is_org(record.scope))
            if clean.text is not None and record.kind == FACT:
                check_text(clean.text, self._core.fact_limits)
            entry.source = entry.source or record.source
            entry.about([record.handle])
            routed = clean.model_copy(
                update={"binding_key": connection.binding.key, "handle": record.handle}
            )
            await self._core.may_change(entry, [record.scope])
            before = await connection.snapshots([record.handle], request.scope)
            await self._core.recorder.begin(entry, before)
            try:
                reply = await entry.mutate(connection, lambda: connection.adapter.correct(routed))
            except MemtuiError as error:
                if error.moved is not None:
                    entry.links = {record.handle.provider_record_id: error.moved.provider_record_id}
                raise
            entry.usage = reply.usage
            old, new = record.handle, reply.handle
            touched = [old] if old == new else [old, new]
            entry.about(touched)
            if old != new:
                entry.links = {old.provider_record_id: new.provider_record_id}
            replaced = aligned(before, touched)
            entry.steps = [(snapshot, None) for snapshot in replaced]
            after = await connection.snapshots(touched, request.scope)
            entry.steps = list(zip(replaced, after, strict=True))
        return MutationAnswer(
            **entry.answer(),
            handles=(new,),
            records=for_caller(
                caller, [step.record for step in after if step.record and step.handle == new]
            ),
            ghosts=tuple(step.handle for step in after if step.record and step.handle != new),
            redacted=labels,
            linked=entry.links,
        )

    @to_its_end
    async def forget(self, caller: Caller, request: ForgetRequest) -> MutationAnswer:
        """Remove records, and look whether they are gone."""
        handles = tuple(dict.fromkeys(request.handles))
        ids = [handle.provider_record_id for handle in handles]
        asked: Json = {"record_ids": ids[:_LOGGED_IDS], "records": len(ids)}
        recording = self._core.recorder.recorded(
            OperationType.FORGET, caller, request.scope, asked, request.source
        )
        async with recording as entry:
            connection = await self._core.connect(entry, request.binding_key)
            if not ids:
                raise Invalid("Nothing to forget; name at least one record.")
            found = await self._take_moved(connection, handles, request.scope)
            there = list({s.handle: s for s in found.values() if s.record is not None}.values())
            if not there:
                raise NotFound(
                    f"There is no record {ids[0]} in {connection.binding.key} for this scope"
                    + (f", nor any of the {len(ids) - 1} others." if len(ids) > 1 else ".")
                )
            note_owner(entry, _scopes(there))
            await self._core.may_change(entry, _scopes(there))
            entry.source = entry.source or _common_source(there)
            entry.about([snapshot.handle for snapshot in there])
            source, _ = redact_json(request.source and request.source.model_dump(mode="json"))
            routed = request.model_copy(
                update={
                    "binding_key": connection.binding.key,
                    "handles": tuple(snapshot.handle for snapshot in there),
                    "source": source and SourceRef.model_validate(source),
                }
            )
            await self._core.recorder.begin(entry, there)
            reply = await entry.mutate(
                connection, lambda: connection.adapter.forget(routed), records=len(there)
            )
            entry.usage = reply.usage
            after = await connection.snapshots(routed.handles, request.scope)
            ghosts = tuple(step.handle for step in after if step.record is not None)
            entry.handles = _marked(entry.handles, ghosts)
            entry.steps = list(zip(there, after, strict=True))
        return MutationAnswer(
            **entry.answer(),
            handles=routed.handles,
            missing=tuple(handle for handle, snapshot in found.items() if snapshot.record is None),
            ghosts=ghosts,
        )

    @to_its_end
    async def sync(self, caller: Caller, binding_key: str | None = None) -> SyncReply:
        """Let the provider read its outside source again, or rebuild what it derives."""
        scope = Scope(company_id=caller.company_id)
        async with self._core.recorder.recorded(OperationType.SYNC, caller, scope, {}) as entry:
            connection = await self._core.connect(entry, binding_key, needs="sync")
            await self._core.recorder.begin(entry, [])
            reply = await entry.mutate(connection, connection.adapter.sync, records=_SYNC_RECORDS)
            entry.usage, entry.result_count = reply.usage, reply.changed + reply.removed
        return reply

    async def _take_moved(
        self, connection: Connection, handles: Sequence[RecordHandle], scope: Scope
    ) -> dict[RecordHandle, Snapshot]:
        """Return each record as it is now, those under another id that came back under one."""
        found = dict(zip(handles, await connection.snapshots(handles, scope), strict=True))
        gone = [handle for handle, snapshot in found.items() if snapshot.record is None]
        new = await asyncio.to_thread(self._core.moved, connection, gone) if gone else {}
        at = {
            snapshot.handle: snapshot
            for snapshot in await connection.snapshots(list(dict.fromkeys(new.values())), scope)
        }
        return found | {handle: at[moved_to] for handle, moved_to in new.items()}


_SYNC_RECORDS = 10_000
"""A rebuild reads everything, so it gets the timeout of a large bulk call."""


def _unwrapped(caller: Caller, request: WriteRequest) -> WriteRequest:
    if not caller.by_ai:
        return request
    return request.model_copy(update={"content": without_prefix(request.content)})


def redact_write(request: WriteRequest) -> tuple[WriteRequest, tuple[str, ...]]:
    """Take the secrets out of everything that a write carries."""
    free = request.model_dump(
        mode="json", include={"content", "title", "kind", "topic", "tags", "metadata", "source"}
    )
    clean, labels = redact_json(free)
    if not labels:
        return request, ()
    return WriteRequest.model_validate({**dict(request), **clean}), labels


def _redact_correct(request: CorrectRequest) -> tuple[CorrectRequest, tuple[str, ...]]:
    free = request.model_dump(mode="json", include={"text", "topic", "tags", "source"})
    clean, labels = redact_json(free)
    if not labels:
        return request, ()
    return CorrectRequest.model_validate({**dict(request), **clean}), labels


def _refuse_empty(text: str) -> None:
    if not text.strip():
        raise Invalid("A memory needs some text; forget it instead of emptying it.")


def _set_only(asked: Json) -> Json:
    return {name: value for name, value in asked.items() if value not in (None, [], "")}


def aligned(known: Sequence[Snapshot], handles: Sequence[RecordHandle]) -> list[Snapshot]:
    """Return a snapshot a handle; a record that none is known of was not there."""
    by_handle = {snapshot.handle: snapshot for snapshot in known}
    return [by_handle.get(handle, Snapshot(handle=handle, record=None)) for handle in handles]


def _scopes(snapshots: Sequence[Snapshot]) -> list[Scope]:
    return [snapshot.record.scope for snapshot in snapshots if snapshot.record]


def _common_source(snapshots: Sequence[Snapshot]) -> SourceRef | None:
    sources = {snapshot.record.source for snapshot in snapshots if snapshot.record}
    return sources.pop() if len(sources) == 1 else None


def _marked(
    handles: Sequence[OperationHandle], ghosts: Sequence[RecordHandle]
) -> tuple[OperationHandle, ...]:
    ids = {handle.provider_record_id for handle in ghosts}
    return tuple(
        handle.model_copy(update={"ghost": handle.provider_record_id in ids}) for handle in handles
    )
