"""The tables of the control plane (seed 000, "Suggested Data Model Additions")."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import AwareDatetime
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Index,
    LargeBinary,
    Table,
    exists,
    text,
)
from sqlmodel import SQLModel

from memtui.store import rows
from memtui.store.columns import ForeignText, PicoDollars, UtcMicroseconds
from memtui.store.operation import COLUMNS, INTERNAL, OperationDraft

MIGRATED_FROM = "memtui_migrated_from"
"""The member of a record's metadata that says what a migration copied it from."""
IS_COPY = f"CAST(after AS TEXT) LIKE '%{MIGRATED_FROM}%'"
"""The condition of the journal's rows that may have copies; an index has just these."""
FILTERED_COLUMNS = (
    "operation_type", "status", "binding_key", "agent_id", "project_id", "issue_id",
    "source_issue_id", "run_id", "source_run_id", "undoes",
)  # fmt: skip
"""Columns with an index, for filters of the log and for undo."""


_STORED_AS: Mapping[Any, Any] = {
    bool: Boolean,
    bytes: LargeBinary,
    Decimal: PicoDollars,
    float: Double,
    int: BigInteger,
    dict: JSON,
    list: JSON,
    datetime: UtcMicroseconds,
    AwareDatetime: UtcMicroseconds,
}


def _column(name: str, hint: Any, **more: Any) -> Column[Any]:
    """Return the column of a field with a type hint; NULL only where the hint has None."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = _STORED_AS.get(get_origin(kinds[0]) or kinds[0], ForeignText)
    is_nullable = NoneType in kinds
    if kind is JSON and is_nullable:
        kind = JSON(none_as_null=True)
    return Column(name, kind, nullable=is_nullable, **more)


def _of_draft(name: str, path: str) -> Column[Any]:
    """Return the column of a field of `OperationDraft`; parts of scope and source are nullable."""
    own = OperationDraft.model_fields.get(path)
    hint = own.annotation if own else str | None
    return _column(name, hint, unique=path == "operation_id" or None)


def _of_rows(kind: type, name: str, key: str, *indexes: Index) -> Table:
    """Return the table of a row class; `key` has the columns of its primary key."""
    hints = get_type_hints(kind)
    columns = (_column(one, hint, primary_key=one in key.split()) for one, hint in hints.items())
    return Table(name, SQLModel.metadata, *columns, *indexes)


# Not SQLModels, as their rows are dataclasses, which commands read without importing SQLAlchemy.
HEADS = _of_rows(rows.LogHeadRow, "memory_log_heads", "company_id")
COMPANIES = _of_rows(rows.CompanyRow, "memory_companies", "company_id")
BINDINGS = _of_rows(
    rows.BindingRow,
    "memory_bindings",
    "binding_id",
    Index("memory_bindings_key", "company_id", "key", unique=True),
)
TARGETS = _of_rows(
    rows.TargetRow,
    "memory_binding_targets",
    "company_id target_type target_id",
    Index("ix_memory_binding_targets_binding_id", "binding_id"),
)
MEMBERS = _of_rows(rows.MemberRow, "memory_members", "company_id principal project_id")
TOKENS = _of_rows(
    rows.TokenRow,
    "memory_tokens",
    "digest",
    Index("memory_tokens_label", "company_id", "label", unique=True),
)
SPENDING_LIMITS = _of_rows(
    rows.SpendingLimitRow,
    "memory_spending_limits",
    "company_id target_type target_id measure period",
)
INTENTS = _of_rows(
    rows.IntentRow,
    "memory_intents",
    "operation_id",
    Index("ix_memory_intents_company_id", "company_id"),
)
USAGE = _of_rows(rows.UsageRow, "memory_usage", "company_id seq ordinal")
SPENDING = _of_rows(
    rows.SpendingRow,
    "memory_spending",
    "company_id since agent_id project_id binding_key principal",
)
HANDLES = _of_rows(
    rows.HandleRow,
    "memory_operation_handles",
    "company_id seq rank",
    Index(
        "memory_operation_handles_record",
        "company_id",
        "binding_key",
        "provider_record_id",
        "operation_type",
        "seq",
    ),
)
JOURNAL = _of_rows(
    rows.JournalRow,
    "memory_undo_journal",
    "company_id operation_id ordinal",
    Index("memory_undo_journal_record", "company_id", "binding_key", "provider_record_id"),
    Index("memory_undo_journal_seq", "company_id", "seq"),
    Index("memory_undo_journal_undoes", "company_id", "undoes"),
    Index(
        "memory_undo_journal_copies",
        "company_id",
        "seq",
        sqlite_where=text(IS_COPY),
        postgresql_where=text(IS_COPY),
    ),
)
LINKS = _of_rows(rows.HandleLinkRow, "memory_handle_links", "company_id binding_key old_record_id")
PENDING = _of_rows(rows.PendingRow, "memory_pending", "company_id pending_id")
NAMESPACES = _of_rows(rows.NamespaceRow, "memory_namespaces", "company_id binding_id name")
PLUGIN_IDS = _of_rows(
    rows.PluginIdRow,
    "memory_plugin_ids",
    "company_id binding_id memory_id",
    Index("memory_plugin_ids_record", "company_id", "binding_id", "record_id", unique=True),
)
SYNCS = _of_rows(rows.SyncRow, "memory_syncs", "company_id left_id right_id")
SYNC_PAIRS = _of_rows(rows.PairRow, "memory_sync_pairs", "company_id left_id right_id left_record")
RISK_CHECKS = _of_rows(rows.RiskCheckRow, "memory_risk_checks", "company_id binding_key record_id")
RISKS = _of_rows(
    rows.RiskRow,
    "memory_risks",
    "company_id binding_key record_id reason other_id",
    Index("memory_risks_other", "company_id", "binding_key", "other_id"),
)
DISMISSED_RISKS = _of_rows(rows.DismissedRiskRow, "memory_dismissed_risks", "company_id mark")

# Not an SQLModel, as its columns are derived from the fields of `OperationDraft`.
OPERATIONS = Table(
    "memory_operations",
    SQLModel.metadata,
    Column("company_id", ForeignText, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    *(_of_draft(name, path) for name, path in COLUMNS.items()),
    Column("previous_digest", ForeignText, nullable=False),
    Column("digest", ForeignText, nullable=False),
    Column("salt", LargeBinary),
    Column("salts", JSON(none_as_null=True)),
    Column("absent", JSON(none_as_null=True)),
    Index("memory_operations_started", "company_id", "started_at"),
    *(
        Index(f"memory_operations_{column}", "company_id", column, "seq")
        for column in FILTERED_COLUMNS
    ),
    Index(
        "memory_operations_internal",
        "company_id",
        "seq",
        sqlite_where=text(INTERNAL),
        postgresql_where=text(INTERNAL),
    ),
    Index(
        "memory_operations_part_of",
        "company_id",
        "part_of",
        "seq",
        sqlite_where=text("part_of IS NOT NULL"),
        postgresql_where=text("part_of IS NOT NULL"),
    ),
)
"""The operations. Rows are append-only: a trigger allows no changes except those of erasing.

Once a field was erased, `salt` is NULL and `salts` has the salts of the other fields.
"""


def of_review(step: Any) -> ColumnElement[bool]:
    """Return the condition that the operation of a journal's row accepted a pending change.

    It also removed the change from the queue, which is a row without a record id.
    """
    beside = JOURNAL.alias()
    return exists().where(
        beside.c.company_id == step.company_id,
        beside.c.seq == step.seq,
        beside.c.provider_record_id == "",
        beside.c.erased_by.is_(None),
    )
