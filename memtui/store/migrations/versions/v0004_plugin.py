"""The namespaces and the ids of bindings that are served as memory plugins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText, UtcMicroseconds

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "memory_namespaces",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("binding_id", ForeignText(), nullable=False),
        sa.Column("name", ForeignText(), nullable=False),
        sa.Column("kind", ForeignText(), nullable=False),
        sa.Column("expires_at", UtcMicroseconds(), nullable=True),
        sa.Column("attributes", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", UtcMicroseconds(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "binding_id", "name"),
    )
    op.create_table(
        "memory_plugin_ids",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("binding_id", ForeignText(), nullable=False),
        sa.Column("memory_id", ForeignText(), nullable=False),
        sa.Column("record_id", ForeignText(), nullable=False),
        sa.Column("namespace", ForeignText(), nullable=False),
        sa.Column("mark", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("company_id", "binding_id", "memory_id"),
    )
    op.create_index(
        "memory_plugin_ids_record",
        "memory_plugin_ids",
        ["company_id", "binding_id", "record_id"],
        unique=True,
    )


def downgrade() -> None:
    """Drop the two tables."""
    op.drop_table("memory_plugin_ids")
    op.drop_table("memory_namespaces")
