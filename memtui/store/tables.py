"""The tables of the control plane (seed 000, "Suggested Data Model Additions")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin

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
from sqlmodel import Field, SQLModel

from memtui.store.columns import ForeignText, PicoDollars, UtcMicroseconds
from memtui.store.operation import COLUMNS, INTERNAL, OperationDraft


def _text(*, primary_key: bool = False, index: bool = False) -> Any:
    return Field(sa_type=ForeignText, primary_key=primary_key, index=index)


def _optional_text(*, index: bool = False) -> Any:
    return Field(default=None, sa_type=ForeignText, index=index)


def _number(*, primary_key: bool = False) -> Any:
    return Field(sa_type=BigInteger, primary_key=primary_key)


def _json() -> Any:
    return Field(sa_type=JSON)


def _moment() -> Any:
    return Field(sa_type=UtcMicroseconds)


FILTERED_COLUMNS = (
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
)
"""Columns with an index, for filters of the log and for undo."""


class CompanyTable(SQLModel, table=True):
    """A company, which shares no memories and operations with others."""

    __tablename__: ClassVar[str] = "memory_companies"

    company_id: str = _text(primary_key=True)
    name: str = _text()
    read_only: bool = False
    link_templates: dict[str, str] = _json()
    purge_after_days: int | None = Field(default=None, sa_type=BigInteger)
    """The least age in days at which the setting of that name may purge texts; NULL: never."""
    second_yes: bool = False
    """Whether changes of bindings, targets and members wait until a second person agrees."""
    created_at: datetime = _moment()


class BindingTable(SQLModel, table=True):
    """A provider with its config, under a key that is unique in its company."""

    __tablename__: ClassVar[str] = "memory_bindings"
    __table_args__ = (Index("memory_bindings_key", "company_id", "key", unique=True),)

    binding_id: str = _text(primary_key=True)
    company_id: str = _text()
    key: str = _text()
    provider_key: str = _text()
    config: dict[str, Any] = _json()
    capabilities: dict[str, Any] = _json()
    enabled: bool = True
    read_only: bool = False
    capture_post_run: bool = False
    capture_comments: bool = False
    capture_documents: bool = False
    embeds: bool = True
    agreed: str = Field(default="", sa_type=ForeignText)
    """Addresses of other machines to which texts may be sent for embedding, space-separated."""
    review: list[dict[str, Any]] = _json()
    """The rules for which writes of agents are held for review."""
    created_at: datetime = _moment()


class TargetTable(SQLModel, table=True):
    """The binding that serves a target: the company, a project or an agent."""

    __tablename__: ClassVar[str] = "memory_binding_targets"

    company_id: str = _text(primary_key=True)
    target_type: str = _text(primary_key=True)
    target_id: str = _text(primary_key=True)
    binding_id: str = _text(index=True)


class LogHeadRow(SQLModel, table=True):
    """The end of a company's operation log; locked while an operation is appended."""

    __tablename__: ClassVar[str] = "memory_log_heads"

    company_id: str = _text(primary_key=True)
    seq: int = _number()
    digest: str = _text()
    salt: bytes = Field(sa_type=LargeBinary)
    """The salt for the commitments of subjects (`memtui.store.digest.salt_of`)."""


_STORED_AS: Mapping[Any, Any] = {
    bool: Boolean,
    float: Double,
    int: BigInteger,
    dict: JSON,
    AwareDatetime: UtcMicroseconds,
}


def _of_draft(name: str, path: str) -> Column[Any]:
    """Return the column of a field of `OperationDraft`; parts of scope and source are nullable."""
    own = OperationDraft.model_fields.get(path)
    hint = own.annotation if own else str | None
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = _STORED_AS.get(get_origin(kinds[0]) or kinds[0], ForeignText)
    return Column(name, kind, nullable=NoneType in kinds, unique=path == "operation_id" or None)


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
)
"""The operations. Rows are append-only: a trigger allows no changes except those of erasing.

Once a field was erased, `salt` is NULL and `salts` has the salts of the other fields.
"""


