"""Intents: mutations that have begun and whose end nobody has seen yet."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from memtui.contract import Snapshot
from memtui.store.operation import OperationDraft
from memtui.store.prepared import Prepared
from memtui.store.tables import IntentRow

_INTENTS = IntentRow.__table__  # type: ignore[attr-defined]
_BEGIN = Prepared(insert(_INTENTS))
_END = Prepared(delete(_INTENTS).where(_INTENTS.c.operation_id == bindparam("ended")))


def begin(
    connection: Connection,
    unseen: OperationDraft,
    before: Sequence[Snapshot],
    *,
    host: str,
    session: str,
) -> None:
    """Write down that a mutation begins.

    Args:
        connection: With a write transaction.
        unseen: The operation as it will be logged if nobody sees its end.
        before: The records that it is to change.
        host: Whose process it is.
        session: The lock file that the process holds as long as it lives.
    """
    values = {
        "operation_id": unseen.operation_id,
        "company_id": unseen.scope.company_id,
        "draft": unseen.model_dump(mode="json") | {"salts": unseen.salts},
        "before": [snapshot.model_dump(mode="json") for snapshot in before],
        "host": host,
        "session": session,
        "started_at": unseen.started_at,
    }
    _BEGIN.run(connection, values)


def end(connection: Connection, operation_id: str) -> bool:
    """Take the intent away; returns whether it was still there."""
    return _END.run(connection, {"ended": operation_id}) > 0


def pending(connection: Connection, company_id: str | None = None) -> list[IntentRow]:
    """Return the mutations that have begun and not ended, of one company or of all."""
    statement = select(_INTENTS).order_by(_INTENTS.c.started_at)
    if company_id is not None:
        statement = statement.where(_INTENTS.c.company_id == company_id)
    return [IntentRow(**row._mapping) for row in connection.execute(statement)]  # noqa: SLF001
