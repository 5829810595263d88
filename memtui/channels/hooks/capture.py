"""Memories that hooks write automatically: one for each source, updated when it changes.

The binding's switches decide what is captured (seed 000, "Automatic hooks"). Where nothing is
captured, no provider is called, so the operation log gets no row.
"""

import asyncio
from enum import StrEnum

from memtui.channels.agent import Agent
from memtui.channels.hooks.calls import HookCall
from memtui.channels.hooks.transcript import note_of
from memtui.contract import (
    CorrectRequest,
    Filter,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
    SourceKind,
    SourceRef,
    WriteMode,
    WriteRequest,
    owner_scope,
)
from memtui.service import Capture, MutationAnswer, Operation, Resolution
from memtui.service.operations.redaction import redact

_LOOKED_AT = 500
"""Most operations of an issue or a run searched for an earlier capture."""
_NAMED_BY = ("issue_id", "comment_id", "document_key", "run_id")


class CaptureOutcome(StrEnum):
    """What became of a capture."""

    STORED = "stored"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    """It was captured earlier, and cannot or may not be changed."""
    OFF = "off"
    """The binding does not capture it."""
    NOTHING = "nothing"
    """There was nothing worth keeping."""
    PENDING = "pending"
    """It waits for review by a person."""
    LATER = "later"
    """It will be captured once, at the session's end."""
    REMOVED = "removed"
    """The earlier memory was removed, so it is not captured again."""


class Captured(Model):
    """The outcome of a capture, and its place."""

    outcome: CaptureOutcome
    binding_key: str = ""
    operation_id: str | None = None
    record_ids: tuple[str, ...] = ()


async def capture_run(agent: Agent, call: HookCall) -> Captured:
    """Write the note of a run, or update its earlier note."""
    found = await agent.resolve()
    if Capture.POST_RUN not in found.captures:
        return Captured(outcome=CaptureOutcome.OFF, binding_key=found.binding_key)
    note = await asyncio.to_thread(note_of, call)
    if note is None:
        return Captured(outcome=CaptureOutcome.NOTHING, binding_key=found.binding_key)
    if call.ends_later and not await _may_update(agent, found):
        return Captured(outcome=CaptureOutcome.LATER, binding_key=found.binding_key)
    source = agent.source.model_copy(update={"external_ref": note.external_ref})
    return await _keep(agent, found, source, note.text, note.title, tags=("run",))


class IssueText(Model):
    """A comment or a document of an issue, as a hook gets it on stdin."""

    issue_id: str
    comment_id: str | None = None
    document_key: str | None = None
    text: str
    author: str | None = None
    title: str | None = None
    url: str | None = None

    def source(self, company_id: str) -> SourceRef:
        """Return the source of a memory of this text."""
        is_comment = self.comment_id is not None
        return SourceRef(
            kind=SourceKind.ISSUE_COMMENT if is_comment else SourceKind.ISSUE_DOCUMENT,
            company_id=company_id,
            issue_id=self.issue_id,
            comment_id=self.comment_id,
            document_key=self.document_key,
            external_ref=self.url,
        )


async def capture_text(agent: Agent, given: IssueText) -> Captured:
    """Capture a comment or a document of an issue; a repeated call updates the memory."""
    found = await agent.resolve()
    source = given.source(agent.scope.company_id)
    is_comment = source.kind is SourceKind.ISSUE_COMMENT
    wanted = Capture.COMMENTS if is_comment else Capture.DOCUMENTS
    if wanted not in found.captures:
        return Captured(outcome=CaptureOutcome.OFF, binding_key=found.binding_key)
    if not given.text.strip():
        return Captured(outcome=CaptureOutcome.NOTHING, binding_key=found.binding_key)
    what = f"Comment {given.comment_id}" if is_comment else given.document_key
    by = f" by {given.author}" if given.author else ""
    title = given.title or f"{what} on {given.issue_id}{by}"
    return await _keep(agent, found, source, given.text, title, author=given.author)


