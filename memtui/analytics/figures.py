"""The figures of a rollup: what each one counts (seed 000, "Cost And Evaluation")."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field, computed_field

from memtui.contract import Model, OperationType
from memtui.store.database import quoted

USES = (OperationType.GET, OperationType.HISTORY)
"""The operations by which a person or an agent opens a record that a query returned."""

USE_WITHIN = timedelta(hours=24)
"""How long after a query an opening of its record still counts as a use of its answer."""


_CORRECTED = "operation_type = 'correct' AND status = 'ok'"
_LET_IN = """regexp_matches(request, '"decision": ?"accept"')"""
# As text: other members of a request might be no JSON to DuckDB.

ACCEPTED = f"{_CORRECTED} AND {_LET_IN}"
"""The SQL of whether a person let a correction in as the agent had it, which stays the agent's."""

_BY_NO_AGENT = f"{_CORRECTED} AND NOT starts_with(principal, 'agent:')"
BY_HAND = f"{_BY_NO_AGENT} AND NOT {_LET_IN}"
"""The SQL of whether an operation is a correction made by hand."""

FAILED = "status NOT IN ('ok', 'cancelled', 'pending')"
"""The SQL of whether an operation failed."""

_ANSWERED = "operation_type = 'query' AND status = 'ok'"
_COUNTED = {
    "operation_count": "true",
    "query_count": "operation_type = 'query'",
    "write_count": "operation_type = 'write' AND status <> 'pending'",
    "correction_count": _BY_NO_AGENT,
    "success_count": "status = 'ok'",
    "failure_count": FAILED,
    "cancelled_count": "status = 'cancelled'",
    "answered_count": _ANSWERED,
    "empty_count": f"{_ANSWERED} AND result_count = 0",
}
TOKENS = ("input_tokens", "output_tokens", "embedding_tokens")
SPENT = (*TOKENS, "cost_pico", "usage_count", "unpriced_count")
SAID = {"helped_count": 1, "not_helped_count": 0}
"""What is said of results, by the score of its handle."""
NUMBERS = (*_COUNTED, "hit_count", *SAID, *SPENT)
"""What is added up, of one operation or of many."""


def numbers_of(
    hit: str, name: str = "hit_count", *, accepted: str, last_word: str = "false"
) -> str:
    """Return the SQL of 0 or 1 for each count of an operation, less what it spent.

    Args:
        hit: The SQL of whether a query is a hit.
        name: What to call the count of hits.
        accepted: The query of the numbers of those that are `ACCEPTED`.
        last_word: The SQL of whether nobody said something else of the same result later.
    """
    is_word = f"operation_type = 'feedback' AND status = 'ok' AND {last_word}"
    said = {one: f"{is_word} AND best_score = {score}" for one, score in SAID.items()}
    by_hand = {"correction_count": f"{_BY_NO_AGENT} AND seq NOT IN ({accepted})"}
    counted = _COUNTED | by_hand | {name: f"{_ANSWERED} AND {hit}"} | said
    return ", ".join(f"coalesce({sql}, false)::INTEGER AS {name}" for name, sql in counted.items())


def last_words(operations: str, handles: str) -> str:
    """Return the query of who has the last word of each result, as the feedback that said it.

    Args:
        operations: Query of the feedback, with `seq`, `principal`, `request` and more.
        handles: Query of its handles, with the key of their binding as `at_binding`.
    """
    # As text: other members of a request might be no JSON to DuckDB.
    judged = 'regexp_extract(request, \'"operation_id": ?"([^"]*)"\', 1)'
    return (
        f"SELECT o.* FROM ({operations}) o JOIN ({handles}) USING (seq) "
        f"WHERE o.status = 'ok' QUALIFY row_number() OVER (PARTITION BY {judged}, principal, "
        "at_binding, provider_record_id ORDER BY seq DESC) = 1"
    )


def is_use(column: str) -> str:
    """Return the SQL of whether an operation of this type opens a record."""
    return f"{column} IN ({', '.join(quoted(kind) for kind in USES)})"


class HitSign(StrEnum):
    """What makes a query a hit.

    `USED`: a record that it returned was opened later, within `USE_WITHIN`, through any channel.
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
    """Corrections made by hand: with status ok, and by a principal that is not an agent. One of an
    agent that a person let in as it was stays the agent's."""
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
    helped_count: int = 0
    """Results of which somebody says that they helped: everybody's last word of each counts."""
    not_helped_count: int = 0

    @property
    def priced_usd(self) -> Decimal | None:
        """What the priced calls cost; None where nothing is priced."""
        return self.cost_usd if self.usage_count > self.unpriced_count else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def helped_rate(self) -> float | None:
        """Share of the results of which something is said that helped."""
        said = self.helped_count + self.not_helped_count
        return self.helped_count / said if said else None

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


