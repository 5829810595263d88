"""What a model will see before a run: gather the records, assemble the text, account for it.

The screen, the command and the pre-run hook all come here, so a person sees the very bytes that the
model gets (seed 000 "pre-run hydrate", seed 002's tiers, seed 004 §6.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from memtui.context.assembly import (
    DEFAULT_BUDGET,
    AssembledContext,
    ContextSection,
    SectionKind,
    assemble,
    fact_tokens,
    section_of_records,
    unread_warning,
)
from memtui.context.cost import Price, PromptShare, TokenCounter, price, share_of_prompt
from memtui.contract import (
    Invalid,
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
from memtui.service.answers import Caller, RetrievalCount
from memtui.service.core import Core, Group
from memtui.service.log import Log
from memtui.service.reads import everything, note_problems
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


class _Part(Model):
    """One read that a section is made of."""

    kind: SectionKind
    scope: Scope
    record_kind: str
    topic: str | None = None


class Contexts(Group):
    """What models will see, and what of it could be pruned."""

    def __init__(self, core: Core, log: Log) -> None:
        super().__init__(core)
        self._log = log

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble what a model will see.

        Raises:
            Invalid: the scope names neither a user, nor a project, nor an agent.
        """
        parts = _parts(request)
        asked = {"model": request.model, "budget": request.budget, "delivered": request.delivered}
        async with self._core.recorder.recorded(
            OperationType.CONTEXT, caller, request.scope, asked, request.source
        ) as entry:
            connection = await self._core.connect(entry, request.binding_key, needs="browse")
            if not parts:
                raise Invalid(
                    "A context needs somebody to be about: name a subject, project or agent."
                )
            found = {part: await self._gather(caller, part, request.binding_key) for part in parts}
            assembled = await asyncio.to_thread(self._assemble, request, found)
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
        cost = await asyncio.to_thread(
            price, request.model, assembled.tokens, at=self._core.clock()
        )
        # Its parts were just checked; checking ten thousand facts again would hold up the loop.
        return ContextAnswer.model_construct(
            **dict(assembled) | {"warnings": warnings},
            problems=problems,
            operation_id=entry.operation_id,
            model=request.model,
            price=cost,
            share=share_of_prompt(assembled.tokens),
        )

    async def _gather(self, caller: Caller, part: _Part, binding_key: str | None) -> _Found:
        """Return a scope's own records of a kind, page by page, from the binding that serves it."""
        asked = {"kind": part.record_kind, "topic": part.topic, "for": "context"}
        async with self._core.recorder.recorded(
            OperationType.BROWSE, caller, part.scope, asked
        ) as entry:
            connection = await self._core.connect(entry, binding_key, needs="browse")
            chosen = own_filter(part.scope, kind=part.record_kind, topic=part.topic)
            records = owned(
                await everything(connection, part.scope, chosen, entry.sight), part.scope
            )
            entry.result_count = len(records)
            await note_problems(entry, connection)
        return _Found(connection.binding.key, records, entry.problems)

    async def prune_plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Return what could be pruned of a scope's own records, each with its reasons."""
        asked = {
            "kind": request.kind,
            "for": "prune",
            "rules": request.rules.model_dump(mode="json"),
        }
        async with self._core.recorder.recorded(
            OperationType.BROWSE, caller, request.scope, asked
        ) as entry:
            connection = await self._core.connect(entry, request.binding_key, needs="browse")
            chosen = own_filter(request.scope, kind=request.kind)
            records = owned(
                await everything(connection, request.scope, chosen, entry.sight), request.scope
            )
            entry.result_count = len(records)
            await note_problems(entry, connection)
            ids = [record.handle.provider_record_id for record in records]
            counts = await self._log.retrieval_stats(caller, connection.binding.key, ids)
            made = await asyncio.to_thread(self._plan, caller, request, records, counts)
        return PruneAnswer(
            operation_id=entry.operation_id,
            binding_key=connection.binding.key,
            plan=made,
            problems=entry.problems,
        )

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
        counter = TokenCounter(request.model)

        def tokens_of(text: str) -> int:
            return fact_tokens(text, counter)

        def size_of(kept: Sequence[Record]) -> int:
            section = section_of_records(_section_of(request.scope), kept, now=self._core.clock())
            return assemble([section], counter=counter).tokens

        candidates = find_candidates(
            records,
            now=self._core.clock(),
            tokens_of=tokens_of,
            retrievals=retrievals,
            forgotten=forgotten,
            rules=request.rules,
            vectors=static_vectors(),
        )
        return make_plan(records, candidates, tokens_of=tokens_of, size_of=size_of)

    def _assemble(self, request: ContextRequest, found: dict[_Part, _Found]) -> AssembledContext:
        now = self._core.clock()
        sections: list[ContextSection] = [
            section_of_records(part.kind, records, now=now)
            for part, (_, records, _) in found.items()
        ]
        return assemble(
            sections,
            counter=TokenCounter(request.model),
            budget=request.budget,
            max_tokens=request.max_tokens,
            max_characters=request.max_characters,
        )


def _parts(request: ContextRequest) -> list[_Part]:
    company_id, scope = request.scope.company_id, request.scope
    parts = []
    if scope.agent_id:
        agent = Scope(company_id=company_id, agent_id=scope.agent_id)
        parts += [
            _Part(kind=SectionKind.IDENTITY, scope=agent, record_kind="identity"),
            _Part(kind=SectionKind.FACTS, scope=agent, record_kind="fact"),
            _Part(kind=SectionKind.GUIDANCE, scope=agent, record_kind="guidance"),
        ]
    if scope.subject_id:
        user = Scope(company_id=company_id, subject_id=scope.subject_id)
        parts.append(_Part(kind=SectionKind.USER, scope=user, record_kind="fact"))
    if scope.project_id:
        drive = Scope(company_id=company_id, project_id=scope.project_id)
        parts.append(_Part(kind=SectionKind.WORKSPACE, scope=drive, record_kind="fact"))
        if request.topic:
            parts.append(
                _Part(kind=SectionKind.TOPIC, scope=drive, record_kind="note", topic=request.topic)
            )
    return parts


class _Found(NamedTuple):
    """What a part's binding holds for it, and what of that could not be read."""

    binding_key: str
    records: list[Record]
    problems: tuple[Problem, ...]


def _handles(
    assembled: AssembledContext, found: dict[_Part, _Found], own_binding: str
) -> tuple[OperationHandle, ...]:
    homes = {
        record.handle: key
        for key, records, _ in found.values()
        for record in records
        if key != own_binding
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
