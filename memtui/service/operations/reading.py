"""The operations that read memories: query, explain, profile, get, browse, history.

Each is recorded with the binding that answered, and omits records that the caller may not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from memtui.contract import (
    BrowseRequest,
    ContextBundle,
    Denied,
    ExplainStage,
    Filter,
    Json,
    Link,
    Links,
    Matching,
    OperationType,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snippet,
    Usage,
    own_filter,
    owner_of,
)
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC, matcher
from memtui.service.answers import (
    BrowseAnswer,
    Change,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    ProfileAnswer,
    QueryAnswer,
    not_checked,
)
from memtui.service.connections import Connection
from memtui.service.operations.redaction import redact_json
from memtui.service.recorder import FanOut, RunningOperation, note_owner
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import (
    Caller,
    R,
    for_caller,
    is_org,
    may_read,
    readable,
    versions_for,
)
from memtui.store import appending
from memtui.store.details import BrowseDetails, QueryDetails, RecordDetails, without_empty
from memtui.store.journal import Journal
from memtui.store.limits import SHADOW
from memtui.store.operation import Operation
from memtui.store.visibility import Visibility, until
from memtui.threads import in_thread

if TYPE_CHECKING:
    from memtui.service.operations.uses import ReportProgress

_PAGE = 1_000
LOGGED_CHARS = 4_000
LOGGED_OWNERS = 100
"""Upper bounds of a logged query: characters of its text, and owners it is narrowed to."""
_LOGGED_RANKS = 50
"""For how many records a query's log has scores."""
_LEAST_SNIPPETS, _MOST_SNIPPETS = 50, 1_000
"""How many records to request from a provider that does not apply filters itself."""


Passing: TypeAlias = Callable[[Sequence[Snippet]], Awaitable[Sequence[Snippet]]]
"""Returns those of a provider's results that pass a test which the provider does not know."""