class UsageRow(SQLModel, table=True):
    """The usage of one call of an operation; `cost_usd` NULL: without a price."""

    __tablename__: ClassVar[str] = "memory_usage"

    company_id: str = _text(primary_key=True)
    seq: int = _number(primary_key=True)
    ordinal: int = _number(primary_key=True)
    provider: str = _text()
    model: str | None = _optional_text()
    input_tokens: int = _number()
    output_tokens: int = _number()
    embedding_tokens: int = _number()
    cost_usd: Decimal | None = Field(default=None, sa_type=PicoDollars)
    latency_ms: float | None = Field(default=None, sa_type=Double)
    details: dict[str, Any] = _json()


class HandleRow(SQLModel, table=True):
    """A record that an operation returned or touched."""

    __tablename__: ClassVar[str] = "memory_operation_handles"
    __table_args__ = (
        Index(
            "memory_operation_handles_record",
            "company_id",
            "binding_key",
            "provider_record_id",
            "operation_type",
            "seq",
        ),
    )

    company_id: str = _text(primary_key=True)
    seq: int = _number(primary_key=True)
    rank: int = _number(primary_key=True)
    binding_key: str | None = _optional_text()
    operation_type: str = _text()
    """The operation's type, so that the index alone suffices to count a record's retrievals."""
    provider_key: str = _text()
    provider_record_id: str = _text()
    score: float | None = Field(default=None, sa_type=Double)
    ghost: bool = False


class IntentTable(SQLModel, table=True):
    """A mutation that has begun; the row is removed when its operation is appended."""

    __tablename__: ClassVar[str] = "memory_intents"

    operation_id: str = _text(primary_key=True)
    company_id: str = _text(index=True)
    draft: dict[str, Any] = _json()
    """The operation as it will be logged if its outcome stays unknown."""
    before: list[dict[str, Any]] = _json()
    host: str = _text()
    session: str = _text()
    """The name of the lock file that the process holds as long as it lives."""
    started_at: datetime = _moment()


class JournalRow(SQLModel, table=True):
    """A record before and after a mutation, as snapshots; `after` NULL: unknown.

    The row repeats the fields of the operation that undo needs, as the operation may be sealed.
    """

    __tablename__: ClassVar[str] = "memory_undo_journal"
    __table_args__ = (
        Index("memory_undo_journal_record", "company_id", "binding_key", "provider_record_id"),
        Index("memory_undo_journal_seq", "company_id", "seq"),
        Index("memory_undo_journal_undoes", "company_id", "undoes"),
    )

    company_id: str = _text(primary_key=True)
    operation_id: str = _text(primary_key=True)
    ordinal: int = _number(primary_key=True)
    seq: int = _number()
    """The operation's number; an index on it finds the newest rows."""
    binding_key: str = _text()
    provider_record_id: str = _text()
    before: dict[str, Any] = _json()
    after: dict[str, Any] | None = Field(default=None, sa_type=JSON(none_as_null=True))
    operation_type: str = _text()
    status: str = _text()
    principal: str = _text()
    started_at: datetime = _moment()
    undoes: str | None = _optional_text()
    """The operation that this one undid, or whose outcome it checked."""
    erased_by: str | None = _optional_text()
    """The purge that erased the record's states, and the record's id if the record is deleted."""


class HandleLinkRow(SQLModel, table=True):
    """The new id of a record that was restored under another id."""

    __tablename__: ClassVar[str] = "memory_handle_links"

    company_id: str = _text(primary_key=True)
    binding_key: str = _text(primary_key=True)
    old_record_id: str = _text(primary_key=True)
    new_record_id: str = _text()
    operation_id: str = _text()


class MemberTable(SQLModel, table=True):
    """A person's role in a project, or in the whole company if `project_id` is empty."""

    __tablename__: ClassVar[str] = "memory_members"

    company_id: str = _text(primary_key=True)
    principal: str = _text(primary_key=True)
    project_id: str = _text(primary_key=True)
    role: str = _text()
    subject_id: str | None = _optional_text()
    """The user whose memories belong to this person."""


class TokenTable(SQLModel, table=True):
    """A bearer token of a principal, by its SHA-256; the token itself is not stored."""

    __tablename__: ClassVar[str] = "memory_tokens"
    __table_args__ = (Index("memory_tokens_label", "company_id", "label", unique=True),)

    digest: str = _text(primary_key=True)
    company_id: str = _text()
    label: str = _text()
    principal: str = _text()
    acts_for: str | None = _optional_text()
    """The person on whose behalf an agent acts."""
    project_id: str | None = _optional_text()
    """The only project that it gives access to; NULL: any."""
    created_at: datetime = _moment()


