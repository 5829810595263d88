"""The control plane: companies, bindings, the operation log, intents and the undo journal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText, PicoDollars, UtcMicroseconds

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE_APPEND_ONLY = """
CREATE TRIGGER memory_operations_append_only BEFORE UPDATE ON memory_operations
BEGIN SELECT RAISE(ABORT, 'operations are append-only'); END
"""
_POSTGRESQL_APPEND_ONLY = """
CREATE FUNCTION memory_operations_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'operations are append-only'; END $$;
CREATE TRIGGER memory_operations_append_only BEFORE UPDATE ON memory_operations
FOR EACH ROW EXECUTE FUNCTION memory_operations_refuse();
"""


def upgrade() -> None:
    """Create every table, and the trigger that keeps the log append-only."""
    op.create_table(
        "memory_binding_targets",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("target_type", ForeignText(), nullable=False),
        sa.Column("target_id", ForeignText(), nullable=False),
        sa.Column("binding_id", ForeignText(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "target_type", "target_id"),
    )
    op.create_index(
        "ix_memory_binding_targets_binding_id",
        "memory_binding_targets",
        ["binding_id"],
        unique=False,
    )
    op.create_table(
        "memory_bindings",
        sa.Column("binding_id", ForeignText(), nullable=False),
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("key", ForeignText(), nullable=False),
        sa.Column("provider_key", ForeignText(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("capabilities", sa.JSON(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcMicroseconds(), nullable=False),
        sa.PrimaryKeyConstraint("binding_id"),
    )
    op.create_index("memory_bindings_key", "memory_bindings", ["company_id", "key"], unique=True)
    op.create_table(
        "memory_companies",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("name", ForeignText(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("link_templates", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcMicroseconds(), nullable=False),
        sa.PrimaryKeyConstraint("company_id"),
    )
    op.create_table(
        "memory_handle_links",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("binding_key", ForeignText(), nullable=False),
        sa.Column("old_record_id", ForeignText(), nullable=False),
        sa.Column("new_record_id", ForeignText(), nullable=False),
        sa.Column("operation_id", ForeignText(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "binding_key", "old_record_id"),
    )
    op.create_table(
        "memory_intents",
        sa.Column("operation_id", ForeignText(), nullable=False),
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("draft", sa.JSON(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("host", ForeignText(), nullable=False),
        sa.Column("session", ForeignText(), nullable=False),
        sa.Column("started_at", UtcMicroseconds(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id"),
    )
    op.create_index("ix_memory_intents_company_id", "memory_intents", ["company_id"], unique=False)
    op.create_table(
        "memory_log_heads",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("digest", ForeignText(), nullable=False),
        sa.PrimaryKeyConstraint("company_id"),
    )
    op.create_table(
        "memory_operation_handles",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("binding_key", ForeignText(), nullable=True),
        sa.Column("operation_type", ForeignText(), nullable=False),
        sa.Column("provider_key", ForeignText(), nullable=False),
        sa.Column("provider_record_id", ForeignText(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("ghost", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "seq", "rank"),
    )
    op.create_index(
        "memory_operation_handles_record",
        "memory_operation_handles",
        ["company_id", "binding_key", "provider_record_id", "operation_type", "seq"],
        unique=False,
    )
    op.create_table(
        "memory_operations",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", ForeignText(), nullable=False),
        sa.Column("operation_type", ForeignText(), nullable=False),
        sa.Column("status", ForeignText(), nullable=False),
        sa.Column("binding_key", ForeignText(), nullable=True),
        sa.Column("provider_key", ForeignText(), nullable=True),
        sa.Column("binding_reason", ForeignText(), nullable=True),
        sa.Column("agent_id", ForeignText(), nullable=True),
        sa.Column("project_id", ForeignText(), nullable=True),
        sa.Column("issue_id", ForeignText(), nullable=True),
        sa.Column("run_id", ForeignText(), nullable=True),
        sa.Column("subject_id", ForeignText(), nullable=True),
        sa.Column("source_kind", ForeignText(), nullable=True),
        sa.Column("source_issue_id", ForeignText(), nullable=True),
        sa.Column("source_comment_id", ForeignText(), nullable=True),
        sa.Column("source_document_key", ForeignText(), nullable=True),
        sa.Column("source_run_id", ForeignText(), nullable=True),
        sa.Column("source_activity_id", ForeignText(), nullable=True),
        sa.Column("source_external_ref", ForeignText(), nullable=True),
        sa.Column("principal", ForeignText(), nullable=False),
        sa.Column("door", ForeignText(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("error_kind", ForeignText(), nullable=True),
        sa.Column("error_message", ForeignText(), nullable=True),
        sa.Column("result_count", sa.BigInteger(), nullable=False),
        sa.Column("capped", sa.Boolean(), nullable=False),
        sa.Column("started_at", UtcMicroseconds(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=False),
        sa.Column("undoes", ForeignText(), nullable=True),
        sa.Column("previous_digest", ForeignText(), nullable=False),
        sa.Column("digest", ForeignText(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "seq"),
        sa.UniqueConstraint("operation_id"),
    )
    op.create_index(
        "memory_operations_started", "memory_operations", ["company_id", "started_at"], unique=False
    )
    for column in (
        "operation_type",
        "status",
        "binding_key",
        "agent_id",
        "project_id",
        "issue_id",
        "source_issue_id",
        "run_id",
        "source_run_id",
        "undoes",
    ):
        op.create_index(
            f"memory_operations_{column}",
            "memory_operations",
            ["company_id", column, "seq"],
            unique=False,
        )
    op.create_table(
        "memory_undo_journal",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("operation_id", ForeignText(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("binding_key", ForeignText(), nullable=False),
        sa.Column("provider_record_id", ForeignText(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("company_id", "operation_id", "ordinal"),
    )
    op.create_index(
        "memory_undo_journal_record",
        "memory_undo_journal",
        ["company_id", "binding_key", "provider_record_id"],
        unique=False,
    )
    op.create_index(
        "memory_undo_journal_seq", "memory_undo_journal", ["company_id", "seq"], unique=False
    )
    op.create_table(
        "memory_usage",
        sa.Column("company_id", ForeignText(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("provider", ForeignText(), nullable=False),
        sa.Column("model", ForeignText(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("embedding_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", PicoDollars(), nullable=True),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("company_id", "seq", "ordinal"),
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(_SQLITE_APPEND_ONLY if sqlite else _POSTGRESQL_APPEND_ONLY)


def downgrade() -> None:
    """There is nothing below the first schema.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("The first schema has nothing below it; delete the database instead.")
