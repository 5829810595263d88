"""Record every operation: a read once it has ended, a mutation before and after."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from memtui.contract import (
    Conflict,
    Denied,
    Json,
    MemtuiError,
    OperationStatus,
    OperationType,
    Problem,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Snippet,
    SourceRef,
    Unavailable,
    Usage,
)
from memtui.service.answers import BindingOutcome
from memtui.service.connections import Connection
from memtui.service.operations.filling import filled, filled_in, not_kept
from memtui.service.operations.redaction import redact, redact_json
from memtui.service.visibility import Caller, R, agent_of, for_caller, readable
from memtui.store import appending, journal, risks
from memtui.store.appending import Step
from memtui.store.database import Database, DatabaseConnection
from memtui.store.details import CommonDetails, Details
from memtui.store.digest import withhold
from memtui.store.journal import OutcomeFinding
from memtui.store.operation import Absent, OperationDraft, OperationHandle
from memtui.store.rows import BindingRow, IntentRow, SpendingLimitRow
from memtui.store.settings import SettingChange
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    from memtui.service.home.sessions import Sessions

T = TypeVar("T")
Check: TypeAlias = "Callable[[DatabaseConnection, RunningOperation], None]"
"""A check or a change within the transaction that logs an operation."""

_logger = logging.getLogger(__name__)
_UNKNOWN = OperationStatus.UNKNOWN
_DERIVING = frozenset({OperationType.SYNC, OperationType.EMBED})
"""Types that only rebuild derived data, so that there is nothing to undo."""
_NONE: Mapping[Any, Any] = MappingProxyType({})
_STOPPED = (asyncio.CancelledError, KeyboardInterrupt)
_SETTLING = frozenset({OperationType.CHECK, OperationType.FEEDBACK, OperationType.SEAL})
"""Types that change no memory, and are still refused in the past."""
_UNSEEN = "Its provider did not say which records it changed."
_FOREIGN_INTENT_AGE = timedelta(minutes=15)
"""An intent of another machine this old counts as orphaned; if it still ends, both are logged."""

CONTENT = "request.content"
"""Path of the written text in the log."""
_LOGGED_CHARS = 2_000


@dataclass(eq=False, slots=True)
class FanOut:
    """Several operations on as many bindings at once, for one answer."""

    together: str
    """An id that the requests of all these operations share in the log."""
    within_ms: int
    seen_only: bool = False
    """Answer a query of the whole company with the visible records instead of refusing it."""
    first: str | None = None
    """The one that was logged first."""
    logging: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while one of them is logged, so that only one is the first."""


