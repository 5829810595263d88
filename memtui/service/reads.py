"""Operations that change nothing: query, explain, get, browse, history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from memtui.contract import (
    BrowseRequest,
    Json,
    OperationType,
    QueryRequest,
    RecordHandle,
    RecordVersion,
    Scope,
    owner_of,
)
from memtui.service.answers import (
    BrowseAnswer,
    Change,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    QueryAnswer,
)
from memtui.service.connections import Connection
from memtui.service.core import Group
from memtui.service.recorder import RunningOperation
from memtui.service.redaction import redact, redact_json
from memtui.service.visibility import Caller, for_caller, note_owner, readable
from memtui.store import appending, journal
from memtui.store.operation import Operation
from memtui.store.sight import Sight

_LOGGED_CHARS = 4_000
_LOGGED_OWNERS = 100
_PAGE = 1_000


class Reads(Group):
    """Operations that change nothing."""

    async def query(self, caller: Caller, request: QueryRequest) -> QueryAnswer:
        """Find what is relevant to a text."""
        clean, asked = _redacted(request)
        async with self._core.reading(
            OperationType.QUERY, caller, request.scope, asked, request.binding_key
        ) as (entry, connection):
            routed = clean.model_copy(update={"binding_key": connection.binding.key})
            bundle = await connection.read(lambda: connection.adapter.query(routed))
            snippets = readable(bundle.snippets, request.scope, entry.sight)
            entry.about(snippets)
            note_owner(entry, [snippet.scope for snippet in snippets])
            _note_withheld(entry, len(bundle.snippets) - len(snippets))
            entry.usage, entry.capped = bundle.usage, bundle.capped
        return QueryAnswer(
            **entry.answer(),
            snippets=for_caller(caller, snippets),
            profile_summary=bundle.profile_summary,
            capped=bundle.capped,
        )

    async def explain(self, caller: Caller, request: QueryRequest) -> ExplainAnswer:
        """Trace how a query is answered, by the records alone that the caller may read."""
        clean, asked = _redacted(request)
        scope = request.scope
        async with self._core.reading(
            OperationType.EXPLAIN, caller, scope, asked, request.binding_key, needs="explain"
        ) as (entry, connection):
            routed = clean.model_copy(update={"binding_key": connection.binding.key})
            explanation = await connection.read(lambda: connection.adapter.explain(routed))
            entry.usage = explanation.usage
            if entry.sight is not None:
                shown: set[str] = set()
                for name in {one for stage in explanation.stages for one in stage.scores}:
                    handle = connection.handle_of(name)
                    record = await connection.read(partial(connection.adapter.get, handle, scope))
                    if record and readable([record], scope, entry.sight):
                        shown.add(name)
                stages = tuple(
                    one.model_copy(
                        update={"scores": {k: v for k, v in one.scores.items() if k in shown}}
                    )
                    for one in explanation.stages
                )
                explanation = explanation.model_copy(update={"stages": stages})
        return ExplainAnswer(**entry.answer(), explanation=explanation)

    async def get(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> GetAnswer:
        """Return one record by handle or id, under its new id if it came back under one.

        Raises:
            NotFound: there is none.
            Unavailable: it cannot be read.
        """
        request = {"record_id": _record_id(asked)}
        async with self._core.reading(OperationType.GET, caller, scope, request, binding_key) as (
            entry,
            connection,
        ):
            record = await self._core.find(entry, connection, asked)
            if not readable([record], scope, entry.sight):
                raise connection.lacks(record.handle)
            note_owner(entry, [record.scope])
            entry.about([record])
            entry.source = record.source
        [received] = for_caller(caller, [record])
        return GetAnswer(**entry.answer(), record=received)

    async def browse(self, caller: Caller, request: BrowseRequest) -> BrowseAnswer:
        """Return one page of what is stored."""
        words, fuzzy, scope = request.filter.text, request.filter.fuzzy, request.scope
        clean = {
            "text": words and redact(words)[0],
            "fuzzy": tuple(redact(word)[0] for word in fuzzy),
        }
        asked: Json = {
            "filter": request.filter.model_dump(mode="json", exclude_defaults=True),
            "sort": request.sort,
            "limit": request.limit,
            "cursor": request.cursor,
        }
        if request.owners:
            asked["owners"] = _owners_json(request.owners)
        needs = "browse" if request.namespace is None else "namespace_changes"
        async with self._core.reading(
            OperationType.BROWSE, caller, scope, asked, request.binding_key, needs=needs
        ) as (entry, connection):
            routed = request.model_copy(
                update={
                    "binding_key": connection.binding.key,
                    "filter": request.filter.model_copy(update=clean),
                }
            )
            page = await connection.read(lambda: connection.adapter.browse(routed))
            records = readable(page.records, scope, entry.sight)
            entry.result_count, entry.usage = len(records), page.usage
            withheld = len(page.records) - len(records)
            _note_withheld(entry, withheld)
            entry.capped = page.at_least
        is_everybodys = not (scope.project_id or scope.subject_id)
        return BrowseAnswer(
            **entry.answer(),
            records=for_caller(caller, records),
            next_cursor=page.next_cursor,
            # Of a view of everybody's, the provider counts what the caller may not read too.
            total=None if withheld or (entry.sight and is_everybodys) else page.total,
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
        request = {"record_id": _record_id(asked)}
        async with self._core.reading(
            OperationType.HISTORY, caller, scope, request, binding_key
        ) as (entry, connection):
            handle = connection.handle_of(asked)
            ids, changes = await asyncio.to_thread(self._changes, connection, handle, entry.sight)
            handle = handle.model_copy(update={"provider_record_id": ids[0]})
            versions: tuple[RecordVersion, ...] = ()
            shown = [r.scope for one in changes for r in (one.before, one.after) if r]
            if entry.sight is not None and not shown:
                record = await self._core.find(entry, connection, handle)
                if not readable([record], scope, entry.sight):
                    raise connection.lacks(record.handle)
                shown = [record.scope]
            note_owner(entry, shown)
            if connection.adapter.capabilities.history:
                found = await connection.read(lambda: connection.adapter.history(handle, scope))
                versions = tuple(found)
            if not changes and not versions:
                entry.source = (await self._core.find(entry, connection, handle)).source
            sources = (*(one.operation.source for one in changes), *(v.source for v in versions))
            entry.source = entry.source or next((source for source in sources if source), None)
            entry.about([handle])
            entry.result_count = len(changes) + len(versions)
        return HistoryAnswer(
            **entry.answer(),
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
            for one in reversed(ids):
                found = journal.changes_of_record(database, company_id, key, one)
                for operation_id, step in found.items():
                    known = steps.get(operation_id)
                    steps[operation_id] = _joined(known, step) if known else step
        operations = self._core.log(company_id, sight).by_ids(list(steps))
        return ids, tuple(change_of(one, steps[one.operation_id], sight) for one in operations)


def change_of(operation: Operation, step: appending.Step, sight: Sight | None) -> Change:
    """Return a journal step as a person reads it who has this sight."""
    before, after = (
        snapshot.record
        if snapshot and snapshot.record and readable([snapshot.record], operation.scope, sight)
        else None
        for snapshot in step
    )
    return Change(operation=operation, before=before, after=after)


def _joined(old: appending.Step, new: appending.Step) -> appending.Step:
    """Join the two steps of an operation that gave a record another id."""
    before, after = old[0] if old[0].record else new[0], new[1]
    return before, after if after and after.record else old[1]


def _received(caller: Caller, change: Change) -> Change:
    before, after = (
        for_caller(caller, [record])[0] if record else None
        for record in (change.before, change.after)
    )
    return change.model_copy(update={"before": before, "after": after})


def _note_withheld(entry: RunningOperation, count: int) -> None:
    """Let the log say that the provider returned more than the caller may read."""
    if count:
        entry.request = {**entry.request, "withheld": count}


def _record_id(asked: RecordHandle | str) -> str:
    return asked if isinstance(asked, str) else asked.provider_record_id


def _owners_json(owners: Sequence[Scope]) -> list[str]:
    return [" ".join(owner_of(scope)) for scope in owners[:_LOGGED_OWNERS]]


def _redacted(request: QueryRequest) -> tuple[QueryRequest, Json]:
    """Return a query without its secrets, and what the log says of it."""
    clean = request.model_copy(
        update={
            "query": redact(request.query)[0],
            "topic": request.topic and redact(request.topic)[0],
            "metadata_filter": redact_json(request.metadata_filter)[0],
        }
    )
    optional = {
        "topic": clean.topic,
        "as_of": clean.as_of and clean.as_of.isoformat(),
        "owners": _owners_json(clean.owners),
        "metadata_filter": clean.metadata_filter,
    }
    return clean, {
        "query": clean.query[:_LOGGED_CHARS],
        "intent": clean.intent,
        "top_k": clean.top_k,
        **{name: value for name, value in optional.items() if value},
    }
