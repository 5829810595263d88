"""Answers of the service, and the models of rules and settings that they contain."""

# Strings, as `from __future__ import annotations` makes, would be compiled for each model.
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from memtui.contract import (
    Capabilities,
    ExplainStage,
    Explanation,
    Health,
    Json,
    Link,
    Links,
    Model,
    Problem,
    Profile,
    Record,
    RecordHandle,
    RecordVersion,
    Snippet,
    SourceRef,
    Usage,
    UtcDatetime,
)
from memtui.store.operation import Operation
from memtui.store.settings import SettingChange

LINK_PLACE = re.compile(r"\{(\w+)\}")
"""A placeholder in a link template, which names a field of the source reference."""


class Capture(StrEnum):
    """Content that hooks may write to a binding automatically (seed 000, "Automatic hooks")."""

    POST_RUN = "post_run"
    """A note of the task and the result of a run."""
    COMMENTS = "comments"
    """Comments of issues."""
    DOCUMENTS = "documents"
    """Documents of issues."""

    @property
    def switch(self) -> str:
        """The field of a binding that allows it."""
        return f"capture_{self}"


class CaptureSwitches(Model):
    """Which content a binding captures; none by default."""

    capture_post_run: bool = False
    capture_comments: bool = False
    capture_documents: bool = False

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The kinds of content that are captured."""
        return tuple(one for one in Capture if getattr(self, one.switch))


class RuleAction(StrEnum):
    """The effect of a rule on an agent's write.

    Where several rules apply, a refusal wins over an acceptance, and that over a hold.
    """

    HOLD = "hold"
    ACCEPT = "accept"
    REFUSE = "refuse"


class RuleTest(StrEnum):
    """Which writes a rule applies to."""

    ALL = "all"
    """Every write, correction and forgetting by agents."""
    NEW_SUBJECT = "new-subject"
    """A fact with a key, or a note with a topic, that is new to its owner; a record with neither,
    if its owner has no records yet."""
    CONTRADICTION = "contradiction"
    """A write that contradicts, changes or removes an existing record."""
    INSTRUCTION = "instruction"
    """Text that looks like an instruction to a model, or hides characters."""
    PER_RUN = "per-run"
    """Writes beyond so many in one run or one hour."""
    AGENT = "agent"
    """Writes of this agent."""
    DOOR = "channel"
    """Writes through this channel: mcp, http, hook, cli."""
    TEXT = "text"
    """Writes with these words in a text."""
    SUBJECT = "subject"
    """Writes with this key, topic, title or user."""

    @property
    def takes_value(self) -> bool:
        """Whether the test needs a value, as in `per-run 5`."""
        return self in {
            RuleTest.PER_RUN, RuleTest.AGENT, RuleTest.DOOR, RuleTest.TEXT, RuleTest.SUBJECT,
        }  # fmt: skip


class ReviewRule(Model):
    """A rule of a binding for the writes of agents."""

    action: RuleAction
    test: RuleTest
    value: str = ""

    @property
    def name(self) -> str:
        """The rule as a person writes it: `hold per-run 5`."""
        return " ".join(filter(None, (self.action, self.test, self.value)))


class PendingChange(Model):
    """The answer for a write that is held for review."""

    pending_id: str
    """The id for `memtui review show`."""
    reasons: tuple[str, ...]
    """The names of the rules that hold it."""
    again: bool = False
    """True: the same write is pending already, and nothing was added to the queue."""

    @property
    def sentence(self) -> str:
        """A message for the caller."""
        already = "It waits already: held" if self.again else "Held"
        return (
            f"{already} for review as {self.pending_id} ({', '.join(self.reasons)}). Nothing is "
            "changed until a person accepts it; do not try again."
        )


class Resolution(CaptureSwitches):
    """The binding that serves a scope, and why it was chosen."""

    binding_key: str
    provider_key: str
    reason: str
    capabilities: Capabilities = Capabilities()
    """The provider's capabilities, as far as known without opening it."""


