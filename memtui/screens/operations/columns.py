"""The columns of the operation log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from memtui.contract import OperationType
from memtui.store.operation import ASKED, Operation
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import actor


def operation_columns(now: Callable[[], datetime]) -> list[Column[Operation]]:
    """Return the columns; `now` is what relative times count from."""
    return [
        Column("number", "#", lambda one: Cell(fmt.count(one.seq), "muted"), 10, "right", keep=75),
        Column("when", "when", lambda one: _when(one, now()), 6, "right", keep=90),
        Column("type", "type", _type, 11, keep=100),
        Column("status", "status", _plain(lambda one: one.status.value), 8, keep=45),
        Column("binding", "binding", _binding, 9, keep=40),
        Column("provider", "provider", _plain(lambda one: one.provider_key), 9, keep=35),
        Column("agent", "agent", _agent, 9, flexible=True, keep=80),
        Column("project", "project", _plain(lambda one: one.scope.project_id), 10, keep=55),
        Column("issue", "issue", _plain(lambda one: one.scope.issue_id), 8, keep=55),
        Column("run", "run", _plain(lambda one: one.scope.run_id), 9, keep=55),
        Column("subject", "subject", _plain(lambda one: one.scope.subject_id), 9, keep=55),
        Column("what", "what", _what, 16, flexible=True, keep=85),
        Column("source", "source", _source, 16, flexible=True, keep=43),
        Column("door", "door", _plain(lambda one: one.door), 6, keep=50),
        Column("by", "by", _plain(lambda one: one.principal), 10, keep=50),
        Column("records", "records", _plain(lambda one: one.result_count), 7, "right", keep=50),
        Column("score", "score", _score, 6, "right", keep=50),
        Column("tokens", "tokens", _tokens, 8, "right", keep=50),
        Column("ms", "ms", _milliseconds, 6, "right", keep=60),
        Column("cost", "$", _cost, 9, "right", keep=70),
        Column("error", "error", _plain(lambda one: one.error_kind), 10, keep=50),
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
    words = asked(operation)
    if words and words == operation.request.get("record_id"):
        words = words.rstrip("/").rpartition("/")[2]  # the folders before it are alike
    return Cell(words, "muted")


def asked(operation: Operation) -> str:
    """Return what an operation was about, on one line; empty where it says nothing."""
    for name in ASKED:
        value = operation.request.get(name)
        if isinstance(value, str) and value:
            return " ".join(value[:400].split())
    if isinstance(count := operation.request.get("content_chars"), int):
        return fmt.counted(count, "character")
    records = operation.request.get("records")
    if isinstance(records, int):
        return fmt.counted(records, "record")
    if operation.operation_type is OperationType.PURGE:
        return str(operation.request.get("what", "proof"))
    if operation.operation_type is OperationType.CONFIGURE:
        return next(iter(operation.request), "").replace("_", " ")
    return "erased" if operation.erased else ""


def _milliseconds(operation: Operation) -> Cell:
    took = operation.latency_ms
    return Cell("–" if took is None else fmt.count(round(took)))


def _cost(operation: Operation) -> Cell:
    cost = operation.cost_usd
    tone: Any = "muted" if not cost and not operation.unpriced else ""
    return Cell(fmt.short_money(cost, unpriced=operation.unpriced), tone)


def _plain(value: Callable[[Operation], object]) -> Callable[[Operation], Cell]:
    def cell(operation: Operation) -> Cell:
        found = value(operation)
        return Cell("–", "muted") if found is None else Cell(str(found))

    return cell


def _score(operation: Operation) -> Cell:
    scores = [handle.score for handle in operation.handles if handle.score is not None]
    return Cell(fmt.score(max(scores)) if scores else "–", "" if scores else "muted")


def _tokens(operation: Operation) -> Cell:
    used = sum(
        usage.input_tokens + usage.output_tokens + usage.embedding_tokens
        for usage in operation.usage
    )
    return Cell(fmt.count(used), "" if used else "muted")


SORTS = {
    "when": "seq",
    "number": "seq",
    "type": "operation_type",
    "status": "status",
    "binding": "binding_key",
    "provider": "provider_key",
    "agent": "actor",
    "project": "project_id",
    "issue": "issue_id",
    "run": "run_id",
    "subject": "subject_id",
    "source": "source_kind",
    "what": "what",
    "door": "door",
    "by": "principal",
    "records": "result_count",
    "score": "best_score",
    "tokens": "tokens",
    "ms": "latency_ms",
    "cost": "cost_usd",
    "error": "error_kind",
}
"""What the log is ordered by, column by column (`memtui.analytics.conditions.SORTS`)."""

HIDDEN = frozenset(
    {
        "number",
        "status",
        "provider",
        "project",
        "issue",
        "run",
        "subject",
        "door",
        "by",
        "records",
        "score",
        "tokens",
        "error",
    }
)
"""Columns that are shown only where a person wants them."""