class MemoryReads(ServiceModule):
    """The operations that read memories."""

    async def query(
        self, caller: Caller, request: QueryRequest, *, fan_out: FanOut | None = None
    ) -> QueryAnswer:
        """Find records relevant to a text; `fan_out`: as one of several bindings."""
        caller = caller.at(request.as_of)
        clean, asked = _redacted_query(request)
        needs = "agents_search" if request.matching is Matching.AGENTS else None
        async with self._runtime.connected(
            OperationType.QUERY, caller, request.scope, asked, request.binding_key, needs=needs,
            fan_out=fan_out,
        ) as (entry, connection):  # fmt: skip
            update = {"binding_key": connection.binding.key, "helped": frozenset()}
            routed = clean.model_copy(update=update)
            is_preamble = request.intent is QueryIntent.AGENT_PREAMBLE
            if is_preamble:
                routed = await self._with_helped(caller, connection, routed)
            passing, unchecked = None, set[RecordHandle]()
            has_held = entry.visibility is not None and entry.has_held
            if clean.filter.uses or has_held:
                passing = self._passing(entry, connection, clean.filter, unchecked)
            bundle, all_topics = await _narrowed(connection, routed, passing), False
            if routed.topic is not None:
                bundle, all_topics = await _widened(connection, routed, bundle, passing)
            if all_topics:
                entry.request["all_topics"] = True
            snippets = _readable(entry, bundle.snippets)
            entry.about(snippets)
            note_owner(entry, [snippet.scope for snippet in snippets])
            if has_held:
                bundle = bundle.model_copy(update={"profile_summary": None})
            elif is_preamble:
                bundle = await _with_profile(entry, connection, routed, bundle)
            entry.usage, entry.capped = bundle.usage, bundle.capped
            ids = [snippet.handle.provider_record_id for snippet in snippets]
            stages = tuple(stage.of(ids) for stage in bundle.stages)
            if stages:
                entry.request["stages"] = _stages_json(stages, ids)
            if caller.purpose == SHADOW:
                entry.request["record_ids"] = ids
        return QueryAnswer.like(
            bundle,
            **entry.outcome(
                capped=bundle.capped, unread=not_checked(len(unchecked)) if unchecked else ()
            ),
            snippets=for_caller(caller, snippets),
            stages=stages,
            all_topics=all_topics,
            withheld=entry.request.get("withheld", 0),
        )

    async def explain(self, caller: Caller, request: QueryRequest) -> ExplainAnswer:
        """Trace how a query is answered; only records that the caller may read are named."""
        caller = caller.at(request.as_of)
        clean, asked = _redacted_query(request)
        scope = request.scope
        async with self._runtime.connected(
            OperationType.EXPLAIN, caller, scope, asked, request.binding_key, needs="explain"
        ) as (entry, connection):
            update = {"binding_key": connection.binding.key, "helped": frozenset()}
            routed = clean.model_copy(update=update)
            if request.intent is QueryIntent.AGENT_PREAMBLE:
                routed = await self._with_helped(caller, connection, routed)
            explanation = await connection.read(lambda: connection.adapter.explain(routed))
            entry.usage = explanation.usage
            if entry.visibility is not None:
                shown: set[str] = set()
                for name in {one for stage in explanation.stages for one in stage.scores}:
                    handle = connection.handle_of(name)
                    record = await connection.read(partial(connection.adapter.get, handle, scope))
                    if record and readable(
                        [record], scope, entry.visibility, connection.binding.key
                    ):
                        shown.add(name)
                stages = tuple(stage.of(shown) for stage in explanation.stages)
                explanation = explanation.model_copy(update={"stages": stages})
        return ExplainAnswer(**entry.answer(), explanation=explanation)

    def _passing(
        self,
        entry: RunningOperation,
        connection: Connection,
        chosen: Filter,
        unchecked: set[RecordHandle],
    ) -> Passing:
        """Return the test of an answer's records for risks and holds, which no provider knows.

        Visible records whose risks are not checked go into `unchecked`.
        """

        async def passing(found: Sequence[Snippet]) -> Sequence[Snippet]:
            seen = _readable(entry, found)
            if not chosen.uses:
                return seen
            from memtui.service.review.known_risks import KnownRisks  # few filters name risks

            known, key = self._runtime.module(KnownRisks), connection.binding.key
            passed, more = await known.passing(entry.caller, key, chosen, seen)
            unchecked.update(more)
            return passed

        return passing

    async def _with_helped(
        self, caller: Caller, connection: Connection, request: QueryRequest
    ) -> QueryRequest:
        """Return the query for a preamble with the records of its binding that helped before."""
        log = await asyncio.to_thread(self._runtime.log_of, caller)
        helped = await asyncio.to_thread(log.helped, connection.binding.key)
        return request.model_copy(update={"helped": helped})

    async def profile(
        self, caller: Caller, scope: Scope, *, binding_key: str | None = None
    ) -> ProfileAnswer:
        """Return the provider's profile of a scope (seed 000, `profile(scope)`).

        Raises:
            Denied: an agent asks, and a record of the binding is held for review.
        """
        async with self._runtime.connected(
            OperationType.PROFILE, caller, scope, {}, binding_key, needs="profile"
        ) as (entry, connection):
            if entry.has_held:
                raise Denied(
                    f"A summary of {connection.binding.key} may be made of records that are held "
                    "for review; ask again once a person has decided on them."
                )
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
            if not readable([record], scope, entry.visibility, connection.binding.key):
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
        """Return one page of the stored records.

        Args:
            caller: Who asks.
            request: The page.
            fan_out: Set where several bindings are listed at once.
            report: Receives the progress while the whole scope is read first, as for `dup:`.
            all_problems: Return every unreadable item; fail where that cannot be determined.
            to_show: Read for another operation's answer; the log neither lists nor counts it.
        """
        caller = caller.at(request.as_of)
        scope = request.scope
        chosen = _redacted_filter(request.filter)
        asked: BrowseDetails = {
            "filter": chosen.model_dump(mode="json", exclude_defaults=True),
            "sort": request.sort,
            "limit": request.limit,
            "cursor": request.cursor,
        }
        if request.owners:
            asked["owners"] = _owners_json(request.owners)
        needs = "browse" if request.namespace is None else "namespace_changes"
        async with self._runtime.connected(
            OperationType.BROWSE, caller, scope, asked, request.binding_key, needs=needs,
            fan_out=fan_out, all_problems=all_problems,
        ) as (entry, connection):  # fmt: skip
            entry.to_show |= to_show
            update = {"binding_key": connection.binding.key, "filter": chosen}
            routed = request.model_copy(update=update)
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
        is_owners = (
            bool(scope.project_id or scope.subject_id)
            and not entry.has_held
            and (
                adapter.capabilities.validity or adapter.only_facts  # list only that owner
            )
        )
        is_all = request.cursor is None and page.next_cursor is None
        is_whole = entry.visibility is None or is_owners or is_all
        return BrowseAnswer.like(
            page,
            **entry.outcome(capped=page.at_least or page.unfinished, unread=page.unread),
            records=for_caller(caller, records),
            links=linked,
            # The provider's total also counts records of others that the caller may not read.
            total=page.total if is_whole and len(records) == len(page.records) else None,
        )

    async def has_records(
        self, caller: Caller, owner: Scope, *, binding_key: str | None = None
    ) -> bool:
        """Return whether a binding has records of an owner; logged as memtui's own read.

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
            # Without a journaled state, the record itself tells whether the caller may read it.
            if not shown and (entry.visibility is not None or caller.by_ai):
                record = await self._runtime.find(entry, connection, handle)
                if not readable([record], scope, entry.visibility, connection.binding.key):
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
        # If any state was company-wide, agents get the texts with the prefix of such memory.
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
            journal = Journal(database, company_id)
            ids = journal.ids_of(key, handle.provider_record_id)
            for one in reversed(ids):
                for operation_id, step in journal.changes_of_record(key, one).items():
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


def _redacted_query(request: QueryRequest) -> tuple[QueryRequest, QueryDetails]:
    """Return a query without its secrets, and its members for the log."""
    free = {name: getattr(request, name) for name in ("query", "topic", "metadata_filter")}
    update = redact_json(free)[0] | {"filter": _redacted_filter(request.filter)}
    clean = request.model_copy(update=update)
    optional: QueryDetails = {
        "topic": clean.topic,
        "filter": clean.filter.model_dump(mode="json", exclude_defaults=True),
        "owners": _owners_json(clean.owners) if clean.owners else [],
        "metadata_filter": clean.metadata_filter,
    }
    if clean.matching is Matching.AGENTS:
        optional["matching"] = clean.matching
    return clean, {
        "query": clean.query[:LOGGED_CHARS],
        "intent": clean.intent,
        "top_k": clean.top_k,
        **without_empty(optional),
    }


def _redacted_filter(wanted: Filter) -> Filter:
    """Return a filter without the secrets in its words."""
    if wanted.alternatives:
        alternatives = tuple(map(_redacted_filter, wanted.alternatives))
        wanted = wanted.model_copy(update={"alternatives": alternatives})
    words = wanted.model_dump(include={"text", "topic", "tag", "kind"})
    lists = {"fuzzy": list(wanted.fuzzy), "terms": [list(one.values) for one in wanted.terms]}
    clean, labels = redact_json({**words, **lists})
    if not labels:
        return wanted
    terms = tuple(
        one.model_copy(update={"values": tuple(values)})
        for one, values in zip(wanted.terms, clean["terms"], strict=True)
    )
    return wanted.model_copy(update={**clean, "fuzzy": tuple(clean["fuzzy"]), "terms": terms})


def _owners_json(owners: Sequence[Scope]) -> list[str]:
    """Return the owners that a request is narrowed to, for the log."""
    return [" ".join(owner_of(scope)) for scope in owners[:LOGGED_OWNERS]]


async def _widened(
    connection: Connection,
    request: QueryRequest,
    bundle: ContextBundle,
    passing: Passing | None,
) -> tuple[ContextBundle, bool]:
    """Search all topics where the request's topic has too few records; return whether it did."""
    fitting = of_topic(bundle.snippets, request.topic)
    if len(fitting) < len(bundle.snippets):  # the provider has done so itself
        return bundle, True
    if len(fitting) >= min(ENOUGH_OF_TOPIC, request.top_k):
        return bundle, False
    whole = await _narrowed(connection, request.model_copy(update={"topic": None}), passing)
    return whole.model_copy(update={"usage": bundle.usage + whole.usage}), True