@dataclass(slots=True)
class RunningOperation:
    """A running operation; its attributes get logged."""

    operation_id: str
    operation_type: OperationType
    caller: Caller
    scope: Scope
    started_at: datetime
    started: float
    request: Details = field(default_factory=Details)
    source: SourceRef | None = None
    source_is_inferred: bool = False
    binding: BindingRow | None = None
    binding_reason: str | None = None
    visibility: Visibility | None = None
    """The caller's visibility; None: the company has no members, and everybody sees everything.

    What reaches a model has none of the records that are held for review."""
    seen_only: bool = False
    """Company-wide, it answers with the visible records instead of being refused."""
    to_show: bool = False
    """It reads for another operation's answer; the log hides it as memtui's own unless it fails."""
    unchecked_limits: Sequence[SpendingLimitRow] = ()
    """The company's spending limits that do more than warn, less those checked for it."""
    no_search: str = ""
    """Why nothing is searched for it: a sentence about a passed limit; empty: it may be."""
    fan_out: FanOut | None = None
    """None: it is not one of several at once."""
    limit: asyncio.Timeout | None = None
    """The time-out of a fan-out; None: not part of one."""
    status: OperationStatus = OperationStatus.OK
    error: BaseException | None = None
    result_count: int = 0
    capped: bool = False
    handles: tuple[OperationHandle, ...] = ()
    usage: tuple[Usage, ...] = ()
    latency_ms: float = 0
    problems: tuple[Problem, ...] = ()
    """The items that it could not read."""
    not_kept: tuple[str, ...] = ()
    filled_in: tuple[str, ...] = ()
    undoes: str | None = None
    part_of: str | None = None
    absent: dict[str, Absent] = field(default_factory=dict)
    """Commitments of the values that are withheld from the log, by path; `salts`: their salts."""
    salts: dict[str, str] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    """Each record before and after a mutation; the second is None until read back."""
    settings: Sequence[SettingChange] = ()
    """The settings of the company that it changed."""
    at_end: Check | None = None
    """Runs in the transaction that logs its end, also where it failed."""
    finding: OutcomeFinding | None = None
    """The result of checking an operation of unknown outcome."""
    irreversible: str | None = None
    """Why its change cannot be undone; None: it can."""
    links: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    """Its intent may be in the database."""
    under_way: bool = False
    """Its intent is in the database, so it may have changed something by now."""
    changed: bool = False
    """The provider's call returned, so something may have changed."""
    logged: bool = False

    @property
    def why_irreversible(self) -> str | None:
        """Why a change without journaled steps cannot be undone; None: nothing to undo."""
        if self.operation_type in _DERIVING:
            return None
        return self.irreversible or (_UNSEEN if self.changed or self.status is _UNKNOWN else None)

    @property
    def is_for_model(self) -> bool:
        """Whether its answer reaches a model: no person calls, or a context is delivered."""
        return self.caller.asks_for_model or bool(self.request.get("delivered"))

    @property
    def has_held(self) -> bool:
        """Whether records of its binding are held for review, and hidden from it."""
        key = self.binding.key if self.binding else ""
        return self.visibility is not None and self.visibility.holds_in(key)

    def refuse_held(self, before: Iterable[Snapshot]) -> None:
        """Raise `Denied` where it would change a record that is held for review."""
        key = self.binding.key if self.binding else ""
        for one in before:
            record_id, text = one.handle.provider_record_id, one.record.text if one.record else ""
            if self.visibility is not None and self.visibility.hides((key, record_id), text):
                raise Denied(
                    f"{record_id} is held for review, and no agent changes it until a person has "
                    "decided; do not try again."
                )

    @property
    def agent_id(self) -> str | None:
        """The agent that calls, or that asked for the change that a person decides on."""
        return self.caller.agent_id or agent_of(self.request.get("author"))

    def may_search(self) -> bool:
        """Whether it may search; logs why not."""
        if self.no_search:
            self.request["no_search"] = self.no_search
        return not self.no_search

    def lacks(self, sentence: str) -> None:
        """Log what a stored record lacks, such as a vector; an empty sentence: nothing."""
        if sentence:
            self.request["lacking"] = sentence

    def take_source(self, source: SourceRef | None) -> None:
        """Take the source of the memory concerned, unless the caller named one."""
        if self.source is None and source is not None:
            self.source, self.source_is_inferred = source, True

    def about(self, records: Sequence[Record | RecordHandle]) -> None:
        """Set the records concerned, ranked from 1 in order."""
        found = []
        for rank, item in enumerate(records, start=1):
            handle = item if isinstance(item, RecordHandle) else item.handle
            score = item.score if isinstance(item, Snippet) else None
            if score is not None and not math.isfinite(score):
                score = None  # databases cannot store it, and the digest covers the stored values
            found.append(
                OperationHandle(
                    rank=rank, provider_key=handle.provider_key,
                    provider_record_id=handle.provider_record_id, score=score,
                )
            )  # fmt: skip
        self.handles, self.result_count = tuple(found), len(found)

    def answer(self) -> Json:
        """Return the members that every answer has about its operation."""
        return {
            "operation_id": self.operation_id,
            "binding_key": self.binding.key if self.binding else "",
            "binding_reason": self.binding_reason or "",
            "usage": self.usage,
            "latency_ms": self.latency_ms,
            "problems": self.problems,
            "as_of": self.caller.as_of,
        }

    def outcome(self, *, capped: bool = False, unread: tuple[str, ...] = ()) -> Json:
        """Return the fields of `OutcomesAnswer` for an operation that has ended."""
        assert self.binding is not None  # noqa: S101 - it was routed to one
        only = BindingOutcome(
            binding_key=self.binding.key,
            provider_key=self.binding.provider_key,
            binding_reason=self.binding_reason or "",
            status="ok",
            operation_ids=(self.operation_id,),
            found=self.result_count,
            capped=capped,
            latency_ms=self.latency_ms,
            usage=self.usage,
            problems=self.problems,
            unread=unread,
        )
        return {"bindings": (only,), "latency_ms": self.latency_ms, "as_of": self.caller.as_of}

    async def mutate(
        self, connection: Connection, call: Callable[[], Awaitable[T]], *, records: int = 1
    ) -> T:
        """Make the provider's mutating call, and note that it returned."""
        reply = await connection.mutate(call, records=records)
        self.changed = True
        return reply

    async def read_back(
        self,
        connection: Connection,
        known: Sequence[Snapshot],
        handles: Sequence[RecordHandle],
        scope: Scope,
        *,
        given: Mapping[RecordHandle, Mapping[str, Any]] = _NONE,
        asked: Mapping[str, Any] = _NONE,
    ) -> Sequence[Snapshot]:
        """Read records after a change, and set `steps` to each before and after.

        Records missing from `known` did not exist before. `given`: fields by name of each record,
        for a provider that cannot store them; `asked`: the fields that the request sets.
        """
        self.about(handles)
        by_handle = {snapshot.handle: snapshot for snapshot in known}
        before = [by_handle.get(one, Snapshot(handle=one, record=None)) for one in handles]
        self.steps = [(snapshot, None) for snapshot in before]  # logged if reading back fails
        # Unfilled: a field that reads fill in would look as if the provider had stored it.
        seen = await connection.unfilled.snapshots(handles, scope)
        there = [one.record for one in seen if one.record]
        if lost := not_kept(connection.adapter, asked, there):
            self.request["not_kept"] = list(lost)
            self.not_kept, self.filled_in = lost, filled_in(connection.adapter, lost)
        after = []
        for one in seen:
            if one.record and (fields := given.get(one.handle)):
                record = filled(connection.adapter, one.record, fields)
                after.append(one.model_copy(update={"record": record}))
            else:
                after.append(one)
        self.steps = list(zip(before, after, strict=True))
        return after

    def fail(self, error: BaseException) -> None:
        """Set the status of the failure: unknown if a mutation may have reached the provider."""
        self.error = error
        if self.changed:
            self.status = OperationStatus.UNKNOWN
        elif isinstance(error, Denied):
            self.status = OperationStatus.DENIED
        elif isinstance(error, Conflict):
            self.status = OperationStatus.CONFLICT
        elif self.operation_type in _DERIVING and isinstance(error, _STOPPED):
            self.status = OperationStatus.CANCELLED  # each part derived by then is complete
        elif self.under_way and (
            error.sent if isinstance(error, Unavailable) else not isinstance(error, MemtuiError)
        ):
            self.status = OperationStatus.UNKNOWN
        elif isinstance(error, _STOPPED):
            self.status = OperationStatus.CANCELLED
        else:
            self.status = OperationStatus.ERROR
        if self.status is not OperationStatus.UNKNOWN:
            self.steps, self.irreversible, self.finding = (), None, None

    def draft(self) -> OperationDraft:
        """Return the operation to log, as it is now, without secrets."""
        company_id = self.caller.company_id
        own = self.agent_id
        is_own = self.scope.agent_id is None and own is not None
        scope = {"company_id": company_id, **({"agent_id": own} if is_own else {})}
        filled_in = {"agent_id": is_own, "source": self.source_is_inferred}
        inferred = [name for name, holds in filled_in.items() if holds]
        request: Details = {**self.request, "inferred": inferred} if inferred else self.request
        return OperationDraft.like(
            self,
            scope=_clean_scope(self.scope).model_copy(update=scope),
            handles=() if self.caller.purpose else _clean_handles(self.handles),
            binding_key=self.binding.key if self.binding else None,
            provider_key=self.binding.provider_key if self.binding else None,
            to_show=True if self.to_show and self.error is None else None,
            source=_own_source(self.source, company_id),
            principal=self.caller.principal,
            channel=self.caller.channel,
            request=redact_json(request)[0],
            error_kind=_kind(self.error),
            error_message=redact(str(self.error))[0] if self.error else None,
        )


