"""Operations that change nothing: query, explain, get, browse, history."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from functools import partial

from memtui.contract import (
    BrowseRequest,
    Explanation,
    Filter,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    OperationType,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snippet,
    owner_of,
)
from memtui.service.answers import (
    BrowseAnswer,
    Caller,
    Change,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    QueryAnswer,
)
from memtui.service.connections import Connection
from memtui.service.core import Core, Group
from memtui.service.recorder import Entry
from memtui.service.redaction import redact, redact_json
from memtui.service.visibility import for_caller, may_read, note_owner, readable
from memtui.store import appending, journal
from memtui.store.operation import Operation, OperationHandle
from memtui.store.sight import Sight

_LOGGED_CHARS = 4_000
_LOGGED_OWNERS = 100
_PAGE = 1_000
_TOLD_PROBLEMS = 20


class Reads(Group):
    """Operations that change nothing."""

    async def query(self, caller: Caller, request: QueryRequest) -> QueryAnswer:
        """Find what is relevant."""
        clean = _redact_query(request)
        asked = _query_json(clean)
        recording = self._core.recorder.recorded(OperationType.QUERY, caller, request.scope, asked)
        async with recording as entry:
            connection = await self._core.connect(entry, request.binding_key)
            routed = clean.model_copy(update={"binding_key": connection.binding.key})
            bundle = await connection.read(lambda: connection.adapter.query(routed))
            snippets = readable(bundle.snippets, request.scope, entry.sight)
            entry.handles, entry.result_count = ranked(snippets), len(snippets)
            note_owner(entry, [snippet.scope for snippet in snippets])
            _note_withheld(entry, len(bundle.snippets) - len(snippets))
            entry.usage, entry.capped = bundle.usage, bundle.capped
            await note_problems(entry, connection)
        return QueryAnswer(
            **answered(entry, connection),
            snippets=for_caller(caller, snippets),
            profile_summary=bundle.profile_summary,
            capped=bundle.capped,
        )

    async def explain(self, caller: Caller, request: QueryRequest) -> ExplainAnswer:
        """Trace how a query is answered."""
        clean = _redact_query(request)
        asked = _query_json(clean)
        recording = self._core.recorder.recorded(
            OperationType.EXPLAIN, caller, request.scope, asked
        )
        async with recording as entry:
            connection = await self._core.connect(entry, request.binding_key, needs="explain")
            routed = clean.model_copy(update={"binding_key": connection.binding.key})
            explanation = await connection.read(lambda: connection.adapter.explain(routed))
            entry.usage = explanation.usage
            explanation = await _readable_stages(entry, connection, explanation)
            await note_problems(entry, connection)
        return ExplainAnswer(**answered(entry, connection), explanation=explanation)

    async def get(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> GetAnswer:
        """Return one record, under its new id if it came back under one."""
        request = {"record_id": record_id(asked)}
        async with self._core.recorder.recorded(OperationType.GET, caller, scope, request) as entry:
            connection = await self._core.connect(entry, binding_key)
            record = await find(self._core, connection, asked, scope)
            if not readable([record], scope, entry.sight):
                raise _not_there(connection, record.handle)
            note_owner(entry, [record.scope])
            entry.handles, entry.result_count, entry.source = ranked([record]), 1, record.source
            await note_problems(entry, connection)
        [received] = for_caller(caller, [record])
        return GetAnswer(**answered(entry, connection), record=received)

    async def browse(self, caller: Caller, request: BrowseRequest) -> BrowseAnswer:
        """Return one page of what is stored."""
        words, fuzzy = request.filter.text, request.filter.fuzzy
        clean = {
            "text": words and redact(words)[0],
            "fuzzy": tuple(redact(word)[0] for word in fuzzy),
        }
        narrowed = request.filter.model_copy(update=clean)
        asked: Json = {
            "filter": request.filter.model_dump(mode="json", exclude_defaults=True),
            "sort": request.sort,
            "limit": request.limit,
            "cursor": request.cursor,
        }
        if request.owners:
            asked["owners"] = _owners_json(request.owners)
        recording = self._core.recorder.recorded(OperationType.BROWSE, caller, request.scope, asked)
        async with recording as entry:
            needs = "browse" if request.namespace is None else "namespace_changes"
            connection = await self._core.connect(entry, request.binding_key, needs=needs)
            routed = request.model_copy(
                update={"binding_key": connection.binding.key, "filter": narrowed}
            )
            page = await connection.read(lambda: connection.adapter.browse(routed))
            records = readable(page.records, request.scope, entry.sight)
            entry.result_count, entry.usage = len(records), page.usage
            withheld = len(page.records) - len(records)
            _note_withheld(entry, withheld)
            entry.capped = page.at_least
            await note_problems(entry, connection)
        return BrowseAnswer(
            **answered(entry, connection),
            records=for_caller(caller, records),
            next_cursor=page.next_cursor,
            # Of a view of everybody's, the provider counts what the caller may not read too.
            total=None
            if withheld or (entry.sight and _is_everybodys(request.scope))
            else page.total,
            at_least=page.at_least,
            unread=page.unread,
            unfinished=page.unfinished,
        )

    async def pages(self, caller: Caller, request: BrowseRequest) -> AsyncIterator[BrowseAnswer]:
        """Yield the pages of what a request lists, to its end; each of a thousand records."""
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
        """Return how a record came to be what it is, by our journal and the provider's own."""
        request = {"record_id": record_id(asked)}
        async with self._core.recorder.recorded(
            OperationType.HISTORY, caller, scope, request
        ) as entry:
            connection = await self._core.connect(entry, binding_key)
            ids, changes = await asyncio.to_thread(
                self._changes, connection, as_handle(connection, asked), entry.sight
            )
            handle = as_handle(connection, asked).model_copy(update={"provider_record_id": ids[0]})
            versions: tuple[RecordVersion, ...] = ()
            if entry.sight is not None and not any(one.before or one.after for one in changes):
                record = await find(self._core, connection, handle, scope)
                if not readable([record], scope, entry.sight):
                    raise _not_there(connection, record.handle)
                note_owner(entry, [record.scope])
            shown = [r.scope for one in changes for r in (one.before, one.after) if r]
            note_owner(entry, shown)
            if connection.adapter.capabilities.history:
                found = await connection.read(lambda: connection.adapter.history(handle, scope))
                versions = tuple(found)
            if not changes and not versions:
                entry.source = (await find(self._core, connection, handle, scope)).source
            sources = [
                *(change.operation.source for change in changes),
                *(v.source for v in versions),
            ]
            entry.source = entry.source or next((source for source in sources if source), None)
            entry.handles, entry.result_count = ranked([handle]), len(changes) + len(versions)
            await note_problems(entry, connection)
        return HistoryAnswer(
            **answered(entry, connection),
            handle=handle,
            changes=tuple(_received(caller, change) for change in changes),
            versions=versions,
        )

    def _changes(
        self, connection: Connection, handle: RecordHandle, sight: Sight | None
    ) -> tuple[list[str], tuple[Change, ...]]:
        """Return a record's ids, the one it has now first, and what was done under any of them."""
        company_id, key = connection.binding.company_id, connection.binding.key
        steps: dict[str, appending.Step] = {}
        with self._core.database.read() as database:
            ids = journal.ids_of(database, company_id, key, handle.provider_record_id)
            for record_id in reversed(ids):
                for operation_id, step in journal.changes_of_record(
                    database, company_id, key, record_id
                ).items():
                    known = steps.get(operation_id)
                    steps[operation_id] = _moved_in(known, step) if known else step
        operations = self._core.log.by_ids(company_id, list(steps), sight)
        return ids, tuple(
            change_of(operation, steps[operation.operation_id], sight) for operation in operations
        )


