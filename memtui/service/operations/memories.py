"""The operations that change memories: write, correct, forget, sync.

Every mutation has the same steps: redact, route and authorise, snapshot the records, write the
intent, call the provider, read back, and log the outcome with every record before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    Snapshot,
    SourceRef,
    Unsupported,
    WriteMode,
    WriteReply,
    WriteRequest,
)
from memtui.fact_values import FACT, pair_of
from memtui.service.answers import MutationAnswer, PendingChange, Similar, SyncAnswer
from memtui.service.connections import Connection
from memtui.service.operations.fact_keys import as_change, of_same_key, own_facts, refuse_several
from memtui.service.operations.filling import asked_of, fields_of
from memtui.service.operations.reading import MemoryReads
from memtui.service.operations.redaction import redact, redact_json
from memtui.service.operations.similar import already_there
from memtui.service.recorder import Check, RunningOperation, log_text, note_owner
from memtui.service.review.fact_limits import check_room, check_summary, check_text, has_limit
from memtui.service.review.save_limits import check_saves
from memtui.service.runtime import first_of_many, refuse_agents, refuse_unreviewed, to_its_end
from memtui.service.visibility import (
    USER_PREFIX,
    Caller,
    for_caller,
    is_org,
    person_of,
    without_prefix,
)
from memtui.store.details import ChangeDetails, Details, without_empty
from memtui.wording import none_of_them

if TYPE_CHECKING:
    from memtui.service.review.holding import Acceptance, RequestT

ModelT = TypeVar("ModelT", bound=Model)

_LOGGED_IDS = 1_000
_CORRECTED = {"text", "summary", "topic", "tags", "source"}
"""The free text of a correction."""
_EMPTY = "A memory needs some text; forget it instead of emptying it."
_SYNC_RECORDS = 10_000
"""A rebuild reads everything, so it gets the timeout of a large bulk call."""


class Operations(MemoryReads):
    """The operations on memories."""

    @to_its_end
    async def write(
        self,
        caller: Caller,
        request: WriteRequest,
        *,
        copied: bool = False,
        tell_similar: bool = False,
        together: str | None = None,
        accepts: Acceptance | None = None,
    ) -> MutationAnswer:
        """Store a record, without its secrets.

        Args:
            caller: Who writes it; an agent's write may be held for review.
            request: The record.
            copied: A copy from another binding; it does not belong to the run in its scope.
            tell_similar: Return similar records that exist already, if the provider can find them.
            together: Id of a group of changes that one undo takes back.
            accepts: The pending write that the caller accepts.

        Raises:
            Conflict: several facts have its key, or the record that it replaces has changed.
            Denied: the caller may not write here or change the existing record, or an agent has
                reached the limit of its saves.
            Invalid: it has no text or source, is no valid fact, or there is no room for it.
            Unsupported: the provider cannot store it as requested.
        """
        runtime, scope = self._runtime, request.scope
        if copied or accepts is not None:
            scope = scope.outside_run()
        if caller.by_ai:
            request = request.model_copy(update={"content": without_prefix(request.content)})
        # In a thread: redacting a megabyte takes a while and would block other requests.
        clean, labels = await asyncio.to_thread(redact_write, request)
        logged = {"mode", "kind", "topic", "tags", "record_id", "valid_from", "valid_to"}
        details = cast("ChangeDetails", clean.model_dump(mode="json", include=logged))
        asked = _change_details(details, labels, accepts, together)
        recording = runtime.recorder.recorded(
            OperationType.WRITE, caller, scope, asked, clean.source
        )
        async with recording as entry, AsyncExitStack() as gate:
            log_text(entry, clean.content, withheld=is_org(scope))
            connection = await runtime.connect(entry, request.binding_key)
            if copied:
                refuse_unreviewed(entry, "copies nothing")
            if clean.source is None and not copied:
                raise Invalid("A memory needs a source; name one.")
            # A copy keeps an unknown author or source, instead of getting the caller's.
            author = clean.created_by if copied else caller.author(clean.created_by)
            users = clean.users if accepts is not None else _users(entry, author)
            update = {
                "binding_key": connection.binding.key, "created_by": author, "users": users,
            }  # fmt: skip
            routed = clean.model_copy(update=update)
            _refuse_unstorable(connection, routed)
            if routed.kind == FACT or connection.adapter.only_facts:
                check_text(routed.content, runtime.settings)
                # Nobody else may add a fact between the count of the facts and the write.
                await gate.enter_async_context(connection.adding_facts())
                found = await self._by_key(
                    entry, connection, routed, copied=copied, together=together, accepts=accepts,
                    labels=labels,
                )  # fmt: skip
                if isinstance(found, MutationAnswer):
                    return found
                routed = found
            known = [connection.handle_of(routed.record_id)] if routed.record_id else []
            before = await connection.snapshots(known, scope)
            if routed.mode is WriteMode.UPSERT:
                there = _scopes(before)
                await runtime.may_mutate(entry, [scope, *there])
                note_owner(entry, there)
                log_text(entry, clean.content, withheld=any(map(is_org, (scope, *there))))
            alike: tuple[Similar, ...] = ()
            if tell_similar and routed.mode is WriteMode.APPEND:
                alike = await already_there(entry, connection, routed)
            limit = partial(check_saves, runtime.settings)
            routed, pending = await self._begin(
                entry, connection, routed, before, accepts=accepts, check=limit
            )
            if pending is not None:
                return MutationAnswer(
                    **entry.answer(), redacted=labels, similar=alike, pending=pending,
                    no_search=entry.request.get("no_search", ""),
                )  # fmt: skip
            reply = await entry.mutate(connection, lambda: connection.adapter.write(routed))
            entry.usage += reply.usage
            entry.lacks(reply.lacking)
            stored = await self._read_written(
                entry, connection, routed, reply, before=[*before, *reply.before], scope=scope
            )
        return MutationAnswer(
            **entry.answer(),
            handles=reply.records,
            records=for_caller(caller, stored),
            redacted=labels,
            not_kept=entry.not_kept,
            filled_in=entry.filled_in,
            similar=alike,
            event=reply.event,
            lacking=reply.lacking,
            no_search=entry.request.get("no_search", ""),
            was=next((one.record.text for one in before if one.record is not None), None),
        )

    async def _read_written(
        self,
        entry: RunningOperation,
        connection: Connection,
        request: WriteRequest,
        reply: WriteReply,
        *,
        before: Sequence[Snapshot],
        scope: Scope,
    ) -> list[Record]:
        """Return the written records; of one that is stored later the outcome is unknown yet."""
        if reply.event is not None:
            entry.status, entry.request["event"] = OperationStatus.UNKNOWN, reply.event
            return []
        given = asked_of(request)
        after = await entry.read_back(
            connection, before, reply.records, scope,
            given=dict.fromkeys(reply.records, given), asked=given,
        )  # fmt: skip
        stored = [step.record for step in after if step.record]
        # The unreadable items in the files that records were written to.
        files = {one.location.path for one in stored if one.location}
        found = await self._runtime.unreadable(entry, connection) if files else []
        beside = [one for one in found if one.location and one.location.path in files]
        entry.problems = tuple(first_of_many(beside, connection)) if beside else ()
        return stored

    async def _by_key(
        self,
        entry: RunningOperation,
        connection: Connection,
        request: WriteRequest,
        *,
        copied: bool,
        together: str | None,
        accepts: Acceptance | None,
        labels: tuple[str, ...],
    ) -> WriteRequest | MutationAnswer:
        """Return a fact to write, or correct the fact that has its key and return the answer.

        Raises:
            Conflict: several facts have the key.
            Denied: the caller may not change the existing fact.
            Invalid: there is no room for another fact.
        """
        settings = self._runtime.settings
        own: list[Record] = []
        if pair_of(request.content.strip()) or has_limit(request.scope, settings):
            own = await own_facts(connection, request.scope)
        # A copy is stored beside a fact of the same key.
        same = [] if copied else of_same_key(own, request)
        if not same:
            check_room(own, request, settings)
            return request
        await self._runtime.may_mutate(entry, [one.scope for one in same])
        refuse_several(same, request)
        change = as_change(connection, request, same[0])
        if isinstance(change, WriteRequest):
            return change
        entry.operation_type = OperationType.CORRECT
        entry.request = cast("Details", _asked_to_correct(change, labels, accepts, together))
        return await self._correct(
            entry, connection, change, same[0], accepts=accepts, labels=labels
        )

    async def _find_to_correct(
        self,
        entry: RunningOperation,
        connection: Connection,
        request: CorrectRequest,
        accepts: Acceptance | None,
    ) -> Record:
        """Return the record as it is now; `Conflict` if it was read before and is gone."""
        try:
            return await self._runtime.find(entry, connection, request.handle)
        except NotFound as error:
            if request.revision is None or accepts is not None:
                raise
            sentence = "The record was removed since you read it."
            raise Conflict(sentence, proposed=request.text) from error

    @to_its_end
    async def correct(
        self,
        caller: Caller,
        request: CorrectRequest,
        *,
        together: str | None = None,
        accepts: Acceptance | None = None,
    ) -> MutationAnswer:
        """Change one record; raises `Conflict` if it changed or went since its revision was read.

        Args:
            caller: Who corrects it; an agent's correction may be held for review.
            request: The correction.
            together: Id of a group of changes that one undo takes back.
            accepts: The pending correction that the caller accepts.
        """
        runtime = self._runtime
        scope = request.scope if accepts is None else request.scope.outside_run()
        if caller.by_ai and request.text is not None:
            request = request.model_copy(update={"text": without_prefix(request.text)})
        clean, labels = await asyncio.to_thread(_redacted, request, _CORRECTED)
        text = clean.text
        asked = _asked_to_correct(clean, labels, accepts, together)
        async with runtime.recorder.recorded(
            OperationType.CORRECT, caller, scope, asked, request.source
        ) as entry:
            if text is not None:  # withheld until the record, and so its owner, is known
                log_text(entry, text, withheld=True)
            connection = await runtime.connect(entry, request.binding_key, needs="correction")
            if text is not None and not text.strip():
                raise Invalid(_EMPTY)
            with _still_there(accepts):
                record = await self._find_to_correct(entry, connection, clean, accepts)
            update = {"created_by": caller.author(clean.created_by)}
            return await self._correct(
                entry, connection, clean.model_copy(update=update), record,
                accepts=accepts, labels=labels,
            )  # fmt: skip

    async def _correct(
        self,
        entry: RunningOperation,
        connection: Connection,
        clean: CorrectRequest,
        record: Record,
        *,
        accepts: Acceptance | None,
        labels: tuple[str, ...],
    ) -> MutationAnswer:
        """Correct a record within an admitted operation."""
        runtime, text, scope = self._runtime, clean.text, entry.scope
        note_owner(entry, [record.scope])
        if text is not None and clean.revision is None and accepts is None:
            _refuse_unread(record, "change", text)
        check_summary(connection, record.kind, clean.summary)
        if text is not None:
            log_text(entry, text, withheld=is_org(record.scope))
            if record.kind == FACT:
                check_text(text, runtime.settings)
        entry.take_source(record.source)
        old = record.handle
        entry.about([old])
        update = {"binding_key": connection.binding.key, "handle": old}
        routed = clean.model_copy(update=update)
        await runtime.may_mutate(entry, [record.scope])
        before = await connection.snapshots([old], scope)
        routed, pending = await self._begin(entry, connection, routed, before, accepts=accepts)
        if pending is not None:
            return MutationAnswer(**entry.answer(), redacted=labels, pending=pending)
        try:
            reply = await entry.mutate(connection, lambda: connection.adapter.correct(routed))
        except MemtuiError as error:
            if error.moved is not None:
                entry.links = {old.provider_record_id: error.moved.provider_record_id}
            raise
        entry.usage += reply.usage
        entry.lacks(reply.lacking)
        new = reply.handle
        if old != new:
            entry.links = {old.provider_record_id: new.provider_record_id}
        touched = list(dict.fromkeys((old, new)))
        given = asked_of(routed)
        known = fields_of(before[0].record) | given
        after = await entry.read_back(
            connection, before, touched, scope, given=dict.fromkeys(touched, known), asked=given
        )
        there = {step.handle: step.record for step in after if step.record}
        return MutationAnswer(
            **entry.answer(),
            handles=(new,),
            records=for_caller(entry.caller, [there[new]] if new in there else []),
            ghosts=tuple(handle for handle in there if handle != new),
            redacted=labels,
            not_kept=entry.not_kept,
            filled_in=entry.filled_in,
            lacking=reply.lacking,
            linked=entry.links,
            was=record.text,
        )

    @to_its_end
    async def forget(
        self,
        caller: Caller,
        request: ForgetRequest,
        *,
        together: str | None = None,
        staying: Sequence[Record] = (),
        accepts: Acceptance | None = None,
    ) -> MutationAnswer:
        """Remove records; the answer names those left: `refused`, or `ghosts` if still found.

        Args:
            caller: Who forgets them; an agent's request may be held for review.
            request: The records.
            together: Id of a group of changes, also in other bindings, that one undo takes back.
            staying: The records that stay in their place, as they were read.
            accepts: The pending request that the caller accepts.

        Raises:
            Conflict: one of these records, or of `staying`, has changed, or one has a caution and
                its revision is not given.
            Denied: the caller may not forget one of them, or the provider refuses all.
            NotFound: none of them exists.
        """
        runtime = self._runtime
        scope = request.scope if accepts is None else request.scope.outside_run()
        handles = tuple(dict.fromkeys(request.handles))
        ids = [handle.provider_record_id for handle in handles]
        forgets = ChangeDetails(record_ids=ids[:_LOGGED_IDS], records=len(ids))
        asked = _change_details(forgets, (), accepts, together)
        async with runtime.connected(
            OperationType.FORGET, caller, scope, asked, request.binding_key, source=request.source
        ) as (entry, connection):
            if not ids:
                raise Invalid("Nothing to forget; name at least one record.")
            found = await self._runtime.found(connection, handles, scope)
            records = (s for s in found.values() if s.record and not s.handle.is_file)
            there = list({s.handle: s for s in records}.values())
            with _still_there(accepts):
                _refuse_nothing(there, ids, connection.binding.key)
            note_owner(entry, _scopes(there))
            await runtime.may_mutate(entry, _scopes(there))
            await self._refuse_last(connection, staying, scope)
            sources = {snapshot.record.source for snapshot in there if snapshot.record}
            entry.take_source(sources.pop() if len(sources) == 1 else None)
            gone = tuple(snapshot.handle for snapshot in there)
            entry.about(gone)
            clean, _ = _redacted(request, {"source"})
            # By the present ids: an undo may have restored records under other ones.
            now = {name.provider_record_id: one.handle for name, one in found.items()}
            revisions = {
                now[name].provider_record_id: revision
                for name, revision in clean.revisions.items()
                if name in now
            }
            if accepts is None:
                for one in there:
                    if one.record and one.handle.provider_record_id not in revisions:
                        _refuse_unread(one.record, "forget")
            update = {
                "binding_key": connection.binding.key, "handles": gone, "revisions": revisions,
            }  # fmt: skip
            routed = clean.model_copy(update=update)
            routed, pending = await self._begin(entry, connection, routed, there, accepts=accepts)
            if pending is not None:
                return MutationAnswer(**entry.answer(), pending=pending)
            reply = await entry.mutate(
                connection, partial(_forget_some, connection, routed), records=len(there)
            )
            entry.usage += reply.usage
            if reply.refused:
                entry.request["refused"] = len(reply.refused)
                gone = tuple(one for one in gone if one.provider_record_id not in reply.refused)
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
            refused=dict(reply.refused),
            ghosts=ghosts,
        )

    async def _refuse_last(
        self, connection: Connection, staying: Sequence[Record], scope: Scope
    ) -> None:
        """Raise `Conflict` where a record that was to stay is gone or has another text."""
        found = await self._runtime.found(connection, [one.handle for one in staying], scope)
        for one in staying:
            now = found[one.handle].record
            if now is None or now.text != one.text:
                raise Conflict(
                    f"{one.handle.provider_record_id}, the record to keep, "
                    f"{'is gone' if now is None else 'has changed'}; nothing was forgotten from "
                    f"{connection.binding.key}."
                )

    @to_its_end
    async def sync(
        self, caller: Caller, binding_key: str | None = None, source: SourceRef | None = None
    ) -> SyncAnswer:
        """Let the provider read its external source again, or rebuild its derived data.

        The external source is not changed, so there is nothing to undo. `source`: the part to read,
        for a provider that can read parts (seed 000, `sync(source)`).
        """
        scope = Scope(company_id=caller.company_id)
        async with self._runtime.connected(
            OperationType.SYNC, caller, scope, {}, binding_key, needs="sync", source=source
        ) as (entry, connection):
            await self._runtime.recorder.begin(entry, [])
            reply = await entry.mutate(
                connection, lambda: connection.adapter.sync(source), records=_SYNC_RECORDS
            )
            entry.usage, entry.result_count = reply.usage, reply.changed + reply.removed
        return SyncAnswer.like(reply, **entry.answer())

    async def _begin(
        self,
        entry: RunningOperation,
        connection: Connection,
        request: RequestT,
        there: Sequence[Snapshot],
        *,
        accepts: Acceptance | None,
        check: Check | None = None,
    ) -> tuple[RequestT, PendingChange | None]:
        """Write the intent, or hold an agent's request for review and return the pending change."""
        if accepts is not None:
            request = await accepts.checked(entry, connection, request, there)
            check = accepts.claim
            entry.at_end = accepts.end
        elif not entry.caller.by_person and entry.binding is not None and entry.binding.review:
            from memtui.service.review.holding import hold

            pending = await hold(self._runtime, entry, connection, request, there, check=check)
            return request, pending
        else:
            refuse_agents(entry, connection)
        await self._runtime.recorder.begin(entry, there, check)
        return request, None


