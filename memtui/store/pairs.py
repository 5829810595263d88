"""The records that two bindings had in common at their last sync (seed 002 §7).

For each record: its id on both sides and salted hashes of its fields, without its text.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Table, delete, insert, or_, select

from memtui.store.database import DatabaseConnection
from memtui.store.rows import SyncRow
from memtui.store.tables import SYNC_PAIRS, SYNCS

Two = tuple[str, str, str]
"""The ids of a company and of two bindings."""
Pair = tuple[str, str, bytes, bytes]
"""The record's id on the left and on the right, and the hashes of its fields on each side."""
_AT_ONCE = 400


def sync(connection: DatabaseConnection, of: Two) -> SyncRow | None:
    """Return the state of two bindings' sync; None where they were never in sync."""
    rows = connection.execute(select(SYNCS).where(*_own(SYNCS, of))).all()
    return SyncRow(**rows[0]._mapping) if rows else None  # noqa: SLF001 — SQLAlchemy's public name


def syncs(connection: DatabaseConnection, company_id: str) -> list[SyncRow]:
    """Return the states of all syncs of a company."""
    rows = connection.execute(select(SYNCS).where(SYNCS.c.company_id == company_id))
    return [SyncRow(**row._mapping) for row in rows]  # noqa: SLF001


def set_sync(connection: DatabaseConnection, row: SyncRow) -> None:
    """Store a sync's state in place of the former one."""
    of = row.company_id, row.left_id, row.right_id
    connection.execute(delete(SYNCS).where(*_own(SYNCS, of)))
    connection.execute(insert(SYNCS), asdict(row))


def pairs(connection: DatabaseConnection, of: Two) -> list[Pair]:
    """Return the records that both bindings have, by their left ids."""
    columns = SYNC_PAIRS.c
    rows = connection.execute(
        select(columns.left_record, columns.right_record, columns.left_prints, columns.right_prints)
        .where(*_own(SYNC_PAIRS, of))
        .order_by(columns.left_record)
    )
    return [(left, right, *prints) for left, right, *prints in rows]


def set_pairs(
    connection: DatabaseConnection,
    of: Two,
    gone: Sequence[tuple[str, str]],
    there: Sequence[Pair],
) -> None:
    """Delete the pairs with the ids in `gone`, and store those in `there`."""
    both = [*gone, *(one[:2] for one in there)]
    columns = SYNC_PAIRS.c
    for start in range(0, len(both), _AT_ONCE):
        ids = both[start : start + _AT_ONCE]
        either = or_(
            columns.left_record.in_([left for left, _ in ids]),
            columns.right_record.in_([right for _, right in ids]),
        )
        connection.execute(delete(SYNC_PAIRS).where(*_own(SYNC_PAIRS, of), either))
    for one in there:
        connection.execute(insert(SYNC_PAIRS).values((*of, *one)))


def forget_binding(connection: DatabaseConnection, binding_id: str) -> None:
    """Delete all syncs and pairs of a binding."""
    for table in (SYNCS, SYNC_PAIRS):
        one = or_(table.c.left_id == binding_id, table.c.right_id == binding_id)
        connection.execute(delete(table).where(one))


def _own(table: Table, of: Two) -> tuple[Any, ...]:
    columns = table.c
    return columns.company_id == of[0], columns.left_id == of[1], columns.right_id == of[2]
