"""Pending changes: requested by agents, waiting for a person's decision."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from pydantic_core import to_jsonable_python

from memtui.contract import Json
from memtui.store import statements
from memtui.store.database import DatabaseConnection
from memtui.store.digest import canonical
from memtui.store.rows import PendingRow
from memtui.store.settings import PENDING, SettingChange, put


def waiting(connection: DatabaseConnection, company_id: str) -> list[PendingRow]:
    """Return a company's pending changes, the oldest first."""
    return statements.PENDING.found(connection, PendingRow, company_id=company_id)


def one(connection: DatabaseConnection, company_id: str, pending_id: str) -> PendingRow | None:
    """Return the pending change with an id."""
    found = statements.PENDING_ONE.found(
        connection, PendingRow, company_id=company_id, pending_id=pending_id
    )
    return found[0] if found else None


def count(connection: DatabaseConnection, company_id: str, binding_key: str) -> int:
    """Return how many changes are pending for a binding that agents asked for."""
    [(found,)] = statements.COUNT_PENDING.rows(
        connection, company_id=company_id, binding_key=binding_key
    )
    return int(found)


def likeness(connection: DatabaseConnection, company_id: str, asked: Json) -> str:
    """Return a salted hash of a request, to find equal ones. The log must have a head."""
    [(_, _, salt)] = statements.HEAD.rows(connection, company_id=company_id)
    return sha256(salt + canonical(asked).encode()).hexdigest()


def alike(connection: DatabaseConnection, company_id: str, likeness: str) -> str | None:
    """Return the id of a pending change with the same request."""
    rows = statements.PENDING_ALIKE.rows(connection, company_id=company_id, likeness=likeness)
    return str(rows[0][0]) if rows else None


def add(connection: DatabaseConnection, row: PendingRow) -> None:
    """Add a pending change."""
    statements.ADD_PENDING.run(connection, **asdict(row))


def ask_again(
    connection: DatabaseConnection, company_id: str, pending_id: str, now: datetime
) -> None:
    """Note that a pending change was requested once more."""
    statements.ASK_PENDING_AGAIN.run(connection, company=company_id, pending=pending_id, now=now)


def claim(
    connection: DatabaseConnection, company_id: str, pending_id: str, operation_id: str
) -> bool:
    """Claim a pending change for one operation that decides; returns whether it got it."""
    place = {"company": company_id, "pending": pending_id}
    return statements.CLAIM_PENDING.run(connection, **place, operation=operation_id) > 0


def release(connection: DatabaseConnection, company_id: str, operation_id: str) -> None:
    """Give up an operation's claims: their changes are pending again."""
    statements.RELEASE_PENDING.run(connection, company=company_id, operation=operation_id)


def remove(connection: DatabaseConnection, row: PendingRow) -> SettingChange:
    """Remove a pending change; return the change that undo needs."""
    statements.REMOVE_PENDING.run(connection, company_id=row.company_id, pending_id=row.pending_id)
    before = to_jsonable_python(asdict(replace(row, decider=None)))
    return SettingChange(
        setting=PENDING, key={"pending_id": row.pending_id}, before=before, after=None
    )


def take_back(
    connection: DatabaseConnection, company_id: str, change: SettingChange
) -> SettingChange:
    """Restore the queue as it was before a change; return what redo needs."""
    put(connection, company_id, change)
    return change.model_copy(update={"before": change.after, "after": change.before})


def decided_by(
    connection: DatabaseConnection, company_id: str, operation_id: str
) -> PendingRow | None:
    """Return the pending change that an operation has claimed."""
    rows: Sequence[Any] = waiting(connection, company_id)
    return next((row for row in rows if row.decider == operation_id), None)
