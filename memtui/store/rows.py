"""The rows of tables, as dataclasses, of which `memtui.store.tables` makes the tables.

Importing SQLAlchemy takes longer than a command may take: most need only these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any


@dataclass(slots=True, kw_only=True)
class LogHeadRow:
    """The end of a company's operation log; locked while an operation is appended."""

    company_id: str
    seq: int
    digest: str
    salt: bytes
    """The salt for the commitments of subjects (`memtui.store.digest.salt_of`)."""


@dataclass(slots=True, kw_only=True)
class CompanyRow:
    """A company, which shares no memories and operations with others."""

    company_id: str
    name: str
    read_only: bool = False
    link_templates: dict[str, str]
    purge_after_days: int | None = None
    """The least age in days at which the setting of that name may purge texts; NULL: never."""
    second_yes: bool = False
    """Whether changes of bindings, targets and members wait until a second person agrees."""
    created_at: datetime


@dataclass(slots=True, kw_only=True)
class BindingRow:
    """A provider with its config, under a key that is unique in its company."""

    binding_id: str
    company_id: str
    key: str
    provider_key: str
    config: dict[str, Any]
    capabilities: dict[str, Any]
    enabled: bool = True
    read_only: bool = False
    capture_post_run: bool = False
    capture_comments: bool = False
    capture_documents: bool = False
    embeds: bool = True
    agreed: str = ""
    """Addresses of other machines to which texts may be sent for embedding, space-separated."""
    review: list[dict[str, Any]]
    """The rules for which writes of agents are held for review."""
    shadows: list[dict[str, Any]] = field(default_factory=list)
    """The bindings that may be asked what this one is asked, and who said yes to that."""
    created_at: datetime


@dataclass(slots=True, kw_only=True)
class TargetRow:
    """The binding that serves a target: the company, a project or an agent."""

    company_id: str
    target_type: str
    target_id: str
    binding_id: str


@dataclass(slots=True, kw_only=True)
class MemberRow:
    """A person's role in a project, or in the whole company if `project_id` is empty."""

    company_id: str
    principal: str
    project_id: str
    role: str
    subject_id: str | None = None
    """The user whose memories belong to this person."""


@dataclass(slots=True, kw_only=True)
class TokenRow:
    """A bearer token of a principal, by its SHA-256; the token itself is not stored."""

    digest: str
    company_id: str
    label: str
    principal: str
    acts_for: str | None = None
    """The person on whose behalf an agent acts."""
    project_id: str | None = None
    """The only project that it gives access to; NULL: any."""
    created_at: datetime


@dataclass(slots=True, kw_only=True)
class SpendingLimitRow:
    """The most that a company, agent, project or binding should spend in a period."""

    company_id: str
    target_type: str
    target_id: str
    measure: str
    period: str
    amount: int
    """Tokens, or units of 1e-12 dollars where the measure is US dollars."""
    action: str = "warn"
    """What happens once it is passed: `warn`, `no-search`, `read-only` or `refuse`."""


@dataclass(slots=True, kw_only=True)
class IntentRow:
    """A mutation that has begun; the row is removed when its operation is appended."""

    operation_id: str
    company_id: str
    draft: dict[str, Any]
    """The operation as it will be logged if its outcome stays unknown."""
    before: list[dict[str, Any]]
    host: str
    session: str
    """The name of the lock file that the process holds as long as it lives."""
    started_at: datetime


@dataclass(slots=True, kw_only=True)
class UsageRow:
    """The usage of one call of an operation; `cost_usd` NULL: without a price."""

    company_id: str
    seq: int
    ordinal: int
    provider: str
    model: str | None = None
    input_tokens: int
    output_tokens: int
    embedding_tokens: int
    cost_usd: Decimal | None = None
    latency_ms: float | None = None
    details: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class SpendingRow:
    """The usage logged in a quarter of an hour, added up as operations are appended.

    A limit is checked before an operation, and a sum over the log would take too long. Numbers are
    kept in two halves (`memtui.store.limits.HALF`), as a sum may exceed 63 bits.
    """

    company_id: str
    since: datetime
    agent_id: str
    """Empty: the operations name none; so with project, binding and principal."""
    project_id: str
    binding_key: str
    principal: str
    tokens_high: int
    tokens_low: int
    cost_high: int
    """In units of 1e-12 dollars, of the calls that have a price."""
    cost_low: int
    unpriced_count: int


@dataclass(slots=True, kw_only=True)
class HandleRow:
    """A record that an operation returned or touched."""

    company_id: str
    seq: int
    rank: int
    binding_key: str | None = None
    operation_type: str
    """The operation's type, so that the index alone suffices to count a record's retrievals."""
    provider_key: str
    provider_record_id: str
    score: float | None = None
    ghost: bool = False


