"""Plan what to prune, by the limits of the settings: of everything, or of one context."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import PrivateAttr

from memtui.context.assembly import (
    AssembledContext,
    ContextSection,
    SectionKind,
    assemble,
    is_rule,
    least_left_out,
    section_of_records,
)
from memtui.context.cost import TokenCounter
from memtui.contract import Filter, NotFound, OperationType, Record, Scope, owner_of
from memtui.pruning.candidates import PruneRules
from memtui.pruning.plan import PlanItem, PrunePlan, joined
from memtui.service.context.pruning import PruneAnswer, PruneRequest, section_of
from memtui.service.visibility import as_agents_read, is_org

if TYPE_CHECKING:
    from datetime import datetime

    from memtui.config import Settings
    from memtui.service.context.contexts import ContextAnswer, ContextRequest
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

_NO_LIMIT = 2**31


def rules_of(settings: Settings, **days: int) -> PruneRules:
    """Return the rules for pruning; `days` sets some of them, such as `stale_days`."""
    return PruneRules(max_characters=settings.fact_max_chars or _NO_LIMIT, **days)


async def plan_everything(
    service: MemoryService,
    caller: Caller,
    chosen: Filter | None = None,
    *,
    rules: PruneRules | None = None,
    so_far: Callable[[PruneAnswer], None] = lambda _answer: None,
) -> PruneAnswer:
    """Plan what to prune of all records that the caller sees, in all bindings.

    Args:
        service: The open service.
        caller: Who asks.
        chosen: A filter that the records to forget must pass; None: all may go.
        rules: The rules; None: those of the settings.
        so_far: Called with the plans so far, each time a binding answers.

    Raises:
        Denied: the caller sees nothing here.
        NotFound: there is no enabled binding, or none that the filter allows.
    """
    request = PruneRequest(
        scope=Scope(company_id=caller.company_id),
        kind=None,
        rules=rules or rules_of(service.settings),
        model=service.settings.context_model,
        filter=chosen or Filter(),
    )
    return await service.pruning.everything(caller, request, so_far=so_far)


_Name = tuple[str, str]
"""The key of a binding, and the id of a record there."""


class _Fact(NamedTuple):
    """A fact of a context."""

    name: _Name
    item: PlanItem
    shown: Record
    """The record as an agent reads it."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a context: its facts by section, and the sections without facts."""

    facts: Sequence[tuple[SectionKind, Sequence[_Fact]]]
    others: Sequence[ContextSection]
    counter: TokenCounter
    now: datetime

    @property
    def all(self) -> list[_Fact]:
        """The facts of all sections."""
        return [one for _, own in self.facts for one in own]

    def without(self, gone: Collection[_Name], budget: int) -> AssembledContext:
        """Return the context without some facts."""
        kept = [
            section_of_records(kind, [one.shown for one in own if one.name not in gone],
                               now=self.now)
            for kind, own in self.facts
        ]  # fmt: skip
        return assemble([*self.others, *kept], counter=self.counter, budget=budget)

    def unfilled(self) -> _Parts:
        """Return the parts without sections that only fill what is left of the budget."""
        return replace(self, others=[one for one in self.others if not one.rule.fills])


class ContextPlan(PruneAnswer):
    """The plans for all facts of one context, and the context without some of them."""

    _parts: _Parts = PrivateAttr()

    def __init__(self, parts: _Parts, **fields: Any) -> None:
        """`parts`: the context that is planned; `fields`: those of `PruneAnswer`, by name."""
        super().__init__(**fields)
        self._parts = parts

    @property
    def tokens_before(self) -> int:
        """Tokens of the whole context."""
        return self.without(()).tokens

    @property
    def tokens_after(self) -> int:
        """Tokens of the whole context without the marked facts."""
        marked = [_name(key, one) for key, own in self.marked.items() for one in own]
        return self.without(marked).tokens

    @property
    def several(self) -> bool:
        """Whether the facts to forget are of several owners or bindings."""
        marked = [(key, owner_of(one.scope)) for key, own in self.marked.items() for one in own]
        return len(set(marked)) > 1

    def without(self, gone: Collection[_Name]) -> AssembledContext:
        """Return the context without some facts, named by binding and id."""
        return self._parts.without(gone, self.budget or 0)