def of_topic(found: Sequence[R], topic: str | None) -> list[R]:
    """Return the records for a topic; a record without a topic counts for every topic."""
    return [one for one in found if topic is None or one.topic in {None, topic}]


async def _narrowed(
    connection: Connection, request: QueryRequest, passing: Passing | None
) -> ContextBundle:
    """Answer a query with the records that pass its filter, and then `passing`, if it is given.

    A provider that returns others too is asked for more, until enough pass.
    """
    request = request.model_copy(update={"filter": request.filter.model_copy(update={"uses": ()})})
    passes = None if request.filter == Filter() else matcher(request.filter)
    asked = request.top_k
    usage: tuple[Usage, ...] = ()
    while True:
        wider = request.model_copy(update={"top_k": asked})
        bundle = await connection.read(partial(connection.adapter.query, wider))
        usage += bundle.usage
        found = bundle.snippets if passes is None else tuple(filter(passes, bundle.snippets))
        if passing is not None:
            found = tuple(await passing(found))
        more = bundle.capped and len(bundle.snippets) >= asked and asked < _MOST_SNIPPETS
        if not more or len(found) == len(bundle.snippets) or len(found) >= request.top_k:
            return bundle.model_copy(
                update={
                    "snippets": found[: request.top_k],
                    "capped": bundle.capped or len(found) > request.top_k,
                    "usage": usage,
                }
            )
        asked = min(_MOST_SNIPPETS, max(_LEAST_SNIPPETS, 4 * asked))


