"""Bring a database to the schema that this version of memtui reads and writes."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from memtui.contract import Invalid

HEAD = "0001"
"""The newest revision under `migrations/versions`."""

MIGRATIONS = Path(__file__).parent / "migrations"

_SCHEMA_LOCK = 0x6D656D747569
"""PostgreSQL advisory lock: several machines may start at once."""


def current_revision(connection: Connection) -> str | None:
    """Return the revision that the database is at; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def require_newest(connection: Connection) -> None:
    """Make sure that a database which cannot be migrated need not be.

    Raises:
        Invalid: another version of memtui made it.
    """
    if (revision := current_revision(connection)) != HEAD:
        raise Invalid(
            f"The database is at schema {revision} and this memtui reads {HEAD}; use the memtui "
            "that made it, or open it once where it can be written."
        )


def ensure_schema(connection: Connection) -> None:
    """Migrate to `HEAD` inside the caller's transaction; nothing to do costs one query.

    Raises:
        Invalid: the database was made by a newer memtui.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})"))
    revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is not None and revision > HEAD:
        raise Invalid(
            f"The database is at schema {revision} and this memtui knows {HEAD}; upgrade memtui."
        )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
