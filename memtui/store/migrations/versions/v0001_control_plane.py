"""The control plane: companies, bindings, the operation log, intents and the undo journal."""

from __future__ import annotations

from alembic import op
from sqlmodel import SQLModel

from memtui.store.digest import COMMITTED, SOURCE_COMMITTED

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MAY_GO = {*COMMITTED, *(f"source_{name}" for name in SOURCE_COMMITTED)}
"""The columns of operations that erasing may set to NULL."""

_ERASING = {
    "memory_operations": (
        {"subject_id", "request", "salt", "salts", "absent"},
        "NEW.salt IS NULL AND NEW.absent IS NOT NULL",
    ),
    "memory_usage": ({"details"}, "CAST(NEW.details AS TEXT) = '{}'"),
    "memory_operation_handles": ({"provider_record_id"}, "NEW.provider_record_id = ''"),
}
"""Of each table of the log which columns erasing may change, and what holds then."""

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
    for table, (changing, erased) in _ERASING.items():
        erases = [erased]
        for name in sorted({*SQLModel.metadata.tables[table].columns.keys()} - changing):
            gone = f" OR NEW.{name} IS NULL" if name in _MAY_GO else ""
            erases.append(f"(NEW.{name} {same} OLD.{name}{gone})")
        refusal = _SQLITE_REFUSAL if sqlite else _POSTGRESQL_REFUSAL
        op.execute(refusal.format(table=table, erases=" AND ".join(erases)))


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
    raise RuntimeError("The first schema cannot be downgraded; delete the database instead.")