@contextmanager
def _still_there(accepts: Acceptance | None) -> Iterator[None]:
    """Raise `Conflict` instead of `NotFound` where an accepted change's record is gone."""
    try:
        yield
    except NotFound as error:
        if accepts is None:
            raise
        pending_id = accepts.row.pending_id
        raise Conflict(
            f"The record that {pending_id} would change is gone; refuse it: `memtui review refuse "
            f"{pending_id}`."
        ) from error


async def _forget_some(connection: Connection, request: ForgetRequest) -> ForgetReply:
    """Forget the records that the provider allows; `Denied` if it refuses all."""
    reply = await connection.adapter.forget(request)
    if reply.refused and len(reply.refused) + len(reply.missing) >= len(request.handles):
        raise Denied(next(iter(reply.refused.values())))
    return reply


def _refuse_unread(record: Record, verb: str, text: str | None = None) -> None:
    """Raise `Conflict` for a record with a caution, whose revision the caller does not give."""
    if record.caution:
        raise Conflict(
            f"{record.caution} To {verb} it all the same, give its revision: {record.revision}.",
            current=record,
            proposed=text,
        )


def _refuse_nothing(there: Sequence[Snapshot], ids: Sequence[str], key: str) -> None:
    """Raise `NotFound` where none of the records exists."""
    if not there:
        raise NotFound(
            f"There is no record {ids[0]} in {key} for this scope{none_of_them(len(ids) - 1)}; "
            "`memtui browse` lists those there are."
        )