async def _readable_stages(
    entry: Entry, connection: Connection, explanation: Explanation
) -> Explanation:
    """Return an explanation that names only the records that the caller may read."""
    if entry.sight is None:
        return explanation
    shown: dict[str, bool] = {}
    for record_id in {one for stage in explanation.stages for one in stage.scores}:
        handle = as_handle(connection, record_id)
        record = await connection.read(partial(connection.adapter.get, handle, entry.scope))
        shown[record_id] = bool(record and readable([record], entry.scope, entry.sight))
    stages = (
        stage.model_copy(update={"scores": {k: v for k, v in stage.scores.items() if shown[k]}})
        for stage in explanation.stages
    )
    return explanation.model_copy(update={"stages": tuple(stages)})


async def everything(
    connection: Connection, scope: Scope, chosen: Filter, sight: Sight | None
) -> list[Record]:
    """Return all records of a scope that may be seen and that a filter lets through.

    The oldest first.
    """
    request = BrowseRequest(scope=scope, filter=chosen, sort="created_at")
    return [
        record
        async for page in connection.pages(request)
        for record in readable(page.records, scope, sight)
    ]


async def note_problems(entry: Entry, connection: Connection) -> None:
    """Keep what could not be read where this operation read; the log keeps how much that is."""
    try:
        found = await connection.read(lambda: connection.adapter.problems(entry.scope))
    except MemtuiError as error:
        found = [Problem(message=f"Whether all of it could be read is not known: {error}")]
    told = [one for one in found if may_read(one.scope, entry.scope, entry.sight)]
    if told:
        entry.request = {**entry.request, "problems": len(told)}
    if len(told) > _TOLD_PROBLEMS:
        more = len(told) - _TOLD_PROBLEMS
        rest = f"{more} more problems are not listed here; `memtui doctor` tells of all."
        told = [*told[:_TOLD_PROBLEMS], Problem(message=rest)]
    entry.problems = tuple(told)


