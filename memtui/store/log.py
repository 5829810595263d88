"""The operation log: append with a gap-free sequence, read newest first."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    CompoundSelect,
    Double,
    Row,
    Select,
    String,
    cast,
    func,
    select,
    tuple_,
    type_coerce,
    union_all,
)

from memtui.contract import Comparison, Filter, Measure
from memtui.fuzzy import pattern
from memtui.store.columns import ForeignText
from memtui.store.connection import Connection
from memtui.store.operation import Operation, OperationPage
from memtui.store.rows import Loaded, to_operation
from memtui.store.sight import Sight, seen
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
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_FOREIGN = ForeignText()
_PICO = 10**12
_ID_CHUNK = 500


def owners(connection: Connection, operation_ids: Sequence[str]) -> dict[str, tuple[str, datetime]]:
    """Return whose each of these operations is that are in the database, and when it began."""
    found: dict[str, tuple[str, datetime]] = {}
    columns = _OPERATIONS.c
    wanted = (columns.operation_id, columns.company_id, columns.started_at)
    for start in range(0, len(operation_ids), _ID_CHUNK):
        chunk = operation_ids[start : start + _ID_CHUNK]
        rows = connection.execute(select(*wanted).where(columns.operation_id.in_(chunk)))
        found.update((row.operation_id, (row.company_id, row.started_at)) for row in rows)
    return found


def company_salt(connection: Connection, company_id: str) -> bytes:
    """Return what a company's subjects are committed with; empty before its first operation."""
    found = connection.execute(select(_HEADS.c.salt).where(_HEADS.c.company_id == company_id))
    return found.scalar() or b""


def matching(company_id: str, chosen: Filter, sight: Sight | None = None) -> Select[Any]:
    """Return the statement for the operations of a company that a filter lets through."""
    statement = select(_OPERATIONS).where(_OPERATIONS.c.company_id == company_id)
    for condition in _conditions(company_id, chosen, sight):
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
    above: int = 0,
    sight: Sight | None = None,
) -> OperationPage:
    """Return one page, newest first: the newest below `before`, or the oldest above `after`.

    Operations up to `above`, and those out of sight, are as if they were not there.
    """
    seq: Column[int] = _OPERATIONS.c.seq
    statement = matching(company_id, chosen, sight).where(seq > above)
    total = connection.execute(_count(company_id, chosen, above, sight)).scalar_one()
    if not total:
        return OperationPage(operations=(), total=0)
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


def _count(company_id: str, chosen: Filter, above: int, sight: Sight | None) -> Select[int]:
    """How many match; all of them are as many as the gap-free numbers from first to last."""
    seq = _OPERATIONS.c.seq
    own = (_OPERATIONS.c.company_id == company_id) & (seq > above)
    conditions = _conditions(company_id, chosen, sight)
    if conditions:
        return select(func.count()).select_from(_OPERATIONS).where(own, *conditions)
    first, last = (select(end(seq)).where(own).scalar_subquery() for end in (func.min, func.max))
    return select(func.coalesce(last - first + 1, 0))


def by_id(
    connection: Connection, company_id: str, operation_id: str, *, sight: Sight | None = None
) -> list[Operation]:
    """Return the operation with this id, else this `seq`, else those whose id starts with it."""
    if not operation_id:
        return []
    column, own = _OPERATIONS.c.operation_id, _OPERATIONS.c.company_id == company_id
    matches: list[list[ColumnElement[bool]]] = [[own, column == operation_id]]
    if operation_id.isdecimal() and len(operation_id) < 19:
        matches.append([own, _OPERATIONS.c.seq == int(operation_id)])
    if connection.dialect == "sqlite":
        # Its LIKE uses no index, and a plain equality leads it to one of the company's instead.
        own = (_OPERATIONS.c.company_id + "") == company_id
        matches.append([own, column >= operation_id, column < operation_id + "\U0010ffff"])
    else:
        matches.append([own, column.startswith(operation_id, autoescape=True)])
    for match in matches:
        if rows := connection.execute(
            select(_OPERATIONS).where(*match, *seen(sight)).limit(2)
        ).all():
            return list(_with_parts(connection, rows))
    return []