class FigureGroup(Figures):
    """The figures of one group."""

    keys: dict[str, str | None] = {}
    """The group's value of each dimension that was asked for."""
    begins: datetime | None = None
    """Where time is in buckets: when this one begins, in the zone asked for."""
    ends: datetime | None = None


class Stats(Figures):
    """A rollup."""

    hit_sign: HitSign
    left_out_count: int = 0
    """How many operations of memtui's own match besides, and are in no figure."""
    last_seq: int = Field(default=0, exclude=True, repr=False)
    """The log's newest operation when they were added up."""
    latency_error: float = 0.0
    """How far each percentile may be off, as a share of it."""
    bindings: tuple[FigureGroup, ...] = ()
    """By binding, `keys` holding `binding`; the first key in order, None last."""
    groups: tuple[FigureGroup, ...] = ()
    """By what was asked for: in order of time, then of their keys."""


class Bucket(StrEnum):
    """How long a stretch of time is. A week begins on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def bucket_of(bucket: Bucket, zone: str) -> str:
    """Return the SQL of the bucket that `started_at` is in.

    It is the bucket's first local date, or, for an hour, the moment it began: on the day the
    clocks go back one hour of the day comes twice.
    """
    local = f"timezone({quoted(zone)}, started_at)"
    if bucket is Bucket.HOUR:
        return f"epoch_us(started_at - ({local} - date_trunc('hour', {local})))"
    return f"date_trunc('{bucket}', {local})::DATE"


def begin_of(found: date | int, zone: str) -> datetime:
    """Return when the bucket that `bucket_of` found begins, in the zone."""
    here = ZoneInfo(zone)
    if isinstance(found, int):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)).astimezone(here)
    # By way of UTC: where midnight is skipped, the day begins at the moment it is skipped at.
    midnight = datetime(found.year, found.month, found.day, tzinfo=here)
    return midnight.astimezone(UTC).astimezone(here)


def end_of(bucket: Bucket, found: date | int, zone: str) -> datetime:
    """Return when it ends, which is when the next one begins."""
    if isinstance(found, int):
        return begin_of(found + 3_600_000_000, zone)
    after = {
        Bucket.DAY: found + timedelta(days=1),
        Bucket.WEEK: found + timedelta(days=7),
        Bucket.MONTH: (found.replace(day=1) + timedelta(days=32)).replace(day=1),
    }
    return begin_of(after[bucket], zone)


OF_OPERATION = {
    "company": ("company_id",),
    "agent": ("agent_id",),
    "project": ("project_id",),
    "issue": ("issue_id", "source_issue_id"),
    "run": ("run_id", "source_run_id"),
    "binding": ("binding_key",),
    "type": ("operation_type",),
    "source_kind": ("source_kind",),
    "status": ("status",),
    "channel": ("channel",),
    "principal": ("principal",),
}
"""Dimensions of an operation, and their columns; the first that has a value counts."""

OF_USAGE = {"provider": "provider", "model": "model"}
"""Dimensions of what was consumed. An operation counts in each group that it used, and in the one
of None where it used nothing; tokens and cost count where they were spent."""

DIMENSIONS = {
    name: columns[0] if len(columns) == 1 else f"coalesce({', '.join(columns)})"
    for name, columns in OF_OPERATION.items()
} | OF_USAGE
"""The SQL of every dimension."""


class Cut(NamedTuple):
    """By which dimensions and how in time figures are cut; by neither, all are one group."""

    by: tuple[str, ...] = ()
    bucket: Bucket | None = None

    @property
    def of_usage(self) -> bool:
        """Whether it takes the usage of an operation apart."""
        return any(name in OF_USAGE for name in self.by)

    def columns(self, zone: str) -> dict[str, str]:
        """Return the SQL of each column that groups have in common, by name, in their order."""
        time = {} if self.bucket is None else {f"by_{self.bucket}": bucket_of(self.bucket, zone)}
        return time | {f"key_{name}": DIMENSIONS[name] for name in self.by}

    def columns_of_days(self) -> dict[str, str]:
        """Return the same of rows that are by local `day`; an hour is too short for them."""
        time = {f"by_{self.bucket}": f"date_trunc('{self.bucket}', day)::DATE"}
        keys = {f"key_{name}": DIMENSIONS[name] for name in self.by}
        return (time if self.bucket else {}) | keys
