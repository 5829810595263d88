"""The columns of the operation log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import actor

_TEXTS = ("query", "content", "text", "record_id")


def operation_columns(now: Callable[[], datetime]) -> list[Column[Operation]]:
    """Return the columns; `now` is what relative times count from."""
    return [
        Column("when", "when", lambda one: _when(one, now()), 6, "right", keep=90),
        Column("type", "type", _type, 11, keep=100),
        Column("binding", "binding", _binding, 9, flexible=True, keep=40),
        Column("agent", "agent", _agent, 9, flexible=True, keep=60),
        Column("source", "source", _source, 16, flexible=True, keep=80),
        Column("what", "what", _what, 18, flexible=True, keep=30),
        Column("ms", "ms", _milliseconds, 6, "right", keep=50),
        Column("cost", "$", _cost, 9, "right", keep=70),
    ]


def _when(operation: Operation, now: datetime) -> Cell:
    return Cell(fmt.ago(operation.started_at, now), "muted")


def _type(operation: Operation) -> Cell:
    ended = fmt.outcome(operation.status)
    tone: Any = "" if ended.tone == "success" else ended.tone
    return Cell(f"{ended.symbol} {operation.operation_type.value}", tone)


def _binding(operation: Operation) -> Cell:
    return Cell(operation.binding_key or "–", "" if operation.binding_key else "muted")


def _agent(operation: Operation) -> Cell:
    person = operation.principal.startswith("user:")
    return Cell(actor(operation), "muted" if person else "")


def _source(operation: Operation) -> Cell:
    if operation.source is not None:
        return Cell(fmt.source_line(operation.source))
    run = operation.scope.run_id
    return Cell(f"run {run.removeprefix('run-')}") if run else Cell("–", "muted")


def _what(operation: Operation) -> Cell:
    return Cell(asked(operation), "muted")


def asked(operation: Operation) -> str:
    """Return what an operation was about, on one line; empty where it says nothing."""
    for name in _TEXTS:
        value = operation.request.get(name)
        if isinstance(value, str) and value:
            return " ".join(value[:400].split())
    records = operation.request.get("records")
    return fmt.counted(records, "record") if isinstance(records, int) else ""


def _milliseconds(operation: Operation) -> Cell:
    return Cell(fmt.count(round(operation.latency_ms)))


def _cost(operation: Operation) -> Cell:
    cost = operation.cost_usd
    tone: Any = "muted" if not cost and not operation.unpriced else ""
    return Cell(fmt.short_money(cost, unpriced=operation.unpriced), tone)


SORT_KEYS: dict[str, Callable[[Operation], Any]] = {
    "type": lambda one: (one.operation_type.value, one.seq),
    "binding": lambda one: (one.binding_key or "", one.seq),
    "agent": lambda one: (actor(one), one.seq),
    "source": lambda one: (fmt.source_line(one.source), one.seq),
    "what": lambda one: (asked(one).casefold(), one.seq),
    "ms": lambda one: (one.latency_ms, one.seq),
    "cost": lambda one: (one.cost_usd or Decimal(0), one.unpriced, one.seq),
}
"""What the log is ordered by, column by column; the sequence number decides a tie."""
