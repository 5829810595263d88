"""A `Filter` and a sort order as SQL over the columns of `memtui.analytics.source`."""

from __future__ import annotations

from sqlalchemy.engine import default

from memtui.analytics.engine import quoted
from memtui.analytics.source import stored_text
from memtui.contract import Comparison, Filter, Invalid, Measure
from memtui.fuzzy import pattern
from memtui.store.operation import ASKED
from memtui.store.sight import Sight, plain_columns

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
_SEARCHED = ("request", "error_message", "principal", "issue_id", "run_id")
# A half of a surrogate pair is no JSON to DuckDB, which would refuse all of the document.
_REQUEST = r"regexp_replace(request, '\\ud[89a-f][0-9a-f]{2}', '\\ufffd', 'g')"
_TEXTS = f"json_extract_string({_REQUEST}, [{', '.join(map(quoted, ASKED))}])"
_WHAT = ", ".join(f"nullif({_TEXTS}[{place}], '')" for place in range(1, len(ASKED) + 1))
_TOKENS = "(input_tokens::HUGEINT + output_tokens + embedding_tokens)"
_MEASURED = {
    Measure.COST: "cost_pico",
    Measure.LATENCY: "latency_ms",
    Measure.TOKENS: _TOKENS,
    Measure.RESULTS: "result_count",
    Measure.SCORE: "best_score",
}

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
} | {
    "cost_usd": "cost_pico",
    "tokens": _TOKENS,
    "actor": "CASE WHEN starts_with(principal, 'user:') OR agent_id IS NULL "
    "THEN split_part(principal, ':', -1) ELSE agent_id END",
    "what": f"lower(coalesce({_WHAT}))",
}
"""What operations can be sorted by, and the column, sum or text it is."""


def visible_to(sight: Sight | None) -> str:
    """Return the SQL condition of the operations that may be seen; empty for all."""
    if sight is None:
        return ""
    plain = sight.condition(plain_columns()).compile(
        dialect=default.DefaultDialect(), compile_kwargs={"literal_binds": True}
    )
    return f"({plain})"


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
    parts.extend(_compared(comparison) for comparison in chosen.comparisons)
    parts.extend(_mentions(word) for word in (chosen.text or "").split())
    parts.extend(_nearly_mentions(word) for word in chosen.fuzzy)
    return " AND ".join(parts)


def _mentions(word: str) -> str:
    # A column after another, as most words are in the first, and the others need not be read.
    lowered, names = f"lower({_text(word)})", (*_SEARCHED, "operation_id")
    return f"({' OR '.join(f'contains(lower({name}), {lowered})' for name in names)})"


def _nearly_mentions(word: str) -> str:
    wanted = quoted(pattern(stored_text(word).lower()))
    return f"({' OR '.join(f'regexp_matches(lower({name}), {wanted})' for name in _SEARCHED)})"


def ordering(sort: str) -> tuple[str, str]:
    """Return what a sort such as `-cost_usd` selects as `sort_key`, and the SQL order by it.

    Operations without a value come last, whichever the direction.

    Raises:
        Invalid: operations cannot be sorted by it.
    """
    name, direction = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    if name not in SORTS:
        raise Invalid(f"Operations cannot be sorted by {name}; choose {', '.join(SORTS)}.")
    return f"{SORTS[name]} AS sort_key", f"sort_key {direction} NULLS LAST, seq {direction}"


def _compared(comparison: Comparison) -> str:
    measure, value = comparison.measure, comparison.value
    if measure is Measure.COST:
        literal = str(int(value.scaleb(12)))
    elif measure in {Measure.LATENCY, Measure.SCORE}:
        literal = f"{float(value)!r}::DOUBLE"
    else:
        literal = str(int(value))
    return f"{_MEASURED[measure]} {comparison.sign} ({literal})"


def _text(value: object) -> str:
    return quoted(stored_text(str(value)))
