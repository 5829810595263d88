"""Run the migrations on the connection that `memtui.store.database` hands over."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

from memtui.store import tables

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata, compare_type=True)
assert tables.OPERATIONS.metadata is SQLModel.metadata  # noqa: S101 — the tables are registered
context.run_migrations()
