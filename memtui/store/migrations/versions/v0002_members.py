"""Members with their roles, and the bearer tokens of principals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText, UtcMicroseconds

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "memory_members",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("principal", ForeignText(), nullable=False),
        sa.Column("project_id", ForeignText(), nullable=False),
        sa.Column("role", ForeignText(), nullable=False),
        sa.Column("subject_id", ForeignText(), nullable=True),
        sa.PrimaryKeyConstraint("company_id", "principal", "project_id"),
    )
    op.create_table(
        "memory_tokens",
        sa.Column("digest", ForeignText(), nullable=False),
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("label", ForeignText(), nullable=False),
        sa.Column("principal", ForeignText(), nullable=False),
        sa.Column("acts_for", ForeignText(), nullable=True),
        sa.Column("created_at", UtcMicroseconds(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index("memory_tokens_label", "memory_tokens", ["company_id", "label"], unique=True)


def downgrade() -> None:
    """Drop the two tables."""
    op.drop_table("memory_tokens")
    op.drop_table("memory_members")
