"""What the service is asked by and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

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
"""A part of the source reference in a link template."""


class Capture(StrEnum):
    """What a binding may be given without anybody asking (seed 000, "Automatic hooks")."""

    POST_RUN = "post_run"
    """A note of what a run was asked and came to."""
    COMMENTS = "comments"
    """Comments of issues."""
    DOCUMENTS = "documents"
    """Documents of issues."""

    @property
    def switch(self) -> str:
        """The field of a binding that allows it."""
        return f"capture_{self}"


class CaptureSwitches(Model):
    """What a binding captures; nothing, until somebody turns it on."""

    capture_post_run: bool = False
    capture_comments: bool = False
    capture_documents: bool = False

    @property
    def captures(self) -> tuple[Capture, ...]:
        """What is turned on."""
        return tuple(one for one in Capture if getattr(self, one.switch))


class RuleAction(StrEnum):
    """What a rule does with what an agent writes.

    Of several a refusal counts before an acceptance, and that before a hold.
    """

    HOLD = "hold"
    ACCEPT = "accept"
    REFUSE = "refuse"


class RuleTest(StrEnum):
    """What a rule is about."""

    ALL = "all"
    """All that agents write, correct and forget."""
    NEW_SUBJECT = "new-subject"
    """A fact whose key its owner does not have, or a note of a topic that its owner does not have;
    what has neither, where its owner has nothing yet."""
    CONTRADICTION = "contradiction"
    """What says otherwise than something that is there, or changes or removes it."""
    INSTRUCTION = "instruction"
    """Text that looks like an instruction to a model, or hides characters."""
    PER_RUN = "per-run"
    """What is written after so many memories of one run; without a run, of one hour."""
    AGENT = "agent"
    """What this agent writes."""
    DOOR = "channel"
    """What comes through this channel: mcp, http, hook, cli."""
    TEXT = "text"
    """What has these words in it."""
    SUBJECT = "subject"
    """What has this key, topic or title, or belongs to this user."""

    @property
    def takes_value(self) -> bool:
        """Whether it says more than its name."""
        return self in {
            RuleTest.PER_RUN,
            RuleTest.AGENT,
            RuleTest.DOOR,
            RuleTest.TEXT,
            RuleTest.SUBJECT,
        }


class ReviewRule(Model):
    """What is to happen with what agents write to a binding."""

    action: RuleAction
    test: RuleTest
    value: str = ""

    @property
    def name(self) -> str:
        """How a person names it: `hold per-run 5`."""
        return " ".join(filter(None, (self.action, self.test, self.value)))


class PendingChange(Model):
    """What an agent is told whose write waits for a person."""

    pending_id: str
    """What `memtui review show` takes."""
    reasons: tuple[str, ...]
    """The names of the rules that hold it."""
    again: bool = False
    """The same waits already, and nothing was added."""

    @property
    def sentence(self) -> str:
        """What to tell whoever asked for it."""
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
    """What the provider can do, as far as is known without opening it."""


class Answer(Model):
    """Base of every answer: the operation that was recorded for it."""

    operation_id: str
    binding_key: str
    binding_reason: str
    usage: tuple[Usage, ...] = ()
    latency_ms: float = 0
    problems: tuple[Problem, ...] = ()
    """What could not be read where a read looked: the answer may lack it."""
    as_of: UtcDatetime | None = None
    """The moment that it is of; None: now."""


class QueryAnswer(Answer):
    """What a query found, best first."""

    snippets: tuple[Snippet, ...] = ()
    profile_summary: str | None = None
    capped: bool = False
    stages: tuple[ExplainStage, ...] = ()
    """How it came about, as far as the provider tells it with its answer."""
    all_topics: bool = False
    """The topic asked for has fewer than three, so that every topic was looked through."""


class ProfileAnswer(Answer):
    """What a provider says of a scope as a whole."""

    profile: Profile


class SyncAnswer(Answer):
    """What a sync or re-index saw and changed, in records."""

    seen: int
    changed: int
    removed: int


class GetAnswer(Answer):
    """One record, with what it links to and what links to it."""

    record: Record
    links: tuple[Link, ...] = ()
    backlinks: tuple[Link, ...] = ()
    backlinks_capped: bool = False
    """More refers to it than is told."""


class BrowseAnswer(Answer):
    """One page of records; see `BrowsePage` for what `at_least` and the like say."""

    records: tuple[Record, ...] = ()
    next_cursor: str | None = None
    total: int | None = None
    at_least: bool = False
    unread: tuple[str, ...] = ()
    unfinished: bool = False
    links: Mapping[str, Links] = {}
    """By record id, where the request asked for them."""


class ExplainAnswer(Answer):
    """How a query came to its reply."""

    explanation: Explanation


SAME, CLOSE = 0.95, 0.8
"""From these likenesses on two texts say the same, or nearly (seed 002)."""


class Similar(Model):
    """A record that says what a new one says, or nearly."""

    record: Record
    likeness: float
    """From 0 to 1."""

    @property
    def is_same(self) -> bool:
        """Whether it is as good as the same."""
        return self.likeness >= SAME


class MutationAnswer(Answer):
    """What a write, correct, forget or undo did, as read back from the provider."""

    handles: tuple[RecordHandle, ...] = ()
    """The records that were written, changed, removed or brought back."""
    records: tuple[Record, ...] = ()
    """Their state now, where they exist; empty after a forget."""
    missing: tuple[RecordHandle, ...] = ()
    """Asked to be forgotten, and not there."""
    refused: dict[str, str] = {}
    """Asked to be forgotten, and left as it is: by record id, why."""
    ghosts: tuple[RecordHandle, ...] = ()
    """Forgotten, and the provider still returns them."""
    redacted: tuple[str, ...] = ()
    """Labels of the secrets that were taken out before anything left."""
    not_kept: tuple[str, ...] = ()
    """The fields that were asked for and that the provider has no place for."""
    filled_in: tuple[str, ...] = ()
    """Those of them that every read fills in from the log."""
    similar: tuple[Similar, ...] = ()
    """What said the same as what was written, or nearly, where the caller asked for it."""
    was: str | None = None
    """What the changed record said before, as when a fact is written whose key stood there."""
    linked: dict[str, str] = {}
    """Old record id to new, where the provider could not restore an id."""
    undoes: str | None = None
    pending: PendingChange | None = None
    """Nothing was changed: it waits for a person; None: it does not."""
    settings: tuple[SettingChange, ...] = ()
    """Settings that an undo put back, and what waits for review again or no more; `before` is what
    they were until then. A change of settings went to no binding: `binding_key` and
    `binding_reason` are empty then."""

    @property
    def loss(self) -> str:
        """Say what the provider does not keep; empty where it keeps all."""
        if not self.not_kept:
            return ""
        lost, filled = (_listed(names) for names in (self.not_kept, self.filled_in))
        if self.not_kept == self.filled_in:
            how = f": memtui fills {'it' if len(self.filled_in) == 1 else 'them'} in from its log."
        else:
            how = f"; memtui fills in {filled} from its log." if filled else "."
        return f"{self.binding_key} keeps no {lost.replace(' and ', ' or ')}{how}"


_FIELD_WORDS = {"created_by": "author", "created_at": "time of creation", "expires_at": "expiry",
                "pinned": "pin"}  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    words = [_FIELD_WORDS.get(name, name) for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class Change(Model):
    """One mutation of a record, with what it was before and after (None: it did not exist)."""

    operation: Operation
    before: Record | None
    after: Record | None


class Erasure(Model):
    """A purge that took values out of an operation."""

    fields: tuple[str, ...]
    """By their paths, such as `request.content`."""
    operation_id: str
    at: UtcDatetime
    principal: str


class HistoryAnswer(Answer):
    """How a record came to be what it is, newest first."""

    handle: RecordHandle
    changes: tuple[Change, ...] = ()
    """What was done through memtui, from the undo journal."""
    versions: tuple[RecordVersion, ...] = ()
    """What the provider itself remembers, where it keeps a history."""
    edited_at: UtcDatetime | None = None
    """When it was last changed, where that was outside of memtui and its provider tells."""


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
    """Where a record came from and who has read it."""

    handle: RecordHandle
    written: Operation | None
    """The operation that wrote it; None where it came from outside memtui."""
    mutations: tuple[Operation, ...] = ()
    """All mutations, newest first, the write included, each with the handles of this record."""
    retrieval_count: int = 0
    retrievals: tuple[Retrieval, ...] = ()
    """The newest queries that returned it, at most 20."""
    helped: int = 0
    """How many say of a result that it helped: everybody's last word of each counts."""
    not_helped: int = 0


