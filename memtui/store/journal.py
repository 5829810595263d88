"""The undo journal: each record before and after every mutation, and the ids it came back under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select

from memtui.contract import OperationStatus, OperationType, Snapshot
from memtui.store.operation import OperationDraft
from memtui.store.prepared import Prepared
from memtui.store.tables import HandleLinkRow, JournalRow

_JOURNAL = JournalRow.__table__  # type: ignore[attr-defined]
_LINKS = HandleLinkRow.__table__  # type: ignore[attr-defined]
_RECORD = Prepared(insert(_JOURNAL))

Step = tuple[Snapshot, Snapshot | None]
"""A record before and after a mutation; None where nobody saw the after."""


def record(
    connection: Connection, operation: OperationDraft, seq: int, steps: Sequence[Step]
) -> None:
    """Keep each record before and after, in order; `seq` is the operation's."""
    rows = [
        {
            "company_id": operation.scope.company_id,
            "operation_id": operation.operation_id,
            "ordinal": ordinal,
            "seq": seq,
            "binding_key": operation.binding_key or "",
            "provider_record_id": before.handle.provider_record_id,
            "before": before.model_dump(mode="json"),
            "after": None if after is None else after.model_dump(mode="json"),
            "operation_type": operation.operation_type,
            "status": operation.status,
            "principal": operation.principal,
            "started_at": operation.started_at,
            "undoes": operation.undoes,
        }
        for ordinal, (before, after) in enumerate(steps)
    ]
    _RECORD.run_all(connection, rows)


def steps(connection: Connection, company_id: str, operation_id: str) -> list[Step]:
    """Return each record before and after an operation, in the order they were changed."""
    rows = connection.execute(
        select(_JOURNAL.c.before, _JOURNAL.c.after)
        .where(_JOURNAL.c.company_id == company_id, _JOURNAL.c.operation_id == operation_id)
        .order_by(_JOURNAL.c.ordinal)
    )
    return [(_snapshot(row.before), _snapshot(row.after) if row.after else None) for row in rows]


def changes_of_record(
    connection: Connection, company_id: str, binding_key: str, record_id: str
) -> dict[str, Step]:
    """Return the steps of one record by operation id."""
    rows = connection.execute(
        select(_JOURNAL.c.operation_id, _JOURNAL.c.before, _JOURNAL.c.after).where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.binding_key == binding_key,
            _JOURNAL.c.provider_record_id == record_id,
        )
    )
    return {
        row.operation_id: (_snapshot(row.before), _snapshot(row.after) if row.after else None)
        for row in rows
    }


def undone_by(connection: Connection, company_id: str, operation_id: str) -> str | None:
    """Return the operation that took this one back and was not itself taken back."""
    statement = (
        select(_JOURNAL.c.operation_id)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.undoes == operation_id,
            _JOURNAL.c.ordinal == 0,
            _JOURNAL.c.status == str(OperationStatus.OK),
        )
        .order_by(_JOURNAL.c.seq.desc())
    )
    for undo_id in connection.execute(statement).scalars():
        if undone_by(connection, company_id, undo_id) is None:
            return str(undo_id)
    return None


def undoable(connection: Connection, company_id: str, limit: int) -> list[tuple[str, int]]:
    """Return the newest mutations that can be taken back, each with its number of records."""
    statement = (
        select(func.max(_JOURNAL.c.operation_id), func.count())
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.operation_type != str(OperationType.UNDO),
            _JOURNAL.c.status == str(OperationStatus.OK),
        )
        .group_by(_JOURNAL.c.seq)
        .order_by(_JOURNAL.c.seq.desc())
    )
    found: list[tuple[str, int]] = []
    for operation_id, count in connection.execute(statement):
        if undone_by(connection, company_id, operation_id) is None:
            found.append((operation_id, count))
            if len(found) == limit:
                break
    return found


def link(
    connection: Connection,
    operation: OperationDraft,
    links: Mapping[str, str],
) -> None:
    """Remember the ids under which records came back, and lead older ids there too."""
    company_id, binding_key = operation.scope.company_id, operation.binding_key or ""
    place = (_LINKS.c.company_id == company_id) & (_LINKS.c.binding_key == binding_key)
    for old, new in links.items():
        connection.execute(
            _LINKS.update().where(place, _LINKS.c.new_record_id == old).values(new_record_id=new)
        )
        connection.execute(delete(_LINKS).where(place, _LINKS.c.old_record_id.in_((old, new))))
        connection.execute(
            insert(_LINKS),
            {
                "company_id": company_id,
                "binding_key": binding_key,
                "old_record_id": old,
                "new_record_id": new,
                "operation_id": operation.operation_id,
            },
        )


def follow_link(
    connection: Connection, company_id: str, binding_key: str, record_id: str
) -> str | None:
    """Return the id that a record has now, if it came back under another one."""
    found = connection.execute(
        select(_LINKS.c.new_record_id).where(
            _LINKS.c.company_id == company_id,
            _LINKS.c.binding_key == binding_key,
            _LINKS.c.old_record_id == record_id,
        )
    ).scalar()
    return None if found is None else str(found)


def ids_of(connection: Connection, company_id: str, binding_key: str, record_id: str) -> list[str]:
    """Return all ids of a record that one of them names, the one it has now first."""
    now = follow_link(connection, company_id, binding_key, record_id) or record_id
    older = connection.execute(
        select(_LINKS.c.old_record_id)
        .where(
            _LINKS.c.company_id == company_id,
            _LINKS.c.binding_key == binding_key,
            _LINKS.c.new_record_id == now,
        )
        .order_by(_LINKS.c.old_record_id)
    )
    return [now, *older.scalars()]


def _snapshot(value: dict[str, Any]) -> Snapshot:
    return Snapshot.model_validate(value)


def texts_forgotten_by_hand(
    connection: Connection, company_id: str, limit: int
) -> dict[str, datetime]:
    """Return the texts of the newest records that people (not agents) forgot, and when first."""
    undone = _JOURNAL.alias()
    rows = connection.execute(
        select(_JOURNAL.c.before, _JOURNAL.c.started_at)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.operation_type == str(OperationType.FORGET),
            _JOURNAL.c.status == str(OperationStatus.OK),
            _JOURNAL.c.principal.startswith("user:"),
            ~exists().where(
                undone.c.company_id == company_id,
                undone.c.undoes == _JOURNAL.c.operation_id,
                undone.c.status == str(OperationStatus.OK),
            ),
        )
        .order_by(_JOURNAL.c.seq.desc())
        .limit(limit)
    )
    found = [(_snapshot(row.before).record, row.started_at) for row in rows]
    return {record.text: at for record, at in found if record is not None}
