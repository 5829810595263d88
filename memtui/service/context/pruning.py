"""What could be pruned, of one owner's memories or of all: a plan, and what shows over them.

Forgetting what a plan marks applies it. Over all bindings each one is read as it is alone, in its
own time: one that is slow or fails is named with its reason, and the plans of the others stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from memtui.context.assembly import SectionKind, assemble, fact_tokens, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    Json,
    Model,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    owner_of,
    owner_scope,
)
from memtui.provider_kit.matching import matcher
from memtui.pruning.candidates import REPEATS, PruneRules, RetrievalTally, find_candidates
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.insights import Insight, InsightRules, RatedRecord, find_insights
from memtui.pruning.patterns import FactVersion, find_patterns
from memtui.pruning.plan import PrunePlan, make_plan
from memtui.pruning.uses import Used, is_used_as
from memtui.service.answers import Answer
from memtui.service.connections import Connection
from memtui.service.context.contexts import DEFAULT_MODEL, own_records
from memtui.service.history.log import LoggedOperations
from memtui.service.history.patterns import versions_of
from memtui.service.operations.everywhere import Everywhere, EverywhereAnswer, gather
from memtui.service.operations.redaction import redact
from memtui.service.runtime import FanOut, ServiceModule
from memtui.service.visibility import (
    AGENT_PREFIX,
    Caller,
    Permission,
    as_agents_read,
    is_org,
    memberships_of,
    refusal,
)
from memtui.store import journal
from memtui.store.details import BrowseDetails

_WITHIN_MS = 60_000
"""Longer than for a list: a plan reads all records of a binding, not one page."""
_FORGOTTEN = 2_000
"""Most texts deleted by people that are compared, newest first."""


class PruneRequest(Model):
    """What to look through, and what counts as a reason. `kind` None takes every record."""

    scope: Scope
    kind: str | None = "fact"
    rules: PruneRules = PruneRules()
    model: str = DEFAULT_MODEL
    binding_key: str | None = None
    only_company: bool = False
    """Of a scope of the company alone: only what is nobody else's; else it holds everybody's."""
    filter: Filter = Filter()
    """Narrows what could go; what stays beside it and is compared with it is everything."""


class PruneAnswer(Answer):
    """A plan that has changed nothing yet; forgetting what it marks applies it."""

    plan: PrunePlan


class PruneEverywhere(EverywhereAnswer):
    """The plans of several bindings, and what shows over the memories of each owner."""

    answers: tuple[PruneAnswer, ...]
    """One a binding that answered, in the order of the bindings."""
    insights: tuple[Insight, ...]


@dataclass(frozen=True, slots=True)
class _BindingRecords:
    """What one binding holds, and what is known of it."""

    answer: Json
    """What every answer says of the operation that read it."""
    records: Sequence[Record]
    uses: Mapping[RecordHandle, RetrievalTally]
    versions: Sequence[FactVersion]
    kept: Mapping[Scope, str]
    """Why the records of an owner cannot be forgotten, where they cannot."""


class Pruning(ServiceModule):
    """What could be pruned."""

    async def plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Plan what to prune from a scope's own records; forgetting the marked ones applies it.

        The binding is the one that is named, by the request or by its filter, else the scope's.

        Raises:
            Invalid: the filter leaves that binding out.
        """
        found = await self._read(caller, request, request.binding_key or request.filter.binding_key)

        def size_of(kept: Sequence[Record]) -> int:
            read = as_agents_read(kept)
            now = self._runtime.clock()
            section = section_of_records(section_of(request.scope), read, now=now)
            return assemble([section], counter=TokenCounter(request.model)).tokens

        tokens_of = _tokens_of(request.model)
        return await asyncio.to_thread(self._planned, caller, request, found, tokens_of, size_of)

    async def everything(
        self,
        caller: Caller,
        request: PruneRequest,
        *,
        within_ms: int | None = None,
        so_far: Callable[[PruneEverywhere], None] = lambda _answer: None,
    ) -> PruneEverywhere:
        """Plan what to prune of all that the caller sees: every owner's, in every binding.

        Records are held against those of their own owner in their own binding. What is saved is the
        sum of the records' lines, as no model reads all of them at once.

        Args:
            caller: Who asks.
            request: What to look through, of the whole company and no binding in particular.
            within_ms: How long reading each binding may take; None: a minute, or longer where
                `all_bindings_timeout_ms` is.
            so_far: Is given what is known as each binding answers.

        Raises:
            Invalid: the scope names an owner, or the request a binding.
            Denied: the caller sees nothing here.
            NotFound: no binding is there to ask.
        """
        if not is_org(request.scope) or request.binding_key is not None:
            raise Invalid("Everything is looked through, so name no owner and no binding.")
        everywhere, settings = self._runtime.module(Everywhere), self._runtime.settings
        limit = within_ms or max(_WITHIN_MS, settings.all_bindings_timeout_ms)
        asked = await everywhere.begin(caller, limit, seen_only=True)
        asked.keep(request.filter)
        answers: dict[str, PruneAnswer] = {}
        known: dict[str, list[RatedRecord]] = {}
        tokens_of, fits = _tokens_of(request.model), matcher(request.filter)
        planning = asyncio.Lock()
        """One after the other, so that whoever else runs here gets half of a processor's time."""

        began = self._runtime.clock()

        def size_of(kept: Sequence[Record]) -> int:
            read = (one for one in kept if one.expires_at is None or one.expires_at > began)
            return sum(tokens_of(one.text) for one in read)

        async def one(key: str) -> PruneAnswer:
            found = await self._read(caller, request, key, asked.fan_out)
            async with planning:
                answer = await asyncio.to_thread(
                    self._planned, caller, request, found, tokens_of, size_of
                )
            unused = RetrievalTally()
            known[key] = [
                RatedRecord(item.record, item.tokens, found.uses.get(item.record.handle, unused))
                for item in answer.plan.items
                if fits(item.record)
            ]
            return answer

        def answered(key: str, answer: PruneAnswer) -> None:
            answers[key] = answer
            asked.note(key, answer, len(answer.plan.items), capped=False)

        def so_far_known(insights: Sequence[Insight] = ()) -> PruneEverywhere:
            there = tuple(answers[key] for key in asked.outcomes if key in answers)
            return PruneEverywhere(**asked.values(), answers=there, insights=tuple(insights))

        calls = {key: partial(one, key) for key in asked.outcomes}
        await gather(asked, calls, answered, lambda: so_far(so_far_known()))
        asked.refuse_silence()
        rules = InsightRules(
            still_days=request.rules.stale_days, unread_days=request.rules.unread_days
        )
        everybodys = [one for found in known.values() for one in found]
        now = self._runtime.clock()
        return so_far_known(
            await asyncio.to_thread(find_insights, everybodys, now=now, rules=rules)
        )

    async def _read(
        self,
        caller: Caller,
        request: PruneRequest,
        binding_key: str | None,
        fan_out: FanOut | None = None,
    ) -> _BindingRecords:
        """Read what one binding holds of the scope; with a share it is part of everything."""
        runtime = self._runtime
        rules = request.rules.model_dump(mode="json")
        asked = BrowseDetails(kind=request.kind, purpose="prune", rules=rules)
        async with runtime.connected(
            OperationType.BROWSE,
            caller,
            request.scope,
            asked,
            binding_key,
            needs="browse",
            fan_out=fan_out,
        ) as (entry, connection):
            key = connection.binding.key
            if not request.filter.allows("binding_key", key):
                raise Invalid(
                    f"The filter leaves out the binding {key}, which would be looked through; name "
                    "one binding, or look through everything."
                )
            own = own_records(
                connection,
                [request.scope],
                entry.visibility,
                kind=request.kind,
                everybodys=not request.only_company,
                expired=True,  # nobody is told of them, and they are still stored
            )
            records = [record async for _, part in own for record in part]
            entry.result_count = len(records)
            versions = await versions_of(runtime, entry, connection, records)
        # What memtui itself looks up is not the binding's time.
        uses = await self._uses(caller, key, records, to_whom=fan_out is not None)
        kept = await self._kept(caller, connection, records)
        return _BindingRecords(entry.answer(), records, uses, versions, kept)

    async def _uses(
        self, caller: Caller, binding_key: str, records: Sequence[Record], *, to_whom: bool
    ) -> dict[RecordHandle, RetrievalTally]:
        """Return how often each record was read, when last, and `to_whom` where that is asked."""
        handles = {one.handle.provider_record_id: one.handle for one in records}
        counts = await self._runtime.module(LoggedOperations).retrieval_stats(
            caller, binding_key, list(handles)
        )
        readers: Mapping[str, set[str]] = {}
        if to_whom and counts:
            log = self._runtime.log_of(caller)
            readers = await asyncio.to_thread(log.readers, binding_key, list(counts))
        return {
            handles[name]: RetrievalTally(
                count=found.count,
                last_at=found.last_at,
                agents=_agents(readers.get(name, set())),
                helped=found.helped,
                not_helped=found.not_helped,
            )
            for name, found in counts.items()
        }

    async def _kept(
        self, caller: Caller, connection: Connection, records: Sequence[Record]
    ) -> dict[Scope, str]:
        """Return why the caller cannot forget the records of each owner, where that is so."""
        key = connection.binding.key
        owners = {owner_scope(one.scope) for one in records}
        routed = await self._runtime.resolve(caller, Scope(company_id=caller.company_id), key)
        memberships = memberships_of(routed.memberships, caller)
        closed = ""
        if not connection.adapter.capabilities.writable:
            closed = f"{key} is read-only: its provider cannot write."
        if routed.binding.read_only:
            closed = f"{key} is read-only."
        try:
            self._runtime.refuse_read_only(caller.company_id if routed.company_read_only else None)
        except Denied as error:
            closed = str(error)
        why = {
            owner: closed
            or (refusal(memberships, Permission.DELETE, owner) if memberships is not None else None)
            for owner in owners
        }
        return {owner: sentence for owner, sentence in why.items() if sentence}

    def _planned(
        self,
        caller: Caller,
        request: PruneRequest,
        found: _BindingRecords,
        tokens_of: Callable[[str], int],
        size_of: Callable[[Sequence[Record]], int],
    ) -> PruneAnswer:
        """Find the records that could be pruned. Blocking."""
        visibility = self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            gone = journal.forgotten_by_hand(database, caller.company_id, _FORGOTTEN)
        forgotten = {
            r.text: at for r, at in gone if visibility is None or visibility.reads(r.scope)
        }
        now = self._runtime.clock()
        candidates = find_candidates(
            found.records,
            now=now,
            tokens_of=tokens_of,
            retrievals=found.uses,
            forgotten=forgotten,
            rules=request.rules,
            vectors=static_vectors(),
            patterns=find_patterns(found.versions, now=now),
            secrets_of=lambda text: redact(text)[1],
        )
        fits = matcher(request.filter)
        repeats = {one.record.handle for one in candidates if one.reason in REPEATS}

        def last_read(record: Record) -> datetime | None:
            return found.uses.get(record.handle, RetrievalTally()).last_at

        def lets_through(record: Record) -> bool:
            used = Used(last_read(record), tokens_of(record.text), record.handle in repeats)
            return fits(record) and is_used_as(request.filter, used, now)

        plan = make_plan(
            found.records,
            [one for one in candidates if lets_through(one.record)],
            tokens_of=tokens_of,
            size_of=size_of,
            kept=lambda record: found.kept.get(owner_scope(record.scope), ""),
            last_read=last_read,
        )
        return PruneAnswer(**found.answer, plan=plan)


def _tokens_of(model: str) -> Callable[[str], int]:
    """Return what counts the tokens of a text, once for all who ask: long notes take a while."""
    return cache(partial(fact_tokens, counter=TokenCounter(model)))


def _agents(readers: Collection[str]) -> tuple[str, ...]:
    """Return the names of those who read a record; none where a person did as well."""
    is_read_by_people = any(not one.startswith(AGENT_PREFIX) for one in readers)
    names = () if is_read_by_people else readers
    return tuple(sorted(one.removeprefix(AGENT_PREFIX) for one in names))


def section_of(scope: Scope) -> SectionKind:
    """Return the section of a context that contains the facts of a scope."""
    return {
        "subject_id": SectionKind.USER,
        "project_id": SectionKind.WORKSPACE,
        "agent_id": SectionKind.FACTS,
        "company_id": SectionKind.COMPANY,
    }[owner_of(scope)[0]]
