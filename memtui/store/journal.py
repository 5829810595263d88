"""The undo journal: each record and setting before and after every change.

A change that cannot be taken back leaves a row too, so that undoing never reaches past it. Beside
it stand the ids under which records came back.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import delete, exists, func, insert, select

from memtui.contract import Model, OperationStatus, OperationType, Record, Snapshot
from memtui.store.appending import Step, keep, record
from memtui.store.connection import Connection
from memtui.store.operation import Operation, OperationDraft
from memtui.store.settings import SettingChange
from memtui.store.tables import HandleLinkRow, JournalRow

_JOURNAL = JournalRow.__table__  # type: ignore[attr-defined]
_LINKS = HandleLinkRow.__table__  # type: ignore[attr-defined]

_NO_RECORD = ""
_ROWS_AT_ONCE = 100


class Found(Model):
    """What a check found of an operation of unknown outcome."""

    check_id: str
    """The operation that found it."""
    happened: bool | None
    """None: the provider does not show it."""
    told: str
    """The same as a sentence."""


class Finding(NamedTuple):
    """What is found of an operation of unknown outcome."""

    checked: Operation
    happened: bool | None
    told: str
    steps: Sequence[Step]
    """What it changed, before and after."""


class Undoable(NamedTuple):
    """A change that was not taken back."""

    operation_id: str
    status: OperationStatus
    """`OK`, or `UNKNOWN` where nobody saw its end."""
    changed: int
    """How many records or settings it changed; 0 where that cannot be taken back."""
    lasting: str | None
    """Why it cannot be taken back; None: it can."""


def record_settings(
    connection: Connection, operation: OperationDraft, seq: int, changed: Sequence[SettingChange]
) -> None:
    """Keep each setting before and after, in order; `seq` is the operation's."""
    rows = [(_NO_RECORD, {"changed": _json(change)}, None) for change in changed]
    keep(connection, operation, seq, rows)


def record_lasting(connection: Connection, operation: OperationDraft, seq: int, why: str) -> None:
    """Keep that an operation changed something that cannot be taken back, and why."""
    keep(connection, operation, seq, [(_NO_RECORD, {"lasting": why}, None)])


def settle(connection: Connection, check: OperationDraft, seq: int, finding: Finding) -> None:
    """Keep what a check found, and make what it checked what it is known to be now.

    `seq` is the check's. What happened can be taken back from now on.
    """
    asked = finding.checked
    told = check.model_copy(update={"undoes": asked.operation_id})
    found = {"happened": finding.happened, "told": finding.told}
    keep(connection, told, seq, [(_NO_RECORD, {"found": found}, None)])
    if finding.happened is None:
        return
    place = asked.scope.company_id, asked.operation_id
    connection.execute(
        delete(_JOURNAL).where(
            _JOURNAL.c.company_id == place[0], _JOURNAL.c.operation_id == place[1]
        )
    )
    status = OperationStatus.OK if finding.happened else OperationStatus.ERROR
    record(connection, asked.model_copy(update={"status": status}), asked.seq, finding.steps)


def found_of(connection: Connection, company_id: str, operation_id: str) -> Found | None:
    """Return what was last found of an operation of unknown outcome."""
    row = connection.execute(
        select(_JOURNAL.c.operation_id, _JOURNAL.c.before)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.undoes == operation_id,
            _JOURNAL.c.operation_type == str(OperationType.CHECK),
        )
        .order_by(_JOURNAL.c.seq.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else Found(check_id=row.operation_id, **row.before["found"])


def steps(connection: Connection, company_id: str, operation_id: str) -> list[Step]:
    """Return each record before and after an operation, in the order they were changed."""
    rows = _kept_by(connection, company_id, operation_id)
    return [_step(before, after) for before, after in rows if "handle" in before]


def settings_changed(
    connection: Connection, company_id: str, operation_id: str
) -> list[SettingChange]:
    """Return each setting before and after an operation."""
    rows = _kept_by(connection, company_id, operation_id)
    return [
        SettingChange.model_validate(before["changed"]) for before, _ in rows if "changed" in before
    ]


def _kept_by(
    connection: Connection, company_id: str, operation_id: str
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    rows = connection.execute(
        select(_JOURNAL.c.before, _JOURNAL.c.after)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.operation_id == operation_id,
            _JOURNAL.c.erased_by.is_(None),
        )
        .order_by(_JOURNAL.c.ordinal)
    )
    return [(row.before, row.after) for row in rows]


def changes_of_record(
    connection: Connection, company_id: str, binding_key: str, record_id: str
) -> dict[str, Step]:
    """Return the steps of one record by operation id."""
    rows = connection.execute(
        select(_JOURNAL.c.operation_id, _JOURNAL.c.before, _JOURNAL.c.after).where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.binding_key == binding_key,
            _JOURNAL.c.provider_record_id == record_id,
            _JOURNAL.c.erased_by.is_(None),
        )
    )
    return {row.operation_id: _step(row.before, row.after) for row in rows}


