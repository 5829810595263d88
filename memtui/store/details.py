"""What the log says of each type of operation: the members of `OperationDraft.request`.

Every member may be left out, and is None once it was erased. Texts are redacted before they are
logged. Each member that is named here is committed by itself (`memtui.store.digest`), so that a
purge can erase it alone. The types are a claim about memtui's own operations and are not checked
when a row is read: an imported log says whatever its program wrote, and other members of it are
committed together.
"""

from typing import Any, TypedDict, TypeVar, cast

from memtui.contract import Json, OperationType

# Not with postponed annotations: TypedDict would compile each of them at every start.


class CommonDetails(TypedDict, total=False):
    """Of any operation."""

    together: str
    """The id of the group of operations that one answer came from, or that one undo takes back."""
    purpose: str
    """What it was read for, where that is not its own type: `prune`, `impact`, `replay` …"""
    as_of: str
    """The past moment that the caller looked at, in ISO 8601."""
    inferred: list[str]
    """The fields that memtui inferred and no caller gave: `agent_id`, `source`."""
    problems: int
    """Items that could not be read."""
    withheld: int
    """Records that were found and that the caller may not read."""
    imported: Json
    """Where an imported operation comes from."""


class RecordDetails(CommonDetails, total=False):
    """Of a read of one record or of known records: get, history."""

    record_id: str
    records: int
    last: int
    """Of an impact: how many of the newest answers are replayed."""
    since: str | None
    earlier: str
    later: str
    key: str
    """Of a fact."""
    pending: str
    """The pending change that is shown, or that a change became."""
    namespace: str | None
    rules: Any


class QueryDetails(CommonDetails, total=False):
    """Of a query or its explanation."""

    query: str
    intent: str
    top_k: int
    topic: str | None
    filter: Json
    owners: list[str]
    metadata_filter: Json
    matching: str
    all_topics: bool
    """True: nothing of the topic passed, so every topic was searched."""
    stages: list[Json]
    """The stages of retrieval, with scores by rank."""


class BrowseDetails(CommonDetails, total=False):
    """Of a list of records, of their tags, or of what could be pruned or purged."""

    filter: Json
    sort: str
    limit: int
    cursor: str | None
    owners: list[str]
    namespace: str | None
    tags: Any
    kind: str | None
    rules: Any
    what: str
    forget: bool


class ContextDetails(CommonDetails, total=False):
    """Of a context for a model; sizes are tokens."""

    model: str
    budget: int | None
    delivered: bool
    """Whether the model got it; else somebody looked at it."""
    max_tokens: int | None
    max_characters: int | None
    topic: str | None
    prompt: str | None
    profile: bool
    skip_given: bool
    within_ms: int | None
    tokens: int
    over_budget: bool
    sections: dict[str, int]
    """Tokens by section."""
    text: str
    late: list[str]
    """The sections that were not read in time."""


class ChangeDetails(CommonDetails, total=False):
    """Of a write, a correction, a forget, or a decision on one of these."""

    mode: str
    kind: str | None
    topic: str | None
    tags: list[str] | None
    valid_from: str
    valid_to: str
    record_id: str
    record_ids: list[str]
    """The first of the records; `records` counts them all."""
    records: int
    content: str
    """The beginning of the new text; of a company's record only a commitment is kept."""
    content_chars: int
    revision: str | None
    pinned: bool | None
    expires_at: str | None
    never_expires: bool | None
    redacted: list[str]
    """Labels of the secrets that were taken out."""
    not_kept: list[str]
    """Fields that the provider cannot store."""
    refused: int
    """Records that the provider refused to forget."""
    pending: str
    reasons: list[str]
    """Why it waits for review."""
    decision: str
    author: str
    """Who asked for what was decided on."""
    reason: str


class UndoDetails(CommonDetails, total=False):
    """Of an undo, or of a check of an unknown outcome."""

    operation_id: str
    type: str
    """The type of the operation that is undone."""
    set: list[str]
    """The fields that the undone correction had set."""
    checks: str
    """The operation whose outcome was looked up."""
    happened: bool | None
    found: str


