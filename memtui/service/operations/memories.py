"""The operations on memories: query, explain, get, browse, history; write, correct, forget, sync.

Every mutation has the same steps: redact, route and authorise, snapshot the records, write the
intent, call the provider, read back, and log the outcome with every record before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from memtui.contract import (
    BrowseRequest,
    Conflict,
    ContextBundle,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Link,
    Links,
    Matching,
    MemtuiError,
    Model,
    NotFound,
    OperationType,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    SourceRef,
    Unsupported,
    WriteMode,
    WriteRequest,
    own_filter,
)
from memtui.fact_values import pair_of
from memtui.service.answers import (
    BrowseAnswer,
    Change,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    MutationAnswer,
    PendingChange,
    ProfileAnswer,
    QueryAnswer,
    Similar,
    SyncAnswer,
)
from memtui.service.connections import Connection
from memtui.service.operations.fact_keys import as_change, of_same_key, own_facts, refuse_several
from memtui.service.operations.filling import asked_of, fields_of
from memtui.service.operations.querying import (
    by_topic,
    filter_json,
    owners_json,
    redacted_filter,
    redacted_query,
    stages_json,
    stages_of,
)
from memtui.service.operations.redaction import redact, redact_json
from memtui.service.operations.similar import already_there
from memtui.service.recorder import Check, RunningOperation, log_text, note_owner
from memtui.service.review.fact_limits import FACT, check_room, check_summary, check_text, has_limit
from memtui.service.runtime import (
    FanOut,
    ServiceModule,
    grouped,
    in_thread,
    problems_beside,
    refuse_unreviewed,
    to_its_end,
)
from memtui.service.visibility import (
    USER_PREFIX,
    Caller,
    R,
    for_caller,
    is_org,
    may_read,
    person_of,
    readable,
    versions_for,
    without_prefix,
)
from memtui.store import appending, journal
from memtui.store.details import BrowseDetails, ChangeDetails, Details, RecordDetails, without_empty
from memtui.store.operation import Operation
from memtui.store.visibility import Visibility, until
from memtui.wording import none_of_them

if TYPE_CHECKING:
    from memtui.service.operations.uses import ReportProgress
    from memtui.service.review.holding import Acceptance, RequestT

ModelT = TypeVar("ModelT", bound=Model)

_PAGE = 1_000
_LOGGED_IDS = 1_000
_SYNC_RECORDS = 10_000
"""A rebuild reads everything, so it gets the timeout of a large bulk call."""


class Operations(ServiceModule):
    """The operations on memories."""

    async def query(
        self, caller: Caller, request: QueryRequest, *, fan_out: FanOut | None = None
    ) -> QueryAnswer:
        """Find records relevant to a text; `fan_out`: as one of several bindings."""
        caller = caller.at(request.as_of)
        clean, asked = redacted_query(request)
        needs = "agents_search" if request.matching is Matching.AGENTS else None
        async with self._runtime.connected(
            OperationType.QUERY, caller, request.scope, asked, request.binding_key, needs=needs,
            fan_out=fan_out,
        ) as (entry, connection):  # fmt: skip
            routed = await self._routed(caller, connection, clean)
            bundle, all_topics = await by_topic(connection, routed)
            if all_topics:
                entry.request["all_topics"] = True
            snippets = _readable(entry, bundle.snippets)
            entry.about(snippets)
            note_owner(entry, [snippet.scope for snippet in snippets])
            bundle = await _with_profile(entry, connection, routed, bundle)
            entry.usage, entry.capped = bundle.usage, bundle.capped
            ids = [snippet.handle.provider_record_id for snippet in snippets]
            stages = stages_of(bundle.stages, ids)
            if stages:
                entry.request["stages"] = stages_json(stages, ids)
        return QueryAnswer.like(
            bundle,
            **entry.answer(),
            snippets=for_caller(caller, snippets),
            stages=stages,
            all_topics=all_topics,
        )

    async def explain(self, caller: Caller, request: QueryRequest) -> ExplainAnswer:
        """Trace how a query is answered; only records that the caller may read are named."""
        caller = caller.at(request.as_of)
        clean, asked = redacted_query(request)
        scope = request.scope
        async with self._runtime.connected(
            OperationType.EXPLAIN, caller, scope, asked, request.binding_key, needs="explain"
        ) as (entry, connection):
            routed = await self._routed(caller, connection, clean)
            explanation = await connection.read(lambda: connection.adapter.explain(routed))
            entry.usage = explanation.usage
            if entry.visibility is not None:
                shown: set[str] = set()
                for name in {one for stage in explanation.stages for one in stage.scores}:
                    handle = connection.handle_of(name)
                    record = await connection.read(partial(connection.adapter.get, handle, scope))
                    if record and readable([record], scope, entry.visibility):
                        shown.add(name)
                stages = stages_of(explanation.stages, shown)
                explanation = explanation.model_copy(update={"stages": stages})
        return ExplainAnswer(**entry.answer(), explanation=explanation)

    async def _routed(
        self, caller: Caller, connection: Connection, request: QueryRequest
    ) -> QueryRequest:
        """Return a query for its binding; for a preamble, with the records that helped before."""
        key, helped = connection.binding.key, frozenset[str]()
        if request.intent is QueryIntent.AGENT_PREAMBLE:
            log = await asyncio.to_thread(self._runtime.log_of, caller)
            helped = await asyncio.to_thread(log.helped, key)
        return request.model_copy(update={"binding_key": key, "helped": helped})

    async def profile(
        self, caller: Caller, scope: Scope, *, binding_key: str | None = None
    ) -> ProfileAnswer:
        """Return the provider's profile of a scope (seed 000, `profile(scope)`)."""
        async with self._runtime.connected(
            OperationType.PROFILE, caller, scope, {}, binding_key, needs="profile"
        ) as (entry, connection):
            found = await connection.read(lambda: connection.adapter.profile(scope))
            entry.usage = found.usage
        return ProfileAnswer(**entry.answer(), profile=found)

    async def get(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> GetAnswer:
        """Return one record by handle or id, also by an id that it had before an undo.

        Raises:
            NotFound: there is none that the caller may read.
            Unavailable: it cannot be read.
        """
        request = RecordDetails(record_id=_record_id(asked))
        async with self._runtime.connected(
            OperationType.GET, caller, scope, request, binding_key
        ) as (
            entry,
            connection,
        ):
            record = await self._runtime.find(entry, connection, asked)
            if not readable([record], scope, entry.visibility):
                raise connection.lacks(record.handle)
            note_owner(entry, [record.scope])
            entry.about([record])
            entry.source = record.source
            linked = await _links(entry, connection, [record])
        [received] = for_caller(caller, [record])
        links = linked.get(record.handle.provider_record_id, Links())
        return GetAnswer.like(links, **entry.answer(), record=received)

    async def browse(
        self,
        caller: Caller,
        request: BrowseRequest,
        *,
        fan_out: FanOut | None = None,
        report: ReportProgress = lambda _read, _total: None,
        all_problems: bool = False,
        to_show: bool = False,
    ) -> BrowseAnswer:
        """Return one page of what is stored.

        Args:
            caller: Who asks.
            request: The page.
            fan_out: Set where several bindings are listed at once.
            report: Receives the progress while a whole scope is read first (`dup:`).
            all_problems: Return every unreadable item; fail where that cannot be determined.
            to_show: Read for another operation's answer; the log neither lists nor counts it.
        """
        caller = caller.at(request.as_of)
        scope = request.scope
        chosen = redacted_filter(request.filter)
        asked: BrowseDetails = {
            "filter": filter_json(chosen),
            "sort": request.sort,
            "limit": request.limit,
            "cursor": request.cursor,
        }
        if request.owners:
            asked["owners"] = owners_json(request.owners)
        needs = "browse" if request.namespace is None else "namespace_changes"
        async with self._runtime.connected(
            OperationType.BROWSE, caller, scope, asked, request.binding_key, needs=needs,
            fan_out=fan_out, all_problems=all_problems,
        ) as (entry, connection):  # fmt: skip
            entry.to_show = to_show
            routed = request.model_copy(
                update={
                    "binding_key": connection.binding.key,
                    "filter": chosen,
                }
            )
            if chosen.uses:
                from memtui.service.operations.uses import UsedRecords

                page = await UsedRecords(self._runtime, entry, connection, routed, report).page()
            else:
                page = await connection.read(lambda: connection.adapter.browse(routed))
            records = _readable(entry, page.records)
            entry.result_count, entry.usage = len(records), page.usage
            entry.capped = page.at_least
            linked = await _links(entry, connection, records) if request.links else {}
        adapter = connection.adapter
        is_owners = bool(scope.project_id or scope.subject_id) and (
            adapter.capabilities.validity or adapter.only_facts  # list only that owner
        )
        is_all = request.cursor is None and page.next_cursor is None
        is_whole = entry.visibility is None or is_owners or is_all
        return BrowseAnswer.like(
            page,
            **entry.answer(),
            records=for_caller(caller, records),
            links=linked,
            # The provider's total also counts records of others that the caller may not read.
            total=page.total if is_whole and len(records) == len(page.records) else None,
        )

    async def has_records(
        self, caller: Caller, owner: Scope, *, binding_key: str | None = None
    ) -> bool:
        """Return whether a binding has records of an owner; a read for another answer.

        Raises:
            Unsupported: the provider cannot list records.
        """
        request = BrowseRequest(
            scope=owner, binding_key=binding_key, filter=own_filter(owner, kind=None), limit=1
        )
        return bool((await self.browse(caller, request, to_show=True)).records)

    async def pages(self, caller: Caller, request: BrowseRequest) -> AsyncIterator[BrowseAnswer]:
        """Yield all pages of a request, of 1,000 records each."""
        request = request.model_copy(update={"limit": _PAGE})
        while True:
            page = await self.browse(caller, request)
            yield page
            if page.next_cursor is None:
                return
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def history(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> HistoryAnswer:
        """Return a record's changes in memtui's journal, and its versions at the provider."""
        found, owner = await self.kept_history(caller, asked, scope, binding_key=binding_key)
        return received_history(caller, found, owner)

    async def kept_history(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> tuple[HistoryAnswer, Scope]:
        """Return the raw history of a record, before `received_history`, and its owner."""
        request = RecordDetails(record_id=_record_id(asked))
        async with self._runtime.connected(
            OperationType.HISTORY, caller, scope, request, binding_key
        ) as (entry, connection):
            handle = connection.handle_of(asked)
            ids, changes = await asyncio.to_thread(
                self._changes, connection, handle, entry.visibility, caller.as_of
            )
            handle = handle.model_copy(update={"provider_record_id": ids[0]})
            versions: tuple[RecordVersion, ...] = ()
            shown = [r.scope for one in changes for r in (one.before, one.after) if r]
            if not shown and (entry.visibility is not None or caller.by_ai):
                record = await self._runtime.find(entry, connection, handle)
                if not readable([record], scope, entry.visibility):
                    raise connection.lacks(record.handle)
                shown = [record.scope]
            note_owner(entry, shown)
            if connection.adapter.capabilities.history:
                found = await connection.read(lambda: connection.adapter.history(handle, scope))
                versions = tuple(found)
            edited_at = None
            if _is_edited(changes, versions):
                edited_at = (await self._runtime.find(entry, connection, handle)).updated_at
            if not changes and not versions:
                entry.source = (await self._runtime.find(entry, connection, handle)).source
            sources = (*(one.operation.source for one in changes), *(v.source for v in versions))
            entry.source = entry.source or next((source for source in sources if source), None)
            entry.about([handle])
            entry.result_count = len(changes) + len(versions)
        answer = HistoryAnswer(
            **entry.answer(),
            handle=handle,
            changes=changes,
            versions=versions,
            edited_at=edited_at,
        )
        owner, *_ = (*filter(is_org, shown), *shown, scope)
        return answer, owner

    def _changes(
        self,
        connection: Connection,
        handle: RecordHandle,
        visibility: Visibility | None,
        as_of: datetime | None,
    ) -> tuple[list[str], tuple[Change, ...]]:
        """Return a record's ids, the current one first, and the changes under all of them.

        `as_of`: only changes until then.
        """
        company_id, key = connection.binding.company_id, connection.binding.key
        steps: dict[str, appending.Step] = {}
        with self._runtime.database.read() as database:
            ids = journal.ids_of(database, company_id, key, handle.provider_record_id)
            for one in reversed(ids):
                found = journal.changes_of_record(database, company_id, key, one)
                for operation_id, step in found.items():
                    known = steps.get(operation_id)
                    steps[operation_id] = _joined(known, step) if known else step
        operations = self._runtime.log(company_id, until(visibility, as_of)).by_ids(
            list(steps), ids
        )
        return ids, tuple(change_of(one, steps[one.operation_id], visibility) for one in operations)

    @in_thread
    def has_written(self, caller: Caller, field: str, name: str) -> bool:
        """Return whether the unsealed log has a write for a project or user; cheap.

        False: it has none, the write is sealed, or the caller does not see the whole company.

        Args:
            caller: Who asks.
            field: `project_id` or `subject_id`.
            name: The id of the project or user.
        """
        if self._runtime.visibility(caller) is not None:
            return False
        with self._runtime.database.read() as database:
            return appending.has_written(database, caller.company_id, field, name)

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
        """
        runtime, scope = self._runtime, _scope_of(request, accepts)
        if copied:
            scope = scope.outside_run()
        if caller.by_ai:
            request = request.model_copy(update={"content": without_prefix(request.content)})
        # In a thread: redacting a megabyte takes a while and would block other requests.
        clean, labels = await asyncio.to_thread(redact_write, request)
        asked = _asked_to_write(clean, labels, accepts, together)
        recording = runtime.recorder.recorded(
            OperationType.WRITE, caller, scope, asked, clean.source
        )
        async with recording as entry, AsyncExitStack() as gate:
            log_text(entry, clean.content, withheld=is_org(scope))
            connection = await runtime.connect(entry, request.binding_key)
            if copied:
                refuse_unreviewed(entry, "copies nothing")
            if clean.source is None and not copied:
                raise Invalid("A memory says where it comes from; name a source.")
            # A copy keeps an unknown author or source, instead of getting the caller's.
            author = clean.created_by if copied else caller.author(clean.created_by)
            users = clean.users if accepts is not None else _users(entry, author)
            update = {
                "binding_key": connection.binding.key, "created_by": author, "users": users,
            }  # fmt: skip
            routed = clean.model_copy(update=update)
            _refuse_empty(routed.content)
            _refuse_summarizing(connection, routed.mode)
            _refuse_secret(routed.record_id)
            check_summary(connection, routed.kind, routed.summary)
            if routed.kind == FACT or connection.adapter.only_facts:
                check_text(routed.content, runtime.fact_limits)
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
                await runtime.may_change(caller, [scope, *there])
                note_owner(entry, there)
                log_text(entry, clean.content, withheld=any(map(is_org, (scope, *there))))
            alike: tuple[Similar, ...] = ()
            if tell_similar and routed.mode is WriteMode.APPEND:
                alike = await already_there(caller, connection, routed, entry.visibility)
            limit = runtime.save_limits.check
            routed, pending = await self._begin(
                entry, connection, routed, before, accepts=accepts, check=limit
            )
            if pending is not None:
                return MutationAnswer(
                    **entry.answer(), redacted=labels, similar=alike, pending=pending
                )
            reply = await entry.mutate(connection, lambda: connection.adapter.write(routed))
            entry.usage = reply.usage
            given = asked_of(routed)
            after = await entry.read_back(
                connection, [*before, *reply.before], reply.records, scope,
                given=dict.fromkeys(reply.records, given), asked=given,
            )  # fmt: skip
            stored = [step.record for step in after if step.record]
            entry.problems = await problems_beside(entry, connection, stored)
        return MutationAnswer(
            **entry.answer(),
            handles=reply.records,
            records=for_caller(caller, stored),
            redacted=labels,
            not_kept=entry.not_kept,
            filled_in=entry.filled_in,
            similar=alike,
            was=next((one.record.text for one in before if one.record is not None), None),
        )

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
        limits = self._runtime.fact_limits
        own: list[Record] = []
        if pair_of(request.content.strip()) or has_limit(request.scope, limits):
            own = await own_facts(connection, request.scope)
        same = [] if copied else of_same_key(own, request)
        if not same:
            check_room(own, request, limits)
            return request
        await self._runtime.may_change(entry.caller, [one.scope for one in same])
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
        runtime, scope = self._runtime, _scope_of(request, accepts)
        if caller.by_ai and request.text is not None:
            request = request.model_copy(update={"text": without_prefix(request.text)})
        free = {"text", "summary", "topic", "tags", "source"}
        clean, labels = await asyncio.to_thread(_redacted, request, free)
        text = clean.text
        asked = _asked_to_correct(clean, labels, accepts, together)
        async with runtime.recorder.recorded(
            OperationType.CORRECT, caller, scope, asked, request.source
        ) as entry:
            if text is not None:  # withheld until the record, and so its owner, is known
                log_text(entry, text, withheld=True)
            connection = await runtime.connect(entry, request.binding_key, needs="correction")
            if text is not None:
                _refuse_empty(text)
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
        check_summary(connection, record.kind, clean.summary)
        if text is not None:
            log_text(entry, text, withheld=is_org(record.scope))
            if record.kind == FACT:
                check_text(text, runtime.fact_limits)
        entry.take_source(record.source)
        old = record.handle
        entry.about([old])
        update = {"binding_key": connection.binding.key, "handle": old}
        routed = clean.model_copy(update=update)
        await runtime.may_change(entry.caller, [record.scope])
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
        entry.usage, new = reply.usage, reply.handle
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
            together: Id of a group, also of other bindings, that one undo takes back.
            staying: The records that are kept in their place, as they were read.
            accepts: The pending request that the caller accepts.

        Raises:
            Conflict: one of these records, or of `staying`, has changed.
        """
        runtime, scope = self._runtime, _scope_of(request, accepts)
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
            there = list({s.handle: s for s in found.values() if s.record is not None}.values())
            with _still_there(accepts):
                _refuse_nothing(there, ids, connection.binding.key)
            note_owner(entry, _scopes(there))
            await runtime.may_change(caller, _scopes(there))
            await self._refuse_last(connection, staying, scope)
            sources = {snapshot.record.source for snapshot in there if snapshot.record}
            entry.take_source(sources.pop() if len(sources) == 1 else None)
            gone = tuple(snapshot.handle for snapshot in there)
            entry.about(gone)
            clean, _ = _redacted(request, {"source"})
            now = {name.provider_record_id: one.handle for name, one in found.items()}
            revisions = {
                now[name].provider_record_id: revision
                for name, revision in clean.revisions.items()
                if name in now
            }
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
            entry.usage = reply.usage
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
                    f"{one.handle.provider_record_id} was to stay in the place of what would go, "
                    f"and {'is gone' if now is None else 'says something else'} by now; nothing "
                    f"was forgotten from {connection.binding.key}."
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
            f"What {pending_id} would change is gone, so only refusing it is left: `memtui review "
            f"refuse {pending_id}`."
        ) from error


async def _forget_some(connection: Connection, request: ForgetRequest) -> ForgetReply:
    """Forget the records that the provider allows; `Denied` if it refuses all."""
    reply = await connection.adapter.forget(request)
    if reply.refused and len(reply.refused) + len(reply.missing) >= len(request.handles):
        raise Denied(next(iter(reply.refused.values())))
    return reply


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


def _redacted(request: ModelT, free: set[str]) -> tuple[ModelT, tuple[str, ...]]:
    """Redact the members `free` of a request; also return the labels of the secrets."""
    clean, labels = redact_json(request.model_dump(mode="json", include=free))
    if not labels:
        return request, ()
    return type(request).model_validate({**dict(request), **clean}), labels


async def _with_profile(
    entry: RunningOperation, connection: Connection, request: QueryRequest, bundle: ContextBundle
) -> ContextBundle:
    """Add the provider's profile, if it has one, to the answer for a preamble."""
    may_see_profile = entry.caller.as_of is None and not (entry.seen_only and is_org(entry.scope))
    wanted = request.intent is QueryIntent.AGENT_PREAMBLE and may_see_profile
    if not wanted or bundle.profile_summary or not connection.adapter.capabilities.profile:
        return bundle
    found = await connection.read(lambda: connection.adapter.profile(request.scope))
    update = {"profile_summary": found.summary or None, "usage": (*bundle.usage, *found.usage)}
    return bundle.model_copy(update=update)


def _refuse_empty(text: str) -> None:
    if not text.strip():
        raise Invalid("A memory needs some text; forget it instead of emptying it.")


def _refuse_summarizing(connection: Connection, mode: WriteMode) -> None:
    """Raise `Unsupported` for mode `summarize` where the provider stores texts verbatim."""
    able = connection.adapter.capabilities
    if mode is WriteMode.SUMMARIZE and not able.provider_managed_extraction:
        raise Unsupported(
            f"{connection.binding.key} stores a text as it is and condenses none; leave the mode "
            "summarize out, or choose a binding whose provider extracts."
        )


def _refuse_secret(record_id: str | None) -> None:
    """Refuse an id that contains a secret: redacting it would make another id."""
    if record_id is not None and redact(record_id)[1]:
        raise Invalid("The id that is asked for holds a secret; give another, or none.")


def _scope_of(
    request: WriteRequest | CorrectRequest | ForgetRequest, accepts: Acceptance | None
) -> Scope:
    """Return a request's scope; without its run where a person accepts a pending change."""
    return request.scope if accepts is None else request.scope.outside_run()


def _users(entry: RunningOperation, author: str | None) -> tuple[str, ...]:
    """Return the ids by which a provider may know the author, or the person it acts for.

    The users that memberships name come first.
    """
    caller, person = entry.caller, person_of(entry.caller)
    if person is None or (author or "").partition(" (")[0] != caller.principal:
        return ()
    subjects = sorted(entry.visibility.subjects) if entry.visibility is not None else ()
    return tuple(dict.fromkeys((*subjects, person.removeprefix(USER_PREFIX), person)))


def _decision(accepts: Acceptance | None) -> ChangeDetails:
    """Return the logged request members of a review decision; empty if it is none."""
    return {} if accepts is None else accepts.log_entry()


def _change_details(
    given: ChangeDetails,
    labels: Sequence[str],
    accepts: Acceptance | None,
    together: str | None,
) -> ChangeDetails:
    """Return what the log says of a change: what it sets, what was redacted, what it decides."""
    asked: ChangeDetails = {**given, **_decision(accepts), "redacted": list(labels)}
    return grouped(without_empty(asked), together)


def _asked_to_write(
    request: WriteRequest,
    labels: Sequence[str],
    accepts: Acceptance | None,
    together: str | None,
) -> ChangeDetails:
    """Return the logged request of a write, without its text."""
    logged = {"mode", "kind", "topic", "tags", "record_id", "valid_from", "valid_to"}
    given = cast("ChangeDetails", request.model_dump(mode="json", include=logged))
    return _change_details(given, labels, accepts, together)


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


def change_of(operation: Operation, step: appending.Step, visibility: Visibility | None) -> Change:
    """Return a journal step as a visibility shows it."""
    before, after = (
        snapshot.record
        if snapshot and snapshot.record and readable([snapshot.record], operation.scope, visibility)
        else None
        for snapshot in step
    )
    return Change(operation=operation, before=before, after=after)


def _joined(old: appending.Step, new: appending.Step) -> appending.Step:
    """Join the two steps of an operation that changed a record's id."""
    before, after = old[0] if old[0].record else new[0], new[1]
    return before, after if after and after.record else old[1]


def received_history(caller: Caller, found: HistoryAnswer, owner: Scope) -> HistoryAnswer:
    """Return a history as a caller gets it; `owner`: the record's owner."""
    update = {
        "changes": tuple(received(caller, change) for change in found.changes),
        "versions": versions_for(caller, found.versions, found.handle, owner),
    }
    return found.model_copy(update=update)


def received(caller: Caller, change: Change) -> Change:
    """Return a change as a caller gets it."""
    before, after = (
        for_caller(caller, [record])[0] if record else None
        for record in (change.before, change.after)
    )
    return change.model_copy(update={"before": before, "after": after})


def _readable(entry: RunningOperation, found: Sequence[R]) -> tuple[R, ...]:
    """Return the records that the caller may read, and log how many others were withheld."""
    kept = readable(found, entry.scope, entry.visibility)
    if withheld := len(found) - len(kept):
        entry.request["withheld"] = withheld
    return kept


async def _links(
    entry: RunningOperation, connection: Connection, records: Sequence[Record]
) -> Mapping[str, Links]:
    """Return the visible links of records by id; none in the past, where they are unknown."""
    in_the_past = entry.caller.as_of is not None
    if not records or in_the_past or not connection.adapter.capabilities.links:
        return {}
    handles = [record.handle for record in records]
    found = await connection.read(partial(connection.adapter.links, handles, entry.scope))
    return {record_id: _seen_links(one, entry) for record_id, one in found.items()}


def _seen_links(found: Links, entry: RunningOperation) -> Links:
    """Remove the targets of links to hidden records, and the backlinks from them."""

    def may_see(link: Link) -> bool:
        return may_read(link.scope, entry.scope, entry.visibility)

    nowhere = {"handle": None, "title": None, "scope": None}
    return found.model_copy(
        update={
            "links": tuple(
                one if may_see(one) else one.model_copy(update=nowhere) for one in found.links
            ),
            "backlinks": tuple(filter(may_see, found.backlinks)),
        }
    )


def _is_edited(changes: Sequence[Change], versions: Sequence[RecordVersion]) -> bool:
    """Whether a record's text differs from what memtui last wrote."""
    last = changes[0].after if changes else None
    now = next((one for one in versions if one.valid_to is None), None)
    return last is not None and now is not None and now.text != last.text


def _record_id(asked: RecordHandle | str) -> str:
    return asked if isinstance(asked, str) else asked.provider_record_id
