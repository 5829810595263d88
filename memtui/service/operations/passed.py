"""Calls of other memory servers, seen as they pass: logged, and held if a rule matches.

The agent's connection has carried out such an operation, so its outcome is known before it is
logged. memtui cannot undo it, as it did not read the records before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from memtui.context.cost import TokenCounter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    ForgetRequest,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    Usage,
    WriteRequest,
)
from memtui.prices import ModelCall, cost_of
from memtui.service.answers import PendingChange
from memtui.service.connections import Connection
from memtui.service.operations.memories import redact_change
from memtui.service.operations.redaction import redact
from memtui.service.recorder import RunningOperation, log_text
from memtui.service.review.holding import Request, Weighed, let_wait, weigh
from memtui.service.review.save_limits import check_saves
from memtui.service.runtime import ServiceModule, find_binding
from memtui.service.visibility import Caller
from memtui.store.details import CallDetails, Details
from memtui.store.operation import OperationHandle
from memtui.store.rows import BindingRow
from memtui.store.unlogged import UnloggedCalls

CHANNEL = "wrap"
"""The channel of calls that passed."""

_LOGGED_CHARS = 4_000
_KEPT_CHARS = 16_000
_MOST_RECORDS = 1_000
_MOST_ID_CHARS = 1_000
_TOOL_CHARS = 200
_IRREVERSIBLE = (
    "It went from the agent to its own server; memtui saw it pass and had not read what was there "
    "before."
)


class LongText(NamedTuple):
    """A text; only a part of a long one is stored."""

    start: str
    chars: int
    """How many characters the whole has."""

    @classmethod
    def of(cls, text: str) -> LongText:
        """Return the part of a text that its operation needs."""
        return cls(text[:_KEPT_CHARS], len(text))

    def logged(self) -> str:
        """Return its beginning without secrets.

        More than that is masked: the cut may go through a secret.
        """
        return redact(self.start[: _LOGGED_CHARS * 4])[0][:_LOGGED_CHARS]

    def tokens(self, counter: TokenCounter) -> int:
        """Count its tokens; for a part that is not stored they are estimated."""
        counted = counter.tokens(self.start)
        return counted if self.chars <= _KEPT_CHARS else counted * self.chars // _KEPT_CHARS


@dataclass(frozen=True, slots=True)
class PassedCall:
    """A call of a tool that passed, and its answer."""

    operation_type: OperationType
    tool: str
    started_at: datetime
    latency_ms: float
    """Until the answer, or until the connection ended without one."""
    asked: LongText
    """The words that it searches for or writes; else its arguments."""
    arguments: LongText
    """Its arguments, as JSON."""
    returned: LongText
    """The text that the agent got."""
    records: tuple[tuple[str, float | None], ...]
    """The ids of the memories that it names or returned, with scores."""
    status: OperationStatus
    error: str | None
    """Why it failed, in the server's words; None: it did not."""
    hint: bool | None
    """Whether the tool only reads, by the server's word; None: it says nothing."""
    run_id: str | None = None


