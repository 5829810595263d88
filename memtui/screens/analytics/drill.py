"""From a bar or a group to its operations."""

from __future__ import annotations

from memtui.analytics.figures import Group
from memtui.contract import Filter, Measure
from memtui.filters import FIELDS

_FIELDS = {
    "binding": "binding_key",
    "agent": "agent_id",
    "project": "project_id",
    "provider": "provider",
    "model": "model",
    "type": "operation_type",
    "source_kind": "source_kind",
    "status": "status",
    "door": "door",
    "principal": "principal",
}
"""The field of a `Filter` for each dimension; not each of them exists."""

_MEASURES = {
    Measure.COST: "cost_usd",
    Measure.LATENCY: "latency_ms",
    Measure.TOKENS: "(input_tokens + output_tokens + embedding_tokens)",
    Measure.RESULTS: "result_count",
    Measure.SCORE: "best_score",
}
"""What the views have of each measure."""

_OF_USAGE = {"provider", "model"}


def filter_of_group(chosen: Filter, group: Group, dimension: str) -> Filter | None:
    """Return a filter narrowed to a group; None where the filter line has no words for it."""
    field, value = _FIELDS[dimension], group.keys.get(dimension)
    if value is None or field not in FIELDS.values():
        return None
    return Filter.model_validate(chosen.model_dump() | {field: value})


def filter_of_bucket(chosen: Filter, bucket: Group, about: Filter) -> Filter:
    """Return a filter narrowed to a bucket of time, and to what a chart is about."""
    narrowed = {
        "since": max(filter(None, (chosen.since, bucket.begins)), default=None),
        "until": min(filter(None, (chosen.until, bucket.ends)), default=None),
        "operation_type": about.operation_type or chosen.operation_type,
        "comparisons": tuple(dict.fromkeys((*chosen.comparisons, *about.comparisons))),
    }
    return chosen.model_copy(update=narrowed)


def statement_of_group(group: Group, dimension: str, chosen: Filter) -> str:
    """Return the SQL that lists the operations of a group for which there is no filter."""
    value = group.keys.get(dimension)
    column = _FIELDS[dimension]
    same = f"{column} IS NULL" if value is None else f"{column} = {_quoted(value)}"
    if dimension in _OF_USAGE:
        same = f"seq IN (SELECT seq FROM usage WHERE {same})"  # noqa: S608 - for a person to read
        if value is None:
            same = f"(seq NOT IN (SELECT seq FROM usage) OR {same})"  # noqa: S608 - as above
    return statement_of(same, chosen)


def statement_of(same: str, chosen: Filter) -> str:
    """Return the SQL that lists the operations that a condition and a filter let through."""
    from memtui.store.conditions import condition

    narrowed = chosen.model_copy(update={"comparisons": ()})
    measured = [f"{_MEASURES[one.measure]} {one.sign} {one.value:f}" for one in chosen.comparisons]
    also = [f"  AND {part}" for part in (condition(narrowed), *measured) if part]
    lines = ["SELECT seq, started_at, operation_type, status, binding_key, agent_id, cost_usd",
             "FROM operations", f"WHERE {same}", *also, "ORDER BY seq DESC"]  # fmt: skip
    return "\n".join(lines)


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"
