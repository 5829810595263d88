"""Plan which memories to prune, of one owner or of everybody, and find insights about them.

A plan changes nothing; forgetting its marked records applies it. Over all bindings, each one is
read with a time limit: one that is slow or fails is named with the reason, the others have plans.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Self

from memtui.context.assembly import SectionKind, assemble, fact_tokens, is_rule, section_of_records
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
from memtui.pruning.candidates import (
    REPEATS,
    PruneRules,
    Reason,
    RetrievalTally,
    find_across,
    find_candidates,
    in_order,
    is_risk,
)
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.insights import Insight, InsightRules, RatedRecord, find_insights
from memtui.pruning.patterns import FactVersion, find_patterns
from memtui.pruning.plan import PrunePlan, make_plan
from memtui.pruning.uses import Used, is_used_as, states_of
from memtui.pruning.worth import Worth, worth_of
from memtui.service.answers import OutcomesAnswer
from memtui.service.connections import Connection
from memtui.service.context.contexts import DEFAULT_MODEL, own_records
from memtui.service.history.log import LoggedOperations
from memtui.service.history.patterns import versions_of
from memtui.service.operations.everywhere import Everywhere, gather
from memtui.service.operations.redaction import redact
from memtui.service.recorder import FanOut
from memtui.service.review.known_risks import digests
from memtui.service.review.workspaces import Outdated, Workspaces
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import (
    AGENT_PREFIX,
    Caller,
    Permission,
    as_agents_read,
    is_org,
    memberships_of,
    refusal,
)
from memtui.store import risks
from memtui.store.details import BrowseDetails
from memtui.store.journal import Journal

_WITHIN_MS = 60_000
"""Longer than for a list, as a plan reads all records of a binding, not one page."""
_FORGOTTEN = 2_000
"""Most texts that people deleted and that records are compared with, newest first."""


class PruneRequest(Model):
    """The records to look through, and the rules for pruning."""

    scope: Scope
    kind: str | None = "fact"
    """None: every kind."""
    rules: PruneRules = PruneRules()
    model: str = DEFAULT_MODEL
    binding_key: str | None = None
    only_company: bool = False
    """For a scope of the company alone: only the company's own records; False: everybody's."""
    filter: Filter = Filter()
    """Only matching records are candidates; they are compared with all records."""
    workspace: Path | None = None
    """The workspace of the records for which none is set."""


class PruneAnswer(OutcomesAnswer):
    """The plans for one binding or several; they have changed nothing."""

    plans: dict[str, PrunePlan]
    """The plan of each binding that answered, by its key, in the order of the bindings."""
    insights: tuple[Insight, ...] = ()
    """Insights about the memories of all bindings."""
    budget: int | None = None
    """Tokens that the context should stay under; None: the plans are not of a context."""
    stuck: str = ""
    """Why no marks meet the budget, in a sentence; empty: some do."""

    @property
    def plan(self) -> PrunePlan:
        """The plan of the only binding."""
        [plan] = self.plans.values()
        return plan

    @property
    def limits(self) -> tuple[str, ...]:
        """What of the workspaces was not looked at, in sentences."""
        return tuple(dict.fromkeys(one for plan in self.plans.values() for one in plan.limits))

    @property
    def marked(self) -> dict[str, tuple[Record, ...]]:
        """The records to forget, by binding."""
        return {key: plan.marked for key, plan in self.plans.items() if plan.marked}

    @property
    def going(self) -> dict[str, list[RecordHandle]]:
        """The handles of the records to forget, by binding."""
        return {key: [one.handle for one in records] for key, records in self.marked.items()}

    @property
    def staying(self) -> dict[str, tuple[Record, ...]]:
        """The survivors of the marked records, by binding."""
        return {key: plan.staying for key, plan in self.plans.items()}

    @property
    def kept(self) -> Counter[str]:
        """Reasons why candidates cannot be forgotten, each with their number."""
        return Counter(why for plan in self.plans.values() for why in plan.kept)

    @property
    def tokens_before(self) -> int:
        """Tokens with all records."""
        return sum(plan.tokens_before for plan in self.plans.values())

    @property
    def tokens_after(self) -> int:
        """Tokens without the marked records."""
        return sum(plan.tokens_after for plan in self.plans.values())

    @property
    def several(self) -> bool:
        """Whether the records to forget are of several owners or bindings."""
        return self.together is not None

    def mark_reasons(self, reasons: Collection[Reason]) -> Self:
        """Return the plans with only the candidates of these reasons marked."""
        plans = {key: plan.mark_reasons(reasons) for key, plan in self.plans.items()}
        return self.model_copy(update={"plans": plans})


@dataclass(frozen=True, slots=True)
class _BindingRecords:
    """The records of one binding, with their uses and versions."""

    answer: Json
    """The fields of `OutcomesAnswer` for the operation that read them."""
    records: Sequence[Record]
    uses: Mapping[RecordHandle, RetrievalTally]
    counted_since: datetime
    versions: Sequence[FactVersion]
    kept: Mapping[Scope, str]
    """Why the caller cannot forget an owner's records; owners not named here can be."""
    outdated: Outdated
    people_only: bool