class WrapTerms(NamedTuple):
    """How calls of a binding's server are taken."""

    has_rules: bool
    """Whether the binding has rules of review."""
    mapping: str | None
    """The name or file of the mapping that the binding is set to; None: it is set to none."""


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call of a tool that changes memories and has not passed yet."""

    operation_type: OperationType
    tool: str
    asked: str
    """As in `PassedCall`, likewise `hint`."""
    hint: bool | None
    changes: tuple[Mapping[str, Any], ...]
    """Each change, by the names of a mapping's values, with the id of its memory under `id`; empty:
    no mapping says what it changes."""
    beyond: str
    """The texts in its arguments that `changes` lacks; they are weighed, and cannot wait."""
    names: Callable[[str], str]
    """Returns what calls name a record by, for its id."""


@dataclass(frozen=True, slots=True)
class WeighedCall:
    """A call that was weighed by the rules."""

    entry: RunningOperation
    pending: tuple[PendingChange, ...] = ()
    """What waits for review instead; empty: the call may pass, and its intent is logged."""


class PassedCalls(ServiceModule):
    """Calls of other memory servers that memtui saw pass."""

    @cached_property
    def _counter(self) -> TokenCounter:
        return TokenCounter(self._runtime.settings.context_model)

    async def terms(self, caller: Caller, key: str) -> WrapTerms:
        """Return how calls of a binding's server are to be taken. Not an operation.

        Raises:
            NotFound: there is no binding of this key.
            Unavailable: the database cannot be read.
        """
        try:
            binding = await self._runtime.ask(find_binding, caller.company_id, key)
        except NotFound as error:
            raise NotFound(
                f"{error} A wrapped server is a binding: `memtui bindings add {key} mcp` adds one, "
                "and `memtui bindings providers mcp` says with which options."
            ) from error
        mapping = binding.config.get("mapping")
        return WrapTerms(bool(binding.review), mapping if isinstance(mapping, str) else None)

    async def log(
        self, caller: Caller, scope: Scope, binding_key: str,
        calls: Sequence[PassedCall | UnloggedCalls],
    ) -> None:  # fmt: skip
        """Log calls that have ended, and that others passed and were not logged; all or none.

        Raises:
            NotFound: there is no such binding.
            Unavailable: they cannot be logged now.
        """
        binding = await self._runtime.ask(find_binding, caller.company_id, binding_key)
        entries = [await asyncio.to_thread(self._entry, caller, scope, binding, one)
                   for one in calls]  # fmt: skip
        await asyncio.to_thread(self._runtime.recorder.log_ended, entries)

    def _gap(
        self, caller: Caller, scope: Scope, binding: BindingRow, gap: UnloggedCalls
    ) -> RunningOperation:
        count = gap.calls
        since, until = (datetime.fromtimestamp(one, UTC) for one in (gap.since, gap.until))
        calls = f"{count:,} call{'s' * (count != 1)}"
        asked = CallDetails(text=f"{calls} not logged", calls=count, since=since.isoformat(),
                            until=until.isoformat())  # fmt: skip
        entry = self._running(OperationType.GAP, caller, scope, since, asked)
        entry.binding, entry.status = binding, OperationStatus.ERROR
        entry.error = NotLogged(
            f"{calls} between {since:%Y-%m-%d %H:%M:%S} and "
            f"{until:%Y-%m-%d %H:%M:%S} UTC were not logged."
        )
        return entry

    @asynccontextmanager
    async def weighed(
        self, caller: Caller, scope: Scope, binding_key: str, call: AskedCall
    ) -> AsyncIterator[WeighedCall]:
        """Weigh each change of a call by the binding's rules, and hold all if one is held.

        A call that may pass is logged at the end, with the outcome that `end` gives it.

        Raises:
            Denied: a rule refuses it, it cannot be held, or the caller may not change memories.
            MemtuiError: the rules, the log or the memories concerned cannot be read.
        """
        runtime = self._runtime
        source = _source(scope.model_copy(update={"run_id": caller.run_id}))
        entries: list[RunningOperation] = []
        async with AsyncExitStack() as stack:
            weighed: list[Weighed] = []
            try:
                weighs = [(call, one) for one in call.changes] or [(call, {"text": call.asked})]
                if call.changes and call.beyond:
                    weighs.append((replace(call, changes=(), asked=call.beyond), {}))
                for part, change in weighs:
                    asked = _details(call.tool, call.hint)
                    entry, connection = await stack.enter_async_context(
                        runtime.connected(
                            call.operation_type, caller, scope, asked, binding_key, source=source
                        )
                    )
                    entries.append(entry)
                    request, there = await self._request(entry, connection, part, change, source)
                    weighed.append(await weigh(runtime, entry, connection, request, there))
                rest = weighed.pop() if len(weighed) > max(1, len(call.changes)) else None
                reasons = list(dict.fromkeys(one for each in weighed for one in each.reasons))
                before = [one for each in weighed for one in each.asked.there]
                is_write = call.operation_type is OperationType.WRITE
                limit = partial(check_saves, runtime.settings) if is_write else None
                unkept = reasons or (rest.reasons if rest else ())
                if not unkept:
                    reasons = unkept = await weighed[0].begin(limit, before)
                if unkept and not (reasons and call.changes):
                    raise Denied(
                        f"{binding_key} holds this change for review ({', '.join(unkept)}), and "
                        f"memtui cannot keep it: no mapping says all that {call.tool} changes. Let "
                        "a person make it; do not try again."
                    )
                if reasons:
                    pending = await asyncio.to_thread(let_wait, weighed, reasons)
                    yield WeighedCall(entries[0], tuple(pending))
                    return
            finally:
                for other in entries[1:]:
                    other.logged = True  # a call is one operation, unless its changes wait
            yield WeighedCall(entries[0])

    async def _request(
        self, entry: RunningOperation, connection: Connection, call: AskedCall,
        change: Mapping[str, Any], source: SourceRef,
    ) -> tuple[Request, Sequence[Snapshot]]:  # fmt: skip
        """Return a change as a request without secrets, and the records that it names."""
        key, scope, does = connection.binding.key, entry.scope, entry.operation_type
        author = entry.caller.author(None)
        named = await self._named(connection, call, change, scope)
        try:
            if does is OperationType.WRITE or not call.changes:
                fields = {"title", "kind", "topic", "tags", "metadata"} & change.keys()
                request: Request = WriteRequest(
                    scope=scope, source=source, binding_key=key, created_by=author,
                    content=change.get("text") or call.asked,
                    **{one: change[one] for one in fields},
                )  # fmt: skip
            elif not named:
                raise Denied(
                    f"memtui weighs this change by the rules of {key}, and finds no memory there "
                    f"that {call.tool} names; look for it first."
                )
            elif does is OperationType.CORRECT:
                fields = {"text", "topic", "tags"} & change.keys()
                request = CorrectRequest(
                    scope=scope, source=source, binding_key=key, created_by=author,
                    handle=named[0].handle, **{one: change[one] for one in fields},
                )  # fmt: skip
            else:
                request = ForgetRequest(
                    scope=scope, source=source, binding_key=key,
                    handles=tuple(one.handle for one in named),
                )  # fmt: skip
        except ValidationError as error:
            raise Denied(
                f"memtui cannot weigh this call by the rules of {key}: the arguments of "
                f"{call.tool} are not those that its mapping expects."
            ) from error
        request, labels = await asyncio.to_thread(redact_change, request)
        if labels:
            entry.request["redacted"] = list(labels)
        text = change.get("text") or call.asked
        log_text(entry, redact(text if isinstance(text, str) else call.asked)[0], withheld=False)
        entry.about([one.handle for one in named])
        return request, named

    async def _named(
        self, connection: Connection, call: AskedCall, change: Mapping[str, Any], scope: Scope
    ) -> list[Snapshot]:
        """Return the records that a change names, as they are now."""
        name = change.get("id")
        if not isinstance(name, str) or not name:
            return []
        found = await self._runtime.found(connection, [connection.handle_of(name)], scope)
        there = [one for one in found.values() if one.record is not None]
        if there or not connection.adapter.capabilities.browse:
            return there
        handles: list[RecordHandle] = []
        async for page in connection.pages(BrowseRequest(scope=scope)):
            handles += [one.handle for one in page.records
                        if call.names(one.handle.provider_record_id) == name]  # fmt: skip
        return list(await connection.snapshots(handles, scope))

    def _running(
        self, does: OperationType, caller: Caller, scope: Scope, at: datetime, asked: CallDetails
    ) -> RunningOperation:
        scope = scope.model_copy(update={"run_id": scope.run_id or caller.run_id})
        return RunningOperation(
            operation_id=self._runtime.new_id(), operation_type=does, caller=caller, scope=scope,
            started_at=at, started=0, request=cast("Details", {**asked}),
        )  # fmt: skip

    def _entry(
        self, caller: Caller, scope: Scope, binding: BindingRow, call: PassedCall | UnloggedCalls
    ) -> RunningOperation:
        """Return a call's operation. It counts tokens, which takes a while for a long text."""
        if isinstance(call, UnloggedCalls):
            return self._gap(caller, scope, binding, call)
        within = scope.model_copy(update={"run_id": call.run_id or caller.run_id})
        asked = _details(call.tool, call.hint)
        entry = self._running(call.operation_type, caller, within, call.started_at, asked)
        entry.binding = binding
        if call.operation_type.mutates:
            entry.source = _source(within)
        self.end(entry, call)
        return entry

    def end(self, entry: RunningOperation, call: PassedCall) -> None:
        """Put a call's outcome into its operation."""
        mutates = call.operation_type.mutates
        if mutates:
            log_text(entry, call.asked.logged(), withheld=False)
            entry.request["content_chars"] = call.asked.chars
        else:
            said = {"query": call.asked.logged(), "text": call.returned.logged()}
            asked = {name: text for name, text in said.items() if text}
            entry.request = cast("Details", {**entry.request, **asked})
        entry.steps = ()
        key = entry.binding.provider_key if entry.binding else ""
        entry.handles = tuple(
            OperationHandle(rank=rank, provider_key=key, provider_record_id=name, score=score)
            for rank, (name, score) in enumerate(call.records[:_MOST_RECORDS], 1)
            if len(name) <= _MOST_ID_CHARS
        )
        entry.result_count = len(call.records)
        entry.status, entry.latency_ms = call.status, call.latency_ms
        if call.error is not None:
            is_unknown = call.status is OperationStatus.UNKNOWN
            entry.error = Unavailable(LongText.of(call.error).logged(), sent=is_unknown)
        if mutates and call.status in {OperationStatus.OK, OperationStatus.UNKNOWN}:
            entry.irreversible = _IRREVERSIBLE
        entry.usage = (self._usage(call, key),)

    def _usage(self, call: PassedCall, provider_key: str) -> Usage:
        """Return what the agent's model wrote and read, at the price of `context_model`."""
        model = self._runtime.settings.context_model
        read, written = (one.tokens(self._counter) for one in (call.returned, call.arguments))
        priced = cost_of(ModelCall(model, None, call.started_at, read, written))
        return Usage(
            provider=provider_key, model=model, input_tokens=read, output_tokens=written,
            cost_usd=priced[1] if priced else None, latency_ms=call.latency_ms,
            details={"counted": self._counter.note},
        )  # fmt: skip


def _source(scope: Scope) -> SourceRef:
    """Return what a write of a run comes from."""
    return SourceRef(kind=SourceKind.RUN, company_id=scope.company_id, run_id=scope.run_id)


def _details(tool: str, hint: bool | None) -> CallDetails:  # noqa: FBT001 - as the server says it
    asked = CallDetails(tool=redact(tool)[0][:_TOOL_CHARS])
    if hint is not None:
        asked["server_says"] = "it only reads" if hint else "it may write"
    return asked


class NotLogged(Unavailable):
    """Calls passed and are not in the log."""
