"""The table of figures by a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memtui.analytics.figures import Group
from memtui.widgets import format as fmt
from memtui.widgets.bars import bar
from memtui.widgets.columns import Cell, Column
from memtui.widgets.rows import AppendedRows

_BAR = 8


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
    """Return the columns of a table of groups."""
    return [
        Column("name", "by", lambda one: _name(one, rows), 9, flexible=True, keep=100),
        Column("operations", "ops", lambda one: _count(one.operation_count), 6, "right", keep=95),
        Column("share", "", lambda one: _share(one, rows), _BAR, keep=50),
        Column("failed", "failed", _failed, 6, "right", keep=80),
        Column("cost", "$", _cost, 8, "right", keep=90),
        Column("unpriced", "unpriced", lambda one: _count(one.unpriced_count), 8, "right", keep=70),
        Column("ok", "ok", lambda one: _count(one.success_count), 6, "right", keep=40),
        Column("p95", "p95", _p95, 7, "right", keep=60),
        Column("hits", "hits", _hits, 5, "right", keep=30),
    ]  # fmt: skip


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
