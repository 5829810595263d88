"""A verdict on all memories: how much there is, what it costs, and what a person should look at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from memtui.context.cost import price
from memtui.contract import RISKS_BY_SEVERITY
from memtui.pruning.candidates import REPEATS, Reason
from memtui.service.context.pruning import PruneAnswer
from memtui.service.usecases.remembered import IN_CONTEXTS

_STALE = frozenset({Reason.EXPIRED, Reason.STALE, Reason.NEVER_READ, Reason.COSTLY})


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """Figures of all records that the caller sees."""

    records: int
    tokens: int
    """Tokens of all records in a prompt."""
    cost_usd: Decimal | None
    """The price, in each request, of those that contexts include; None: unpriced."""
    dangerous: int
    """Records that are poisoned or hold a secret."""
    contradicting: int
    """Records that another one contradicts."""
    doubled: int
    """Records that repeat another."""
    stale: int
    """Records that are expired, or were not read for long."""


def verdict_of(found: PruneAnswer, model: str, at: datetime) -> MemoryVerdict:
    """Sum up the plans of all bindings. Blocking, as the price table is read."""
    plans = found.plans.values()

    def number(reasons: Collection[str]) -> int:
        handles = (
            {one.record.handle for one in plan.candidates if one.reason in reasons}
            for plan in plans
        )
        return sum(map(len, handles))

    items = [item for plan in plans for item in plan.items]
    tokens = sum(item.tokens for item in items)
    included = sum(item.tokens for item in items if item.record.kind in IN_CONTEXTS)
    cost = price(model, included, at=at).cost_usd
    return MemoryVerdict(
        records=len(items),
        tokens=tokens,
        cost_usd=cost,
        dangerous=number(RISKS_BY_SEVERITY["dangerous"]),
        contradicting=number(RISKS_BY_SEVERITY["contradicting"]),
        doubled=number(REPEATS),
        stale=number(_STALE),
    )