def redact_write(request: WriteRequest) -> tuple[WriteRequest, tuple[str, ...]]:
    """Redact all free text of a write; also return the labels of its secrets."""
    free = {"content", "title", "summary", "kind", "topic", "tags", "metadata", "source",
            "created_by"}  # fmt: skip
    return _redacted(request, free)


def redact_change(
    request: WriteRequest | CorrectRequest | ForgetRequest,
) -> tuple[WriteRequest | CorrectRequest | ForgetRequest, tuple[str, ...]]:
    """Redact all free text of a change; also return the labels of its secrets."""
    if isinstance(request, WriteRequest):
        return redact_write(request)
    if isinstance(request, CorrectRequest):
        return _redacted(request, _CORRECTED)
    return _redacted(request, {"source"})


def _redacted(request: ModelT, free: set[str]) -> tuple[ModelT, tuple[str, ...]]:
    """Redact the members `free` of a request; also return the labels of the secrets."""
    clean, labels = redact_json(request.model_dump(mode="json", include=free))
    if not labels:
        return request, ()
    return type(request).model_validate({**dict(request), **clean}), labels


def _refuse_unstorable(connection: Connection, request: WriteRequest) -> None:
    """Refuse a write that its provider cannot store as asked.

    An id with a secret is refused too: redacting it would make another id.

    Raises:
        Invalid: it has no text, the id contains a secret, or a fact has a summary.
        Unsupported: the provider stores no summaries, or texts verbatim for mode `summarize`.
    """
    if not request.content.strip():
        raise Invalid(_EMPTY)
    able = connection.adapter.capabilities
    if request.mode is WriteMode.SUMMARIZE and not able.provider_managed_extraction:
        raise Unsupported(
            f"{connection.binding.key} stores texts unchanged and cannot summarise; leave out the "
            "mode summarize, or choose a binding whose provider extracts."
        )
    if request.record_id is not None and redact(request.record_id)[1]:
        raise Invalid("The requested id contains a secret; give another, or none.")
    if request.summary is not None:
        check_summary(connection, request.kind, request.summary)


