"""The undo journal tells of its operations itself, so that they can be sealed away."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText, UtcMicroseconds

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_JOURNAL = "memory_undo_journal"
_COPIED = ("operation_type", "status", "principal", "started_at", "undoes")


def upgrade() -> None:
    """Add the operation's columns and fill them from the log."""
    for name in ("operation_type", "status", "principal"):
        op.add_column(
            _JOURNAL, sa.Column(name, ForeignText(), nullable=False, server_default=sa.text("''"))
        )
    op.add_column(
        _JOURNAL,
        sa.Column("started_at", UtcMicroseconds(), nullable=False, server_default=sa.text("0")),
    )
    op.add_column(_JOURNAL, sa.Column("undoes", ForeignText(), nullable=True))
    values = ", ".join(f"{name} = operation.{name}" for name in _COPIED)
    op.execute(
        f"UPDATE {_JOURNAL} SET {values} FROM memory_operations AS operation "  # noqa: S608
        f"WHERE operation.company_id = {_JOURNAL}.company_id AND operation.seq = {_JOURNAL}.seq"
    )
    op.create_index("memory_undo_journal_undoes", _JOURNAL, ["company_id", "undoes"])


def downgrade() -> None:
    """Take the columns away."""
    op.drop_index("memory_undo_journal_undoes", _JOURNAL)
    for name in _COPIED:
        op.drop_column(_JOURNAL, name)