class Pruning(ServiceModule):
    """Plans which memories to prune."""

    async def plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Plan what to prune of a scope's own records; forgetting the marked ones applies it.

        The binding is the one named by the request, else by its filter, else the scope's.

        Raises:
            Invalid: the filter excludes that binding.
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
        so_far: Callable[[PruneAnswer], None] = lambda _answer: None,
    ) -> PruneAnswer:
        """Plan what to prune of every record that the caller sees, in every binding.

        Records are compared with those of the same owner in the same binding. The tokens saved are
        the sum of the records' lines, as no model reads all of them in one context.

        Args:
            caller: Who asks.
            request: The request, whose scope is the company and which names no binding.
            within_ms: Time limit for reading each binding; None: a minute, or
                `all_bindings_timeout_ms` if that is longer.
            so_far: Called with the plans so far, each time a binding answers.

        Raises:
            Invalid: the scope names an owner, or the request a binding.
            Denied: the caller sees nothing here.
            NotFound: there is no enabled binding.
        """
        if not is_org(request.scope) or request.binding_key is not None:
            raise Invalid("A review of all memories takes no owner and no binding; leave them out.")
        everywhere, settings = self._runtime.module(Everywhere), self._runtime.settings
        limit = within_ms or max(_WITHIN_MS, settings.all_bindings_timeout_ms)
        asked = await everywhere.begin(caller, limit, seen_only=True)
        asked.keep(request.filter)
        answers: dict[str, PruneAnswer] = {}
        known: dict[str, list[RatedRecord]] = {}
        instructing = set[str]()
        tokens_of, fits = _tokens_of(request.model), matcher(request.filter)
        planning = asyncio.Lock()
        """Plans are made one at a time, to leave processor time for the other threads."""

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
            if found.people_only:
                instructing.add(key)
            unused = RetrievalTally()
            known[key] = [
                RatedRecord(
                    item.record,
                    item.tokens,
                    found.uses.get(item.record.handle, unused),
                    found.counted_since,
                )
                for item in answer.plan.items
                if fits(item.record)
            ]
            return answer

        def answered(key: str, answer: PruneAnswer) -> None:
            answers[key] = answer
            asked.note(key, answer, len(answer.plan.items), capped=False)

        def so_far_known(insights: Sequence[Insight] = ()) -> PruneAnswer:
            plans = {key: answers[key].plan for key in asked.outcomes if key in answers}
            return PruneAnswer(**asked.values(), plans=plans, insights=tuple(insights))

        calls = {key: partial(one, key) for key in asked.outcomes}
        await gather(asked, calls, answered, lambda: so_far(so_far_known()))
        asked.refuse_silence()
        rules = InsightRules(
            still_days=request.rules.stale_days, unread_days=request.rules.unread_days
        )
        await asyncio.to_thread(
            self._compare_bindings, caller, answers, request.filter, tokens_of, instructing
        )
        everybodys = [one for found in known.values() for one in found]
        now = self._runtime.clock()
        return so_far_known(
            await asyncio.to_thread(find_insights, everybodys, now=now, rules=rules)
        )

    def _compare_bindings(
        self,
        caller: Caller,
        answers: dict[str, PruneAnswer],
        chosen: Filter,
        tokens_of: Callable[[str], int],
        instructing: Collection[str],
    ) -> None:
        """Add to the plans what another binding says too, or contradicts. Blocking."""
        now, fits = self._runtime.clock(), matcher(chosen)
        records = {key: [item.record for item in answer.plan.items]
                   for key, answer in answers.items()}  # fmt: skip
        fixed = {(key, item.record.handle) for key, answer in answers.items()
                 for item in answer.plan.items if item.kept}  # fmt: skip
        across = find_across(records, now=now, tokens_of=tokens_of, first=instructing, fixed=fixed)
        with self._runtime.database.read() as database:
            of = digests(database, caller.company_id)
            dismissed = risks.dismissed(database, caller.company_id)
        for key, candidates in across.items():
            plan = answers[key].plan
            passing = {item.record.handle for item in plan.items
                       if fits(item.record) and is_used_as(chosen, item.used, now)}  # fmt: skip
            more = [one for one, other in candidates if one.record.handle in passing
                    and of.mark(one.reason, one.record, [other]) not in dismissed]  # fmt: skip
            plan = plan.model_copy(update={"candidates": in_order([*plan.candidates, *more])})
            answers[key] = answers[key].model_copy(update={"plans": {key: plan}})

    async def contradictions(self, caller: Caller, binding_key: str, record: Record) -> set[str]:
        """Return the marks by which to dismiss that other bindings say otherwise than a record.

        A binding that cannot be read has none.
        """
        asked = await self._runtime.module(Everywhere).begin(caller, _WITHIN_MS, seen_only=True)
        owner = owner_scope(record.scope)
        request = PruneRequest(scope=owner, kind=None, only_company=is_org(owner))
        found: dict[str, _BindingRecords] = {}
        calls = {
            key: partial(self._read, caller, request, key, asked.fan_out)
            for key in asked.outcomes
            if key != binding_key
        }
        await gather(asked, calls, found.__setitem__)
        of = await self._runtime.ask(digests, caller.company_id)
        records = {binding_key: [record], **{key: one.records for key, one in found.items()}}
        first = {key for key, one in found.items() if one.people_only}
        now = self._runtime.clock()
        across = find_across(records, now=now, tokens_of=len, first=first)[binding_key]
        return {of.mark(one.reason, one.record, [other]) for one, other in across if is_risk(one)}

    async def _read(
        self,
        caller: Caller,
        request: PruneRequest,
        binding_key: str | None,
        fan_out: FanOut | None = None,
    ) -> _BindingRecords:
        """Read the scope's records in one binding; `fan_out`: as part of a read of all bindings."""
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
                    f"The filter excludes {key}, the binding to review; name another binding, or "
                    "review all memories."
                )
            own = own_records(
                connection,
                [request.scope],
                entry.visibility,
                kind=request.kind,
                everybodys=not request.only_company,
                expired=True,  # no query returns them, but they are still stored
            )
            records = [record async for _, part in own for record in part]
            entry.result_count = len(records)
            versions = await versions_of(runtime, entry, connection, records)
        # After the operation, as reading memtui's database does not count as the binding's latency.
        uses = await self._uses(caller, key, records, to_whom=fan_out is not None)
        kept = await self._kept(caller, connection, records)
        began = connection.binding.created_at
        outdated = await asyncio.to_thread(
            runtime.module(Workspaces).outdated, caller, records, connection.adapter.workspaces,
            request.workspace,
        )  # fmt: skip
        return _BindingRecords(entry.outcome(), records, uses, began, versions, kept, outdated,
                               connection.adapter.capabilities.people_only)  # fmt: skip

    async def _uses(
        self, caller: Caller, binding_key: str, records: Sequence[Record], *, to_whom: bool
    ) -> dict[RecordHandle, RetrievalTally]:
        """Return how often each record was read, when last, and, if `to_whom`, by which agents."""
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
        """Return why the caller cannot forget records, for each owner where that is so."""
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
            gone = Journal(database, caller.company_id).forgotten_by_hand(_FORGOTTEN)
            of = digests(database, caller.company_id)
            dismissed = risks.dismissed(database, caller.company_id)
        forgotten = {
            r.text: at for r, at in gone if visibility is None or visibility.reads(r.scope)
        }
        now = self._runtime.clock()
        candidates = find_candidates(
            found.records,
            now=now,
            tokens_of=tokens_of,
            retrievals=found.uses,
            counted_since=found.counted_since,
            forgotten=forgotten,
            rules=request.rules,
            vectors=static_vectors(),
            patterns=find_patterns(found.versions, now=now),
            secrets_of=lambda text: redact(text)[1],
            outdated=found.outdated.why,
        )
        fits, by_handle = matcher(request.filter), {one.handle: one for one in found.records}
        risky: dict[RecordHandle, set[str]] = defaultdict(set)
        spared: set[RecordHandle] = set()
        """The records with a dismissed risk."""
        kept = []
        for one in candidates:
            others = [by_handle[other] for other in one.others if other in by_handle]
            if is_risk(one) and of.mark(one.reason, one.record, others) in dismissed:
                spared.add(one.record.handle)
                continue
            kept.append(one)
            if is_risk(one):
                risky[one.record.handle].add(one.reason)
        repeats = {one.record.handle for one in kept if one.reason in REPEATS}

        def known_of(record: Record) -> frozenset[str]:
            return states_of(risky[record.handle], dismissed=record.handle in spared)

        def last_read(record: Record) -> datetime | None:
            return found.uses.get(record.handle, RetrievalTally()).last_at

        def lets_through(record: Record) -> bool:
            tokens, is_repeat = tokens_of(record.text), record.handle in repeats
            used = Used(last_read(record), tokens, is_repeat, known_of(record))
            return fits(record) and is_used_as(request.filter, used, now)

        reasons: defaultdict[RecordHandle, set[Reason]] = defaultdict(set)
        for one in kept:
            reasons[one.record.handle].add(one.reason)

        def worth(record: Record) -> Worth | None:
            if record.pinned or is_rule(record) or not lets_through(record):
                return None
            return worth_of(
                record,
                found.uses.get(record.handle, RetrievalTally()),
                reasons[record.handle],
                tokens=tokens_of(record.text),
                now=now,
                counted_since=found.counted_since,
                unread_days=request.rules.unread_days,
            )

        plan = make_plan(
            found.records,
            [one for one in kept if lets_through(one.record)],
            tokens_of=tokens_of,
            size_of=size_of,
            kept=lambda record: found.kept.get(owner_scope(record.scope), ""),
            last_read=last_read,
            worth=worth,
            risks=known_of,
            limits=found.outdated.limits,
        )
        return PruneAnswer(**found.answer, plans={found.answer["bindings"][0].binding_key: plan})


def _tokens_of(model: str) -> Callable[[str], int]:
    """Return a cached function that counts the tokens of a text, as long notes take a while."""
    return cache(partial(fact_tokens, counter=TokenCounter(model)))


def _agents(readers: Collection[str]) -> tuple[str, ...]:
    """Return the names of the agents that read a record; empty if a person read it too."""
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
