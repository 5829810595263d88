"""Runs and their steps in words; pure functions for every channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from memtui.contract import OperationStatus, OperationType
from memtui.presenters import format as fmt
from memtui.store.operation import ASKED

if TYPE_CHECKING:
    from memtui.service.history.runs import Run, RunRecord, RunStep

_VERBS = {
    OperationType.CONTEXT: "given",
    OperationType.QUERY: "asked",
    OperationType.GET: "opened",
    OperationType.BROWSE: "looked through",
    OperationType.HISTORY: "asked for the history",
    OperationType.EXPLAIN: "asked how it is found",
    OperationType.PROFILE: "asked for the profile",
    OperationType.WRITE: "wrote",
    OperationType.CORRECT: "corrected",
    OperationType.FORGET: "forgot",
    OperationType.UNDO: "took back",
}
_STATES = {
    "unchanged": "still stored",
    "changed": "changed since",
    "gone": "gone",
    "there": "stored, perhaps changed",
    "unread": "not read",
}
"""Words for each state of a record."""


def given(run: Run) -> str:
    """Return the contexts of a run: `2 contexts, 412 tokens`."""
    if not run.contexts:
        return "no context"
    tokens = f", {fmt.counted(run.tokens_given, 'token')}" if run.tokens_given else ""
    return f"{fmt.counted(run.contexts, 'context')}{tokens}"


def did(run: Run) -> str:
    """Return a run's operations: `3 queries (1 found nothing), 2 writes, 1 held for review`."""
    asked = fmt.counted(run.queries, "query", "queries")
    if empty := run.queries - run.answered_queries:
        asked += f" ({fmt.count(empty)} found nothing)"
    parts = [asked] if run.queries else []
    named = ((run.writes, "write"), (run.corrections, "correction"), (run.forgets, "forget"))
    parts += [fmt.counted(number, word) for number, word in named if number]
    parts += [f"{fmt.count(run.pending)} held for review"] if run.pending else []
    return ", ".join(parts) or "nothing"


def failed(run: Run) -> str:
    """Return how many operations of a run failed; empty: none."""
    return fmt.counted(run.failures, "operation") if run.failures else ""


def cost(run: Run) -> str:
    """Return the exact cost of a run's operations, with a mention of an unpriced part."""
    return fmt.money(run.cost_usd, unpriced=bool(run.unpriced_count))


def prompts(steps: Iterable[RunStep]) -> str:
    """Return the cost of the steps' contexts as prompt tokens; empty: there are no contexts."""
    prices = [step.context.price for step in steps if step.context is not None]
    known = [price.cost_usd for price in prices if price.cost_usd is not None]
    if not prices:
        return ""
    total = fmt.money(sum(known, Decimal(0)), unpriced=len(known) < len(prices))
    return f"{total} as {', '.join(sorted({price.model for price in prices}))}"


def short_cost(run: Run) -> str:
    """Return a run's cost for a column."""
    return fmt.short_money(run.cost_usd, unpriced=bool(run.unpriced_count))


def today(records: Iterable[RunRecord]) -> str:
    """Return the states of a run's records, each counted once: `4 still stored, 1 gone`."""
    states = {(one.binding_key, one.handle.provider_record_id): one.state for one in records}
    counts: Counter[str] = Counter(states.values())
    return ", ".join(
        f"{fmt.count(counts[name])} {words}" for name, words in _STATES.items() if counts[name]
    )


def changes(records: Collection[RunRecord]) -> str:
    """Return the states for a column: `all stored`, else the others: `1 changed, 1 gone`."""
    counts: Counter[str] = Counter(one.state for one in records)
    parts = [f"{counts[name]} {name}" for name in ("changed", "gone", "unread") if counts[name]]
    return ", ".join(parts) or ("all stored" if records else "")


def measured(record: RunRecord) -> str:
    """Return tokens and cost of a record in its context, else its score."""
    if record.tokens is None:
        return fmt.score(record.score)
    return f"{fmt.count(record.tokens)} tok {fmt.short_money(record.cost_usd)}"


def state(record: RunRecord) -> str:
    """Return the state of a record: `changed since`, `still stored as n-2`, `not read (why)`."""
    words = _STATES[record.state]
    if record.new_id is not None:
        words += f" as {record.new_id}"
    if record.ghost:
        words += ", a ghost"
    return f"{words} ({record.why.rstrip('.')})" if record.why else words


def offset(since_start: timedelta) -> str:
    """Return the time since a run's start: `+0:06`, `+1:02:09`."""
    seconds = int(since_start.total_seconds())
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"+{hours}:{minutes:02}:{rest:02}" if hours else f"+{minutes}:{rest:02}"


def verb(step: RunStep) -> str:
    """Return a step as a verb: given, asked, wrote."""
    operation = step.operation
    if operation.operation_type is OperationType.CONTEXT and step.context is None:
        return "looked at" if "delivered" in operation.request else "replied"
    return _VERBS.get(operation.operation_type, operation.operation_type.value)


def what(step: RunStep) -> str:
    """Return the object of a step, on one line: a query's text, or how many records."""
    operation = step.operation
    if step.context is not None:
        prompt = operation.request.get("prompt")
        about = f"for “{' '.join(str(prompt)[:200].split())}”" if prompt else ""
        return f"{fmt.counted(operation.result_count, 'record')} {about}".rstrip()
    for name in ASKED:
        value = operation.request.get(name)
        if isinstance(value, str) and value:
            return " ".join(value[:400].split())
    if operation.operation_type is OperationType.FORGET or operation.handles:
        return fmt.counted(operation.result_count, "record")
    return "erased" if operation.erased else ""


def spent(step: RunStep) -> str:
    """Return tokens and price of a context in the prompt; else results and cost, or the status."""
    operation, context = step.operation, step.context
    if context is not None:
        priced = context.price
        cost = fmt.money(priced.cost_usd, unpriced=not priced.priced)
        over = ", over budget" if context.over_budget else ""
        return f"{fmt.counted(priced.input_tokens, 'token')}, {cost} as {priced.model}{over}"
    if operation.status is not OperationStatus.OK:
        return fmt.outcome(operation.status).word
    found = fmt.counted(operation.result_count, "record")
    used = f", {fmt.operation_cost(operation)}" if operation.usage else ""
    return f"{found}{used}"