def _clean_scope(scope: Scope) -> Scope:
    clean, labels = redact_json(scope.model_dump())
    return scope.model_copy(update=clean) if labels else scope


def _clean_handles(handles: tuple[OperationHandle, ...]) -> tuple[OperationHandle, ...]:
    """Redact the ids: a chosen id, such as a path, can contain a secret."""
    ids = [one.provider_record_id for one in handles]
    if not redact("\n".join(ids))[1]:  # joined: much faster than one by one
        return handles
    return tuple(
        one.model_copy(update={"provider_record_id": redact(record_id)[0]})
        for one, record_id in zip(handles, ids, strict=True)
    )


def _own_source(source: SourceRef | None, company_id: str) -> SourceRef | None:
    """Replace the company of a source: a log names no other one, even if denied for that."""
    if source is None:
        return None
    clean = redact_json(source.model_dump(mode="json"))[0]
    return SourceRef.model_validate({**clean, "company_id": company_id})


def _refuse_in_past(operation_type: OperationType, moment: datetime) -> None:
    if operation_type.mutates or operation_type in _SETTLING:
        raise Denied(
            f"This is the past, as of {moment:%Y-%m-%d %H:%M:%S} UTC, where nothing can be "
            "changed; go back to now first."
        )


def _is_no_answer(error: BaseException) -> bool:
    """Whether a mutation's error leaves open whether anything changed."""
    if isinstance(error, MemtuiError):
        return isinstance(error, Unavailable)
    return isinstance(error, Exception)