def latencies(
    connection: Connection,
    company_id: str,
    binding_key: str,
    limit: int,
    *,
    above: int = 0,
    sight: Sight | None = None,
) -> list[float]:
    """Return the latencies of a binding's newest operations in milliseconds, oldest first.

    Operations up to `above` are as if they were not there.
    """
    newest = (
        select(_OPERATIONS.c.latency_ms)
        .where(
            _OPERATIONS.c.company_id == company_id,
            _OPERATIONS.c.binding_key == binding_key,
            _OPERATIONS.c.seq > above,
            _OPERATIONS.c.latency_ms.is_not(None),
            *seen(sight),
        )
        .order_by(_OPERATIONS.c.seq.desc())
        .limit(limit)
    )
    return list(connection.execute(newest).scalars())[::-1]


def by_ids(
    connection: Connection,
    company_id: str,
    operation_ids: Sequence[str],
    *,
    sight: Sight | None = None,
) -> tuple[Operation, ...]:
    """Return the operations with these ids, newest first."""
    rows: list[Row[Any]] = []
    for start in range(0, len(operation_ids), _ID_CHUNK):
        chunk = operation_ids[start : start + _ID_CHUNK]
        statement = select(_OPERATIONS).where(
            _OPERATIONS.c.company_id == company_id,
            _OPERATIONS.c.operation_id.in_(chunk),
            *seen(sight),
        )
        rows.extend(connection.execute(statement).all())
    rows.sort(key=lambda row: -row.seq)
    return _with_parts(connection, rows)


def seqs(
    connection: Connection,
    company_id: str,
    chosen: Filter,
    first: int,
    last: int,
    *,
    sight: Sight | None = None,
) -> Sequence[int]:
    """Return the numbers from `first` to `last`, ends included, that a filter lets through."""
    seq = _OPERATIONS.c.seq
    statement = (
        select(seq)
        .where(_OPERATIONS.c.company_id == company_id, seq.between(first, last))
        .where(*_conditions(company_id, chosen, sight))
        .order_by(seq)
    )
    return connection.execute(statement).scalars().all()


def by_seqs(connection: Connection, company_id: str, wanted: Sequence[int]) -> list[Operation]:
    """Return the operations with these numbers, those that are there, in no order."""
    rows: list[Row[Any]] = []
    for start in range(0, len(wanted), _ID_CHUNK):
        statement = select(_OPERATIONS).where(
            _OPERATIONS.c.company_id == company_id,
            _OPERATIONS.c.seq.in_(wanted[start : start + _ID_CHUNK]),
        )
        rows.extend(connection.execute(statement).all())
    return list(_with_parts(connection, rows))


def last_begun(
    connection: Connection,
    company_id: str,
    chosen: Filter,
    by: datetime,
    last: int,
    *,
    sight: Sight | None = None,
) -> tuple[datetime, int] | None:
    """Return when the operation began that was the last to begin by a moment, and its number.

    Only what a filter lets through and is no newer than number `last` counts.
    """
    columns = _OPERATIONS.c
    statement = (
        select(columns.started_at, columns.seq)
        .where(columns.company_id == company_id, columns.started_at <= by, columns.seq <= last)
        .where(*_conditions(company_id, chosen, sight))
        .order_by(columns.started_at.desc(), columns.seq.desc())
        .limit(1)
    )
    found = connection.execute(statement).one_or_none()
    return None if found is None else (found.started_at, found.seq)


def _with_parts(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Operation, ...]:
    if not rows:
        return ()
    usage, handles = (_parts(connection, table, rows) for table in (_USAGE, _HANDLES))
    return tuple(
        to_operation(row._mapping, usage[row.seq], handles[row.seq])  # noqa: SLF001
        for row in rows
    )


def _parts(connection: Connection, table: Any, rows: Sequence[Row[Any]]) -> dict[int, list[Loaded]]:
    found: dict[int, list[Loaded]] = defaultdict(list)
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
            found[part.seq].append(part._mapping)  # noqa: SLF001 — SQLAlchemy's public name
    return found


