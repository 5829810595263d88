"""What a model will see before a run: gather the records, assemble the text, account for it.

The screen, the command and the pre-run hook all come here, so a person sees the very bytes that the
model gets (seed 000 "pre-run hydrate", seed 002's tiers, seed 004 §6.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field

from memtui.context.assembly import (
    DEFAULT_BUDGET,
    AssembledContext,
    SectionKind,
    assemble,
    fact_tokens,
    section_of_records,
    unread_warning,
)
from memtui.context.cost import Price, PromptShare, TokenCounter, price, share_of_prompt
from memtui.contract import (
    BrowseRequest,
    Invalid,
    Json,
    Model,
    OperationType,
    Problem,
    Record,
    Scope,
    SourceRef,
    own_filter,
    owned,
    owner_of,
)
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.plan import PrunePlan, PruneRules, Retrieval, find_candidates, make_plan
from memtui.service.answers import RetrievalCount
from memtui.service.connections import Connection
from memtui.service.core import Group
from memtui.service.recorder import RunningOperation
from memtui.service.visibility import Caller, readable
from memtui.store import journal
from memtui.store.operation import OperationHandle

DEFAULT_MODEL = "claude-sonnet-4-5"
_FORGOTTEN = 2_000
"""How many texts that people deleted are looked at, the newest first."""


class ContextRequest(Model):
    """Whose context, for which model, under which budget.

    A scope with a subject brings the user's facts, one with a project the workspace's, one with an
    agent the agent's identity, facts and guidance.
    """

    scope: Scope
    model: str = DEFAULT_MODEL
    budget: Annotated[int, Field(ge=0)] = DEFAULT_BUDGET
    """Tokens, advisory."""
    max_tokens: int | None = None
    max_characters: int | None = None
    """Hard limits of whoever carries the text."""
    topic: str | None = None
    """Brings the notes of this topic (tier L2)."""
    binding_key: str | None = None
    delivered: bool = False
    """True: a model gets it, so its records count as read. False: a person looks at it."""
    source: SourceRef | None = None


class ContextAnswer(AssembledContext):
    """The assembled context, with its price and its share of the whole prompt."""

    operation_id: str
    model: str
    price: Price
    share: PromptShare
    problems: tuple[Problem, ...] = ()
    """What could not be read where the parts are kept: the model is not told of it."""


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


class _Part(NamedTuple):
    """One read that a section is made of."""

    kind: SectionKind
    scope: Scope
    record_kind: str
    topic: str | None = None


class _Found(NamedTuple):
    """What a part's binding holds for it, and what of that could not be read."""

    binding_key: str
    records: list[Record]
    problems: tuple[Problem, ...]


class Contexts(Group):
    """What models will see, and what of it could be pruned."""

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble what a model will see before a run, with its tokens and its price.

        Raises:
            Invalid: the scope names neither a user, nor a project, nor an agent.
        """
        core, parts = self._core, _parts(request)
        asked = {"model": request.model, "budget": request.budget, "delivered": request.delivered}
        async with core.recorder.recorded(
            OperationType.CONTEXT, caller, request.scope, asked, request.source
        ) as entry:
            connection = await core.connect(entry, request.binding_key, needs="browse")
            if not parts:
                raise Invalid(
                    "A context needs somebody to be about: name a subject, project or agent."
                )
            found: dict[_Part, _Found] = {}
            for part in parts:
                told = {"kind": part.record_kind, "topic": part.topic, "for": "context"}
                own = self._own(caller, part.scope, request.binding_key, told)
                async with own as (read, its_connection, records):
                    pass
                found[part] = _Found(its_connection.binding.key, records, read.problems)
            assembled = await asyncio.to_thread(_assembled, request, found, core.clock())
            problems = tuple(dict.fromkeys(one for part in found.values() for one in part.problems))
            warnings = (*map(unread_warning, problems), *assembled.warnings)
            if request.delivered:
                entry.handles = _handles(assembled, found, connection.binding.key)
            entry.result_count = sum(len(section.facts) for section in assembled.sections)
            entry.request = asked | {
                "tokens": assembled.tokens,
                "over_budget": assembled.over_budget,
                "sections": {section.kind: section.tokens for section in assembled.sections},
            }
            if problems:
                entry.request["problems"] = len(problems)
        cost = await asyncio.to_thread(price, request.model, assembled.tokens, at=core.clock())
        # Its parts were just checked; checking ten thousand facts again would hold up the loop.
        return ContextAnswer.model_construct(
            **dict(assembled) | {"warnings": warnings},
            problems=problems,
            operation_id=entry.operation_id,
            model=request.model,
            price=cost,
            share=share_of_prompt(assembled.tokens),
        )

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


def _parts(request: ContextRequest) -> list[_Part]:
    company_id, scope = request.scope.company_id, request.scope
    parts = []
    if scope.agent_id:
        agent = Scope(company_id=company_id, agent_id=scope.agent_id)
        kinds = (
            (SectionKind.IDENTITY, "identity"),
            (SectionKind.FACTS, "fact"),
            (SectionKind.GUIDANCE, "guidance"),
        )
        parts += [_Part(kind, agent, record_kind) for kind, record_kind in kinds]
    if scope.subject_id:
        user = Scope(company_id=company_id, subject_id=scope.subject_id)
        parts.append(_Part(SectionKind.USER, user, "fact"))
    if scope.project_id:
        drive = Scope(company_id=company_id, project_id=scope.project_id)
        parts.append(_Part(SectionKind.WORKSPACE, drive, "fact"))
        if request.topic:
            parts.append(_Part(SectionKind.TOPIC, drive, "note", request.topic))
    return parts


def _assembled(
    request: ContextRequest, found: Mapping[_Part, _Found], now: datetime
) -> AssembledContext:
    return assemble(
        [section_of_records(part.kind, own.records, now=now) for part, own in found.items()],
        counter=TokenCounter(request.model),
        budget=request.budget,
        max_tokens=request.max_tokens,
        max_characters=request.max_characters,
    )


def _handles(
    assembled: AssembledContext, found: Mapping[_Part, _Found], own_binding: str
) -> tuple[OperationHandle, ...]:
    homes = {
        record.handle: part.binding_key
        for part in found.values()
        for record in part.records
        if part.binding_key != own_binding
    }
    included = [
        fact.handle for section in assembled.sections for fact in section.facts if fact.handle
    ]
    return tuple(
        OperationHandle(rank=rank, binding_key=homes.get(handle), **dict(handle))
        for rank, handle in enumerate(included, start=1)
    )


def _section_of(scope: Scope) -> SectionKind:
    """Return the section of a context that the facts of a scope stand in."""
    sections = {"subject_id": SectionKind.USER, "project_id": SectionKind.WORKSPACE}
    return sections.get(owner_of(scope)[0], SectionKind.FACTS)
