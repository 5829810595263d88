"""Which operations returned or touched a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select

from memtui.contract import OperationType
from memtui.store.connection import Connection
from memtui.store.sight import Sight, seen
from memtui.store.tables import HandleRow, OperationRow

_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_HANDLES = HandleRow.__table__  # type: ignore[attr-defined]
_ID_CHUNK = 500

READS = (OperationType.QUERY, OperationType.CONTEXT)
"""A record is read when a query returns it, or when a model gets it in its context."""


def retrievals(
    connection: Connection,
    company_id: str,
    binding_key: str,
    record_id: str,
    limit: int,
    *,
    above: int = 0,
    sight: Sight | None = None,
) -> tuple[int, list[Any]]:
    """Return how many reads above a `seq` returned a record, and the newest with rank and score."""
    returned = (
        _HANDLES.c.seq > above,
        *_touched(company_id, binding_key, READS),
        _HANDLES.c.provider_record_id == record_id,
        *_in_sight(sight),
    )
    total = connection.execute(select(func.count()).select_from(_HANDLES).where(*returned))
    newest = (
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
        .where(*returned)
        .order_by(_HANDLES.c.seq.desc())
        .limit(limit)
    )
    return total.scalar_one(), list(connection.execute(newest))


def retrieval_counts(
    connection: Connection,
    company_id: str,
    binding_key: str,
    record_ids: Sequence[str],
    *,
    above: int = 0,
    sight: Sight | None = None,
) -> list[Any]:
    """Return (record id, number of reads, newest `seq`) of the records read above a `seq`."""
    found: list[Any] = []
    for start in range(0, len(record_ids), _ID_CHUNK):
        statement = (
            select(
                _HANDLES.c.provider_record_id,
                func.count().label("times"),
                func.max(_HANDLES.c.seq).label("seq"),
            )
            .where(
                _HANDLES.c.seq > above,
                *_touched(company_id, binding_key, READS),
                _HANDLES.c.provider_record_id.in_(record_ids[start : start + _ID_CHUNK]),
                *_in_sight(sight),
            )
            .group_by(_HANDLES.c.provider_record_id)
        )
        found.extend(connection.execute(statement))
    return found


def newest_ranks(connection: Connection, company_id: str, seqs: Sequence[int]) -> list[Any]:
    """Return (record id, `seq`, moment, rank) of every record that these operations returned."""
    found: list[Any] = []
    for start in range(0, len(seqs), _ID_CHUNK):
        statement = (
            select(
                _HANDLES.c.provider_record_id,
                _HANDLES.c.seq,
                _OPERATIONS.c.started_at,
                _HANDLES.c.rank,
            )
            .join(_OPERATIONS, _same_operation())
            .where(
                _HANDLES.c.company_id == company_id,
                _HANDLES.c.seq.in_(seqs[start : start + _ID_CHUNK]),
            )
        )
        found.extend(connection.execute(statement))
    return found


def mutations_of_record(
    connection: Connection,
    company_id: str,
    binding_key: str,
    record_id: str,
    *,
    sight: Sight | None = None,
) -> list[str]:
    """Return the ids of the mutations that touched a record."""
    mutations = tuple(kind for kind in OperationType if kind.mutates)
    statement = (
        select(_OPERATIONS.c.operation_id)
        .join(_HANDLES, _same_operation())
        .where(
            *_touched(company_id, binding_key, mutations),
            _HANDLES.c.provider_record_id == record_id,
            *seen(sight),
        )
    )
    return [str(operation_id) for (operation_id,) in connection.execute(statement)]


def _in_sight(sight: Sight | None) -> tuple[ColumnElement[bool], ...]:
    """The conditions of the handles whose operation may be seen."""
    if sight is None:
        return ()
    of = _OPERATIONS.alias()
    own = (of.c.company_id == _HANDLES.c.company_id, of.c.seq == _HANDLES.c.seq)
    return (exists().where(*own, sight.condition(of.c)),)


def _same_operation() -> Any:
    return (_HANDLES.c.company_id == _OPERATIONS.c.company_id) & (
        _HANDLES.c.seq == _OPERATIONS.c.seq
    )


def _touched(company_id: str, binding_key: str, types: Sequence[OperationType]) -> tuple[Any, ...]:
    return (
        _HANDLES.c.company_id == company_id,
        _HANDLES.c.binding_key == binding_key,
        _HANDLES.c.operation_type.in_([str(kind) for kind in types]),
    )
