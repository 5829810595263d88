"""The control plane: companies, bindings, the operation log, intents and the undo journal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memtui.store.columns import ForeignText, PicoDollars, UtcMicroseconds

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_COLUMNS = {
    "memory_operations": (
        """
        company_id seq operation_id operation_type status binding_key provider_key agent_id
        project_id issue_id run_id source_kind source_issue_id source_run_id principal door
        error_kind result_count capped started_at latency_ms undoes previous_digest digest
        """,
        """
        binding_reason source_comment_id source_document_key source_activity_id source_external_ref
        error_message
        """,
        "NEW.salt IS NULL AND NEW.absent IS NOT NULL",
    ),
    "memory_usage": (
        """
        company_id seq ordinal provider model input_tokens output_tokens embedding_tokens cost_usd
        latency_ms
        """,
        "",
        "CAST(NEW.details AS TEXT) = '{}'",
    ),
    "memory_operation_handles": (
        "company_id seq rank binding_key operation_type provider_key score ghost",
        "",
        "NEW.provider_record_id = ''",
    ),
}
"""Of each table of the log what never changes, what may become NULL, and what else erasing does."""

_SQLITE_REFUSAL = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table} WHEN NOT ({erases})
BEGIN SELECT RAISE(ABORT, 'operations are append-only'); END
"""
_POSTGRESQL_FUNCTION = """
CREATE FUNCTION memory_operations_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'operations are append-only'; END $$
"""
_POSTGRESQL_REFUSAL = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table}
FOR EACH ROW WHEN (NOT ({erases})) EXECUTE FUNCTION memory_operations_refuse()
"""


def _keep_append_only() -> None:
    """Refuse every update of the log's tables but one that erases values."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    same = "IS" if sqlite else "IS NOT DISTINCT FROM"
    if not sqlite:
        op.execute(_POSTGRESQL_FUNCTION)
    for table, (structure, values, erased) in _COLUMNS.items():
        erases = " AND ".join(
            [
                *(f"NEW.{name} {same} OLD.{name}" for name in structure.split()),
                *(
                    f"(NEW.{name} {same} OLD.{name} OR NEW.{name} IS NULL)"
                    for name in values.split()
                ),
                erased,
            ]
        )
        refusal = _SQLITE_REFUSAL if sqlite else _POSTGRESQL_REFUSAL
        op.execute(refusal.format(table=table, erases=erases))


def upgrade() -> None:
    """Create every table, and the triggers that keep the log append-only."""
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
        sa.Column("purge_after_days", sa.BigInteger(), nullable=True),
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
        sa.Column("salt", sa.LargeBinary(), nullable=False),
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
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("undoes", ForeignText(), nullable=True),
        sa.Column("previous_digest", ForeignText(), nullable=False),
        sa.Column("digest", ForeignText(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("salts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("absent", sa.JSON(none_as_null=True), nullable=True),
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
        sa.Column("operation_type", ForeignText(), nullable=False),
        sa.Column("status", ForeignText(), nullable=False),
        sa.Column("principal", ForeignText(), nullable=False),
        sa.Column("started_at", UtcMicroseconds(), nullable=False),
        sa.Column("undoes", ForeignText(), nullable=True),
        sa.Column("erased_by", ForeignText(), nullable=True),
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
    op.create_index(
        "memory_undo_journal_undoes", "memory_undo_journal", ["company_id", "undoes"], unique=False
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
    _keep_append_only()


def downgrade() -> None:
    """There is nothing below the first schema.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("The first schema has nothing below it; delete the database instead.")
