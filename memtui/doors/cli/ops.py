"""`ops`: the operation log, which everything that happens is written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.nearest import say_unknown_of_operations
from memtui.doors.cli.options import (
    FilterLine,
    Limit,
    OperationOptions,
    ScopeOptions,
)
from memtui.doors.cli.output import Dim, Line, jsonable
from memtui.doors.cli.records import change_lines
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, facts, table

if TYPE_CHECKING:
    from memtui.contract import Filter
    from memtui.service import Change, Erasure, Operation
    from memtui.store.journal import Found

OperationId = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION", help="Its id, the beginning of its id, or its number in the log."
    ),
]
_POLL_SECONDS = 0.5
_COLUMNS = (
    Column("seq", right=True),
    Column("when", right=True),
    Column(""),
    Column("type"),
    Column("binding"),
    Column("agent"),
    Column("project"),
    Column("source"),
    Column("took", right=True),
    Column("cost", right=True),
    Column("what", stretch=True),
)


async def list_operations(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    limit: Limit = 100,
    before: Annotated[
        int | None, typer.Option(min=1, help="Only before this number; for the next page.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with new ones, as JSON one document a line."),
    ] = False,
) -> None:
    """List operations, newest first.

    The scope options narrow the list. With --follow it goes on until ctrl+c.
    """
    chosen = which.filter(session, line, scope)
    page = await session.service.log.page(session.caller, chosen, limit=limit, before=before)
    if follow:
        await _follow(session, chosen, page.operations)
        return
    session.out.answer(page, lambda: table(_COLUMNS, _rows(session, page.operations)))
    if not session.out.as_json:
        from memtui.widgets import format as shown

        more = f"; the next page: --before {page.next_before}" if page.next_before else ""
        session.out.say(f"{shown.of_total(len(page.operations), page.total)}{more}.")
    if not page.total:
        await say_unknown_of_operations(session, chosen)


async def show(session: Session, operation_id: OperationId) -> None:
    """Show one operation: what was asked, returned and changed."""
    operation = await session.service.log.get(session.caller, operation_id)
    changes = await session.service.log.changes(session.caller, operation.operation_id)
    found = await session.service.log.found_outcome(session.caller, operation.operation_id)
    erasures = await session.service.log.erasures(session.caller, operation)
    document = jsonable(operation) | {
        "changes": [{"before": change.before, "after": change.after} for change in changes],
        "found": found,
        "erasures": list(erasures),
    }
    session.out.answer(
        jsonable(document), lambda: _detail(session, operation, changes, found, erasures)
    )


async def check(session: Session, operation_id: OperationId) -> None:
    """Find out whether an operation of unknown outcome happened.

    What is found is logged as an operation of its own; what happened can be undone from then on.
    """
    operation = await session.service.log.get(session.caller, operation_id)
    found = await session.service.check_outcome(session.caller, operation.operation_id)
    session.out.answer(
        {"operation_id": operation.operation_id, **dict(found)}, lambda: [found.told]
    )
    if found.happened:
        session.out.say(f"memtui undo {operation.operation_id} takes it back.")


async def _follow(session: Session, chosen: Filter, first: Sequence[Operation]) -> None:
    """Print `first` oldest first, then every new operation as it comes, until interrupted."""
    import asyncio

    newest = max((operation.seq for operation in first), default=0)
    _print_each(session, first)
    while True:
        page = await session.service.log.page(session.caller, chosen, after=newest)
        _print_each(session, page.operations)
        newest = max((operation.seq for operation in page.operations), default=newest)
        if not page.operations:
            await asyncio.sleep(_POLL_SECONDS)


def _print_each(session: Session, operations: Sequence[Operation]) -> None:
    import sys

    for operation in reversed(operations):
        if session.out.as_json:
            session.out.document(operation)
        else:
            session.out.line("  ".join(cell for cell in _cells(session, operation) if cell))
    sys.stdout.flush()


def _rows(session: Session, operations: Sequence[Operation]) -> Iterator[list[str]]:
    for operation in operations:
        yield _cells(session, operation)


def _cells(session: Session, operation: Operation) -> list[str]:
    from memtui.widgets import format as shown

    return [
        str(operation.seq),
        shown.ago(operation.started_at, session.now),
        shown.outcome(operation.status).symbol,
        operation.operation_type.value,
        operation.binding_key or "",
        operation.scope.agent_id or "",
        operation.scope.project_id or "",
        shown.source_line(operation.source) if operation.source else "",
        shown.duration(operation.latency_ms),
        shown.short_money(
            operation.cost_usd, unpriced=bool(operation.usage) and operation.unpriced
        ),
        _what(operation),
    ]


def _what(operation: Operation) -> str:
    """Return why it failed, what was asked, or which record it touched."""
    if operation.error_message:
        return operation.error_message
    for word in ("query", "content", "text", "key", "what"):
        value = operation.request.get(word)
        if isinstance(value, str):
            return value
    if not operation.handles or operation.erased:
        return "erased" if operation.erased else ""
    more = operation.result_count - 1
    return operation.handles[0].provider_record_id + (f" and {more:,} more" if more > 0 else "")


def _detail(
    session: Session,
    operation: Operation,
    changes: Sequence[Change],
    found: Found | None,
    erasures: Sequence[Erasure],
) -> Iterator[Line]:
    import json

    from memtui.widgets import format as shown

    outcome = shown.outcome(operation.status)
    link = operation.source and session.company.link(operation.source)
    scope = operation.scope.model_dump(exclude_none=True)
    yield f"{operation.operation_type} #{operation.seq}  {outcome.symbol} {outcome.word}"
    yield from facts(
        [
            ("operation", operation.operation_id),
            ("error", operation.error_message or ""),
            ("found", f"{found.told} (by {found.check_id})" if found else ""),
            ("when", shown.exact(operation.started_at, session.zone)),
            ("took", shown.duration(operation.latency_ms)),
            ("by", f"{operation.principal} through {operation.door}"),
            ("scope", " ".join(f"{name.removesuffix('_id')}:{scope[name]}" for name in scope)),
            ("binding", operation.binding_key or ""),
            ("why", operation.binding_reason or ""),
            ("source", shown.source_line(operation.source) if operation.source else ""),
            ("open", link or ""),
            ("tokens", shown.tokens(operation.usage) if operation.usage else ""),
            ("cost", shown.operation_cost(operation) if operation.usage else ""),
            ("takes back", operation.undoes or ""),
            ("digest", operation.digest),
            ("request", json.dumps(operation.request, ensure_ascii=False, default=str)),
        ]
    )
    for erasure in erasures:
        when = shown.exact(erasure.at, session.zone)
        yield (
            f"{', '.join(erasure.fields)}: erased on {when}, by {erasure.principal} "
            f"in {erasure.operation_id}"
        )
    for handle in operation.handles:
        ghost = "  ghost" if handle.ghost else ""
        record_id = handle.provider_record_id or "erased"
        yield Dim(f"{handle.rank:>4}  {shown.score(handle.score):>6}  {record_id}{ghost}")
    for change in changes:
        yield from change_lines(session, change)