class SpendingLimitTable(SQLModel, table=True):
    """The most that a company, agent, project or binding should spend in a period."""

    __tablename__: ClassVar[str] = "memory_spending_limits"

    company_id: str = _text(primary_key=True)
    target_type: str = _text(primary_key=True)
    target_id: str = _text(primary_key=True)
    measure: str = _text(primary_key=True)
    period: str = _text(primary_key=True)
    amount: int = _number()
    """Tokens, or units of 1e-12 dollars where the measure is US dollars."""
    action: str = Field(default="warn", sa_type=ForeignText)
    """What happens once it is passed: `warn`, `no-search`, `read-only` or `refuse`."""


class SpendingTable(SQLModel, table=True):
    """The usage logged in a quarter of an hour, added up as operations are appended.

    A limit is checked before an operation, and a sum over the log would take too long. Numbers are
    kept in two halves (`memtui.store.limits.HALF`), as a sum may exceed 63 bits.
    """

    __tablename__: ClassVar[str] = "memory_spending"

    company_id: str = _text(primary_key=True)
    since: datetime = Field(sa_type=UtcMicroseconds, primary_key=True)
    agent_id: str = _text(primary_key=True)
    """Empty: the operations name none; so with project, binding and principal."""
    project_id: str = _text(primary_key=True)
    binding_key: str = _text(primary_key=True)
    principal: str = _text(primary_key=True)
    tokens_high: int = _number()
    tokens_low: int = _number()
    cost_high: int = _number()
    """In units of 1e-12 dollars, of the calls that have a price."""
    cost_low: int = _number()
    unpriced_count: int = _number()


class PendingTable(SQLModel, table=True):
    """A change that an agent requested, and on which a person has not decided yet."""

    __tablename__: ClassVar[str] = "memory_pending"

    company_id: str = _text(primary_key=True)
    pending_id: str = _text(primary_key=True)
    """The id of the operation that requested it first."""
    binding_key: str = _text()
    binding_added_at: datetime = _moment()
    """The creation of that binding; a later binding of the same key does not get the change."""
    operation_type: str = _text()
    """`write`, `correct` or `forget`."""
    request: dict[str, Any] = _json()
    """The complete request, with secrets redacted."""
    owners: list[dict[str, Any]] = _json()
    """The scopes whose memories it would change."""
    base: list[dict[str, Any]] = _json()
    """The records that it would change, as they were at the request."""
    reasons: list[str] = _json()
    """The names of the rules that hold it."""
    principal: str = _text()
    acts_for: str | None = _optional_text()
    channel: str = _text()
    likeness: str = _text()
    """A hash with the company's salt, equal for equal requests."""
    times: int = _number()
    """How often it was requested."""
    pending_since: datetime = _moment()
    last_at: datetime = _moment()
    """The time of the last request."""
    decider: str | None = _optional_text()
    """The operation that is accepting it, or that has an unknown outcome; NULL: none."""


class NamespaceRow(SQLModel, table=True):
    """A namespace of a binding that is served as a memory plugin (seed 001)."""

    __tablename__: ClassVar[str] = "memory_namespaces"

    company_id: str = _text(primary_key=True)
    binding_id: str = _text(primary_key=True)
    name: str = _text(primary_key=True)
    kind: str = _text()
    expires_at: datetime | None = Field(default=None, sa_type=UtcMicroseconds)
    attributes: dict[str, Any] | None = Field(default=None, sa_type=JSON(none_as_null=True))
    """The contract's `metadata`; NULL: none."""
    created_at: datetime = _moment()


class PluginIdRow(SQLModel, table=True):
    """The id by which a memory plugin's clients know a record."""

    __tablename__: ClassVar[str] = "memory_plugin_ids"
    __table_args__ = (
        Index("memory_plugin_ids_record", "company_id", "binding_id", "record_id", unique=True),
    )

    company_id: str = _text(primary_key=True)
    binding_id: str = _text(primary_key=True)
    memory_id: str = _text(primary_key=True)
    record_id: str = _text()
    namespace: str = _text()
    mark: dict[str, Any] | None = Field(default=None, sa_type=JSON(none_as_null=True))
    """The record's metadata, if the provider cannot store them."""


