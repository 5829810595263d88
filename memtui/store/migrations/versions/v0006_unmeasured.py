"""An operation whose length nobody measured: `latency_ms` NULL. No row is touched."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NULLABLE = """
UPDATE sqlite_schema SET sql = replace(sql, 'latency_ms DOUBLE NOT NULL', 'latency_ms DOUBLE')
WHERE type = 'table' AND name = 'memory_operations'
"""


def upgrade() -> None:
    """Take NOT NULL from the column; SQLite's way is https://sqlite.org/lang_altertable.html §7."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.execute("ALTER TABLE memory_operations ALTER COLUMN latency_ms DROP NOT NULL")
        return
    version = connection.execute(text("PRAGMA schema_version")).scalar_one()
    connection.execute(text("PRAGMA writable_schema = ON"))
    connection.execute(text(_NULLABLE))
    connection.execute(text(f"PRAGMA schema_version = {version + 1}"))
    connection.execute(text("PRAGMA writable_schema = RESET"))


def downgrade() -> None:
    """There is no way back: a length that is not known has no number.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("Lengths that are not known cannot be stored by an older memtui.")
