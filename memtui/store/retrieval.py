"""Which operations returned or touched a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from memtui.contract import OperationType
from memtui.store.tables import HandleRow, OperationRow

_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_HANDLES = HandleRow.__table__  # type: ignore[attr-defined]


def retrievals(
    connection: Connection, company_id: str, binding_key: str, record_id: str, limit: int
) -> tuple[int, list[Any]]:
    """Return how many queries returned a record, and the newest of them with rank and score."""
    statement = (
        select(
            _OPERATIONS.c.operation_id,
            _OPERATIONS.c.seq,
            _OPERATIONS.c.started_at,
            _OPERATIONS.c.request,
            _OPERATIONS.c.principal,
            _HANDLES.c.rank,
            _HANDLES.c.score,
        )
        .join(_OPERATIONS, _same_operation())
        .where(*_returned(company_id, binding_key), _HANDLES.c.provider_record_id == record_id)
    )
    total = connection.execute(select(func.count()).select_from(statement.subquery())).scalar_one()
    newest = statement.order_by(_OPERATIONS.c.seq.desc()).limit(limit)
    return total, list(connection.execute(newest))


def retrieval_counts(
    connection: Connection, company_id: str, binding_key: str, record_ids: Sequence[str]
) -> list[Any]:
    """Return (record id, number of queries, newest `seq`) of the records that were ever read."""
    return list(
        connection.execute(
            select(
                _HANDLES.c.provider_record_id,
                func.count().label("times"),
                func.max(_HANDLES.c.seq).label("seq"),
            )
            .join(_OPERATIONS, _same_operation())
            .where(
                *_returned(company_id, binding_key),
                _HANDLES.c.provider_record_id.in_(record_ids),
            )
            .group_by(_HANDLES.c.provider_record_id)
        )
    )


def newest_ranks(
    connection: Connection, company_id: str, places: Sequence[tuple[str, int]]
) -> list[Any]:
    """Return (record id, moment, rank) for (record id, `seq`) pairs."""
    seqs = {seq for _, seq in places}
    return list(
        connection.execute(
            select(
                _HANDLES.c.provider_record_id,
                _HANDLES.c.seq,
                _OPERATIONS.c.started_at,
                _HANDLES.c.rank,
            )
            .join(_OPERATIONS, _same_operation())
            .where(_HANDLES.c.company_id == company_id, _HANDLES.c.seq.in_(seqs))
        )
    )


def mutations_of_record(
    connection: Connection, company_id: str, binding_key: str, record_id: str
) -> list[str]:
    """Return the ids of the mutations that touched a record."""
    types = [str(kind) for kind in OperationType if kind.mutates]
    return [
        str(operation_id)
        for (operation_id,) in connection.execute(
            select(_OPERATIONS.c.operation_id)
            .join(_HANDLES, _same_operation())
            .where(
                _HANDLES.c.company_id == company_id,
                _HANDLES.c.binding_key == binding_key,
                _HANDLES.c.provider_record_id == record_id,
                _OPERATIONS.c.operation_type.in_(types),
            )
        )
    ]


def _same_operation() -> Any:
    return (_HANDLES.c.company_id == _OPERATIONS.c.company_id) & (
        _HANDLES.c.seq == _OPERATIONS.c.seq
    )


def _returned(company_id: str, binding_key: str) -> tuple[Any, ...]:
    return (
        _HANDLES.c.company_id == company_id,
        _HANDLES.c.binding_key == binding_key,
        _OPERATIONS.c.operation_type == str(OperationType.QUERY),
    )
