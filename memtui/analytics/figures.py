"""The figures of a rollup, and the SQL of their counts (seed 000, "Cost And Evaluation")."""

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
"""The longest time after a query in which opening its record counts as a use of its answer."""


_CORRECTED = "operation_type = 'correct' AND status = 'ok'"
_LET_IN = """regexp_matches(request, '"decision": ?"accept"')"""
# Matched as text, as other members of a request may be JSON that DuckDB rejects.

ACCEPTED = f"{_CORRECTED} AND {_LET_IN}"
"""SQL: the operation is an agent's correction that a person accepted unchanged."""

_BY_NO_AGENT = f"{_CORRECTED} AND NOT starts_with(principal, 'agent:')"
BY_HAND = f"{_BY_NO_AGENT} AND NOT {_LET_IN}"
"""SQL: the operation is a correction made by hand."""

FAILED = "status NOT IN ('ok', 'cancelled', 'pending')"
"""SQL: the operation failed."""

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
"""The counts of verdicts on results, with the score that a verdict's handle has in the log."""
NUMBERS = (*_COUNTED, "hit_count", *SAID, *SPENT)
"""The numbers that are added up over operations."""


def numbers_of(
    hit: str, name: str = "hit_count", *, accepted: str, last_word: str = "false"
) -> str:
    """Return the SQL of 0 or 1 for each count of an operation, without its usage.

    Args:
        hit: The SQL of whether a query is a hit.
        name: The name of the count of hits.
        accepted: The query of the `seq` of the operations that are `ACCEPTED`.
        last_word: The SQL of whether a verdict is its principal's last one on the result.
    """
    is_word = f"operation_type = 'feedback' AND status = 'ok' AND {last_word}"
    said = {one: f"{is_word} AND best_score = {score}" for one, score in SAID.items()}
    by_hand = {"correction_count": f"{_BY_NO_AGENT} AND seq NOT IN ({accepted})"}
    counted = _COUNTED | by_hand | {name: f"{_ANSWERED} AND {hit}"} | said
    return ", ".join(f"coalesce({sql}, false)::INTEGER AS {name}" for name, sql in counted.items())


def last_words(operations: str, handles: str) -> str:
    """Return the query of the feedback that is each principal's last verdict on each result.

    Args:
        operations: Query of the feedback, with `seq`, `principal`, `request` and more.
        handles: Query of its handles, with the key of their binding as `at_binding`.
    """
    # Matched as text, as other members of a request may be JSON that DuckDB rejects.
    judged = 'regexp_extract(request, \'"operation_id": ?"([^"]*)"\', 1)'
    return (
        f"SELECT o.* FROM ({operations}) o JOIN ({handles}) USING (seq) "
        f"WHERE o.status = 'ok' QUALIFY row_number() OVER (PARTITION BY {judged}, principal, "
        "at_binding, provider_record_id ORDER BY seq DESC) = 1"
    )


def is_use(column: str) -> str:
    """Return the SQL of whether a column has a type of operation that opens a record."""
    return f"{column} IN ({', '.join(quoted(kind) for kind in USES)})"


class HitSign(StrEnum):
    """What makes a query a hit.

    `USED`: a record that it returned was opened later, within `USE_WITHIN`, through any channel.
    `SCORE`: a record that it returned scored at or above its binding's threshold.
    """

    USED = "used"
    SCORE = "score"