class WriteSource(Model):
    """A work object from which memories were written."""

    source: SourceRef
    """As the last write names it."""
    run_id: str | None
    """The run of the last write."""
    writes: int
    records: int
    """How many records they stored."""
    first_at: UtcDatetime
    last_at: UtcDatetime
    operation_id: str
    """The last write; who did it, for which agent, through what and where, follows."""
    principal: str
    agent_id: str | None
    channel: str
    binding_key: str | None
    problem: str | None = None
    """Why nothing more is known of the last write: it is damaged."""


class RetrievalCount(Model):
    """How often queries returned a record, when last and at which rank, and whether it helped."""

    count: int
    last_at: UtcDatetime
    last_rank: int
    helped: int = 0
    """How many say of a result that it helped: everybody's last word of each counts."""
    not_helped: int = 0


class TargetView(Model):
    """What a binding serves: the whole company, one project or one agent."""

    target_type: str
    target_id: str


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
    """True: another company's binding lies in the same store, and each reads the other's."""
    embeds: bool = True
    """Whether texts without a vector are embedded in the background."""
    agreed: tuple[str, ...] = ()
    """The other machines' addresses that its texts may go to, to be embedded."""
    review: tuple[ReviewRule, ...] = ()
    """What is held for review of what agents write to it, or refused."""
    created_at: UtcDatetime