def _unknown_outcome(entry: RunningOperation, error: BaseException) -> Unavailable:
    said = str(error) if isinstance(error, MemtuiError) else f"It failed ({type(error).__name__})."
    return Unavailable(
        f"{said} Outcome unknown: the {entry.operation_type} may have happened; "
        f"`memtui ops check {entry.operation_id}` finds out.",
        sent=True,
        operation_id=entry.operation_id,
    )


def _kind(error: BaseException | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, _STOPPED):
        return "cancelled"
    return (error.kind if isinstance(error, MemtuiError) else type(error).__name__).lower()


def _log(connection: DatabaseConnection, entry: RunningOperation) -> None:
    operation = entry.draft()
    seq = appending.append(connection, operation)
    appending.record(connection, operation, seq, entry.steps)
    if entry.steps and entry.binding is not None:
        risks.outdate(connection, operation.scope.company_id, entry.binding.key, entry.steps)
    if entry.settings:
        journal.record_settings(connection, operation, seq, entry.settings, behind=len(entry.steps))
    if entry.finding is not None:
        journal.settle(connection, operation, seq, entry.finding)
        if entry.finding.happened and entry.binding is not None:
            steps, key = entry.finding.steps, entry.binding.key
            risks.outdate(connection, operation.scope.company_id, key, steps)
    if not (entry.steps or entry.settings) and (why := entry.why_irreversible) is not None:
        journal.record_irreversible(connection, operation, seq, why)
    if entry.links:
        journal.link(connection, operation, entry.links)
    _logger.info(
        "%s %s on %s by %s over %s: %s in %s ms, %s results",
        operation.operation_type,
        operation.operation_id,
        operation.binding_key or "no binding",
        operation.principal,
        operation.channel,
        operation.status,
        operation.latency_ms,
        operation.result_count,
    )


def new_operation_id() -> str:
    """Return an id that no other operation has."""
    return uuid.uuid4().hex