async def find(
    core: Core, connection: Connection, asked: RecordHandle | str, scope: Scope
) -> Record:
    """Return a record as the provider holds it now.

    Raises:
        NotFound: there is none, under this id or the one it came back under.
    """
    handle = as_handle(connection, asked)
    record = await connection.read(lambda: connection.adapter.get(handle, scope))
    if record is None:
        new = (await asyncio.to_thread(moved, core, connection, [handle])).get(handle)
        if new is not None:
            record = await connection.read(lambda: connection.adapter.get(new, scope))
    if record is None:
        raise _not_there(connection, handle)
    return record


def _not_there(connection: Connection, handle: RecordHandle) -> NotFound:
    return NotFound(
        f"There is no record {handle.provider_record_id} in {connection.binding.key} "
        "for this scope; `memtui browse` lists those there are."
    )


def _is_everybodys(scope: Scope) -> bool:
    return not (scope.project_id or scope.subject_id)


def _note_withheld(entry: Entry, count: int) -> None:
    """Let the log say that the provider returned more than the caller may read."""
    if count:
        entry.request = {**entry.request, "withheld": count}


def as_handle(connection: Connection, asked: RecordHandle | str) -> RecordHandle:
    """Return the handle of a record that was named by its id alone."""
    if isinstance(asked, RecordHandle):
        return asked
    if not asked:
        raise Invalid("A record is named by its id; give one.")
    return RecordHandle(provider_key=connection.adapter.key, provider_record_id=asked)


def record_id(asked: RecordHandle | str) -> str:
    """Return the provider's id of a record."""
    return asked if isinstance(asked, str) else asked.provider_record_id


def ranked(records: Sequence[Record | RecordHandle]) -> tuple[OperationHandle, ...]:
    """Return the handles as the log keeps them, ranked from 1 in order."""
    handles = []
    for rank, item in enumerate(records, start=1):
        handle = item if isinstance(item, RecordHandle) else item.handle
        score = item.score if isinstance(item, Snippet) else None
        if score is not None and not math.isfinite(score):
            score = None  # no database keeps it, and the digest is made of what it keeps
        handles.append(
            OperationHandle(
                rank=rank,
                provider_key=handle.provider_key,
                provider_record_id=handle.provider_record_id,
                score=score,
            )
        )
    return tuple(handles)


def answered(entry: Entry, connection: Connection) -> Json:
    """Return what every answer says of its operation."""
    return {
        "operation_id": entry.operation_id,
        "binding_key": connection.binding.key,
        "binding_reason": entry.binding_reason,
        "usage": entry.usage,
        "latency_ms": entry.latency_ms,
        "problems": entry.problems,
    }


def _redact_query(request: QueryRequest) -> QueryRequest:
    topic = request.topic
    return request.model_copy(
        update={
            "query": redact(request.query)[0],
            "topic": topic and redact(topic)[0],
            "metadata_filter": redact_json(request.metadata_filter)[0],
        }
    )


def _owners_json(owners: Sequence[Scope]) -> list[str]:
    return [" ".join(owner_of(scope)) for scope in owners[:_LOGGED_OWNERS]]


def _query_json(request: QueryRequest) -> Json:
    asked: Json = {
        "query": request.query[:_LOGGED_CHARS],
        "intent": request.intent,
        "top_k": request.top_k,
    }
    if request.topic:
        asked["topic"] = request.topic
    if request.as_of:
        asked["as_of"] = request.as_of.isoformat()
    if request.owners:
        asked["owners"] = _owners_json(request.owners)
    if request.metadata_filter:
        asked["metadata_filter"] = request.metadata_filter
    return asked


def _received(caller: Caller, change: Change) -> Change:
    before, after = (
        for_caller(caller, [record])[0] if record else None
        for record in (change.before, change.after)
    )
    return change.model_copy(update={"before": before, "after": after})


def _moved_in(old: appending.Step, new: appending.Step) -> appending.Step:
    """Join the two steps of an operation that gave a record another id."""
    before, after = old[0] if old[0].record else new[0], new[1]
    return before, after if after and after.record else old[1]


def change_of(operation: Operation, step: appending.Step, sight: Sight | None) -> Change:
    """Return a journal step as a person reads it who has this sight."""
    before, after = (
        snapshot.record
        if snapshot and snapshot.record and readable([snapshot.record], operation.scope, sight)
        else None
        for snapshot in step
    )
    return Change(operation=operation, before=before, after=after)


def moved(
    core: Core, connection: Connection, handles: Sequence[RecordHandle]
) -> dict[RecordHandle, RecordHandle]:
    """Return the new handles of the records that came back under another id. Blocking."""
    found: dict[RecordHandle, RecordHandle] = {}
    company_id, key = connection.binding.company_id, connection.binding.key
    with core.database.read() as database:
        for handle in handles:
            new_id = journal.follow_link(database, company_id, key, handle.provider_record_id)
            if new_id is not None:
                found[handle] = handle.model_copy(update={"provider_record_id": new_id})
    return found
