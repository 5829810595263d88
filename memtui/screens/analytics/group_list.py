"""The table of figures by a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memtui.analytics.figures import Group
from memtui.widgets import format as fmt
from memtui.widgets.charts import bar
from memtui.widgets.columns import Cell, Column
from memtui.widgets.rows import AppendedRows

_BAR = 8
_NAME = 16
"""Cells of a name that are never cut."""
_MEASURED = 2_000
"""Groups that are measured for the width of a column; those with the most operations are."""


def name_of(group: Group, dimension: str) -> str:
    """Return what a group is called; one of nothing says so."""
    value = group.keys.get(dimension)
    return value if value is not None else f"no {dimension.replace('_', ' ')}"


class GroupRows(AppendedRows[Group]):
    """The groups of one dimension."""

    def __init__(self) -> None:
        super().__init__(lambda one: repr(one.keys))
        self.dimension = "binding"

    def fill(self, groups: Sequence[Group], dimension: str) -> None:
        """Hold other groups."""
        self.dimension = dimension
        self.replace(groups)

    @property
    def most(self) -> int:
        """The operations of the largest group."""
        return max((one.operation_count for _, one in self.held()), default=0)


def group_columns(rows: GroupRows) -> list[Column[Group]]:
    """Return the columns of a table of groups; a number is never cut."""
    title = rows.dimension.replace("_", " ")
    numbers: list[tuple[str, str, Callable[[Group], Cell], int]] = [
        ("operations", "ops", lambda one: _count(one.operation_count), 95),
        ("failed", "failed", _failed, 80),
        ("cost", "$", _cost, 90),
        ("unpriced", "unpriced", lambda one: _count(one.unpriced_count), 70),
        ("ok", "ok", lambda one: _count(one.success_count), 40),
        ("p95", "p95", _p95, 60),
        ("hits", "hits", _hits, 30),
    ]
    columns: list[Column[Group]] = [
        Column(key, head, cell, _width(head, cell, rows), "right", keep=keep)
        for key, head, cell, keep in numbers
    ]
    columns.insert(1, Column("share", "", lambda one: _share(one, rows), _BAR, keep=20))
    named: Column[Group] = Column(
        "name",
        title,
        lambda one: _name(one, rows),
        min(_NAME, _width(title, lambda one: _name(one, rows), rows)),
        flexible=True,
        keep=100,
    )
    return [named, *columns]


def _width(title: str, cell: Callable[[Group], Cell], rows: GroupRows) -> int:
    texts = [cell(one).text for _, one in rows.held()[:_MEASURED]]
    return max([len(title) + len("↓"), *map(len, texts)])


def _name(group: Group, rows: GroupRows) -> Cell:
    missing = group.keys.get(rows.dimension) is None
    return Cell(name_of(group, rows.dimension), "muted" if missing else "")


def _count(number: int) -> Cell:
    return Cell(fmt.count(number), "" if number else "muted")


def _share(group: Group, rows: GroupRows) -> Cell:
    return Cell(bar(group.operation_count, rows.most, _BAR), "accent")


def _failed(group: Group) -> Cell:
    return Cell(fmt.count(group.failure_count), "error" if group.failure_count else "muted")


def _cost(group: Group) -> Cell:
    return Cell(
        fmt.short_money(group.cost_usd, unpriced=bool(group.unpriced_count)),
        "" if group.cost_usd else "muted",
    )


def _p95(group: Group) -> Cell:
    return Cell(fmt.duration(group.latency_ms.p95))


def _hits(group: Group) -> Cell:
    rate = group.hit_rate
    return Cell("–" if rate is None else f"{rate:.0%}", "" if rate else "muted")


def sort_key(column: str, dimension: str) -> Any:
    """Return what a column orders groups by."""
    keys: dict[str, Any] = {
        "name": lambda one: name_of(one, dimension).casefold(),
        "operations": lambda one: one.operation_count,
        "share": lambda one: one.operation_count,
        "failed": lambda one: one.failure_count,
        "cost": lambda one: one.cost_usd,
        "unpriced": lambda one: one.unpriced_count,
        "ok": lambda one: one.success_count,
        "p95": lambda one: one.latency_ms.p95 or 0.0,
        "hits": lambda one: one.hit_rate or 0.0,
    }
    return keys[column]
