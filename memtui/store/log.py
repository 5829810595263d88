"""The operation log: append with a gap-free sequence, read newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    cast,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from memtui.contract import Filter
from memtui.store.digest import GENESIS, digest_of
from memtui.store.operation import Operation, OperationDraft, OperationPage
from memtui.store.rows import handle_values, operation_values, to_operation, usage_values
from memtui.store.tables import HandleRow, LogHeadRow, OperationRow, UsageRow

_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_USAGE = UsageRow.__table__  # type: ignore[attr-defined]
_HANDLES = HandleRow.__table__  # type: ignore[attr-defined]
_HEADS = LogHeadRow.__table__  # type: ignore[attr-defined]

_EQUAL_FIELDS = {
    "agent_id": "agent_id",
    "project_id": "project_id",
    "issue_id": "issue_id",
    "run_id": "run_id",
    "subject_id": "subject_id",
    "source_kind": "source_kind",
    "operation_type": "operation_type",
    "status": "status",
    "binding_key": "binding_key",
    "door": "door",
    "principal": "principal",
}
_ALSO_IN_SOURCE = {"issue_id": "source_issue_id", "run_id": "source_run_id"}
_ID_CHUNK = 500


def append(connection: Connection, draft: OperationDraft) -> Operation:
    """Append an operation to its company's log, in the caller's write transaction."""
    company_id = draft.scope.company_id
    seq, previous = _take_head(connection, company_id)
    digest = digest_of(draft, seq=seq, previous_digest=previous)
    connection.execute(insert(_OPERATIONS), operation_values(draft, seq, previous, digest))
    if usage := usage_values(draft, seq):
        connection.execute(insert(_USAGE), usage)
    if handles := handle_values(draft, seq):
        connection.execute(insert(_HANDLES), handles)
    connection.execute(
        update(_HEADS).where(_HEADS.c.company_id == company_id).values(seq=seq, digest=digest)
    )
    return Operation(**dict(draft), seq=seq, previous_digest=previous, digest=digest)


def _take_head(connection: Connection, company_id: str) -> tuple[int, str]:
    locked = select(_HEADS).where(_HEADS.c.company_id == company_id).with_for_update()
    head = connection.execute(locked).first()
    if head is None:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        start = {"company_id": company_id, "seq": 0, "digest": GENESIS}
        connection.execute(dialect.insert(_HEADS).values(start).on_conflict_do_nothing())
        head = connection.execute(locked).one()
    return head.seq + 1, head.digest


def matching(company_id: str, chosen: Filter) -> Select[Any]:
    """Return the statement for the operations of a company that a filter lets through."""
    statement = select(_OPERATIONS).where(_OPERATIONS.c.company_id == company_id)
    for condition in _conditions(chosen):
        statement = statement.where(condition)
    return statement


def page(
    connection: Connection,
    company_id: str,
    chosen: Filter,
    *,
    limit: int,
    before: int | None = None,
    after: int | None = None,
) -> OperationPage:
    """Return one page, newest first: the newest below `before`, or the oldest above `after`."""
    statement = matching(company_id, chosen)
    total = connection.execute(select(func.count()).select_from(statement.subquery())).scalar_one()
    seq: Column[int] = _OPERATIONS.c.seq
    if after is not None:
        rows = connection.execute(statement.where(seq > after).order_by(seq).limit(limit)).all()
        return OperationPage(operations=_with_parts(connection, rows[::-1]), total=total)
    if before is not None:
        statement = statement.where(seq < before)
    rows = connection.execute(statement.order_by(seq.desc()).limit(limit + 1)).all()
    shown = rows[:limit]
    return OperationPage(
        operations=_with_parts(connection, shown),
        total=total,
        next_before=shown[-1].seq if len(rows) > limit else None,
    )


def by_id(connection: Connection, company_id: str, operation_id: str) -> list[Operation]:
    """Return the operations with this id, an id that starts with it, or this `seq`."""
    own = _OPERATIONS.c.company_id == company_id
    column = _OPERATIONS.c.operation_id
    if operation_id.isdecimal() and len(operation_id) < 19:
        matches = or_(column == operation_id, _OPERATIONS.c.seq == int(operation_id))
    else:
        matches = column.startswith(operation_id, autoescape=True)
    rows = connection.execute(select(_OPERATIONS).where(own, matches).limit(3)).all()
    exact = [row for row in rows if row.operation_id == operation_id]
    return list(_with_parts(connection, exact or rows))


def by_ids(
    connection: Connection, company_id: str, operation_ids: Sequence[str]
) -> tuple[Operation, ...]:
    """Return the operations with these ids, newest first."""
    rows: list[Row[Any]] = []
    for start in range(0, len(operation_ids), _ID_CHUNK):
        chunk = operation_ids[start : start + _ID_CHUNK]
        statement = select(_OPERATIONS).where(
            _OPERATIONS.c.company_id == company_id, _OPERATIONS.c.operation_id.in_(chunk)
        )
        rows.extend(connection.execute(statement).all())
    rows.sort(key=lambda row: -row.seq)
    return _with_parts(connection, rows)


def _with_parts(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Operation, ...]:
    if not rows:
        return ()
    usage, handles = (_parts(connection, table, rows) for table in (_USAGE, _HANDLES))
    return tuple(to_operation(row, usage[row.seq], handles[row.seq]) for row in rows)


def _parts(
    connection: Connection, table: Any, rows: Sequence[Row[Any]]
) -> dict[int, list[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    order = table.c.ordinal if "ordinal" in table.c else table.c.rank
    seqs = [row.seq for row in rows]
    for start in range(0, len(seqs), _ID_CHUNK):
        statement = (
            select(table)
            .where(
                table.c.company_id == rows[0].company_id,
                table.c.seq.in_(seqs[start : start + _ID_CHUNK]),
            )
            .order_by(table.c.seq, order)
        )
        for part in connection.execute(statement):
            found[part.seq].append(part)
    return found


def _conditions(chosen: Filter) -> list[ColumnElement[bool]]:
    columns = _OPERATIONS.c
    conditions: list[ColumnElement[bool]] = []
    for field, column in _EQUAL_FIELDS.items():
        value = getattr(chosen, field)
        if value is None:
            continue
        same = columns[column] == str(value)
        if field in _ALSO_IN_SOURCE:
            same = or_(same, columns[_ALSO_IN_SOURCE[field]] == value)
        conditions.append(same)
    if chosen.since is not None:
        conditions.append(columns.started_at >= chosen.since)
    if chosen.until is not None:
        conditions.append(columns.started_at < chosen.until)
    conditions.extend(_mentions(word) for word in (chosen.text or "").split())
    return conditions


def _mentions(word: str) -> ColumnElement[bool]:
    columns = _OPERATIONS.c
    searched = (
        cast(columns.request, String),
        columns.error_message,
        columns.operation_id,
        columns.principal,
        columns.issue_id,
        columns.run_id,
    )
    return or_(*(column.icontains(word, autoescape=True) for column in searched))
