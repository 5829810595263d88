"""Plan what to prune from a scope, with what the log knows about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memtui.context.assembly import SectionKind, assemble, fact_tokens, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import (
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
from memtui.service import inspection
from memtui.service.answers import Caller
from memtui.service.connections import Connection
from memtui.service.core import Core
from memtui.service.hydration import DEFAULT_MODEL
from memtui.service.reads import everything, note_problems
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


async def plan(core: Core, caller: Caller, request: PruneRequest) -> PruneAnswer:
    """Return what could be pruned of a scope's own records, each with its reasons."""
    asked = {"kind": request.kind, "for": "prune", "rules": request.rules.model_dump(mode="json")}
    async with core.recorder.recorded(OperationType.BROWSE, caller, request.scope, asked) as entry:
        connection = await core.connect(entry, request.binding_key, needs="browse")
        chosen = own_filter(request.scope, kind=request.kind)
        records = owned(
            await everything(connection, request.scope, chosen, entry.sight), request.scope
        )
        entry.result_count = len(records)
        await note_problems(entry, connection)
        made = await asyncio.to_thread(_plan, core, caller, connection, request, records)
    return PruneAnswer(
        operation_id=entry.operation_id,
        binding_key=connection.binding.key,
        plan=made,
        problems=entry.problems,
    )


def _plan(
    core: Core,
    caller: Caller,
    connection: Connection,
    request: PruneRequest,
    records: Sequence[Record],
) -> PrunePlan:
    ids = [record.handle.provider_record_id for record in records]
    counts = inspection.retrieval_stats(core, caller, connection.binding.key, ids)
    retrievals = {
        record.handle: Retrieval(count=found.count, last_at=found.last_at)
        for record in records
        if (found := counts.get(record.handle.provider_record_id)) is not None
    }
    sight = core.sight(caller)
    with core.database.read() as database:
        gone = journal.forgotten_by_hand(database, caller.company_id, _FORGOTTEN)
    forgotten = {r.text: at for r, at in gone if sight is None or sight.reads(r.scope)}
    counter = TokenCounter(request.model)

    def tokens_of(text: str) -> int:
        return fact_tokens(text, counter)

    def size_of(kept: Sequence[Record]) -> int:
        section = section_of_records(_section_of(request.scope), kept, now=core.clock())
        return assemble([section], counter=counter).tokens

    candidates = find_candidates(
        records,
        now=core.clock(),
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