def _users(entry: RunningOperation, author: str | None) -> tuple[str, ...]:
    """Return the ids by which a provider may know the author, or the person it acts for.

    The users that memberships name come first.
    """
    caller, person = entry.caller, person_of(entry.caller)
    if person is None or (author or "").partition(" (")[0] != caller.principal:
        return ()
    subjects = sorted(entry.visibility.subjects) if entry.visibility is not None else ()
    return tuple(dict.fromkeys((*subjects, person.removeprefix(USER_PREFIX), person)))


def _change_details(
    given: ChangeDetails,
    labels: Sequence[str],
    accepts: Acceptance | None,
    together: str | None,
) -> ChangeDetails:
    """Return the logged request of a change: its members, the redacted labels, the decision."""
    decision: ChangeDetails = {} if accepts is None else accepts.log_entry()
    asked: ChangeDetails = {**given, **decision, "redacted": list(labels)}
    if together is not None:
        asked["together"] = together
    return without_empty(asked)


def _asked_to_correct(
    request: CorrectRequest,
    labels: Sequence[str],
    accepts: Acceptance | None,
    together: str | None,
) -> ChangeDetails:
    """Return the logged request of a correction, without its text."""
    expires = request.expires_at
    asked: ChangeDetails = {
        "record_id": request.handle.provider_record_id,
        "revision": request.revision,
        "pinned": request.pinned,
        "topic": request.topic,
        "tags": list(request.tags) if request.tags is not None else None,
        "expires_at": expires.isoformat() if expires else None,
        "never_expires": request.never_expires or None,
    }
    return _change_details(asked, labels, accepts, together)


def _scopes(snapshots: Sequence[Snapshot]) -> list[Scope]:
    return [snapshot.record.scope for snapshot in snapshots if snapshot.record]