class FeedbackDetails(CommonDetails, total=False):
    """Of feedback on a result."""

    verdict: str
    operation_id: str


class LogDetails(CommonDetails, total=False):
    """Of a seal, purge or repair of the log."""

    segments: list[Json]
    """SHA-256 of the sealed files that were written."""
    erased: list[Json]
    """The fields that lost their value, by operation."""
    lost_from: int
    lost_through: int | None
    restored: list[str]
    what: str
    forget: bool
    before: str
    purge: str
    """The purge that this is a part of."""
    copies: dict[str, int]
    forgotten: int
    looked_for: int
    left: int


class SettingDetails(CommonDetails, total=False):
    """Of a change of settings: one of the first group says what changed, and names it."""

    add_binding: str
    add_company: str
    add_rule: Json
    add_token: bool
    backup: str
    clear_target: str
    delete_namespace: str
    embedding: str
    fetch: str
    import_into: str
    patch_namespace: str
    purge_after_days: int | None
    put_namespace: str
    remove_binding: str
    remove_company: str
    remove_member: str
    remove_namespace: str
    remove_rule: Json
    remove_spending_limits: str
    remove_token: bool
    seal: str
    set_member: str
    set_read_only: bool
    set_spending_limit: Json
    set_target: str
    texts_may_go_to: str
    texts_no_longer_go_to: str
    update_binding: str
    update_company: str

    acts_for: str | None
    added: int
    at_least: bool
    binding_key: str
    capture_comments: bool
    capture_documents: bool
    capture_post_run: bool
    config: list[str]
    """Names of the options that were set."""
    embeds: bool
    enabled: bool
    expires_at: str | None
    file_count: int
    files: list[str]
    format: str
    key: str
    kind: str | None
    known: int
    label: str
    links: list[str]
    measure: str | None
    name: str | None
    namespace: str | None
    operations: int
    period: str | None
    principal: str
    project_id: str | None
    provider: str
    read_only: bool
    records: int
    role: str
    target_id: str
    what: str


class Details(
    RecordDetails,
    QueryDetails,
    BrowseDetails,
    ContextDetails,
    ChangeDetails,
    UndoDetails,
    FeedbackDetails,
    LogDetails,
    SettingDetails,
    total=False,
):
    """Of an operation whose type is not known where it is read."""


DetailsT = TypeVar("DetailsT", bound=CommonDetails)

DETAILS: dict[OperationType, type[CommonDetails]] = {
    OperationType.WRITE: ChangeDetails,
    OperationType.CORRECT: ChangeDetails,
    OperationType.FORGET: ChangeDetails,
    OperationType.REVIEW: ChangeDetails,
    OperationType.SYNC: CommonDetails,
    OperationType.QUERY: QueryDetails,
    OperationType.EXPLAIN: QueryDetails,
    OperationType.BROWSE: BrowseDetails,
    OperationType.NAMESPACES: BrowseDetails,
    OperationType.PROFILE: CommonDetails,
    OperationType.GET: RecordDetails,
    OperationType.HISTORY: RecordDetails,
    OperationType.CONTEXT: ContextDetails,
    OperationType.UNDO: UndoDetails,
    OperationType.CHECK: UndoDetails,
    OperationType.FEEDBACK: FeedbackDetails,
    OperationType.SEAL: LogDetails,
    OperationType.PURGE: LogDetails,
    OperationType.REPAIR: LogDetails,
    OperationType.CONFIGURE: SettingDetails,
    OperationType.EMBED: SettingDetails,
}


def without_empty(details: DetailsT) -> DetailsT:
    """Return details without the members that are None, an empty text or an empty list."""
    kept = {name: value for name, value in details.items() if value not in (None, [], "", {}, ())}
    return cast("DetailsT", kept)
