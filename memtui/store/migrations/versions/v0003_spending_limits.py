"""Spending limits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "memory_spending_limits",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("target_type", ForeignText(), nullable=False),
        sa.Column("target_id", ForeignText(), nullable=False),
        sa.Column("measure", ForeignText(), nullable=False),
        sa.Column("period", ForeignText(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "target_type", "target_id", "measure", "period"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("memory_spending_limits")