@dataclass(slots=True, kw_only=True)
class JournalRow:
    """A record before and after a mutation, as snapshots; `after` NULL: unknown.

    The row repeats the fields of the operation that undo needs, as the operation may be sealed.
    """

    company_id: str
    operation_id: str
    ordinal: int
    seq: int
    """The operation's number; an index on it finds the newest rows."""
    binding_key: str
    provider_record_id: str
    before: dict[str, Any]
    after: dict[str, Any] | None = None
    operation_type: str
    status: str
    principal: str
    started_at: datetime
    undoes: str | None = None
    """The operation that this one undid, or whose outcome it checked."""
    erased_by: str | None = None
    """The purge that erased the record's states, and the record's id if the record is deleted."""


@dataclass(slots=True, kw_only=True)
class HandleLinkRow:
    """The new id of a record that was restored under another id."""

    company_id: str
    binding_key: str
    old_record_id: str
    new_record_id: str
    operation_id: str


@dataclass(slots=True, kw_only=True)
class PendingRow:
    """A change that an agent requested, and on which a person has not decided yet."""

    company_id: str
    pending_id: str
    """The id of the operation that requested it first."""
    binding_key: str
    binding_added_at: datetime
    """The creation of that binding; a later binding of the same key does not get the change."""
    operation_type: str
    """`write`, `correct` or `forget`."""
    request: dict[str, Any]
    """The complete request, with secrets redacted."""
    owners: list[dict[str, Any]]
    """The scopes whose memories it would change."""
    base: list[dict[str, Any]]
    """The records that it would change, as they were at the request."""
    reasons: list[str]
    """The names of the rules that hold it."""
    principal: str
    acts_for: str | None = None
    channel: str
    likeness: str
    """A hash with the company's salt, equal for equal requests."""
    times: int
    """How often it was requested."""
    pending_since: datetime
    last_at: datetime
    """The time of the last request."""
    decider: str | None = None
    """The operation that is accepting it, or that has an unknown outcome; NULL: none."""
    hold_id: str | None = None
    """The hold of a person that it is part of: until a decision agents do not get its records."""


@dataclass(slots=True, kw_only=True)
class NamespaceRow:
    """A namespace of a binding that is served as a memory plugin (seed 001)."""

    company_id: str
    binding_id: str
    name: str
    kind: str
    expires_at: datetime | None = None
    attributes: dict[str, Any] | None = None
    """The contract's `metadata`; NULL: none."""
    created_at: datetime


@dataclass(slots=True, kw_only=True)
class PluginIdRow:
    """The id by which a memory plugin's clients know a record."""

    company_id: str
    binding_id: str
    memory_id: str
    record_id: str
    namespace: str
    mark: dict[str, Any] | None = None
    """The record's metadata, if the provider cannot store them."""


@dataclass(slots=True, kw_only=True)
class SyncRow:
    """Two bindings in sync: the state at the last sync."""

    company_id: str
    left_id: str
    """The binding that was named first, a vault."""
    right_id: str
    salt: bytes
    """The key of the pairs' hashes."""
    synced_at: datetime
    made: dict[str, str]
    """By side and namespace: the namespace's creation mark, which shows if it was made anew."""
    conflicts: int
    held_back: int
    """Number of deletions that await confirmation."""


@dataclass(slots=True, kw_only=True)
class PairRow:
    """A record that two bindings had at the last sync: ids and hashes, without its text."""

    company_id: str
    left_id: str
    right_id: str
    left_record: str
    right_record: str
    left_prints: bytes
    """Salted hashes of its fields, concatenated."""
    right_prints: bytes


@dataclass(slots=True, kw_only=True)
class RiskCheckRow:
    """A record whose risks are known, or are to be found; or a whole binding, for one reader.

    There are no texts here, only salted digests, which show what has changed since.
    """

    company_id: str
    binding_key: str
    record_id: str
    project_id: str | None = None
    subject_id: str | None = None
    text_digest: str
    """Of the texts that a model reads; `-` for a whole binding."""
    state_digest: str
    """Of all that the record is compared by."""
    checked_at: datetime | None = None
    """NULL: it, or a record that it was compared with, has changed since."""


@dataclass(slots=True, kw_only=True)
class RiskRow:
    """One risk of a record; several records that it is compared with are several rows."""

    company_id: str
    binding_key: str
    record_id: str
    reason: str
    other_id: str
    """The record that it is compared with; empty: none."""
    mark: str
    """A salted digest of the reason and of the texts, by which the risk can be dismissed."""


@dataclass(slots=True, kw_only=True)
class DismissedRiskRow:
    """A risk that a person looked at and does not take for one, until a text changes."""

    company_id: str
    mark: str
    """The mark of the risk."""
    binding_key: str
    record_id: str
    reason: str
    principal: str
    dismissed_at: datetime
