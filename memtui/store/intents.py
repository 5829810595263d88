"""Intents: mutations that have begun and whose end nobody has seen yet."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from memtui.store.tables import IntentRow

_INTENTS = IntentRow.__table__  # type: ignore[attr-defined]


def begin(connection: Connection, row: IntentRow) -> None:
    """Write down that a mutation begins."""
    connection.execute(insert(_INTENTS), row.model_dump())


def end(connection: Connection, operation_id: str) -> bool:
    """Take the intent away; returns whether it was still there."""
    gone = connection.execute(delete(_INTENTS).where(_INTENTS.c.operation_id == operation_id))
    return gone.rowcount > 0


def pending(connection: Connection, company_id: str | None = None) -> list[IntentRow]:
    """Return the mutations that have begun and not ended, of one company or of all."""
    statement = select(_INTENTS).order_by(_INTENTS.c.started_at)
    if company_id is not None:
        statement = statement.where(_INTENTS.c.company_id == company_id)
    return [IntentRow(**row._mapping) for row in connection.execute(statement)]  # noqa: SLF001
