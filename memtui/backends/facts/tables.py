"""The seed's two tables as they are, and memtui's own beside them (seed 004 §6.1).

Times are UTC: `timestamp` without a zone in PostgreSQL, ISO 8601 text with microseconds in
SQLite. They are read and written as text, so that a fact is put back with the very digits it had.
Tables that memtui creates have no foreign keys, because it knows no `users` and `drives`; tables
that are there already may have them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Index,
    MetaData,
    Table,
    Text,
    cast,
    func,
    literal,
    null,
)

METADATA = MetaData()
MOMENT = Text().with_variant(DateTime(), "postgresql")

USERS = Table(
    "user_memories",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("userId", Text, nullable=False),
    Column("fact", Text, nullable=False),
    Column("createdAt", MOMENT, nullable=False, server_default=func.current_timestamp()),
    Column("source", Text),
    Index("user_memories_userId_idx", "userId"),
)

DRIVES = Table(
    "drive_memories",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("driveId", Text, nullable=False),
    Column("fact", Text, nullable=False),
    Column("createdAt", MOMENT, nullable=False, server_default=func.current_timestamp()),
    Column("createdBy", Text),
    Column("source", Text),
    Index("drive_memories_driveId_idx", "driveId"),
)

DETAILS = Table(
    "memtui_fact_details",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("updated_at", MOMENT),
    Column("expires_at", MOMENT),
    Column("pinned", Boolean, nullable=False),
    Column("topic", Text),
    Column("tags", Text, nullable=False),
    Column("source_kind", Text),
    Column("agent_id", Text),
    Column("issue_id", Text),
    Column("run_id", Text),
    Column("extra", Text, nullable=False),
)

TABLES = {"user": USERS, "drive": DRIVES}
OWNERS = {"user": "userId", "drive": "driveId"}


def is_postgres(connection: Connection) -> bool:
    """Whether it is PostgreSQL and not SQLite."""
    return connection.dialect.name == "postgresql"


def written(moment: datetime) -> str:
    """Return a moment as both databases read it."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec="microseconds")


def parsed(text: str | None) -> datetime | None:
    """Return the moment that a database wrote, UTC where it names no zone; None if it is none."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def as_moment(connection: Connection, text: str | None) -> ColumnElement[Any]:
    """Return a moment's text as a value of the tables' own type; None is NULL."""
    if text is None:
        return null()
    return cast(literal(text, Text), DateTime) if is_postgres(connection) else literal(text, Text)


def as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return a moment's column as text, with all of its digits."""
    return cast(column, Text)