def _stages_json(stages: Iterable[ExplainStage], ids: Sequence[str]) -> list[Json]:
    """Return the stages of an answer for its logged request: scores by rank, no record's id.

    `Operation.stages` reads them.
    """
    found = []
    for stage in stages:
        scores = [stage.scores.get(one) for one in ids[:_LOGGED_RANKS]]
        by_rank = {"scores": scores} if any(score is not None for score in scores) else {}
        found.append({"name": stage.name, "detail": stage.detail, **by_rank})
    return found


async def _with_profile(
    entry: RunningOperation, connection: Connection, request: QueryRequest, bundle: ContextBundle
) -> ContextBundle:
    """Add the provider's profile, if it has one, to the answer for a preamble."""
    # A profile is of now, and of all records of the scope, hidden ones included.
    may_see_profile = entry.caller.as_of is None and not (entry.seen_only and is_org(entry.scope))
    if not may_see_profile or bundle.profile_summary or not connection.adapter.capabilities.profile:
        return bundle
    found = await connection.read(lambda: connection.adapter.profile(request.scope))
    update = {"profile_summary": found.summary or None, "usage": (*bundle.usage, *found.usage)}
    return bundle.model_copy(update=update)


def change_of(operation: Operation, step: appending.Step, visibility: Visibility | None) -> Change:
    """Return a journal step as a visibility shows it."""
    scope, key = operation.scope, operation.binding_key or ""
    before, after = (
        snapshot.record
        if snapshot and snapshot.record and readable([snapshot.record], scope, visibility, key)
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
    key = entry.binding.key if entry.binding else ""
    kept = readable(found, entry.scope, entry.visibility, key)
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
    held = set[RecordHandle]()
    if entry.visibility is not None and entry.has_held:
        every = (link.handle for one in found.values() for link in (*one.links, *one.backlinks))
        ends = [*dict.fromkeys(filter(None, every))]
        for handle, now in zip(ends, await connection.snapshots(ends, entry.scope), strict=True):
            place = connection.binding.key, handle.provider_record_id
            if entry.visibility.hides(place, now.record.text if now.record else ""):
                held.add(handle)
    return {record_id: _seen_links(one, entry, held) for record_id, one in found.items()}


def _seen_links(found: Links, entry: RunningOperation, held: Collection[RecordHandle]) -> Links:
    """Remove the targets of links to hidden records, and the backlinks from them."""

    def may_see(link: Link) -> bool:
        return link.handle not in held and may_read(link.scope, entry.scope, entry.visibility)

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