def _conditions(company_id: str, chosen: Filter, sight: Sight | None) -> list[ColumnElement[bool]]:
    columns = _OPERATIONS.c
    conditions: list[ColumnElement[bool]] = [*seen(sight)]
    for field, column in _EQUAL_FIELDS.items():
        value = getattr(chosen, field)
        if value is None:
            continue
        if field in _ALSO_IN_SOURCE:
            places = (column, _ALSO_IN_SOURCE[field])
            conditions.append(columns.seq.in_(_seqs_of(company_id, places, value)))
        else:
            conditions.append(columns[column] == str(value))
    if chosen.since is not None:
        conditions.append(columns.started_at >= chosen.since)
    if chosen.until is not None:
        conditions.append(columns.started_at < chosen.until)
    conditions.extend(_compared(comparison) for comparison in chosen.comparisons)
    conditions.extend(_mentions(word) for word in (chosen.text or "").split())
    conditions.extend(_nearly_mentions(word) for word in chosen.fuzzy)
    return conditions


def _seqs_of(company_id: str, places: Sequence[str], value: str) -> CompoundSelect[int]:
    """The operations with a value in any of the columns; an OR would use none of their indexes."""
    columns = _OPERATIONS.c
    return union_all(
        *(
            select(columns.seq).where(columns.company_id == company_id, columns[place] == value)
            for place in places
        )
    )


def _compared(comparison: Comparison) -> ColumnElement[bool]:
    columns, compare, value = _OPERATIONS.c, _SIGNS[comparison.sign], comparison.value
    result: ColumnElement[bool]
    match comparison.measure:
        case Measure.COST:
            result = _part(compare(_dollars(), tuple_(*divmod(int(value.scaleb(12)), _PICO))))
        case Measure.TOKENS:
            # As floating point numbers their sum cannot overflow; those asked for are exact in it.
            used = (_USAGE.c.input_tokens, _USAGE.c.output_tokens, _USAGE.c.embedding_tokens)
            total = reduce(operator.add, (func.sum(cast(one, Double)) for one in used))
            result = compare(func.coalesce(_part(total), 0), int(value))
        case Measure.SCORE:
            result = compare(_part(func.max(_HANDLES.c.score), _HANDLES), float(value))
        case Measure.RESULTS:
            result = compare(columns.result_count, int(value))
        case Measure.LATENCY:
            result = compare(columns.latency_ms, float(value))
    return result


def _dollars() -> Any:
    """The priced usage as whole dollars and picodollars: no sum of them overflows."""
    pico = type_coerce(_USAGE.c.cost_usd, BigInteger)
    whole, rest = (cast(func.sum(part), BigInteger) for part in (pico // _PICO, pico % _PICO))
    return tuple_(whole + rest // _PICO, rest % _PICO)


def _part(value: Any, table: Any = _USAGE) -> Any:
    """What the operation's own rows of a table come to."""
    own = (table.c.company_id == _OPERATIONS.c.company_id, table.c.seq == _OPERATIONS.c.seq)
    return select(value).where(*own).scalar_subquery()


def _mentions(word: str) -> ColumnElement[bool]:
    return _searched(_OPERATIONS.c.operation_id).icontains(word, autoescape=True)


def _nearly_mentions(word: str) -> ColumnElement[bool]:
    stored = str(_FOREIGN.process_bind_param(word, None))  # type: ignore[arg-type]
    return func.lower(_searched()).regexp_match(pattern(stored.lower()))


def _searched(*also: Column[str]) -> ColumnElement[str]:
    columns = _OPERATIONS.c
    searched = (
        cast(columns.request, String),
        columns.error_message,
        columns.principal,
        columns.issue_id,
        columns.run_id,
        *also,
    )
    # One text a row, because SQLite calls back into Python for each that is to be lowered.
    return reduce(operator.add, (func.coalesce(part, "") + "\n" for part in searched))
