"""What of the memories could be pruned: gather the records, what is known of each, and plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from memtui.context.assembly import (
    SectionKind,
    assemble,
    fact_tokens,
    section_of_records,
)
from memtui.context.cost import TokenCounter
from memtui.contract import (
    BrowseRequest,
    Json,
    Model,
    OperationType,
    Problem,
    Record,
    Scope,
    own_filter,
    owned,
    owner_of,
)
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.plan import PrunePlan, PruneRules, Retrieval, find_candidates, make_plan
from memtui.service.answers import RetrievalCount
from memtui.service.connections import Connection
from memtui.service.context import DEFAULT_MODEL
from memtui.service.core import Group
from memtui.service.recorder import RunningOperation
from memtui.service.visibility import Caller, readable
from memtui.store import journal

_FORGOTTEN = 2_000
"""How many texts that people deleted are looked at, the newest first."""


class PruneRequest(Model):
    """What to look through, and what counts as a reason. `kind` None takes every record."""

    scope: Scope
    kind: str | None = "fact"
    rules: PruneRules = PruneRules()
    model: str = DEFAULT_MODEL
    binding_key: str | None = None


class PruneAnswer(Model):
    """A plan that has changed nothing yet; forgetting what it marks applies it."""

    operation_id: str
    binding_key: str
    plan: PrunePlan
    problems: tuple[Problem, ...] = ()
    """What could not be read, and so was not looked at."""


class Pruning(Group):
    """What could be pruned."""

    async def prune_plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Plan what to prune from a scope's own records; forgetting the marked ones applies it."""
        rules = request.rules.model_dump(mode="json")
        asked = {"kind": request.kind, "for": "prune", "rules": rules}
        own = self._own(caller, request.scope, request.binding_key, asked)
        async with own as (entry, connection, records):
            ids = [record.handle.provider_record_id for record in records]
            counts = await self._service.log.retrieval_stats(caller, connection.binding.key, ids)
            plan = await asyncio.to_thread(self._plan, caller, request, records, counts)
        return PruneAnswer(
            operation_id=entry.operation_id,
            binding_key=connection.binding.key,
            plan=plan,
            problems=entry.problems,
        )

    @asynccontextmanager
    async def _own(
        self, caller: Caller, scope: Scope, binding_key: str | None, asked: Json
    ) -> AsyncIterator[tuple[RunningOperation, Connection, list[Record]]]:
        """List a scope's own records of the kind and topic that are asked for, the oldest first."""
        async with self._core.connected(
            OperationType.BROWSE, caller, scope, asked, binding_key, needs="browse"
        ) as (entry, connection):
            chosen = own_filter(scope, kind=asked["kind"], topic=asked.get("topic"))
            request = BrowseRequest(scope=scope, filter=chosen, sort="created_at")
            records = [
                record
                async for page in connection.pages(request)
                for record in owned(readable(page.records, scope, entry.sight), scope)
            ]
            entry.result_count = len(records)
            yield entry, connection, records

    def _plan(
        self,
        caller: Caller,
        request: PruneRequest,
        records: Sequence[Record],
        counts: Mapping[str, RetrievalCount],
    ) -> PrunePlan:
        retrievals = {
            record.handle: Retrieval(count=found.count, last_at=found.last_at)
            for record in records
            if (found := counts.get(record.handle.provider_record_id)) is not None
        }
        sight = self._core.sight(caller)
        with self._core.database.read() as database:
            gone = journal.forgotten_by_hand(database, caller.company_id, _FORGOTTEN)
        forgotten = {r.text: at for r, at in gone if sight is None or sight.reads(r.scope)}
        counter, now = TokenCounter(request.model), self._core.clock()
        tokens_of = partial(fact_tokens, counter=counter)

        def size_of(kept: Sequence[Record]) -> int:
            section = section_of_records(_section_of(request.scope), kept, now=now)
            return assemble([section], counter=counter).tokens

        candidates = find_candidates(
            records,
            now=now,
            tokens_of=tokens_of,
            retrievals=retrievals,
            forgotten=forgotten,
            rules=request.rules,
            vectors=static_vectors(),
        )
        return make_plan(records, candidates, tokens_of=tokens_of, size_of=size_of)


def _section_of(scope: Scope) -> SectionKind:
    """Return the section of a context that the facts of a scope stand in."""
    sections = {"subject_id": SectionKind.USER, "project_id": SectionKind.WORKSPACE}
    return sections.get(owner_of(scope)[0], SectionKind.FACTS)
