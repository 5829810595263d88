"""Data that a served memory plugin stores in memtui: namespaces, and the ids of memories."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select

from memtui.store.database import DatabaseConnection
from memtui.store.rows import NamespaceRow, PluginIdRow
from memtui.store.tables import NAMESPACES as _NAMESPACES
from memtui.store.tables import PLUGIN_IDS as _IDS

Binding = tuple[str, str]
"""The ids of a company and of a binding."""


def namespaces(connection: DatabaseConnection, of: Binding) -> list[NamespaceRow]:
    """Return a binding's namespaces, by name."""
    rows = connection.execute(
        select(_NAMESPACES).where(_own_namespace(of)).order_by(_NAMESPACES.c.name)
    )
    return [NamespaceRow(**row._mapping) for row in rows]  # noqa: SLF001 — SQLAlchemy's public name


def namespaces_named(
    connection: DatabaseConnection, of: Binding, names: Sequence[str]
) -> dict[str, NamespaceRow]:
    """Return those of the named namespaces that exist."""
    rows = connection.execute(
        select(_NAMESPACES).where(_own_namespace(of), _NAMESPACES.c.name.in_(names))
    )
    return {row.name: NamespaceRow(**row._mapping) for row in rows}  # noqa: SLF001


def set_namespace(connection: DatabaseConnection, row: NamespaceRow) -> None:
    """Store a namespace; replaces one with the same name."""
    remove_namespace(connection, (row.company_id, row.binding_id), row.name)
    connection.execute(insert(_NAMESPACES), asdict(row))


def remove_namespace(connection: DatabaseConnection, of: Binding, name: str) -> bool:
    """Remove a namespace, not its memories; returns whether there was one."""
    removed = connection.execute(
        delete(_NAMESPACES).where(_own_namespace(of), _NAMESPACES.c.name == name)
    )
    return removed.rowcount > 0


def known_ids(
    connection: DatabaseConnection,
    of: Binding,
    *,
    memory_ids: Sequence[str] = (),
    record_ids: Sequence[str] = (),
) -> list[PluginIdRow]:
    """Return the ids of memories, found by memory id or record id."""
    wanted = or_(_IDS.c.memory_id.in_(memory_ids), _IDS.c.record_id.in_(record_ids))
    rows = connection.execute(select(_IDS).where(_own_id(of), wanted))
    return [PluginIdRow(**row._mapping) for row in rows]  # noqa: SLF001


def set_ids(connection: DatabaseConnection, of: Binding, rows: Sequence[PluginIdRow]) -> None:
    """Store ids of memories; replaces entries with the same memory id or record id."""
    for row in rows:
        same = or_(_IDS.c.memory_id == row.memory_id, _IDS.c.record_id == row.record_id)
        connection.execute(delete(_IDS).where(_own_id(of), same))
        connection.execute(insert(_IDS), asdict(row))


def forget_binding(connection: DatabaseConnection, of: Binding) -> None:
    """Remove a binding's namespaces and its ids of memories."""
    connection.execute(delete(_NAMESPACES).where(_own_namespace(of)))
    connection.execute(delete(_IDS).where(_own_id(of)))


def _own_namespace(of: Binding) -> ColumnElement[bool]:
    return and_(_NAMESPACES.c.company_id == of[0], _NAMESPACES.c.binding_id == of[1])


def _own_id(of: Binding) -> ColumnElement[bool]:
    return and_(_IDS.c.company_id == of[0], _IDS.c.binding_id == of[1])
