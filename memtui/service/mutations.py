"""Operations that change records: write, correct, forget, sync.

Each takes the same way: route and authorise, redact, snapshot what is there, write the intent,
call the provider, read back, and log the outcome with every record before and after. Facts have
rules (seed 004 §6.2, §10): one line, short, and few enough to read them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

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

ModelT = TypeVar("ModelT", bound=Model)

FACT = "fact"
_LIMITED = ("subject_id", "project_id")
_PAGE = 1_000
_LOGGED_IDS = 1_000
_SYNC_RECORDS = 10_000
"""A rebuild reads everything, so it gets the timeout of a large bulk call."""


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


class Mutations(Group):
    """Operations that change records."""

    @to_its_end
    async def write(self, caller: Caller, request: WriteRequest) -> MutationAnswer:
        """Store a record, its secrets taken out."""
        core, scope = self._core, request.scope
        if caller.by_ai:
            request = request.model_copy(update={"content": without_prefix(request.content)})
        # In a thread: a megabyte takes a while, and others are served meanwhile.
        clean, labels = await asyncio.to_thread(redact_write, request)
        asked = clean.model_dump(
            mode="json", include={"mode", "kind", "topic", "tags", "record_id"}
        )
        recording = core.recorder.recorded(
            OperationType.WRITE, caller, scope, _set_only(asked, labels), clean.source
        )
        async with recording as entry, AsyncExitStack() as gate:
            log_text(entry, clean.content, withheld=is_org(scope))
            connection = await core.connect(entry, request.binding_key)
            author = clean.created_by or caller.principal
            update = {"binding_key": connection.binding.key, "created_by": author}
            routed = clean.model_copy(update=update)
            _refuse_empty(routed.content)
            if routed.kind == FACT:
                check_text(routed.content, core.fact_limits)
                await gate.enter_async_context(connection.adding_facts())
                await check_room(connection, routed, core.fact_limits)
            known = [connection.handle_of(routed.record_id)] if routed.record_id else []
            before = await connection.snapshots(known, scope)
            if routed.mode is WriteMode.UPSERT:
                there = _scopes(before)
                await core.may_change(entry, [scope, *there])
                note_owner(entry, there)
                if any(map(is_org, there)):
                    log_text(entry, clean.content, withheld=True)
            await core.recorder.begin(entry, before)
            reply = await entry.mutate(connection, lambda: connection.adapter.write(routed))
            entry.usage = reply.usage
            after = await entry.read_back(
                connection, [*before, *reply.before], reply.records, scope
            )
        return MutationAnswer(
            **entry.answer(),
            handles=reply.records,
            records=for_caller(caller, [step.record for step in after if step.record]),
            redacted=labels,
        )

    @to_its_end
    async def correct(self, caller: Caller, request: CorrectRequest) -> MutationAnswer:
        """Change one record; raises `Conflict` if it changed since its revision was read."""
        core, scope = self._core, request.scope
        if caller.by_ai and request.text is not None:
            request = request.model_copy(update={"text": without_prefix(request.text)})
        free = {"text", "topic", "tags", "source"}
        clean, labels = await asyncio.to_thread(_redacted, request, free)
        text = clean.text
        asked: Json = {
            "record_id": clean.handle.provider_record_id,
            "revision": clean.revision,
            "pinned": clean.pinned,
            "topic": clean.topic,
            "tags": list(clean.tags) if clean.tags is not None else None,
            "expires_at": clean.expires_at.isoformat() if clean.expires_at else None,
            "never_expires": clean.never_expires or None,
        }
        async with core.recorder.recorded(
            OperationType.CORRECT, caller, scope, _set_only(asked, labels), request.source
        ) as entry:
            if text is not None:  # whose memory it is shows only when it is found
                log_text(entry, text, withheld=True)
            connection = await core.connect(entry, request.binding_key, needs="correction")
            if text is not None:
                _refuse_empty(text)
            record = await core.find(entry, connection, clean.handle)
            note_owner(entry, [record.scope])
            if text is not None:
                log_text(entry, text, withheld=is_org(record.scope))
                if record.kind == FACT:
                    check_text(text, core.fact_limits)
            entry.source = entry.source or record.source
            old = record.handle
            entry.about([old])
            update = {"binding_key": connection.binding.key, "handle": old}
            routed = clean.model_copy(update=update)
            await core.may_change(entry, [record.scope])
            before = await connection.snapshots([old], scope)
            await core.recorder.begin(entry, before)
            try:
                reply = await entry.mutate(connection, lambda: connection.adapter.correct(routed))
            except MemtuiError as error:
                if error.moved is not None:
                    entry.links = {old.provider_record_id: error.moved.provider_record_id}
                raise
            entry.usage, new = reply.usage, reply.handle
            if old != new:
                entry.links = {old.provider_record_id: new.provider_record_id}
            touched = list(dict.fromkeys((old, new)))
            after = await entry.read_back(connection, before, touched, scope)
        there = {step.handle: step.record for step in after if step.record}
        return MutationAnswer(
            **entry.answer(),
            handles=(new,),
            records=for_caller(caller, [there[new]] if new in there else []),
            ghosts=tuple(handle for handle in there if handle != new),
            redacted=labels,
            linked=entry.links,
        )

    @to_its_end
    async def forget(self, caller: Caller, request: ForgetRequest) -> MutationAnswer:
        """Remove records; those that are still found afterwards are named as ghosts."""
        core, scope = self._core, request.scope
        handles = tuple(dict.fromkeys(request.handles))
        ids = [handle.provider_record_id for handle in handles]
        asked: Json = {"record_ids": ids[:_LOGGED_IDS], "records": len(ids)}
        async with core.recorder.recorded(
            OperationType.FORGET, caller, scope, asked, request.source
        ) as entry:
            connection = await core.connect(entry, request.binding_key)
            if not ids:
                raise Invalid("Nothing to forget; name at least one record.")
            found = await self._found(connection, handles, scope)
            there = list({s.handle: s for s in found.values() if s.record is not None}.values())
            if not there:
                raise NotFound(
                    f"There is no record {ids[0]} in {connection.binding.key} for this scope"
                    + (f", nor any of the {len(ids) - 1} others." if len(ids) > 1 else ".")
                )
            note_owner(entry, _scopes(there))
            await core.may_change(entry, _scopes(there))
            sources = {snapshot.record.source for snapshot in there if snapshot.record}
            entry.source = entry.source or (sources.pop() if len(sources) == 1 else None)
            gone = tuple(snapshot.handle for snapshot in there)
            entry.about(gone)
            clean, _ = _redacted(request, {"source"})
            update = {"binding_key": connection.binding.key, "handles": gone}
            routed = clean.model_copy(update=update)
            await core.recorder.begin(entry, there)
            reply = await entry.mutate(
                connection, lambda: connection.adapter.forget(routed), records=len(there)
            )
            entry.usage = reply.usage
            after = await entry.read_back(connection, there, gone, scope)
            ghosts = tuple(step.handle for step in after if step.record is not None)
            still = {handle.provider_record_id for handle in ghosts}
            entry.handles = tuple(
                one.model_copy(update={"ghost": one.provider_record_id in still})
                for one in entry.handles
            )
        return MutationAnswer(
            **entry.answer(),
            handles=gone,
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

    async def _found(
        self, connection: Connection, handles: Sequence[RecordHandle], scope: Scope
    ) -> dict[RecordHandle, Snapshot]:
        """Return each record as it is now, those under another id that came back under one."""
        found = dict(zip(handles, await connection.snapshots(handles, scope), strict=True))
        gone = [handle for handle, snapshot in found.items() if snapshot.record is None]
        new = await asyncio.to_thread(self._core.moved, connection, gone) if gone else {}
        moved = await connection.snapshots(list(dict.fromkeys(new.values())), scope)
        at = {snapshot.handle: snapshot for snapshot in moved}
        return found | {handle: at[moved_to] for handle, moved_to in new.items()}


def redact_write(request: WriteRequest) -> tuple[WriteRequest, tuple[str, ...]]:
    """Take the secrets out of everything that a write carries; also return their labels."""
    free = {"content", "title", "kind", "topic", "tags", "metadata", "source"}
    return _redacted(request, free)


def _redacted(request: ModelT, free: set[str]) -> tuple[ModelT, tuple[str, ...]]:
    """Take the secrets out of those members of a request; also return their labels."""
    clean, labels = redact_json(request.model_dump(mode="json", include=free))
    if not labels:
        return request, ()
    return type(request).model_validate({**dict(request), **clean}), labels


def _refuse_empty(text: str) -> None:
    if not text.strip():
        raise Invalid("A memory needs some text; forget it instead of emptying it.")


def _set_only(asked: Json, labels: Sequence[str]) -> Json:
    asked = {**asked, "redacted": list(labels)}
    return {name: value for name, value in asked.items() if value not in (None, [], "")}


def _scopes(snapshots: Sequence[Snapshot]) -> list[Scope]:
    return [snapshot.record.scope for snapshot in snapshots if snapshot.record]