async def plan_context(
    service: MemoryService,
    caller: Caller,
    request: ContextRequest,
    *,
    answer: ContextAnswer | None = None,
    rules: PruneRules | None = None,
    chosen: Filter | None = None,
    to_budget: bool = False,
) -> ContextPlan:
    """Plan which facts of a context to prune.

    Args:
        service: The open service.
        caller: Who asks.
        request: The context, with its budget.
        answer: The context, where it is assembled already.
        rules: The rules; None: those of the settings.
        chosen: A filter that the facts to forget must pass; None: all may go.
        to_budget: Mark the facts that are worth least until the context fits its budget, and
            nothing where it fits or cannot; False: mark those whose loss loses nothing.

    Raises:
        Invalid: the scope names no user, project or agent.
        Unavailable: a binding cannot be read.
    """
    answer = answer or await service.context(caller, request)
    chosen = chosen or Filter()
    found = []
    for owner, key in await fact_owners(service, caller, request.scope, request.binding_key):
        if not chosen.allows("binding_key", key):
            continue
        asked = PruneRequest(
            scope=owner,
            rules=rules or rules_of(service.settings),
            model=request.model,
            binding_key=key,
            only_company=is_org(owner),
            filter=chosen,
        )
        found.append((owner, await service.pruning.plan(caller, asked)))
    return await asyncio.to_thread(
        _planned, found, answer, request, service.runtime.clock(), to_budget=to_budget
    )


async def fact_owners(
    service: MemoryService, caller: Caller, scope: Scope, binding_key: str | None
) -> list[tuple[Scope, str]]:
    """Return the owners of the facts in a context, each with the binding that serves it.

    The company is the last, where a binding serves it and the caller may list its facts.
    """
    company = Scope(company_id=scope.company_id)
    found = []
    for name in ("agent_id", "subject_id", "project_id"):
        if value := getattr(scope, name):
            owner = company.model_copy(update={name: value})
            found.append((owner, (await service.resolve(caller, owner, binding_key)).binding_key))
    try:
        key = (await service.resolve(caller, company, binding_key)).binding_key
    except NotFound:
        return found
    if OperationType.BROWSE in await service.allowed(caller, company, binding_key):
        found.append((company, key))
    return found


def _name(key: str, record: Record) -> _Name:
    return key, record.handle.provider_record_id


def _planned(
    found: Sequence[tuple[Scope, PruneAnswer]],
    answer: ContextAnswer,
    request: ContextRequest,
    now: datetime,
    *,
    to_budget: bool,
) -> ContextPlan:
    """Join the plans of a context's owners, and mark what goes. Blocking."""
    facts = []
    for owner, one in found:
        items = one.plan.items
        shown = as_agents_read([item.record for item in items])
        names = (_name(one.binding_key, item.record) for item in items)
        own = list(map(_Fact, names, items, shown))
        facts.append((section_of(owner), own))
    kinds = {kind for kind, _ in facts}
    others = [ContextSection(kind=one.kind, facts=one.facts) for one in answer.sections
              if one.kind not in kinds]  # fmt: skip
    parts, budget = _Parts(facts, others, TokenCounter(request.model), now), request.budget

    def size_in(key: str) -> Callable[[Sequence[Record]], int]:
        def size_of(kept: Sequence[Record]) -> int:
            staying = {_name(key, one) for one in kept}
            gone = {one.name for one in parts.all if one.name[0] == key} - staying
            return parts.without(gone, budget).tokens

        return size_of

    by_binding: dict[str, list[PrunePlan]] = {}
    for _, one in found:
        by_binding.setdefault(one.binding_key, []).append(one.plan)
    plans = {key: joined(own, size_in(key)) for key, own in by_binding.items()}
    stuck = ""
    if to_budget:
        going = _going(parts.unfilled(), budget)
        stuck = "" if going is not None else _stuck(parts.unfilled(), budget)
        marked = [one for one in parts.all if one.name in (going or ())]
        plans = {
            key: plan.for_budget({one.item.record.handle for one in marked if one.name[0] == key})
            for key, plan in plans.items()
        }
    outcomes = {one.binding_key: one for _, own in found for one in own.bindings}
    return ContextPlan(
        parts, bindings=tuple(outcomes.values()), plans=plans, budget=budget, stuck=stuck
    )


def _going(parts: _Parts, budget: int) -> frozenset[_Name] | None:
    """Return the facts that go to meet the budget; None: no set of them does."""
    ranked = sorted((one for one in parts.all if one.item.worth),
                    key=lambda one: (one.item.worth or (), one.name))  # fmt: skip
    tokens = {one.name: one.item.tokens for one in ranked}
    return least_left_out(
        list(tokens), lambda gone: parts.without(gone, budget).tokens, tokens.__getitem__, budget
    )


def _stuck(parts: _Parts, budget: int) -> str:
    """Say what exceeds the budget although every fact that may go is gone."""
    never = [one.item.record for one in parts.all if one.item.worth is None]
    kinds = Counter("pinned fact" if one.pinned else "rule" if is_rule(one) else "other fact"
                    for one in never)  # fmt: skip
    words = [f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in kinds.items()]
    if parts.others:
        words.append(f"what is no fact ({', '.join(one.rule.title for one in parts.others)})")
    left = parts.without({one.name for one in parts.all if one.item.worth}, budget)
    return (
        f"Nothing is marked: {' and '.join(words)} cannot go. They have {left.tokens:,} tokens, "
        f"more than the budget of {budget:,}; unpin or shorten some, or raise the budget."
    )
