"""The members of `OperationDraft.request`, by type of operation.

Every member may be left out, and is None once a purge erased it. Texts are redacted before they are
logged. Each member named here has a separate commitment (`memtui.store.digest`), so that a purge
can erase it alone; unknown members of an imported operation are committed together. The types
apply to memtui's operations. Rows are not checked when they are read, since an imported log has
what its program wrote.
"""

from typing import Any, TypedDict, TypeVar, cast

from memtui.contract import Json, OperationType

# Not with postponed annotations: TypedDict would compile each of them at every start.


class CommonDetails(TypedDict, total=False):
    """Members for any operation."""

    together: str
    """The id of a group of operations, with one answer together or undone together."""
    purpose: str
    """The purpose of a read, if its type does not say it: `prune`, `impact`, `replay` …"""
    as_of: str
    """The past moment that the caller looked at, in ISO 8601."""
    inferred: list[str]
    """The fields that memtui inferred, as the caller gave none: `agent_id`, `source`."""
    problems: int
    """Items that could not be read."""
    withheld: int
    """Records that the provider found but the caller may not read."""
    imported: Json
    """The origin of an imported operation."""
    no_search: str
    """Why nothing was searched: a sentence about a passed spending limit."""


class RecordDetails(CommonDetails, total=False):
    """Members for a read of known records: get, history."""

    record_id: str
    records: int
    last: int
    """For an impact: how many of the newest operations are replayed."""
    since: str | None
    earlier: str
    later: str
    key: str
    """The key of a fact."""
    pending: str
    """The id of the pending change that is shown."""
    namespace: str | None
    rules: Any


class QueryDetails(CommonDetails, total=False):
    """Members for a query or its explanation."""

    query: str
    intent: str
    top_k: int
    topic: str | None
    filter: Json
    owners: list[str]
    metadata_filter: Json
    matching: str
    all_topics: bool
    """True: too little was found in the topic, so every topic was searched."""
    stages: list[Json]
    """The stages of retrieval, with scores by rank."""
    record_ids: list[str]
    """The ids of what a shadow found, best first; `together` is the operation that it asked again.

    A read for a purpose has no handles, as it is no use of a record.
    """


class BrowseDetails(CommonDetails, total=False):
    """Members for a list of records or tags, or for the plan of a prune or purge."""

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
    """Members for a context for a model; sizes are tokens."""

    model: str
    budget: int | None
    delivered: bool
    """True: for a model. False: for a person to look at."""
    max_tokens: int | None
    max_characters: int | None
    topic: str | None
    prompt: str | None
    profile: bool
    by_relevance: bool
    """True: of the facts, only those that the prompt needs, pinned ones and rules."""
    skip_given: bool
    within_ms: int | None
    tokens: int
    over_budget: bool
    sections: dict[str, int]
    """Tokens by section."""
    text: str
    prompt_tokens: int | None
    """Tokens of the run's last prompt as a whole."""
    late: list[str]
    """The sections that were not read in time."""


class ChangeDetails(CommonDetails, total=False):
    """Members for a write, a correction, a forget, or a decision on one of these."""

    mode: str
    kind: str | None
    topic: str | None
    tags: list[str] | None
    valid_from: str
    valid_to: str
    record_id: str
    record_ids: list[str]
    """The ids of the first records; `records` counts all."""
    records: int
    content: str
    """The beginning of the new text; for a company's record only a commitment is logged."""
    content_chars: int
    revision: str | None
    pinned: bool | None
    expires_at: str | None
    never_expires: bool | None
    redacted: list[str]
    """Labels of the redacted secrets."""
    lacking: str
    """A sentence on what the stored record lacks, such as a vector."""
    event: str
    """The provider's name of a write that it stores later."""
    not_kept: list[str]
    """Fields that the provider cannot store."""
    refused: int
    """Records that the provider refused to forget."""
    pending: str
    reasons: list[str]
    """The names of the rules that hold it for review."""
    decision: str
    author: str
    """The principal that requested the change decided on."""
    reason: str


class UndoDetails(CommonDetails, total=False):
    """Members for an undo, or a check of an unknown outcome."""

    operation_id: str
    type: str
    """The type of the operation that is undone."""
    set: list[str]
    """The fields that the undone correction had set."""
    lacking: str
    """A sentence on what a restored record lacks, such as a vector."""
    checks: str
    """The operation whose outcome was checked."""
    happened: bool | None
    found: str


class FeedbackDetails(CommonDetails, total=False):
    """Members for feedback on a result."""

    verdict: str
    operation_id: str


class CallDetails(CommonDetails, total=False):
    """Members for a call that passed to another memory server, or a gap in such calls."""

    tool: str
    server_says: str
    """Whether the tool only reads, by the server's hint."""
    query: str
    """The words that a read searches for, else its arguments as JSON."""
    text: str
    """The text that the agent got; of a gap, a sentence with the number of its calls."""
    calls: int
    """How many calls a gap has."""
    since: str | None
    until: str


class LogDetails(CommonDetails, total=False):
    """Members for a seal, purge or repair of the log."""

    segments: list[Json]
    """The written segments, with the SHA-256 of their files."""
    erased: list[Json]
    """The erased fields, by operation."""
    lost_from: int
    lost_through: int | None
    restored: list[str]
    what: str
    forget: bool
    before: str
    target: str
    """A commitment to the run or document that is purged, so that the next purge of it knows one
    that broke off."""
    purge: str
    """The purge of which this operation is a part."""
    copies: dict[str, int]
    forgotten: int
    looked_for: int
    left: int


class SettingDetails(CommonDetails, total=False):
    """Members for a change of settings; one of the first group names the setting that changed."""

    add_binding: str
    add_company: str
    add_rule: Json
    add_token: bool
    backup: str
    clear_target: str
    cut_over: str
    delete_namespace: str
    embedding: str
    fetch: str
    import_into: str
    not_a_risk: list[str]
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
    risk_again: list[str]
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
    second_yes: bool
    decision: str
    pending: str
    author: str
    reasons: list[str]
    read_only: bool
    records: int
    role: str
    shadow: str
    """The binding that may be asked, or may no more, what the updated one is asked."""
    serves: list[str]
    """Type and id of the target of an added binding."""
    target_id: str
    targets: list[str]
    """The kind and the id of each target, with a space between."""
    what: str


class Details(
    RecordDetails,
    QueryDetails,
    BrowseDetails,
    ContextDetails,
    ChangeDetails,
    UndoDetails,
    FeedbackDetails,
    CallDetails,
    LogDetails,
    SettingDetails,
    total=False,
):
    """Members for an operation of any type, where the type is not known."""


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
    OperationType.GAP: CallDetails,
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
