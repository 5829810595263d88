"""What of a scope's own records could be pruned: a plan, which forgetting what it marks applies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from memtui.context.assembly import SectionKind, assemble, fact_tokens, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import (
    Model,
    OperationType,
    Problem,
    Record,
    Scope,
    owner_of,
)
from memtui.pruning.candidates import PruneRules, Retrieval, find_candidates
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.patterns import Version, find_patterns
from memtui.pruning.plan import PrunePlan, make_plan
from memtui.service.answers import RetrievalCount
from memtui.service.context import DEFAULT_MODEL, own_records
from memtui.service.core import Group
from memtui.service.patterns import versions_of
from memtui.service.redaction import redact
from memtui.service.visibility import Caller, as_agents_read
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
    only_company: bool = False
    """Of a scope of the company alone: only what is nobody else's; else it holds everybody's."""


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
        core, key = self._core, request.binding_key
        rules = request.rules.model_dump(mode="json")
        asked = {"kind": request.kind, "for": "prune", "rules": rules}
        async with core.connected(
            OperationType.BROWSE, caller, request.scope, asked, key, needs="browse"
        ) as (entry, connection):
            own = own_records(
                connection,
                [request.scope],
                entry.sight,
                kind=request.kind,
                everybodys=not request.only_company,
            )
            records = [record async for _, part in own for record in part]
            entry.result_count = len(records)
            ids = [record.handle.provider_record_id for record in records]
            counts = await self._service.log.retrieval_stats(caller, connection.binding.key, ids)
            versions = await versions_of(core, entry, connection, records)
            plan = await asyncio.to_thread(self._plan, caller, request, records, counts, versions)
        return PruneAnswer(
            operation_id=entry.operation_id,
            binding_key=connection.binding.key,
            plan=plan,
            problems=entry.problems,
        )

    def _plan(
        self,
        caller: Caller,
        request: PruneRequest,
        records: Sequence[Record],
        counts: Mapping[str, RetrievalCount],
        versions: Sequence[Version],
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
            told = as_agents_read(kept)
            section = section_of_records(section_of(request.scope), told, now=now)
            return assemble([section], counter=counter).tokens

        candidates = find_candidates(
            records,
            now=now,
            tokens_of=tokens_of,
            retrievals=retrievals,
            forgotten=forgotten,
            rules=request.rules,
            vectors=static_vectors(),
            patterns=find_patterns(versions, now=now),
            secrets_of=lambda text: redact(text)[1],
        )
        return make_plan(records, candidates, tokens_of=tokens_of, size_of=size_of)


def section_of(scope: Scope) -> SectionKind:
    """Return the section of a context that the facts of a scope stand in."""
    return {
        "subject_id": SectionKind.USER,
        "project_id": SectionKind.WORKSPACE,
        "agent_id": SectionKind.FACTS,
        "company_id": SectionKind.COMPANY,
    }[owner_of(scope)[0]]
