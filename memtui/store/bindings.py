"""Companies, their bindings and what each binding serves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memtui.contract import Conflict
from memtui.store import compiled
from memtui.store.compiled import BindingRow, CompanyRow, TargetRow
from memtui.store.connection import Connection, Taken


def companies(connection: Connection) -> list[CompanyRow]:
    """Return every company, the oldest first."""
    return compiled.COMPANIES.found(connection, CompanyRow)


def company(connection: Connection, company_id: str) -> CompanyRow | None:
    """Return one company."""
    found = compiled.COMPANY.found(connection, CompanyRow, company_id=company_id)
    return found[0] if found else None


def is_used(connection: Connection) -> bool:
    """Whether there is a company, or a log of one that was removed."""
    [(used,)] = compiled.IS_USED.rows(connection)
    return bool(used)


def add_company(connection: Connection, row: CompanyRow) -> None:
    """Add a company.

    Raises:
        Conflict: there is one of this id.
    """
    try:
        compiled.ADD_COMPANY.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(f"There is already a company {row.company_id}.") from error


def set_read_only(connection: Connection, company_id: str, *, read_only: bool) -> None:
    """Say whether a company may be changed."""
    compiled.SET_READ_ONLY.run(connection, company=company_id, value=read_only)


def keep_purging(connection: Connection, company_id: str, days: int | None) -> None:
    """Note from how many days on texts may be purged by their age; None: not."""
    compiled.KEEP_PURGING.run(connection, company=company_id, value=days)


def bindings(connection: Connection, company_id: str) -> list[BindingRow]:
    """Return a company's bindings, the oldest first."""
    return compiled.BINDINGS.found(connection, BindingRow, company_id=company_id)


def binding(connection: Connection, company_id: str, key: str) -> BindingRow | None:
    """Return the binding under a key."""
    found = compiled.BINDING.found(connection, BindingRow, company_id=company_id, key=key)
    return found[0] if found else None


def add_binding(connection: Connection, row: BindingRow) -> None:
    """Add a binding.

    Raises:
        Conflict: the company has one under this key.
    """
    try:
        compiled.ADD_BINDING.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(f"There is already a binding {row.key}; choose another key.") from error


def update_binding(connection: Connection, binding_id: str, values: dict[str, Any]) -> None:
    """Change columns of a binding."""
    from sqlalchemy import update

    from memtui.store.tables import BindingTable

    table = BindingTable.__table__  # type: ignore[attr-defined]
    connection.execute(update(table).where(table.c.binding_id == binding_id).values(values))


def remove_binding(connection: Connection, binding_id: str) -> None:
    """Remove a binding and its targets; the provider's memories are not touched."""
    compiled.REMOVE_TARGETS.run(connection, binding_id=binding_id)
    compiled.REMOVE_BINDING.run(connection, binding_id=binding_id)


def targets(connection: Connection, company_id: str) -> list[TargetRow]:
    """Return what the company's bindings serve."""
    return compiled.TARGETS.found(connection, TargetRow, company_id=company_id)


def set_target(connection: Connection, row: TargetRow) -> None:
    """Let a binding serve a target, in place of the one that did."""
    clear_target(connection, row.company_id, row.target_type, row.target_id)
    compiled.ADD_TARGET.run(connection, **asdict(row))


def clear_target(connection: Connection, company_id: str, target_type: str, target_id: str) -> bool:
    """Remove a target; returns whether there was one."""
    place = {"company_id": company_id, "target_type": target_type, "target_id": target_id}
    return compiled.REMOVE_TARGET.run(connection, **place) > 0