@dataclass(eq=False)
class Recorder:
    """Writes the operation log. An answer is returned only after its operation is logged.

    On media that cannot be written nothing is logged.
    """

    _database: Database
    _home: Path
    """Contains the folder of the sessions."""
    _clock: Callable[[], datetime]
    _timer: Callable[[], float]
    _new_id: Callable[[], str]
    _finishing: set[asyncio.Future[None]] = field(default_factory=set)

    @cached_property
    def sessions(self) -> Sessions:
        """The processes that use the home; created with the first mutation."""
        from memtui.service.home.sessions import Sessions

        return Sessions(self._home / "sessions")

    @asynccontextmanager
    async def recorded(
        self,
        operation_type: OperationType,
        caller: Caller,
        scope: Scope,
        request: CommonDetails,
        source: SourceRef | None = None,
    ) -> AsyncIterator[RunningOperation]:
        """Run an operation and log it, however it ends."""
        if caller.run_id is not None and scope.run_id is None:
            scope = scope.model_copy(update={"run_id": caller.run_id})
        entry = RunningOperation(
            operation_id=self._new_id(),
            operation_type=operation_type,
            caller=caller,
            scope=scope,
            started_at=self._clock(),
            started=self._timer(),
            request=cast("Details", {**request}),
            source=source,
            to_show=caller.purpose is not None,
        )
        if caller.purpose is not None:
            entry.request["purpose"] = caller.purpose
        failed: BaseException | None = None
        try:
            if caller.as_of is not None:
                entry.request["as_of"] = caller.as_of.isoformat()
                _refuse_in_past(operation_type, caller.as_of)
            yield entry
        except BaseException as error:  # noqa: BLE001 - raised again, once it is logged
            if isinstance(error, Conflict):
                error.current = as_shown(entry, error.current)
            entry.fail(error)
            failed = error
        if not entry.logged:
            entry.latency_ms = round((self._timer() - entry.started) * 1000, 3)
            # Logged even if the caller is cancelled meanwhile.
            appending = asyncio.get_running_loop().run_in_executor(None, self._append, entry)
            self._finishing.add(appending)
            appending.add_done_callback(self._finishing.discard)
            await asyncio.shield(appending)
        if failed is not None:
            if entry.status is _UNKNOWN and _is_no_answer(failed):
                raise _unknown_outcome(entry, failed) from failed
            raise failed

    async def begin(
        self,
        entry: RunningOperation,
        before: Sequence[Snapshot],
        check: Check | None = None,
    ) -> None:
        """Write a mutation's intent: if its end is never logged, its outcome counts as unknown.

        `check` runs in the same transaction, and may refuse.

        Raises:
            Denied: a record is held for review.
            Unavailable: the intent cannot be written, so nothing is changed.
        """
        if entry.visibility is not None and entry.visibility.held:
            entry.refuse_held(before)
        entry.begun = True
        entry.steps = [(snapshot, None) for snapshot in before]
        sessions = self.sessions  # in this thread: two threads could create two

        def write() -> None:
            try:
                sessions.own()
            except OSError as error:
                raise Unavailable(f"Cannot use {error.filename}: {error.strerror}.") from error
            with self._database.write() as connection:
                if check is not None:
                    check(connection, entry)
                self._intend(connection, entry, before)

        try:
            await asyncio.to_thread(write)
        except (Denied, Conflict):  # by the check, which rolled the intent back
            entry.begun = False
            raise
        entry.under_way = True

    def begin_anew(self, connection: DatabaseConnection, entry: RunningOperation) -> None:
        """Replace the intent by one of the operation as it is now. Blocking."""
        if appending.end(connection, entry.operation_id):
            self._intend(connection, entry, ())

    def _intend(
        self, connection: DatabaseConnection, entry: RunningOperation, before: Sequence[Snapshot]
    ) -> None:
        unseen = entry.draft().model_copy(
            update={
                "status": OperationStatus.UNKNOWN,
                "error_kind": "interrupted",
                "error_message": "It was interrupted before its outcome was known.",
            }
        )
        host, session = self.sessions.place, self.sessions.own()
        appending.begin(connection, unseen, before, host=host, session=session)

    def _append(self, entry: RunningOperation) -> None:
        if self._database.read_only:
            return
        if (fan_out := entry.fan_out) is None:
            self._write(entry)
            return
        with fan_out.logging:
            entry.part_of = fan_out.first
            self._write(entry)
            fan_out.first = fan_out.first or entry.operation_id

    def _write(self, entry: RunningOperation) -> None:
        # A power cut may lose a read, but never a change or the finding of a check.
        durable = entry.operation_type.mutates or entry.finding is not None
        with self._database.write(durable=durable) as connection:
            if entry.begun and not appending.end(connection, entry.operation_id):
                # Another machine took this process for dead and logged the id, outcome unknown.
                entry.operation_id = self._new_id()
            if entry.at_end is not None:
                entry.at_end(connection, entry)
            _log(connection, entry)

    def log_ended(self, entries: Sequence[RunningOperation]) -> None:
        """Log operations that have ended already, all or none. Blocking.

        Raises:
            Unavailable: they cannot be logged now.
        """
        durable = any(one.operation_type.mutates for one in entries)
        with self._database.write(durable=durable) as connection:
            for entry in entries:
                _log(connection, entry)

    def append_within(self, connection: DatabaseConnection, entry: RunningOperation) -> None:
        """Log a successful operation in the transaction of its change. Blocking.

        The caller sets `entry.logged` once the transaction is committed.
        """
        entry.latency_ms = round((self._timer() - entry.started) * 1000, 3)
        _log(connection, entry)

    def recover(self) -> None:
        """Log the open mutations of dead processes, with unknown outcome. Blocking."""
        if self._database.read_only:
            return
        with self._database.read() as connection:
            waiting = appending.open_intents(connection)
        orphans = [row for row in waiting if self._is_orphan(row)]
        if not orphans:
            return
        with self._database.write() as connection:
            for row in orphans:
                if not appending.end(connection, row.operation_id):
                    continue
                operation = OperationDraft.model_validate(row.draft)
                seq = appending.append(connection, operation)
                before = [Snapshot.model_validate(value) for value in row.before]
                steps = [(snapshot, None) for snapshot in before]
                appending.record(connection, operation, seq, steps)
                if not steps and operation.operation_type not in _DERIVING:
                    journal.record_irreversible(connection, operation, seq, _UNSEEN)

    def _is_orphan(self, row: IntentRow) -> bool:
        if row.host != self.sessions.place:
            return self._clock() - row.started_at > _FOREIGN_INTENT_AGE
        return self.sessions.is_dead(row.session)

    async def close(self) -> None:
        """Wait until everything is logged, then end this process's session."""
        if self._finishing:
            await asyncio.wait(self._finishing)
        if "sessions" in vars(self):
            await asyncio.to_thread(self.sessions.close)