async def _may_update(agent: Agent, found: Resolution) -> bool:
    """Whether captured memories can be updated; a member may only add to a project."""
    if found.capabilities.provider_managed_extraction:
        return False
    whose = owner_scope(agent.scope)
    allowed = await agent.service.allowed(agent.caller, whose, found.binding_key)
    return OperationType.CORRECT in allowed


async def _keep(
    agent: Agent,
    found: Resolution,
    source: SourceRef,
    text: str,
    title: str,
    *,
    tags: tuple[str, ...] = (),
    author: str | None = None,
) -> Captured:
    earlier = await _earlier(agent, found.binding_key, source)
    if earlier is not None:
        if earlier.request.get("content") == redact(text)[0]:
            return _captured(CaptureOutcome.UNCHANGED, found, earlier)
        if not earlier.handles or not await _may_update(agent, found):
            return _captured(CaptureOutcome.KEPT, found, earlier)
        return await _update(agent, found, earlier, source, text)
    extracts = found.capabilities.provider_managed_extraction
    request = WriteRequest(
        scope=agent.scope.model_copy(update={"issue_id": source.issue_id, "run_id": source.run_id}),
        source=source,
        content=text,
        binding_key=agent.binding_key,
        mode=WriteMode.SUMMARIZE if extracts else WriteMode.APPEND,
        title=title,
        tags=tags,
        metadata={"author": author} if author else {},
    )
    answer = await agent.service.write(agent.caller, request)
    return _captured(CaptureOutcome.STORED, found, answer)


async def _update(
    agent: Agent, found: Resolution, earlier: Operation, source: SourceRef, text: str
) -> Captured:
    [first, *_] = earlier.handles
    request = CorrectRequest(
        scope=agent.scope,
        handle=RecordHandle(
            provider_key=first.provider_key, provider_record_id=first.provider_record_id
        ),
        text=text,
        binding_key=agent.binding_key,
        source=source,
    )
    try:
        answer = await agent.service.correct(agent.caller, request)
    except NotFound:
        return _captured(CaptureOutcome.REMOVED, found, earlier)
    return _captured(CaptureOutcome.UPDATED, found, answer)


async def _earlier(agent: Agent, binding_key: str, source: SourceRef) -> Operation | None:
    """Return the operation that captured the same source last.

    An interrupted one counts if it took effect; if that is unknown, the source is captured again,
    since a duplicate is better than a gap. One that its provider stores later counts meanwhile.
    """
    chosen = Filter(
        issue_id=source.issue_id,
        run_id=source.run_id,
        source_kind=source.kind,
        binding_key=binding_key,
        channel=agent.caller.channel,
    )
    log = agent.service.log
    page = await log.page(agent.caller, chosen, limit=_LOOKED_AT)
    names = [getattr(source, name) for name in _NAMED_BY]
    for one in page.operations:
        is_write = one.operation_type in {OperationType.WRITE, OperationType.CORRECT}
        is_same = one.source and [getattr(one.source, name) for name in _NAMED_BY] == names
        if not (is_write and is_same):
            continue
        if one.status is OperationStatus.OK:
            return one
        if one.status is OperationStatus.UNKNOWN:
            found = await agent.service.check_outcome(agent.caller, one.operation_id)
            is_open = found.happened is None and "event" in one.request
            if found.happened or is_open:
                outcomes = {one.operation_id: found}
                return (await log.with_found(agent.caller, [one], outcomes))[0]
    return None


def _captured(
    outcome: CaptureOutcome, found: Resolution, made: Operation | MutationAnswer
) -> Captured:
    is_held = isinstance(made, MutationAnswer) and made.pending is not None
    return Captured(
        outcome=CaptureOutcome.PENDING if is_held else outcome,
        binding_key=found.binding_key,
        operation_id=made.operation_id,
        record_ids=tuple(one.provider_record_id for one in made.handles),
    )
