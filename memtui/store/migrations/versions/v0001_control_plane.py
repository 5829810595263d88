"""The control plane: companies, bindings, the operation log, intents and the undo journal."""

from __future__ import annotations

from alembic import op
from sqlmodel import SQLModel

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
    # Until the first release the tables are what they are now; from then on they are written out
    # here, as the next migration builds on what was released.
    SQLModel.metadata.create_all(op.get_bind())
    _keep_append_only()


def downgrade() -> None:
    """There is nothing below the first schema.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("The first schema has nothing below it; delete the database instead.")