class FoundAdded(Model):
    """The bindings that were made of what was found, and why others could not be made."""

    added: tuple[BindingView, ...]
    problems: tuple[str, ...] = ()
    """A sentence each; what it tells of was left as it is."""


class CompanyView(Model):
    """A company and how its sources open."""

    company_id: str
    name: str
    read_only: bool = False
    link_templates: dict[str, str] = {}
    """Source kind to a URL with `{issue_id}`, `{comment_id}`, `{run_id}` … places."""

    def link(self, source: SourceRef) -> str | None:
        """Return the URL or path that a source opens at: the template's, else its reference.

        None where the template's places cannot all be filled. A place that begins the template is
        an address by itself and stays as it is; any other is quoted.
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
    """Health as last asked, with the latencies of the newest operations in milliseconds."""

    key: str
    health: Health
    checked_at: UtcDatetime
    latencies_ms: tuple[float, ...] = ()
    breaker_open: bool = False


class Together(Model):
    """What one undo takes back at once."""

    records: int
    bindings: int
    """How many these records are in."""
    settings: int
    waiting: int
    """The held writes that wait again where no record goes."""


class UndoCandidate(Model):
    """A change that was not taken back."""

    operation: Operation
    records: int
    """How many records it changed."""
    record: Record | None = None
    """The only one, as it left it, or as it was before it went.

    None for several, and for one that the caller may not read.
    """
    before: Record | None = None
    """What the only one was before; None: it was not there, or as for `record`."""
    settings: tuple[SettingChange, ...] = ()
    """What it changed of the company's own settings."""
    together: Together | None = None
    """All that is taken back with it, itself too; None: it is alone."""
    why_not: str | None = None
    """Why it cannot be taken back; None: it can."""