def note_owner(entry: RunningOperation, scopes: Iterable[Scope]) -> None:
    """Set the user of an operation that named none, from the personal memories it touched.

    The scope decides who may see an operation. In a company without members everybody sees all,
    so there only mutations get a user: their texts stay in the log once members are added. Of
    several users the first is set, but only where members exist.
    """
    if entry.scope.subject_id or (entry.visibility is None and not entry.operation_type.mutates):
        return
    owners = {scope.subject_id for scope in scopes if scope.subject_id and not scope.project_id}
    if len(owners) == 1 or (owners and entry.visibility is not None):
        entry.scope = entry.scope.model_copy(update={"subject_id": min(owners)})


def as_shown(entry: RunningOperation, record: R | None) -> R | None:
    """Return the record for an error, as the caller may see it; None: it may not."""
    key = entry.binding.key if entry.binding else ""
    if record is None or not readable([record], entry.scope, entry.visibility, key):
        return None
    return for_caller(entry.caller, [record])[0]


def log_text(entry: RunningOperation, text: str, *, withheld: bool) -> None:
    """Log the beginning of a written text; of a withheld text, only a commitment.

    The commitment can confirm a known text, but does not reveal it.
    """
    entry.request.pop("content", None)
    entry.absent, entry.salts = {}, {}
    if withheld:
        entry.absent[CONTENT], entry.salts[CONTENT] = withhold(CONTENT, text)
    else:
        entry.request["content"] = text[:_LOGGED_CHARS]
    entry.request["content_chars"] = len(text)
