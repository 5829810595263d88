"""The table of figures by a dimension, and filters and SQL that select a group's operations."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from memtui.analytics import figures
from memtui.analytics.figures import FigureGroup
from memtui.contract import Filter, Measure
from memtui.filters import FIELDS, build_filter
from memtui.presenters import format as fmt
from memtui.store.database import quoted
from memtui.widgets.charts import bar
from memtui.widgets.columns import Cell, Column, Tone

_BAR = 8
_NAME = 16
"""Most cells that the name column asks for."""
_MEASURED = 2_000
"""Groups measured for a column's width; those with the most operations come first."""


DIMENSIONS = tuple(name for name in figures.DIMENSIONS if name != "company")
"""Dimensions that the table can group by."""


def words_of(dimension: str) -> str:
    """Return a dimension's title; not `by` for the principal, as `by …` names any dimension."""
    return "who" if dimension == "principal" else dimension.replace("_", " ")


def dimension_of(group: FigureGroup) -> str:
    """Return the dimension of a group."""
    [dimension] = group.keys
    return dimension


def name_of(group: FigureGroup) -> str:
    """Return a group's name; `no agent` for operations without a value."""
    [(dimension, value)] = group.keys.items()
    return value if value is not None else f"no {words_of(dimension)}"


def _count(number: int, tone: Tone = "") -> Cell:
    return Cell(fmt.count(number), tone if number else "muted")


def _cost(group: FigureGroup) -> Cell:
    words = fmt.short_money(group.priced_usd, unpriced=bool(group.unpriced_count))
    return Cell(words, "" if group.cost_usd else "muted")


def _tokens(group: FigureGroup) -> int:
    return group.input_tokens + group.output_tokens + group.embedding_tokens


def _hits(group: FigureGroup) -> Cell:
    rate = group.hit_rate
    return Cell("–" if rate is None else f"{rate:.0%}", "" if rate else "muted")


_OfGroup = Callable[[FigureGroup], Any]
_NUMBERS: tuple[tuple[str, str, int, _OfGroup, _OfGroup], ...] = (
    ("operations", "ops", 95, lambda one: _count(one.operation_count),
     lambda one: one.operation_count),
    ("failed", "failed", 80, lambda one: _count(one.failure_count, "error"),
     lambda one: one.failure_count),
    ("tokens", "tokens", 85, lambda one: _count(_tokens(one)), _tokens),
    ("cost", "$", 90, _cost, lambda one: one.cost_usd),
    ("unpriced", "unpriced", 70, lambda one: _count(one.unpriced_count),
     lambda one: one.unpriced_count),
    ("ok", "ok", 40, lambda one: _count(one.success_count), lambda one: one.success_count),
    ("p95", "p95", 60, lambda one: fmt.duration(one.latency_ms.p95),
     lambda one: one.latency_ms.p95 or 0.0),
    ("hits", "hits", 30, _hits, lambda one: one.hit_rate or 0.0),
)  # fmt: skip
"""The columns of numbers: key, title, priority in narrow lists, cell, sort key."""


def group_columns(groups: Sequence[FigureGroup], dimension: str) -> list[Column[FigureGroup]]:
    """Return the columns of a table of groups, wide enough for every number."""
    most = max((one.operation_count for one in groups), default=0)

    def width(title: str, cell: Callable[[FigureGroup], object]) -> int:
        column: Column[FigureGroup] = Column("", title, cell, 0)
        texts = [column.of(one).text for one in groups[:_MEASURED]]
        return max([len(title) + len("↓"), *map(len, texts)])

    def name(one: FigureGroup) -> Cell:
        return Cell(name_of(one), "muted" if None in one.keys.values() else "")

    def share(one: FigureGroup) -> str:
        return bar(one.operation_count, most, _BAR)

    title = words_of(dimension)
    columns: list[Column[FigureGroup]] = [
        Column("name", title, name, min(_NAME, width(title, name)), flexible=True, keep=100,
               order=lambda one: name_of(one).casefold())
    ]  # fmt: skip
    for key, head, keep, cell, order in _NUMBERS:
        align: Literal["right", "point"] = "point" if key == "cost" else "right"
        columns.append(Column(key, head, cell, width(head, cell), align, keep=keep, order=order))
    number = columns[1].order
    columns.insert(2, Column("share", "", share, _BAR, keep=20, tone="accent", order=number))
    return columns


_MEASURES = {
    Measure.COST: "cost_usd",
    Measure.LATENCY: "latency_ms",
    Measure.TOKENS: "(input_tokens + output_tokens + embedding_tokens)",
    Measure.RESULTS: "result_count",
    Measure.SCORE: "best_score",
}
"""The SQL of each measure in the views."""


def filter_of_group(chosen: Filter, group: FigureGroup) -> Filter | None:
    """Return a filter narrowed to a group; None: no filter selects it."""
    [(dimension, value)] = group.keys.items()
    if value is None or dimension in figures.OF_USAGE:
        return None
    field = figures.OF_OPERATION[dimension][0]
    if field not in FIELDS.values():
        return None
    only = build_filter(**{field: value})
    narrowed = chosen.narrowed_to(**{field: getattr(only, field)})
    # A filter on a channel includes memtui's own reads, which the figures exclude.
    return narrowed if narrowed.excludes_internal == chosen.excludes_internal else None


def filter_of_bucket(chosen: Filter, bucket: FigureGroup, about: Filter) -> Filter:
    """Return a filter narrowed to a bucket, and by the filter of a chart."""
    narrowed: dict[str, object] = {
        "since": max(filter(None, (chosen.since, bucket.begins)), default=None),
        "until": min(filter(None, (chosen.until, bucket.ends)), default=None),
        "comparisons": tuple(dict.fromkeys((*chosen.comparisons, *about.comparisons))),
    }
    if about.operation_type is not None:
        narrowed["operation_type"] = about.operation_type
    return chosen.narrowed_to(**narrowed)


def statement_of_group(group: FigureGroup, chosen: Filter) -> str:
    """Return the SQL that lists the operations of a group."""
    [(dimension, value)] = group.keys.items()
    column = figures.DIMENSIONS[dimension]
    same = f"{column} IS NULL" if value is None else f"{column} = {quoted(value)}"
    if dimension in figures.OF_USAGE:
        same = f"seq IN (SELECT seq FROM usage WHERE {same})"  # noqa: S608 - for a person to read
        if value is None:
            same = f"(seq NOT IN (SELECT seq FROM usage) OR {same})"  # noqa: S608 - as above
    return statement_of(same, chosen)


def statement_of(same: str, chosen: Filter) -> str:
    """Return the SQL that lists the operations that match a condition and a filter."""
    from memtui.store.conditions import condition

    narrowed = chosen.with_internal().model_copy(update={"comparisons": ()})
    measured = [f"{_MEASURES[one.measure]} {one.sign} {one.value:f}" for one in chosen.comparisons]
    internal = "NOT internal" if chosen.excludes_internal else ""
    also = [f"  AND {part}" for part in (condition(narrowed), *measured, internal) if part]
    lines = ["SELECT seq, started_at, operation_type, status, binding_key, agent_id, cost_usd",
             "FROM operations", f"WHERE {same}", *also, "ORDER BY seq DESC"]  # fmt: skip
    return "\n".join(lines)
