"""Companies, their bindings and what each binding serves."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from memtui.contract import Conflict
from memtui.store.tables import BindingRow, CompanyRow, TargetRow

_COMPANIES = CompanyRow.__table__  # type: ignore[attr-defined]
_BINDINGS = BindingRow.__table__  # type: ignore[attr-defined]
_TARGETS = TargetRow.__table__  # type: ignore[attr-defined]


def companies(connection: Connection) -> list[CompanyRow]:
    """Return every company, the oldest first."""
    order = (_COMPANIES.c.created_at, _COMPANIES.c.company_id)
    rows = connection.execute(select(_COMPANIES).order_by(*order))
    return [CompanyRow(**row._mapping) for row in rows]  # noqa: SLF001 — SQLAlchemy's public name


def company(connection: Connection, company_id: str) -> CompanyRow | None:
    """Return one company."""
    row = connection.execute(
        select(_COMPANIES).where(_COMPANIES.c.company_id == company_id)
    ).first()
    return None if row is None else CompanyRow(**row._mapping)  # noqa: SLF001


def add_company(connection: Connection, row: CompanyRow) -> None:
    """Add a company.

    Raises:
        Conflict: there is one of this id.
    """
    try:
        connection.execute(insert(_COMPANIES), row.model_dump())
    except IntegrityError as error:
        raise Conflict(f"There is already a company {row.company_id}.") from error


def set_read_only(connection: Connection, company_id: str, *, read_only: bool) -> None:
    """Say whether a company may be changed."""
    own = _COMPANIES.c.company_id == company_id
    connection.execute(update(_COMPANIES).where(own).values(read_only=read_only))


def keep_purging(connection: Connection, company_id: str, days: int | None) -> None:
    """Note from how many days on texts may be purged by their age; None: not."""
    own = _COMPANIES.c.company_id == company_id
    connection.execute(update(_COMPANIES).where(own).values(purge_after_days=days))


def bindings(connection: Connection, company_id: str) -> list[BindingRow]:
    """Return a company's bindings, the oldest first."""
    rows = connection.execute(
        select(_BINDINGS)
        .where(_BINDINGS.c.company_id == company_id)
        .order_by(_BINDINGS.c.created_at, _BINDINGS.c.key)
    )
    return [BindingRow(**row._mapping) for row in rows]  # noqa: SLF001


def binding(connection: Connection, company_id: str, key: str) -> BindingRow | None:
    """Return the binding under a key."""
    row = connection.execute(
        select(_BINDINGS).where(_BINDINGS.c.company_id == company_id, _BINDINGS.c.key == key)
    ).first()
    return None if row is None else BindingRow(**row._mapping)  # noqa: SLF001


def add_binding(connection: Connection, row: BindingRow) -> None:
    """Add a binding.

    Raises:
        Conflict: the company has one under this key.
    """
    try:
        connection.execute(insert(_BINDINGS), row.model_dump())
    except IntegrityError as error:
        raise Conflict(f"There is already a binding {row.key}; choose another key.") from error


def update_binding(connection: Connection, binding_id: str, values: dict[str, Any]) -> None:
    """Change columns of a binding."""
    connection.execute(update(_BINDINGS).where(_BINDINGS.c.binding_id == binding_id).values(values))


def remove_binding(connection: Connection, binding_id: str) -> None:
    """Remove a binding and its targets; the provider's memories are not touched."""
    connection.execute(delete(_TARGETS).where(_TARGETS.c.binding_id == binding_id))
    connection.execute(delete(_BINDINGS).where(_BINDINGS.c.binding_id == binding_id))


def targets(connection: Connection, company_id: str) -> list[TargetRow]:
    """Return what the company's bindings serve."""
    rows = connection.execute(
        select(_TARGETS)
        .where(_TARGETS.c.company_id == company_id)
        .order_by(_TARGETS.c.target_type, _TARGETS.c.target_id)
    )
    return [TargetRow(**row._mapping) for row in rows]  # noqa: SLF001


def set_target(connection: Connection, row: TargetRow) -> None:
    """Let a binding serve a target, in place of the one that did."""
    clear_target(connection, row.company_id, row.target_type, row.target_id)
    connection.execute(insert(_TARGETS), row.model_dump())


def clear_target(connection: Connection, company_id: str, target_type: str, target_id: str) -> bool:
    """Remove a target; returns whether there was one."""
    removed = connection.execute(
        delete(_TARGETS).where(
            _TARGETS.c.company_id == company_id,
            _TARGETS.c.target_type == target_type,
            _TARGETS.c.target_id == target_id,
        )
    )
    return removed.rowcount > 0