class Latency(Model):
    """Percentiles of `latency_ms`, linearly interpolated; None: there was no operation."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Figures(Model):
    """The figures of a set of operations. Rates are None if there is nothing to divide by."""

    operation_count: int = 0
    query_count: int = 0
    write_count: int = 0
    correction_count: int = 0
    """Corrections made by hand: with status ok, and by a principal that is not an agent. An agent's
    correction that a person accepted unchanged counts as the agent's."""
    success_count: int = 0
    """Operations with status ok."""
    failure_count: int = 0
    """Operations that neither succeeded nor were cancelled, and are not pending."""
    cancelled_count: int = 0
    """Operations that a person stopped; they neither succeeded nor failed."""
    input_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    """US dollars, the exact sum of the priced calls."""
    usage_count: int = 0
    """Calls of models and providers."""
    unpriced_count: int = 0
    """Calls without a price, which are not in `cost_usd`."""
    latency_ms: Latency = Latency()
    answered_count: int = 0
    """Queries with status ok; the hit rate and the empty rate are shares of them."""
    empty_count: int = 0
    hit_count: int = 0
    helped_count: int = 0
    """Verdicts that a result helped; only each principal's last verdict on a result counts."""
    not_helped_count: int = 0

    @property
    def priced_usd(self) -> Decimal | None:
        """The cost of the priced calls; None: no call has a price."""
        return self.cost_usd if self.usage_count > self.unpriced_count else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def helped_rate(self) -> float | None:
        """Share of the verdicts on results that say it helped."""
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
    """The group's value of each requested dimension."""
    begins: datetime | None = None
    """The begin of the group's time bucket, in the requested zone; None: no buckets."""
    ends: datetime | None = None


class Stats(Figures):
    """A rollup."""

    hit_sign: HitSign
    left_out_count: int = 0
    """Number of further matches that are internal, and so in no figure."""
    last_seq: int = Field(default=0, exclude=True, repr=False)
    """The log's newest operation when the figures were computed."""
    latency_error: float = 0.0
    """The largest error of each percentile, as a share of it."""
    bindings: tuple[FigureGroup, ...] = ()
    """The figures by binding (`keys` has `binding`), in order of the key, None last."""
    groups: tuple[FigureGroup, ...] = ()
    """The figures by the requested dimensions and buckets, in order of time, then of `keys`."""


class Bucket(StrEnum):
    """The length of a time bucket. A week begins on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def bucket_of(bucket: Bucket, zone: str) -> str:
    """Return the SQL of the bucket of `started_at`: its first local date.

    For an hour, it is the moment when the hour began, since one local hour occurs twice on the day
    when the clocks go back.
    """
    local = f"timezone({quoted(zone)}, started_at)"
    if bucket is Bucket.HOUR:
        return f"epoch_us(started_at - ({local} - date_trunc('hour', {local})))"
    return f"date_trunc('{bucket}', {local})::DATE"


def begin_of(found: date | int, zone: str) -> datetime:
    """Return the begin of a bucket, as `bucket_of` gives it, in the zone."""
    here = ZoneInfo(zone)
    if isinstance(found, int):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)).astimezone(here)
    # By way of UTC, so that a day whose midnight the clock skips begins at the moment of the skip.
    midnight = datetime(found.year, found.month, found.day, tzinfo=here)
    return midnight.astimezone(UTC).astimezone(here)


def end_of(bucket: Bucket, found: date | int, zone: str) -> datetime:
    """Return the end of a bucket, which is the begin of the next one."""
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
"""Dimensions of usage. An operation counts in each group that it used, and in the group None if it
used nothing; tokens and cost count in the group where they were used."""

DIMENSIONS = {
    name: columns[0] if len(columns) == 1 else f"coalesce({', '.join(columns)})"
    for name, columns in OF_OPERATION.items()
} | OF_USAGE
"""The SQL of every dimension."""


class Cut(NamedTuple):
    """The dimensions and the time bucket by which figures are grouped; neither: one group."""

    by: tuple[str, ...] = ()
    bucket: Bucket | None = None

    @property
    def of_usage(self) -> bool:
        """Whether it has a dimension of usage, which splits the usage of an operation."""
        return any(name in OF_USAGE for name in self.by)

    def columns(self, zone: str) -> dict[str, str]:
        """Return the SQL of the columns to group by, by name, in order."""
        time = {} if self.bucket is None else {f"by_{self.bucket}": bucket_of(self.bucket, zone)}
        return time | {f"key_{name}": DIMENSIONS[name] for name in self.by}

    def columns_of_days(self) -> dict[str, str]:
        """Return `columns` for rows by local `day`, which cannot be grouped by hour."""
        time = {f"by_{self.bucket}": f"date_trunc('{self.bucket}', day)::DATE"}
        keys = {f"key_{name}": DIMENSIONS[name] for name in self.by}
        return (time if self.bucket else {}) | keys
