"""The figures of a rollup: what each one counts (seed 000, "Cost And Evaluation")."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from pydantic import computed_field

from memtui.contract import Model, OperationType

USES = (OperationType.GET, OperationType.HISTORY)
"""The operations by which a person or an agent opens a record that a query returned."""

USE_WITHIN = timedelta(hours=24)
"""How long after a query an opening of its record still counts as a use of its answer."""


BY_HAND = "operation_type = 'correct' AND status = 'ok' AND NOT starts_with(principal, 'agent:')"
"""The SQL of whether an operation is a correction made by hand."""

FAILED = "status NOT IN ('ok', 'cancelled')"
"""The SQL of whether an operation failed."""


class HitSign(StrEnum):
    """What makes a query a hit.

    `USED`: a record that it returned was opened later, within `USE_WITHIN`, through any door.
    `SCORE`: a record that it returned scored at or above its binding's threshold.
    """

    USED = "used"
    SCORE = "score"


class Latency(Model):
    """Percentiles of `latency_ms`, linearly interpolated; None where there was no operation."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Figures(Model):
    """What a set of operations did and took. Rates are None where no query was answered."""

    operation_count: int = 0
    query_count: int = 0
    write_count: int = 0
    correction_count: int = 0
    """Corrections made by hand: with status ok, and by a principal that is no agent."""
    success_count: int = 0
    """Operations with status ok."""
    failure_count: int = 0
    """Operations that did not succeed and that nobody cancelled."""
    cancelled_count: int = 0
    """Operations that a person stopped, which neither succeeded nor failed."""
    input_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    """US dollars, the exact sum of what is priced."""
    usage_count: int = 0
    """Calls of models and providers."""
    unpriced_count: int = 0
    """How many of them have no price; they are not in `cost_usd`."""
    latency_ms: Latency = Latency()
    answered_count: int = 0
    """Queries with status ok; both rates are shares of them."""
    empty_count: int = 0
    hit_count: int = 0

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own way
    @property
    def hit_rate(self) -> float | None:
        """Share of the answered queries that were hits, by the answer's `hit_sign`."""
        return self.hit_count / self.answered_count if self.answered_count else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def empty_query_rate(self) -> float | None:
        """Share of the answered queries that returned nothing."""
        return self.empty_count / self.answered_count if self.answered_count else None


class Group(Figures):
    """The figures of one group."""

    keys: dict[str, str | None] = {}
    """The group's value of each dimension that was asked for."""
    begins: datetime | None = None
    """Where time is in buckets: when this one begins, in the zone asked for."""
    ends: datetime | None = None


class Stats(Figures):
    """A rollup."""

    hit_sign: HitSign
    latency_error: float = 0.0
    """How far each percentile may be off, as a share of it."""
    bindings: tuple[Group, ...] = ()
    """By binding, `keys` holding `binding`; the first key in order, None last."""
    groups: tuple[Group, ...] = ()
    """By what was asked for: in order of time, then of their keys."""