def undone_by(connection: Connection, company_id: str, operation_id: str) -> str | None:
    """Return the operation that took this one back and was not itself taken back."""
    statement = (
        select(_JOURNAL.c.operation_id)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.undoes == operation_id,
            _JOURNAL.c.operation_type == str(OperationType.UNDO),
            _JOURNAL.c.ordinal == 0,
            _JOURNAL.c.status == str(OperationStatus.OK),
        )
        .order_by(_JOURNAL.c.seq.desc())
    )
    for undo_id in connection.execute(statement).scalars():
        if undone_by(connection, company_id, undo_id) is None:
            return str(undo_id)
    return None


def undoable(connection: Connection, company_id: str) -> Generator[Undoable, None, None]:
    """Yield the changes that were not taken back, newest first, also those that cannot be."""
    statement = (
        select(_JOURNAL.c.operation_id, _JOURNAL.c.operation_type, _JOURNAL.c.status)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.ordinal == 0,
            _JOURNAL.c.operation_type != str(OperationType.CHECK),
            _JOURNAL.c.status.in_((str(OperationStatus.OK), str(OperationStatus.UNKNOWN))),
        )
        .order_by(_JOURNAL.c.seq.desc())
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    with connection.execute(statement) as rows:
        for operation_id, operation_type, status in rows:
            took_back = (operation_type, status) == (OperationType.UNDO, OperationStatus.OK)
            if took_back or undone_by(connection, company_id, operation_id) is not None:
                continue
            if (change := kept(connection, company_id, operation_id)) is not None:
                yield change


def kept(connection: Connection, company_id: str, operation_id: str) -> Undoable | None:
    """Return what is kept of an operation's change; None: it changed nothing."""
    own = _JOURNAL.c.company_id == company_id, _JOURNAL.c.operation_id == operation_id
    first = connection.execute(
        select(_JOURNAL.c.status, _JOURNAL.c.before, _JOURNAL.c.erased_by).where(
            *own, _JOURNAL.c.ordinal == 0
        )
    ).one_or_none()
    if first is None:
        return None
    lasting = first.before.get("lasting")
    count = 0
    if lasting is None:
        left = select(func.count()).where(*own, _JOURNAL.c.erased_by.is_(None))
        count = connection.execute(left).scalar_one()
    if lasting is None and not count:
        lasting = f"What it changed was erased by {first.erased_by}, so nobody can put it back."
    return Undoable(operation_id, OperationStatus(first.status), count, lasting)


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


def binding_keys(connection: Connection, company_id: str) -> set[str]:
    """Return the keys of the bindings that a company's changes went through."""
    chosen = select(_JOURNAL.c.binding_key).where(_JOURNAL.c.company_id == company_id)
    # Changes of settings went through none.
    return set(connection.execute(chosen.distinct()).scalars()) - {""}


def _step(before: dict[str, Any], after: dict[str, Any] | None) -> Step:
    return _snapshot(before), _snapshot(after) if after else None


def _snapshot(value: dict[str, Any]) -> Snapshot:
    return Snapshot.model_validate(value)


def _json(value: Model) -> dict[str, Any]:
    return value.model_dump(mode="json")


def forgotten_by_hand(
    connection: Connection, company_id: str, limit: int
) -> list[tuple[Record, datetime]]:
    """Return the newest records that people (not agents) forgot, newest first, and when."""
    undone = _JOURNAL.alias()
    rows = connection.execute(
        select(_JOURNAL.c.before, _JOURNAL.c.started_at)
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.operation_type == str(OperationType.FORGET),
            _JOURNAL.c.status == str(OperationStatus.OK),
            _JOURNAL.c.principal.startswith("user:"),
            _JOURNAL.c.erased_by.is_(None),
            ~exists().where(
                undone.c.company_id == company_id,
                undone.c.undoes == _JOURNAL.c.operation_id,
                undone.c.operation_type == str(OperationType.UNDO),
                undone.c.status == str(OperationStatus.OK),
            ),
        )
        .order_by(_JOURNAL.c.seq.desc())
        .limit(limit)
    )
    found = [(_snapshot(row.before).record, row.started_at) for row in rows]
    return [(record, at) for record, at in found if record is not None]