class SyncRow(SQLModel, table=True):
    """Two bindings in sync: the state at the last sync."""

    __tablename__: ClassVar[str] = "memory_syncs"

    company_id: str = _text(primary_key=True)
    left_id: str = _text(primary_key=True)
    """The binding that was named first, a vault."""
    right_id: str = _text(primary_key=True)
    salt: bytes = Field(sa_type=LargeBinary)
    """The key of the pairs' hashes."""
    synced_at: datetime = _moment()
    made: dict[str, str] = _json()
    """By side and namespace: the namespace's creation mark, which shows if it was made anew."""
    conflicts: int = _number()
    held_back: int = _number()
    """Number of deletions that await confirmation."""


class PairRow(SQLModel, table=True):
    """A record that two bindings had at the last sync: ids and hashes, without its text."""

    __tablename__: ClassVar[str] = "memory_sync_pairs"

    company_id: str = _text(primary_key=True)
    left_id: str = _text(primary_key=True)
    right_id: str = _text(primary_key=True)
    left_record: str = _text(primary_key=True)
    right_record: str = _text()
    left_prints: bytes = Field(sa_type=LargeBinary)
    """Salted hashes of its fields, concatenated."""
    right_prints: bytes = Field(sa_type=LargeBinary)


class RiskCheckTable(SQLModel, table=True):
    """A record whose risks are known, or are to be found; or a whole binding, for one reader.

    There are no texts here, only salted digests, which show what has changed since.
    """

    __tablename__: ClassVar[str] = "memory_risk_checks"

    company_id: str = _text(primary_key=True)
    binding_key: str = _text(primary_key=True)
    record_id: str = _text(primary_key=True)
    project_id: str | None = _optional_text()
    subject_id: str | None = _optional_text()
    text_digest: str = _text()
    """Of the texts that a model reads; `-` for a whole binding."""
    state_digest: str = _text()
    """Of all that the record is compared by."""
    checked_at: datetime | None = Field(default=None, sa_type=UtcMicroseconds)
    """NULL: it, or a record that it was compared with, has changed since."""


class RiskTable(SQLModel, table=True):
    """One risk of a record; several records that it is compared with are several rows."""

    __tablename__: ClassVar[str] = "memory_risks"
    __table_args__ = (Index("memory_risks_other", "company_id", "binding_key", "other_id"),)

    company_id: str = _text(primary_key=True)
    binding_key: str = _text(primary_key=True)
    record_id: str = _text(primary_key=True)
    reason: str = _text(primary_key=True)
    other_id: str = _text(primary_key=True)
    """The record that it is compared with; empty: none."""
    mark: str = _text()
    """A salted digest of the reason and of the texts, by which the risk can be dismissed."""


class DismissedRiskTable(SQLModel, table=True):
    """A risk that a person looked at and does not take for one, until a text changes."""

    __tablename__: ClassVar[str] = "memory_dismissed_risks"

    company_id: str = _text(primary_key=True)
    mark: str = _text(primary_key=True)
    """The mark of the risk."""
    binding_key: str = _text()
    record_id: str = _text()
    reason: str = _text()
    principal: str = _text()
    dismissed_at: datetime = _moment()


def table_of(model: type[SQLModel]) -> Table:
    """Return the table of a model class."""
    found: Table = model.__table__  # type: ignore[attr-defined]
    return found


HEADS = table_of(LogHeadRow)
PENDING = table_of(PendingTable)
USAGE = table_of(UsageRow)
HANDLES = table_of(HandleRow)
JOURNAL = table_of(JournalRow)
LINKS = table_of(HandleLinkRow)
PLUGIN_IDS = table_of(PluginIdRow)
SYNCS = table_of(SyncRow)
SYNC_PAIRS = table_of(PairRow)
RISK_CHECKS = table_of(RiskCheckTable)
RISKS = table_of(RiskTable)
DISMISSED_RISKS = table_of(DismissedRiskTable)


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
