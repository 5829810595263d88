"""A `Filter` and a sort order as SQL over the columns of `memtui.analytics.columns`."""

from __future__ import annotations

from memtui.analytics.engine import quoted
from memtui.analytics.source import stored_text
from memtui.contract import Filter, Invalid

_EQUAL = (
    "agent_id",
    "project_id",
    "subject_id",
    "source_kind",
    "operation_type",
    "status",
    "binding_key",
    "door",
    "principal",
)
_ALSO_IN_SOURCE = {"issue_id": "source_issue_id", "run_id": "source_run_id"}
_SEARCHED = ("request", "error_message", "operation_id", "principal", "issue_id", "run_id")

SORTS = {
    name: name
    for name in (
        "seq",
        "started_at",
        "operation_type",
        "status",
        "binding_key",
        "provider_key",
        "agent_id",
        "project_id",
        "issue_id",
        "run_id",
        "subject_id",
        "source_kind",
        "principal",
        "door",
        "result_count",
        "latency_ms",
        "input_tokens",
        "output_tokens",
        "embedding_tokens",
        "best_score",
        "error_kind",
    )
} | {"cost_usd": "cost_pico", "tokens": "input_tokens + output_tokens + embedding_tokens"}
"""What operations can be sorted by, and the column or sum it is."""


def condition(chosen: Filter) -> str:
    """Return the SQL condition of the operations that a filter lets through; empty for all."""
    parts = [
        f"{field} = {_text(getattr(chosen, field))}"
        for field in _EQUAL
        if getattr(chosen, field) is not None
    ]
    for field, other in _ALSO_IN_SOURCE.items():
        if (value := getattr(chosen, field)) is not None:
            parts.append(f"({field} = {_text(value)} OR {other} = {_text(value)})")
    if chosen.since is not None:
        parts.append(f"started_at >= {quoted(chosen.since.isoformat())}::TIMESTAMPTZ")
    if chosen.until is not None:
        parts.append(f"started_at < {quoted(chosen.until.isoformat())}::TIMESTAMPTZ")
    everything = f"lower(concat_ws(chr(10), {', '.join(_SEARCHED)}))"
    parts.extend(
        f"contains({everything}, lower({_text(word)}))" for word in (chosen.text or "").split()
    )
    return " AND ".join(parts)


def order(sort: str) -> str:
    """Return the SQL order of a sort such as `-cost_usd`; operations without a value come last.

    Raises:
        Invalid: operations cannot be sorted by it.
    """
    name, direction = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    if name not in SORTS:
        raise Invalid(f"Operations cannot be sorted by {name}; choose {', '.join(SORTS)}.")
    if name == "seq":
        return f"seq {direction}"
    return f"{SORTS[name]} {direction} NULLS LAST, seq {direction}"


def _text(value: object) -> str:
    return quoted(stored_text(str(value)))