class Answer(Model):
    """Base of every answer: its operation, and the binding that was chosen."""

    operation_id: str
    binding_key: str
    binding_reason: str
    usage: tuple[Usage, ...] = ()
    latency_ms: float = 0
    problems: tuple[Problem, ...] = ()
    """Items that could not be read, and that the answer may lack."""
    as_of: UtcDatetime | None = None
    """The past moment that the answer shows; None: the present."""


class BindingOutcome(Model):
    """The outcome of one binding in a call to one binding or several."""

    binding_key: str
    provider_key: str
    binding_reason: str = ""
    """Why it was chosen; empty where all bindings were asked."""
    status: Literal["waiting", "ok", "failed"] = "waiting"
    reason: str = ""
    """Why it failed, as a sentence."""
    error_kind: str = ""
    """The kind of the contract's error, in lower case: `unavailable`, `denied` …"""
    operation_ids: tuple[str, ...] = ()
    found: int = 0
    """Number of records in its answers."""
    capped: bool = False
    """True: there may be more matches or records than it returned."""
    latency_ms: float = 0
    usage: tuple[Usage, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Items that could not be read, and that the answer may lack."""
    unread: tuple[str, ...] = ()
    """The parts of a list that were not read, in sentences."""

    @property
    def sentence(self) -> str:
        """The reason of the failure with the binding's name; empty where it did not fail."""
        is_named = not self.reason or self.reason.startswith(self.binding_key)
        return self.reason if is_named else f"{self.binding_key}: {self.reason}"


class OutcomesAnswer(Model):
    """Base of the answers of one binding or several, with the outcome of each."""

    together: str | None = None
    """The id in the logged requests of all bindings' operations; None: one binding was asked."""
    bindings: tuple[BindingOutcome, ...]
    latency_ms: float = 0
    as_of: UtcDatetime | None = None
    """The past moment that the answer shows; None: the present."""

    @property
    def failed(self) -> list[BindingOutcome]:
        """The bindings without an answer."""
        return [one for one in self.bindings if one.status == "failed"]

    @property
    def operation_id(self) -> str:
        """The operation by which the first binding answered; empty: none did."""
        return next((name for one in self.bindings for name in one.operation_ids), "")

    @property
    def binding_key(self) -> str:
        """The binding that answered; several are joined by commas."""
        return ", ".join(one.binding_key for one in self.bindings if one.operation_ids)

    @property
    def usage(self) -> tuple[Usage, ...]:
        """The usage of all bindings."""
        return tuple(row for one in self.bindings for row in one.usage)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The items that the bindings could not read."""
        return tuple(problem for one in self.bindings for problem in one.problems)

    def operation_of(self, binding_key: str) -> str | None:
        """Return the operation by which a binding answered; None: unknown."""
        ids = (one.operation_ids for one in self.bindings if one.binding_key == binding_key)
        return next((name for found in ids for name in found), None)

    def binding_of(self, record: Record) -> str:
        """Return the binding of one of its records."""
        return getattr(record, "binding_key", self.bindings[0].binding_key)


class QueryAnswer(OutcomesAnswer):
    """The answer of a query, the best record first."""

    snippets: tuple[SerializeAsAny[Snippet], ...] = ()
    """Over several bindings each is a `FoundSnippet`."""
    hidden: tuple[SerializeAsAny[Snippet], ...] = ()
    """Over several bindings, the `HiddenSnippet`s: facts whose key also exists in a nearer scope;
    the nearest one's fact is in `snippets`."""
    profile_summary: str | None = None
    capped: bool = False
    stages: tuple[ExplainStage, ...] = ()
    """The stages of the ranking, where the provider returns them with its answer; over several
    bindings, those of the joining, where records are named `binding record-id`."""
    all_topics: bool = False
    """True: the requested topic has fewer than three records, so all topics were searched."""
    withheld: int = Field(default=0, exclude=True)
    """How many results the caller may not read; the log has it too."""


class ProfileAnswer(Answer):
    """The provider's summary of a scope."""

    profile: Profile


class SyncAnswer(Answer):
    """How many records a sync or re-index read, changed and removed."""

    seen: int
    changed: int
    removed: int


class GetAnswer(Answer):
    """One record, with its links in both directions."""

    record: Record
    links: tuple[Link, ...] = ()
    backlinks: tuple[Link, ...] = ()
    backlinks_capped: bool = False
    """True: there are more backlinks than listed."""


class BrowseAnswer(OutcomesAnswer):
    """One page of records; `BrowsePage` explains `at_least` and the other fields."""

    records: tuple[SerializeAsAny[Record], ...] = ()
    """Over several bindings each is a `ListedRecord`."""
    next_cursor: str | None = None
    """Over several bindings, the position in each one's list; one that failed is tried again."""
    total: int | None = None
    at_least: bool = False
    unfinished: bool = False
    links: Mapping[str, Links] = {}
    """By record id, where the request asked for them; over several bindings, in each record."""

    def links_of(self, record: Record) -> Links | None:
        """Return the links of one of its records; None: it has none, or they are unknown."""
        known = self.links.get(record.handle.provider_record_id)
        return known or getattr(record, "links", None)

    @property
    def unread(self) -> tuple[str, ...]:
        """The parts of the list that were not read, in sentences."""
        return tuple(sentence for one in self.bindings for sentence in one.unread)


class ExplainAnswer(Answer):
    """The explanation of a query's ranking."""

    explanation: Explanation


SAME, CLOSE = 0.95, 0.8
"""Thresholds of likeness: from the first, two texts count as the same, from the second, as nearly
the same (seed 002)."""


class Similar(Model):
    """A record with the same text as a new one, or nearly the same."""

    record: Record
    likeness: float
    """From 0 to 1."""

    @property
    def is_same(self) -> bool:
        """Whether the likeness counts as the same text."""
        return self.likeness >= SAME


class MutationAnswer(Answer):
    """The outcome of a write, correct, forget or undo, as read back from the provider."""

    handles: tuple[RecordHandle, ...] = ()
    """Records that were written, changed, removed or restored."""
    records: tuple[Record, ...] = ()
    """Their state now, where they exist; empty after a forget."""
    missing: tuple[RecordHandle, ...] = ()
    """Records to forget that do not exist."""
    refused: dict[str, str] = {}
    """Records to forget that the provider refused: the reason, by record id."""
    ghosts: tuple[RecordHandle, ...] = ()
    """Forgotten records that the provider still returns."""
    redacted: tuple[str, ...] = ()
    """Labels of the secrets that were redacted before the provider was called."""
    not_kept: tuple[str, ...] = ()
    """Requested fields that the provider cannot store."""
    filled_in: tuple[str, ...] = ()
    """The fields of `not_kept` that every read fills in from the log."""
    similar: tuple[Similar, ...] = ()
    """Records with the same text as the written one, or nearly, where the caller asked for them."""
    no_search: str = ""
    """Why no similar records were looked for: a spending limit is passed."""
    was: str | None = None
    """The former text of a changed record, also where a write changed the fact of its key."""
    linked: dict[str, str] = {}
    """Old record id to new id, where the provider could not restore the old one."""
    undoes: str | None = None
    lacking: str = ""
    """A sentence on what the stored record lacks, such as a vector; empty: nothing."""
    event: str | None = None
    """Set: the provider stores it later, under this name; a check of the operation asks for it."""
    pending: PendingChange | None = None
    """Set: nothing was changed, the write is held for review. None: it is not held."""
    settings: tuple[SettingChange, ...] = ()
    """Settings that an undo restored, and pending writes that it returned to or took from the
    queue; `before` is their state before the undo. `binding_key` and `binding_reason` are empty
    for a change of settings, which concerns no binding."""

    @property
    def loss(self) -> str:
        """Sentences on what the provider does not store; empty: it stores all."""
        if not self.not_kept:
            return self.lacking
        lost, filled = (_listed(names) for names in (self.not_kept, self.filled_in))
        if self.not_kept == self.filled_in:
            how = f": memtui fills {'it' if len(self.filled_in) == 1 else 'them'} in from its log."
        else:
            how = f"; memtui fills in {filled} from its log." if filled else "."
        words = f"{self.binding_key} keeps no {lost.replace(' and ', ' or ')}{how}"
        return f"{words} {self.lacking}".strip()


_FIELD_WORDS = {"created_by": "author", "created_at": "time of creation", "expires_at": "expiry",
                "pinned": "pin"}  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    words = [_FIELD_WORDS.get(name, name) for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class Change(Model):
    """One mutation of a record, with its states before and after (None: it did not exist)."""

    operation: Operation
    before: Record | None
    after: Record | None


class TakenBackBy(Model):
    """The part of an operation that was undone, and is not redone."""

    operation: Operation
    """The undo; the newest, if several took back a part each."""
    record_ids: frozenset[str]
    whole: bool
    """Nothing of it is in force any more."""


class Erasure(Model):
    """A purge that erased values of an operation."""

    fields: tuple[str, ...]
    """The paths of the erased values, such as `request.content`."""
    operation_id: str
    at: UtcDatetime
    principal: str


class HistoryAnswer(Answer):
    """The history of a record, newest first."""

    handle: RecordHandle
    changes: tuple[Change, ...] = ()
    """Changes through memtui, from the undo journal."""
    versions: tuple[RecordVersion, ...] = ()
    """Versions by the provider, where it keeps a history."""
    edited_at: UtcDatetime | None = None
    """Time of the last change, if it was made outside memtui and the provider reports it."""


class Retrieval(Model):
    """One query that returned a record."""

    operation_id: str
    seq: int
    at: UtcDatetime
    rank: int
    score: float | None
    query: str
    principal: str
    run_id: str | None = None
    """The run that asked."""


class Provenance(Model):
    """The origin of a record, its mutations, and the queries that returned it."""

    handle: RecordHandle
    written: Operation | None
    """The operation that wrote it; None where it came from outside memtui."""
    mutations: tuple[Operation, ...] = ()
    """All mutations, newest first, the write included, each with the handles of this record."""
    retrieval_count: int = 0
    retrievals: tuple[Retrieval, ...] = ()
    """The newest queries that returned it, at most 20."""
    helped: int = 0
    """How many verdicts say that it helped; each caller's last verdict on each result counts."""
    not_helped: int = 0


class WriteSource(Model):
    """A work object from which memories were written."""

    source: SourceRef
    """The source as the last write names it."""
    run_id: str | None
    """The run of the last write."""
    writes: int
    records: int
    """How many records these writes stored."""
    first_at: UtcDatetime
    last_at: UtcDatetime
    operation_id: str
    """The last write; the next four fields describe it."""
    principal: str
    agent_id: str | None
    channel: str
    binding_key: str | None
    problem: str | None = None
    """Why the last write cannot be read: its log entry is damaged."""


class RetrievalCount(Model):
    """How often queries returned a record, its last time and rank, and verdicts on its use."""

    count: int
    last_at: UtcDatetime
    last_rank: int
    helped: int = 0
    """How many verdicts say that it helped; each caller's last verdict on each result counts."""
    not_helped: int = 0


class TargetView(Model):
    """A target of a binding: the whole company, one project or one agent."""

    target_type: str
    target_id: str


class Shadow(Model):
    """A binding that may be asked what another one is asked, and the terms of that."""

    binding_key: str
    """The binding that answers."""
    shadow_key: str
    """The one that may be asked too."""
    leaves: tuple[str, ...] = ()
    """The bindings whose questions may leave this machine, and their addresses, at the yes."""
    principal: str = ""
    """Who said yes; empty: nobody did."""
    agreed_at: UtcDatetime | None = None
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1
    """The share of the questions that it is asked."""
    project_id: str | None = None
    """The only project whose questions it is asked; None: any."""
    budget_usd: Annotated[Decimal, Field(le=1_000_000)] = Decimal(0)
    """It is asked no more once its answers have cost so much."""
    most_calls: int = 0
    """Most calls, as one without a price does not count in the budget."""
    since_seq: int = 0
    """The number of the last operation before it began."""
    until: UtcDatetime | None = None
    """When it ends; None: it is asked nothing, there is only the yes."""

    def lasts(self, now: datetime) -> bool:
        """Whether it is asked at a moment, by its time."""
        return self.until is not None and now < self.until

    def covers(self, leaves: Collection[str]) -> bool:
        """Whether the yes is for questions that go to these bindings at these addresses."""
        return set(leaves) <= set(self.leaves)


class BindingView(CaptureSwitches):
    """A binding as a person sees it; secrets in `config` are masked."""

    binding_id: str
    key: str
    provider_key: str
    config: Json
    enabled: bool
    read_only: bool
    capabilities: Capabilities
    targets: tuple[TargetView, ...] = ()
    shared: bool = False
    """True: another company's binding uses the same store, so each reads the other's records."""
    embeds: bool = True
    """Whether texts without a vector are embedded in the background."""
    agreed: tuple[str, ...] = ()
    """Addresses of other machines to which its texts may be sent for embedding."""
    review: tuple[ReviewRule, ...] = ()
    """The review rules for writes of agents."""
    shadows: tuple[Shadow, ...] = ()
    created_at: UtcDatetime


class FoundAdded(Model):
    """The bindings added for discovered memories, and the problems with others."""

    added: tuple[BindingView, ...]
    problems: tuple[str, ...] = ()
    """One sentence for each discovered memory that was not added."""


class CompanyView(Model):
    """A company, with the link templates of its sources."""

    company_id: str
    name: str
    read_only: bool = False
    link_templates: dict[str, str] = {}
    """Source kind to a URL with placeholders `{issue_id}`, `{comment_id}`, `{run_id}` …"""
    second_yes: bool = False
    """Whether changes of bindings, targets and members wait until a second person agrees."""

    def link(self, source: SourceRef) -> str | None:
        """Return the URL or path of a source: by its template, else its external reference.

        The reference, which may be None, is also used where a placeholder has no value. A value is
        quoted unless its placeholder begins the template: that is an address already.
        """
        template = self.link_templates.get(source.kind)
        if template is None:
            return source.external_ref
        values = source.model_dump()
        if any(values.get(name) is None for name in LINK_PLACE.findall(template)):
            return source.external_ref
        from urllib.parse import quote

        def filled(place: re.Match[str]) -> str:
            value = str(values[place[1]])
            return quote(value, safe="", errors="replace") if place.start() else value

        return LINK_PLACE.sub(filled, template)


class BindingHealth(Model):
    """A binding's health, with the latencies of its newest operations in milliseconds."""

    key: str
    health: Health
    checked_at: UtcDatetime
    latencies_ms: tuple[float, ...] = ()
    breaker_open: bool = False


class Together(Model):
    """How much one undo takes back at once."""

    records: int
    bindings: int
    """How many bindings these records are in."""
    settings: int
    waiting: int
    """Pending writes that return to the queue without a record being removed."""


class UndoCandidate(Model):
    """A change that has not been undone."""

    operation: Operation
    records: int
    """How many records it changed."""
    record: Record | None = None
    """The changed record after the change, or before it if the change removed it.

    None: there are several, or the caller may not read it.
    """
    before: Record | None = None
    """The changed record before the change; None: it did not exist, or as for `record`."""
    settings: tuple[SettingChange, ...] = ()
    """The changes of the company's settings."""
    together: Together | None = None
    """Totals of all that one undo takes back, this change included; None: only this change."""
    why_not: str | None = None
    """Why it cannot be undone; None: it can."""


def not_checked(records: int) -> tuple[str, ...]:
    """Return the sentence that says of how many records the risks are not known, if of any."""
    if not records:
        return ()
    are = "1 record is" if records == 1 else f"{records:,} records are"
    return (f"{are} not checked for risks; `memtui doctor --risks` checks them.",)
