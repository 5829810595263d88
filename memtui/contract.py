"""The memory adapter contract: the types that providers and callers share.

The Python form of the memory adapter contract (seed 000, "Required Adapter Contract"): scopes,
sources, usage, requests, replies, capabilities, the `Adapter` base class and the error tree.
Models are frozen and reject unknown fields. Times are timezone-aware UTC, money is US dollars as
`Decimal`, durations are milliseconds, sizes are tokens.

An adapter raises only the errors below, each with a message a person can act on:

    MemtuiError
    ├── Unavailable   the provider is slow, down or answered nonsense
    ├── NotFound      the record, namespace or binding does not exist
    ├── Conflict      the record changed since the caller read it
    ├── Denied        the caller may not do this, or the binding is read-only
    ├── Invalid       the request is malformed or out of bounds
    └── Unsupported   the provider has no such ability
"""

# Strings, as `from __future__ import annotations` makes, would be compiled for each model.
import os
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
)
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Json = dict[str, Any]
"""A JSON object."""


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the moment is outside of the years 1 to 9999") from error


UtcDatetime = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A timezone-aware moment, converted to UTC."""

_MOST_USD = 9_000_000


def _without_zeros(value: Decimal) -> Decimal:
    return Decimal(format(value.normalize(), "f"))


Usd = Annotated[
    Decimal,
    Field(ge=0, le=_MOST_USD, decimal_places=12),
    AfterValidator(_without_zeros),
]
"""US dollars, up to nine million, to a millionth of a millionth, without trailing zeros."""

UsdSum = Annotated[Decimal, Field(ge=0), AfterValidator(_without_zeros)]
"""A sum of US dollars; unlike `Usd`, without an upper bound."""

Tokens = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of tokens; fits a signed 64-bit column."""

Milliseconds = Annotated[float, Field(allow_inf_nan=False)]


class MemtuiError(Exception):
    """Base of every error that memtui raises on purpose; its text is one sentence for a person."""

    @property
    def kind(self) -> str:
        """Name of the direct subclass of `MemtuiError` that this error is or derives from."""
        kinds = (kind.__name__ for kind in type(self).__mro__ if MemtuiError in kind.__bases__)
        return next(kinds, type(self).__name__)

    details: Mapping[str, object] = {}
    """Additional machine-readable values by name, such as the invalid rows of a file."""

    moved: "RecordHandle | None" = None
    """The record's new handle, where a failed correction restored it as a new record."""


class Unavailable(MemtuiError):
    """The provider could not be reached, timed out, or answered something unreadable.

    `sent`: the request may have reached the provider, so the outcome of a mutation is unknown.
    `operation_id` then names the operation, once it is logged.
    """

    def __init__(
        self, message: str, *, sent: bool = False, operation_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.operation_id = operation_id


class NotFound(MemtuiError):
    """The requested object does not exist in the given scope."""


class Conflict(MemtuiError):
    """The record changed since the caller read it.

    `current` is the provider's present record (None: it is gone), `proposed` the caller's new text.
    """

    def __init__(
        self, message: str, *, current: "Record | None" = None, proposed: str | None = None
    ) -> None:
        super().__init__(message)
        self.current = current
        self.proposed = proposed


class Denied(MemtuiError):
    """The caller is not allowed to do this, or the target is read-only."""


class Invalid(MemtuiError):
    """The request is malformed or out of bounds."""


class Unsupported(MemtuiError):
    """The provider lacks this ability, as its capabilities state."""


class Model(BaseModel):
    """Base of the contract's values: frozen, no unknown fields.

    For a quick start, a validator is built at its first use and field docstrings are parsed only
    for a JSON schema. Validation errors do not quote the input, which may be a memory or a secret:
    errors go to the log file.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True
    )

    @classmethod
    def like(cls, other: object, **given: Any) -> Self:
        """Construct from the attributes of `other` that are fields here; `given` overrides them."""
        shared = {
            name: getattr(other, name)
            for name in cls.__pydantic_fields__
            if name not in given and hasattr(other, name)
        }
        return cls(**shared, **given)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler", /
    ) -> "JsonSchemaValue":
        """Use the fields' docstrings as their descriptions."""
        reference = super().__get_pydantic_json_schema__(core_schema, handler)
        properties = handler.resolve_ref_schema(reference).get("properties", {})
        for name, words in field_docstrings(cls).items():
            if name in properties:
                properties[name].setdefault("description", words)
        return reference


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields, inherited ones included; none without source."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base not in {BaseModel, Model}:
            found |= _docstrings_in(sys.modules.get(base.__module__)).get(base.__qualname__, {})
    return found


@cache  # a schema asks once per class, and parsing a large file is slow
def _docstrings_in(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """Return the field docstrings of each class of a module, by the class's qualified name."""
    import ast
    import inspect
    from itertools import pairwise

    found: dict[str, dict[str, str]] = {}

    def documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
        for above, below in pairwise(body):
            match above, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    yield name, inspect.cleandoc(words)

    def look(node: ast.AST, outside: str) -> None:
        for inner in ast.iter_child_nodes(node):
            match inner:
                case ast.ClassDef(name=name, body=body):
                    found[outside + name] = dict(documented(body))
                    look(inner, f"{outside}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    look(inner, f"{outside}{name}.<locals>.")
                case ast.expr():
                    pass
                case _:
                    look(inner, outside)

    try:
        source = inspect.getsource(module) if module else ""
        look(ast.parse(source), "")
    except (OSError, TypeError, SyntaxError):
        return {}  # the module has no source file
    return found


class SourceKind(StrEnum):
    """Where a memory can come from (seed 000, "Memory source reference")."""

    ISSUE_COMMENT = "issue_comment"
    ISSUE_DOCUMENT = "issue_document"
    ISSUE = "issue"
    RUN = "run"
    ACTIVITY = "activity"
    MANUAL_NOTE = "manual_note"
    EXTERNAL_DOCUMENT = "external_document"


class OperationType(StrEnum):
    """The type of an operation. The first five are from seed 000; the rest complete the log."""

    WRITE = "write"
    QUERY = "query"
    FORGET = "forget"
    BROWSE = "browse"
    CORRECT = "correct"
    GET = "get"
    HISTORY = "history"
    EXPLAIN = "explain"
    PROFILE = "profile"
    SYNC = "sync"
    CONTEXT = "context"
    """A model's context was assembled."""
    NAMESPACES = "namespaces"
    UNDO = "undo"
    CONFIGURE = "configure"
    CHECK = "check"
    """The outcome of an operation whose status was unknown was looked up."""
    SEAL = "seal"
    """The oldest operations were moved into files; the operation records their SHA-256."""
    PURGE = "purge"
    """Values were erased from the log; the operation lists the operations and fields."""
    EMBED = "embed"
    """Texts were embedded for semantic search."""
    FEEDBACK = "feedback"
    """A caller rated a result as helpful or not; the handle's score is then 1 or 0."""
    REPAIR = "repair"
    """A new database replaced a lost one; the operation states which operations are lost."""
    REVIEW = "review"
    """A person rejected a pending change, or accepted one that another program kept back. Any other
    acceptance is logged as the write itself."""
    GAP = "gap"
    """Calls passed to another memory server and were not logged; it states how many, and when."""

    @property
    def mutates(self) -> bool:
        """Whether this type changes data of a provider or of the control plane."""
        return self in _MUTATIONS


_MUTATIONS = frozenset(
    {
        OperationType.WRITE, OperationType.FORGET, OperationType.CORRECT, OperationType.SYNC,
        OperationType.UNDO, OperationType.CONFIGURE, OperationType.PURGE, OperationType.REPAIR,
        OperationType.REVIEW,
    }
)  # fmt: skip


class OperationStatus(StrEnum):
    """How an operation ended.

    `CANCELLED`: its caller stopped it, which is not a failure. `PENDING`: nothing changes until a
    person accepts it. `UNKNOWN`: it began, and its end was not observed.
    """

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CONFLICT = "conflict"
    CANCELLED = "cancelled"
    PENDING = "pending"
    UNKNOWN = "unknown"


class QueryIntent(StrEnum):
    """The purpose of a query: a preamble goes into a prompt, an answer to a person."""

    AGENT_PREAMBLE = "agent_preamble"
    ANSWER = "answer"
    BROWSE = "browse"


class Matching(StrEnum):
    """Which search answers a query: memtui's, or the one that the provider's own agents use."""

    MEMTUI = "memtui"
    AGENTS = "agents"


class WriteMode(StrEnum):
    """`UPSERT` replaces a record of the same id or key; `SUMMARIZE` lets the provider condense."""

    APPEND = "append"
    UPSERT = "upsert"
    SUMMARIZE = "summarize"


class Capabilities(Model):
    """The optional abilities of a provider, beyond write, query, get and forget."""

    profile: bool = False
    browse: bool = False
    correction: bool = False
    async_ingestion: bool = False
    """A write is searchable later, not at once."""
    multimodal: bool = False
    """Records may be pictures and sounds. All of memtui's providers store text only, and
    `memtui note --file` refuses a picture."""
    provider_managed_extraction: bool = False
    """The provider extracts records of its own from the written text and stores those."""
    writable: bool = True
    """False: the provider is read-only; write, forget and correct raise `Unsupported`."""
    people_only: bool = False
    """Only people change its records: what an agent asks for is refused, or waits for review."""
    sync: bool = False
    explain: bool = False
    history: bool = False
    namespaces: bool = False
    namespace_changes: bool = False
    """Namespaces can be created, given an expiry, browsed one by one and deleted."""
    restore: bool = False
    """`snapshot` and `restore` put a record back exactly as it was, id included."""
    keeps_ids: bool = False
    """A write with a `record_id` stores the record under that id."""
    expiry: bool = False
    pin: bool = False
    validity: bool = False
    """Records have a validity window, and earlier versions are kept."""
    chosen_owners: bool = False
    """A company-wide query or list can be narrowed to the records of given owners."""
    summaries: bool = False
    """A record stores a summary in addition to its text."""
    similar: bool = False
    """Searching is fast and cheap enough to look for near-duplicates at each save."""
    full_text: bool = False
    semantic: bool = False
    given_embeddings: bool = False
    """Writes and queries may carry a vector; other providers ignore it."""
    agents_search: bool = False
    """A query can use the search of the provider's own agents (`Matching.AGENTS`)."""
    watch: bool = False
    links: bool = False
    """Records link to each other, and backlinks are known."""
    tags: bool = False
    """Tags are counted without reading every record."""
    proposals: bool = False
    """Its own programs keep changes back until a person decides: `proposals` lists them."""
    without: bool = False
    """`without` returns a local copy that lacks some records, at no cost."""

    def words(self) -> list[str]:
        """The names of the supported capabilities, for display."""
        names = {"without": "impact"}
        return [names.get(name, name.replace("_", " ")) for name, value in self if value]


class Scope(Model):
    """Whose memory it is: always a company, narrowed by the ids that the caller knows."""

    company_id: Annotated[str, Field(min_length=1, max_length=200)]
    agent_id: str | None = None
    project_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    subject_id: str | None = None
    """The external or user identity that the memory is about."""

    def outside_run(self) -> Self:
        """Return the scope without its run, for operations on a run's memories from outside it."""
        return self.model_copy(update={"run_id": None})


class SourceRef(Model):
    """The provenance handle: the work object that a memory or an operation comes from."""

    kind: SourceKind
    company_id: str
    issue_id: str | None = None
    comment_id: str | None = None
    document_key: str | None = None
    run_id: str | None = None
    activity_id: str | None = None
    external_ref: str | None = None
    """A URL, a path with an optional `:line`, or any reference that the kind's owner knows."""


class Usage(Model):
    """The consumption of one model or provider call."""

    provider: str
    model: str | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    embedding_tokens: Tokens = 0
    cost_usd: Usd | None = None
    """US dollars; None means unpriced, which is not the same as zero."""
    latency_ms: Milliseconds | None = None
    details: Json = {}


def folded(name: str) -> str:
    """Return the form in which names and tags are compared: NFC and case-folded."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()


def has_tag(tags: Iterable[str], wanted: str) -> bool:
    """Whether the wanted tag or a tag below it is among the tags: `a/b` is below `A`."""
    name = folded(wanted)
    return any(tag == name or tag.startswith(f"{name}/") for tag in map(folded, tags))


def distinct_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return each tag once, in the spelling that comes first."""
    found: dict[str, str] = {}
    for tag in tags:
        found.setdefault(folded(tag), tag)
    return tuple(found.values())


Tags = Annotated[tuple[str, ...], AfterValidator(distinct_tags)]


FILE = "whole-file:"
"""What the id of a whole file begins with. It is no record: no list has it, but `snapshot` and
`restore` know it."""


class RecordHandle(Model):
    """The identity of a record: its provider's key and the provider's id for it."""

    provider_key: str
    provider_record_id: Annotated[str, Field(min_length=1)]

    @property
    def is_file(self) -> bool:
        """Whether it is of a whole file (`FILE`), and of no record."""
        return self.provider_record_id.startswith(FILE)


class Location(Model):
    """A file and a line in it, counted from 1, that an editor can open."""

    path: str
    line: int = 1


class Record(Model):
    """One memory as a provider stores it."""

    handle: RecordHandle
    text: str
    scope: Scope
    source: SourceRef | None = None
    title: str | None = None
    summary: str | None = None
    """A shorter form of `text`; where set, it is searched and shown instead."""
    kind: str = "note"
    """The provider's type of the record: note, fact, guidance, reference, summary …"""
    topic: str | None = None
    tags: Tags = ()
    created_at: UtcDatetime | None = None
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    """The principal that wrote it. A principal that is no person may claim an author, who is added:
    `agent:coding (says user:ana)`."""
    expires_at: UtcDatetime | None = None
    """From this moment on the record is not returned."""
    pinned: bool = False
    valid_from: UtcDatetime | None = None
    valid_to: UtcDatetime | None = None
    """End of the validity window; None means that it is still valid."""
    revision: str | None = None
    """Opaque; changes whenever the record does. Base a correction on it."""
    location: Location | None = None
    read_only: bool = False
    """It is read from a source that memtui does not manage: it cannot be changed, moved or pruned.
    """
    problem: str | None = None
    """Why it cannot be read in full; until that is fixed, it is neither changed nor copied."""
    caution: str | None = None
    """What another program may do to a change of it, as a sentence. Its text is corrected, or the
    record forgotten, only for callers who give its revision: they have read the record."""
    metadata: Json = {}

    @property
    def shown(self) -> str:
        """The text for lists and answers: the summary, or else the text (seed 002 §6)."""
        return self.summary or self.text


def holds_at(record: Record, moment: datetime) -> bool:
    """Whether a record is valid, and not expired, at a moment.

    The validity window includes `valid_from` and excludes `valid_to`.
    """
    begins, ends, expires = record.valid_from, record.valid_to, record.expires_at
    return (
        (begins is None or begins <= moment)
        and (ends is None or moment < ends)
        and (expires is None or moment < expires)
    )


class Link(Model):
    """A reference from one record to another, seen from one of the two."""

    target: str
    """The target as written: a name, a title or a path, with an optional `#heading`."""
    words: str | None = None
    """The link's display text."""
    relation: str | None = None
    """The type of the reference, where it is stated."""
    handle: RecordHandle | None = None
    """The record at the other end; None: no record that is visible to the caller."""
    title: str | None = None
    """That record's title, or the first line of its text."""
    scope: Scope | None = None
    """That record's scope."""
    location: Location | None = None
    """Where the reference is written."""


class Links(Model):
    """A record's outgoing links, in the order of its text, and its backlinks."""

    links: tuple[Link, ...] = ()
    backlinks: tuple[Link, ...] = ()
    backlinks_capped: bool = False
    """There are more backlinks than these."""


class TagCount(Model):
    """How many records of one owner have a tag."""

    tag: str
    scope: Scope
    """The owner's."""
    records: int


class Snippet(Record):
    """A record as a query returned it."""

    score: float | None = None
    """Higher is better; comparable only within one reply."""


class Snapshot(Model):
    """A record's complete state at one moment, from which it can be restored.

    `record` is None where the record did not exist. `state` belongs to the adapter and is opaque.
    """

    handle: RecordHandle
    record: Record | None
    state: Json = {}
    replaces: str | None = None
    """The revision that a restore expects to replace; None: it has not been read."""


class Proposal(Model):
    """A change that another program keeps back until a person decides."""

    handle: RecordHandle
    """Of the file in which it waits; it goes with the decision."""
    content: str
    """A digest of that file, so that a changed proposal is another one."""
    operation_type: OperationType
    """`write`, `correct` or `forget`."""
    text: str
    """A summary of the text that it would store."""
    by: str
    """Who proposed it."""
    since: UtcDatetime
    location: Location
    owners: tuple[Scope, ...]
    """The owners of the records that it would change, and of those shown with it."""
    refused: str = ""
    """Why the program does not accept it as things are; empty: it does."""
    before: tuple[Record, ...] = Field(default=(), exclude=True)
    """The texts of the files that it would change."""
    after: tuple[Record, ...] = Field(default=(), exclude=True)
    """The same files, once it is accepted; where none would change, the file in which it waits."""
    accepted: tuple[Snapshot, ...] = Field(default=(), exclude=True)
    """The snapshots that `restore` writes to accept it; the removal of its own file is the last."""
    records: tuple[RecordHandle, ...] = Field(default=(), exclude=True)
    """The records that it would change, add or remove."""


class Measure(StrEnum):
    """A number of an operation that a filter can compare."""

    COST = "cost"
    """US dollars of its priced usage; an operation without a price matches no comparison."""
    LATENCY = "latency"
    """Milliseconds."""
    TOKENS = "tokens"
    """Input, output and embedding tokens together."""
    RESULTS = "results"
    """Records returned or touched."""
    SCORE = "score"
    """The best score of the records returned; without scores it matches no comparison."""


class Comparison(Model):
    """A comparison of an operation's measure with a number."""

    measure: Measure
    sign: Literal["<", "<=", "=", ">=", ">"]
    value: Annotated[
        Decimal,
        Field(ge=-(10**15), le=10**15, decimal_places=12, allow_inf_nan=False),
        AfterValidator(_without_zeros),
    ]

    @model_validator(mode="after")
    def _fits_the_measure(self) -> Self:
        if self.measure in {Measure.TOKENS, Measure.RESULTS} and self.value % 1:
            raise ValueError(f"{self.measure} are whole numbers")
        if self.measure is Measure.COST and abs(self.value) > _MOST_USD:
            raise ValueError(f"cost goes up to {_MOST_USD:,} dollars")
        return self


_MOST_FUZZY = 32
_MOST_WORDS = 200
"""Upper bound of the words, of one field's values and of the comparisons of a filter; a store
refuses longer statements."""


FewT = TypeVar("FewT", bound=Sized)


def _few(given: FewT) -> FewT:
    if len(given.split() if isinstance(given, str) else given) > _MOST_WORDS:
        raise ValueError(f"a filter takes at most {_MOST_WORDS} words or values of a sort")
    return given


class Term(Model):
    """Values of a field, of which an item must have one, or none where `excluded`.

    An item without a value in the field passes an excluding term.
    """

    field: Literal[
        "agent_id", "project_id", "issue_id", "comment_id", "run_id", "subject_id", "source_kind",
        "topic", "tag", "kind", "operation_type", "status", "binding_key", "channel", "principal",
        "text", "fuzzy",
    ]  # fmt: skip
    """A field of `Filter`; `text` and `fuzzy` contain words, and can only be excluded."""
    values: Annotated[
        tuple[str, ...],
        AfterValidator(_few),
        AfterValidator(lambda texts: tuple(dict.fromkeys(texts))),
    ]
    excluded: bool = False

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if not self.values or not all(self.values):
            raise ValueError("a term has values, and none of them is empty")
        kinds = {
            "source_kind": SourceKind, "operation_type": OperationType, "status": OperationStatus,
        }  # fmt: skip
        if (kind := kinds.get(self.field)) is not None:
            for value in self.values:
                kind(value)
        if self.field == "fuzzy" and max(map(len, self.values)) > _MOST_FUZZY:
            raise ValueError(f"a fuzzy word has at most {_MOST_FUZZY} characters")
        words = self.field in {"text", "fuzzy"}
        if not self.excluded and (words or len(self.values) == 1):
            raise ValueError(f"one value, or words that must be there, are {self.field} itself")
        return self


def _in_order(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    if len({(one.field, one.excluded) for one in terms}) < len(terms):
        raise ValueError("a field is asked for, and excluded, once; join the values")
    return tuple(sorted(terms, key=lambda one: (one.field, one.excluded)))


class Use(StrEnum):
    """A property of a record's usage that a filter can test."""

    READ = "read"
    """Seconds since a query or a context last returned the record; None: never."""
    COST = "cost"
    """Tokens of the record's line in each context that contains it."""
    DUP = "dup"
    """Whether it duplicates another record, which is the one to keep."""
    RISK = "risk"
    """What is wrong with it (`RISKS`), or how far that is known (`RISK_STATES`)."""


RISKS_BY_SEVERITY: dict[str, tuple[str, ...]] = {
    "dangerous": ("poisoned", "holds_secret"),
    "contradicting": ("contradicted", "says_otherwise", "disagrees"),
    "outdated": ("refers_to_gone", "source_changed"),
    "doubled": ("exact_duplicate", "near_duplicate"),
}
"""The reasons of pruning (`memtui.pruning.candidates.Reason`) for which a record is a risk, by
severity; the worst first."""
RISKS = tuple(reason for reasons in RISKS_BY_SEVERITY.values() for reason in reasons)
RISK_STATES = ("any", "none", "unchecked", "dismissed")
"""A risk that nobody dismissed, no such risk, not known yet, and a risk that somebody dismissed."""


def severity_of(reasons: Iterable[str]) -> str | None:
    """Return the severity of the worst of some reasons; None: none is a risk."""
    there = frozenset(reasons)
    found = (one for one, among in RISKS_BY_SEVERITY.items() if not there.isdisjoint(among))
    return next(found, None)


MOST_OF_A_USE = 10**10
"""Upper bound of usage filters, in seconds or tokens."""


class UseTest(Model):
    """A condition on a record's usage; the service evaluates it, without asking a provider."""

    use: Use
    sign: Literal["<", "<=", "=", ">=", ">"] = "="
    value: Annotated[int, Field(ge=0, le=MOST_OF_A_USE)] | None = None
    excluded: bool = False
    among: tuple[str, ...] = ()
    """For a risk: any of these."""

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        signs: dict[Use, set[str]] = {
            Use.RISK: {"="} if self.among and {*RISKS, *RISK_STATES} >= {*self.among} else set(),
            Use.READ: {"="} if self.value is None else {"<", ">"},
            Use.COST: set() if self.value is None else {self.sign},
            Use.DUP: {"="} if self.value is None else set(),
        }
        if self.sign not in signs[self.use]:
            raise ValueError(f"{self.use} cannot be {self.sign} {self.value}")
        return self


class FieldTest(NamedTuple):
    """A filter's condition on one field: it has one of the values, or none where `excluded`."""

    field: str
    values: tuple[str, ...]
    excluded: bool = False


class Filter(Model):
    """The one filter of every screen and command; unset fields do not narrow.

    Records honour the scope, source, time (`created_at`), topic, tag, kind, text and fuzzy fields;
    operations honour the scope, source, time (`started_at`), type, status, binding, channel,
    principal, text and fuzzy fields and the comparisons (`memtui.filters.SUPPORTED`). `field_tests`
    yields most of them in one form.
    """

    agent_id: str | None = None
    project_id: str | None = None
    issue_id: str | None = None
    """In the scope or the source, like `run_id`."""
    comment_id: str | None = None
    """In the source."""
    run_id: str | None = None
    subject_id: str | None = None
    source_kind: SourceKind | None = None
    since: UtcDatetime | None = None
    """Inclusive."""
    until: UtcDatetime | None = None
    """Exclusive."""
    text: Annotated[str, AfterValidator(_few)] | None = None
    """Every word must occur, whatever its case."""
    fuzzy: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=_MOST_FUZZY)], ...],
        AfterValidator(_few),
    ] = ()
    """Each must match, by the rules of `memtui.fuzzy`, where `text` is searched."""
    topic: str | None = None
    tag: str | None = None
    """Also matches the tags below it: `ops` matches `ops/oncall`."""
    kind: str | None = None
    operation_type: OperationType | None = None
    status: OperationStatus | None = None
    binding_key: str | None = None
    channel: str | None = None
    principal: str | None = None
    """`agent:` without a name matches every agent."""
    comparisons: Annotated[tuple[Comparison, ...], AfterValidator(_few)] = ()
    """All of them must hold."""
    terms: Annotated[tuple[Term, ...], AfterValidator(_in_order)] = ()
    """All of them must hold, as must the fields. At most two per field, one of them excluding."""
    uses: tuple[UseTest, ...] = ()
    """All of them must hold; of operations only risks, those of the records that they changed."""
    alternatives: Annotated[tuple["Filter", ...], AfterValidator(_few)] = ()
    """One of them must hold too, if there are any; none of them has alternatives itself."""
    internal: bool = False
    """Include memtui's own reads; ignored where a channel is named."""

    def field_tests(self) -> Iterator[FieldTest]:
        """Yield the conditions on fields, except times, required words and comparisons."""
        for field in _VALUED:
            if (value := getattr(self, field)) is not None:
                yield FieldTest(field, (value,))
        yield from (FieldTest(one.field, one.values, one.excluded) for one in self.terms)

    def any_of(self, field: str) -> tuple[str, ...]:
        """Return the values that a field may have; empty where the filter does not restrict it."""
        found = (
            one.values for one in self.field_tests() if one.field == field and not one.excluded
        )
        return next(found, ())

    def allows(self, field: str, value: str | None) -> bool:
        """Whether a field's value, or None for no value, passes the conditions on that field."""
        return all(
            (value in one.values) != one.excluded
            for one in self.field_tests()
            if one.field == field
        )

    def narrowed_to(self, **values: object) -> Self:
        """Return the filter with fields set to single values, in place of their any-of terms."""
        kept = tuple(one for one in self.terms if one.excluded or one.field not in values)
        return self.model_copy(update={**values, "terms": kept})

    @property
    def excludes_internal(self) -> bool:
        """Whether memtui's own reads are left out."""
        tests = (test for one in (self, *self.alternatives) for test in one.field_tests())
        return not self.internal and all(test.field != "channel" for test in tests)

    def with_internal(self) -> Self:
        """Return the filter with memtui's own reads included."""
        return self.model_copy(update={"internal": True})


_VALUED = [
    name
    for name in get_args(Term.model_fields["field"].annotation)
    if name not in {"text", "fuzzy"}
]

EVERYTHING = Filter(internal=True)
"""Matches every operation."""

OWNER_FIELDS = ("project_id", "subject_id", "agent_id")
"""The scope fields that can own a record, by precedence: the first one set is the owner of a write,
or else the company. The others only state where the record comes from."""

ORCHESTRATOR = "orchestrator"
"""The agent whose facts go into the context of every project and agent type (seed 002 §7)."""


def owner_of(scope: Scope) -> tuple[str, str]:
    """Return the owner of records written in a scope: its scope field and its id."""
    for field in OWNER_FIELDS:
        if value := getattr(scope, field):
            return field, value
    return "company_id", scope.company_id


_OWNER_WORDS = {"project_id": "project", "subject_id": "user", "agent_id": "agent"}


def owner_words(scope: Scope) -> str:
    """Name the owner of records written in a scope: `project apollo`, `company acme`."""
    field, name = owner_of(scope)
    return f"{_OWNER_WORDS.get(field, 'company')} {name}"


def owner_scope(scope: Scope) -> Scope:
    """Return a scope of the company and the owner only."""
    return Scope(**{"company_id": scope.company_id, **dict([owner_of(scope)])})


def owner_scopes(scope: Scope) -> list[Scope]:
    """Return one scope per owner that a scope names, the owner of its writes first."""
    company = {"company_id": scope.company_id}
    named = [(field, getattr(scope, field)) for field in OWNER_FIELDS]
    own = [Scope.model_validate({**company, field: value}) for field, value in named if value]
    return own or [Scope(**company)]


def sees(scope: Scope, owner: Scope) -> bool:
    """Whether a scope sees an owner's records by the usual rule: no id set in both differs."""
    pairs = [(getattr(scope, name), getattr(owner, name)) for name in OWNER_FIELDS]
    return scope.company_id == owner.company_id and not any(
        asked is not None and value is not None and asked != value for asked, value in pairs
    )


def own_filter(scope: Scope, *, kind: str | None, topic: str | None = None) -> Filter:
    """Return a filter for an owner's records; a few others may match too, so filter by `owned`."""
    field, value = owner_of(scope)
    ids = {field: value} if field in OWNER_FIELDS else {}
    return Filter.model_validate({"kind": kind, "topic": topic, **ids})


def owned(records: Iterable[Record], scope: Scope) -> list[Record]:
    """Return the records of the scope's owner; a company scope owns every record."""
    owner = owner_of(scope)
    if owner[0] == "company_id":
        return list(records)
    return [record for record in records if owner_of(record.scope) == owner]


class WriteRequest(Model):
    """Store `content`. The service resolves a `binding_key` of None before an adapter sees it."""

    scope: Scope
    source: SourceRef | None
    """None: unknown, for a record that is stored again."""
    content: Annotated[str, Field(min_length=1)]
    binding_key: str | None = None
    mode: WriteMode = WriteMode.APPEND
    metadata: Json = {}
    record_id: str | None = None
    """The id to store it under; capability `keeps_ids`."""
    kind: str = "note"
    title: str | None = None
    summary: str | None = None
    """Searched and shown in place of `content`, which opens as the original (seed 002 §6)."""
    topic: str | None = None
    tags: Tags = ()
    pinned: bool = False
    created_at: UtcDatetime | None = None
    """When the memory was created, if not now."""
    created_by: str | None = None
    users: tuple[str, ...] = ()
    """Names by which an application's own tables may know the person behind the write, best first;
    the service sets them."""
    expires_at: UtcDatetime | None = None
    valid_from: UtcDatetime | None = None
    """Start of the validity window, if not now; capability `validity`."""
    valid_to: UtcDatetime | None = None
    """End of the validity window, exclusive; capability `validity`."""
    embedding: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _has_a_window(self) -> Self:
        if self.valid_from and self.valid_to and self.valid_to <= self.valid_from:
            raise ValueError("the window must end after it begins")
        return self


class WriteReply(Model):
    """`records` may be empty with capability `async_ingestion`."""

    records: tuple[RecordHandle, ...] = ()
    before: tuple[Snapshot, ...] = ()
    """With capability `restore`: one snapshot per record, in order, from before the write. A new
    record's snapshot has no record. Without it: those of the records that it changed."""
    event: str | None = None
    """Set: the provider stores later, and `Adapter.ingested` returns what came of this event."""
    lacking: str = ""
    """A sentence on what the stored record lacks, such as a vector; empty: nothing."""
    usage: tuple[Usage, ...] = ()


class QueryRequest(Model):
    """Find the records of `scope` that are relevant to `query`."""

    scope: Scope
    query: str
    binding_key: str | None = None
    top_k: Annotated[int, Field(ge=1, le=1000)] = 10
    intent: QueryIntent = QueryIntent.ANSWER
    max_tokens: Annotated[int, Field(ge=1)] | None = 500
    """Upper bound for the texts of a preamble, by the provider's estimate; None: no limit."""
    filter: Filter = Filter()
    """Return only matching records. An adapter may ignore it: the service filters the snippets
    again and asks for more where too few match."""
    metadata_filter: Json = {}
    topic: str | None = None
    as_of: UtcDatetime | None = None
    """Search the records that were valid at that moment; capability `validity`."""
    embedding: tuple[float, ...] | None = None
    owners: tuple[Scope, ...] = ()
    """Only the records of these owners; capability `chosen_owners`."""
    helped: frozenset[str] = frozenset()
    """Ids of records that were rated helpful, which a preamble may rank higher; set by the service.
    """
    matching: Matching = Matching.MEMTUI
    """`AGENTS`: use the search of the provider's own agents; capability `agents_search`."""


class ExplainStage(Model):
    """One stage of a retrieval, and its scores by record id."""

    name: str
    detail: str
    scores: Mapping[str, float] = {}

    def of(self, ids: Container[str]) -> Self:
        """Return the stage with the scores of these records alone."""
        scores = {name: score for name, score in self.scores.items() if name in ids}
        return self.model_copy(update={"scores": scores})


class ContextBundle(Model):
    """The results of a query, best first."""

    snippets: tuple[Snippet, ...] = ()
    profile_summary: str | None = None
    """The provider's summary of the scope; for a preamble the service calls `profile` instead."""
    usage: tuple[Usage, ...] = ()
    capped: bool = False
    """True: the provider truncated the reply; more records may match."""
    stages: tuple[ExplainStage, ...] = ()
    """The stages of the retrieval, where the provider returns them with the results. They are
    logged with the query, so they quote neither the query nor a record."""


class ForgetRequest(Model):
    """Remove records. `revisions` maps record ids to the revisions that the caller read."""

    scope: Scope
    handles: tuple[RecordHandle, ...]
    binding_key: str | None = None
    revisions: Mapping[str, str] = {}
    source: SourceRef | None = None
    """The work object that the change is made for."""

    @classmethod
    def of(cls, records: Sequence[Record], scope: Scope, binding_key: str | None = None) -> Self:
        """Return a request with the records' revisions, so that a changed one is a `Conflict`."""
        return cls(
            scope=scope,
            binding_key=binding_key,
            handles=tuple(one.handle for one in records),
            revisions={
                one.handle.provider_record_id: one.revision for one in records if one.revision
            },
        )


class ForgetReply(Model):
    """`missing` are handles that named no record; forgetting them is not an error."""

    missing: tuple[RecordHandle, ...] = ()
    refused: Mapping[str, str] = {}
    """The records that were not removed: a reason by id, one sentence for a person."""
    usage: tuple[Usage, ...] = ()


class CorrectRequest(Model):
    """Change one record. A field left None stays as it is."""

    scope: Scope
    handle: RecordHandle
    binding_key: str | None = None
    text: str | None = None
    revision: str | None = None
    """The revision the change is based on; None skips the check."""
    pinned: bool | None = None
    summary: str | None = None
    """An empty string removes the summary."""
    topic: str | None = None
    tags: Tags | None = None
    expires_at: UtcDatetime | None = None
    never_expires: bool = False
    """Remove the expiry; not together with `expires_at`."""
    source: SourceRef | None = None
    """The work object that the change is made for."""
    created_by: str | None = None
    """Author of the new text, for a provider that stores an author per version."""

    @model_validator(mode="after")
    def _has_one_expiry(self) -> Self:
        if self.never_expires and self.expires_at is not None:
            raise ValueError("a record either expires or never does")
        return self

    @property
    def sets_expiry(self) -> bool:
        """Whether the request sets the expiry; `expires_at` None then removes it."""
        return self.never_expires or self.expires_at is not None

    def changes(self, *fields: str) -> Json:
        """Return the values of those fields of a record that the request sets."""
        found = {name: value for name in fields if (value := getattr(self, name)) is not None}
        if "expires_at" in fields and self.never_expires:
            found["expires_at"] = None
        return found


class CorrectReply(Model):
    """`handle` differs from the request's where the record got a new id."""

    handle: RecordHandle
    usage: tuple[Usage, ...] = ()
    lacking: str = ""
    """As in `WriteReply`."""


class BrowseRequest(Model):
    """Return one page of the stored records, sorted by a field rather than by relevance."""

    scope: Scope
    binding_key: str | None = None
    filter: Filter = Filter()
    sort: str = "-updated_at"
    """A record field, `-` for descending; adapters support created_at, updated_at, title, size."""
    cursor: str | None = None
    """The previous page's `next_cursor`; opaque."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    namespace: str | None = None
    """Only the records of this namespace; capability `namespace_changes`."""
    owners: tuple[Scope, ...] = ()
    """Only the records of these owners; capability `chosen_owners`."""
    expired: bool = False
    """Include expired records that are still stored, where the provider can tell."""
    as_of: UtcDatetime | None = None
    """List the records that were valid at that moment; capability `validity`."""
    links: bool = False
    """Include links and backlinks, where the provider knows them; the service gets them from
    `Adapter.links`."""


class BrowsePage(Model):
    """One page of records. `total` None: unknown; `at_least`: the true total may be larger."""

    records: tuple[Record, ...] = ()
    next_cursor: str | None = None
    total: int | None = None
    at_least: bool = False
    unread: tuple[str, ...] = ()
    """Sentences on the limits of this page: where `at_least`, the parts that were not read and the
    setting that raises the limit; and facts that are unknown for these records."""
    unfinished: bool = False
    """The provider ran out of time; requesting the first page again continues its search."""
    usage: tuple[Usage, ...] = ()


class RecordVersion(Model):
    """One version of a record; a history lists the newest first."""

    text: str
    valid_from: UtcDatetime | None = None
    valid_to: UtcDatetime | None = None
    created_by: str | None = None
    source: SourceRef | None = None


class Profile(Model):
    """A provider's synthesis of stable preferences or facts of a scope."""

    summary: str
    usage: tuple[Usage, ...] = ()


class SyncReply(Model):
    """The records that a sync or re-index read, changed and removed."""

    seen: int = 0
    changed: int = 0
    removed: int = 0
    usage: tuple[Usage, ...] = ()


class EraseRequest(Model):
    """Erase for good the remains of deleted records; existing records are untouched."""

    scope: Scope
    """A project or subject: the remains of all its deleted records. A company scope adds none."""
    record_ids: tuple[str, ...] = ()
    """Deleted records."""
    apply: bool = False
    """False: only report the remains."""


class EraseReply(Model):
    """The remains of deleted records that a provider still has, or has erased."""

    kept: Mapping[str, int] = {}
    """Number of versions, rows or words, by the place where they are stored."""
    texts: tuple[str, ...] = ()
    """Their texts, so that other copies can be searched for."""
    record_ids: tuple[str, ...] = ()
    """The deleted records that were found."""
    folders: tuple[Path, ...] = ()
    """Files and folders outside of the `data_dir` in which the provider stores memories."""
    beyond: tuple[str, ...] = ()
    """One sentence per copy that the provider cannot erase."""


class Explanation(Model):
    """The stages by which a query was answered."""

    stages: tuple[ExplainStage, ...]
    usage: tuple[Usage, ...] = ()


class Namespace(Model):
    """A partition of a provider. `records` None: their number is unknown."""

    name: str
    kind: str
    records: int | None = None
    expires_at: UtcDatetime | None = None
    metadata: Json = {}


class Problem(Model):
    """Something stored that a provider cannot read in full, and its place."""

    message: str
    location: Location | None = None
    scope: Scope | None = None
    """The memory's owner, where it is known; shown only to callers that may see this scope."""
    search_only: bool = False
    """It affects semantic search only; lists and records are complete."""

    def sentence(self) -> str:
        """Return the message for a person, after its file and line."""
        place = self.location
        return f"{place.path}:{place.line}: {self.message}" if place else self.message


class Embedding(Model):
    """The progress of embedding a provider's texts for semantic search."""

    model: str
    """The configured model."""
    dimensions: int | None = None
    texts: int
    """Number of distinct texts."""
    embedded: int
    """Number of distinct texts that have a vector of this model."""
    serving: str | None = None
    """The model whose vectors answer queries now; None: search is by words only."""
    address: str | None = None
    """The remote server that texts are sent to, as `https://host:port`."""
    agreed: bool = True
    """Whether the company has agreed that texts go to that address."""

    @property
    def is_done(self) -> bool:
        """Whether every text is embedded and this model answers queries."""
        return self.embedded == self.texts and (self.serving == self.model or not self.texts)


class EmbedReply(Model):
    """The progress of embedding after one call of `Adapter.embed`."""

    embedding: Embedding
    usage: tuple[Usage, ...] = ()


class Health(Model):
    """Whether a provider can serve now. `degraded`: its answers are incomplete."""

    status: Annotated[str, Field(pattern="^(ok|degraded|down)$")] = "ok"
    message: str = ""
    version: str | None = None
    records: int | None = None
    problems: tuple[Problem, ...] = ()
    embedding: Embedding | None = None
    """Set where the provider embeds texts itself; None: it does not, or no model is configured."""
    first: tuple[str, ...] = ()
    """The texts of the first records, which memtui reads where a binding is only tried."""


class BindingContext(Model):
    """The arguments that an adapter is opened with."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    company_id: str
    binding_key: str
    config: Json = {}
    read_only: bool = False
    data_dir: Path
    """This binding's private folder, for state that may be deleted, such as an index."""
    secret: Callable[[str], str | None] = lambda _name: None
    """Looks a secret up by name in the system keyring or the environment."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    redact: Callable[[str], str] = lambda text: text
    """Removes the secrets from a text before it leaves this machine."""
    agreed: frozenset[str] = frozenset()
    """Remote addresses (`https://host:port`) that texts may be sent to for embedding."""


def place_of_path(path: Path) -> tuple[str, ...]:
    """Return the place of a file or folder for `Adapter.places`, links resolved. Blocking."""
    return ("path", *Path(os.path.realpath(path.expanduser())).parts)


def place_of_url(url: str) -> tuple[str, ...]:
    """Return the place of a URL for `Adapter.places`; all loopback hosts are `localhost`."""
    parts = urlsplit(url)
    host = (parts.hostname or "localhost").rstrip(".")
    port = parts.port or _PORTS.get(parts.scheme)
    own = "localhost" if host in _THIS_MACHINE else host
    return "url", f"{own}:{port}{parts.path.rstrip('/')}"


_PORTS = {"http": 80, "https": 443, "postgresql": 5432}
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared


class Adapter(ABC):
    """A memory provider behind the contract.

    Required: `write`, `query`, `get`, `forget`. To offer an optional method, override it and set
    its capability: the service calls no method whose capability is unset. It calls from one event
    loop, several methods at a time.

    A handle's `provider_key` is the provider's name (`key`). An adapter only sees scopes of one
    company: it is opened once per binding, and a binding belongs to one company.
    """

    key: ClassVar[str]
    """The provider's name, the same as its entry point."""
    config_model: ClassVar[type[BaseModel]]
    """Validates the binding's config; its docstrings are the provider's documentation."""
    capabilities: Capabilities = Capabilities()
    only_facts: ClassVar[bool] = False
    """It stores facts only: lines without kind and title."""
    workspaces: Mapping[str | None, Path] = {}
    """The folders that its records are about, by project; None: the one of all its records."""
    lacks: frozenset[str] = frozenset()
    """The record fields that it cannot store, apart from those its capabilities cover; the service
    fills them in from its log. An instance may set other fields than its class. A provider that
    lacks `metadata` cannot store the other fields there either."""
    keeps: ClassVar[str] = ""
    """A sentence on what another program keeps of deleted records, which a purge cannot erase."""
    pinned_weight: ClassVar[float] = 1.0
    """The factor by which a query multiplies a pinned record's score."""
    numbers_equals: ClassVar[bool] = False
    """It numbers records of equal ids in a file by their order (`ID`, `ID~2`), so that each has the
    id of another where one is missing: an undo brings them back together."""
    speaks_plugin_contract: ClassVar[bool] = False
    """It is a client of a memory plugin, which `memtui bindings conformance` can check."""

    @classmethod
    @abstractmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the provider. Raises `Invalid` for a bad config, `Unavailable` if it is down."""

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the places where a binding stores records, so that no two companies share one.

        A place is a path of words from the outermost in, and contains every place that begins with
        it, as a folder does. `place_of_path` and `place_of_url` return the usual ones; append
        words, such as a table, to narrow them. Equal stores must have equal places. Empty: no other
        binding can reach the store. The binding's `data_dir` may be left out. Blocking; it must not
        open the provider.
        """
        del context
        return ()

    @classmethod
    def starts(cls, config: Json) -> str | None:
        """Return the command line that a binding starts; None: none.

        It is called with a checked config. memtui opens the binding only once a person has agreed
        to exactly this text. It never blocks.
        """
        del config
        return None

    @classmethod
    def lives_in(cls, data_dir: Path) -> bool | None:
        """Whether a binding's `data_dir` contains its records; None: it never contains any.

        A repair recognises a lost binding's provider by it. Blocking; it must not open the
        provider.
        """
        del data_dir
        return None

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Return where a write in a scope is stored: a folder, a namespace, an owner.

        It neither blocks nor opens the provider. None: unknown before the write. Raises `Invalid`
        if the provider has no place for the scope.
        """
        del config, scope
        return None

    @classmethod
    def home_of_copy(cls, config: Json, record: Record) -> str | None:
        """Return where a copy of another binding's record is stored, by default as `home_of`."""
        return cls.home_of(config, record.scope)

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a record that a write would refuse; the provider is not opened."""
        del config, record

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether `browse` lists an owner's records for a scope. It never blocks.

        memtui asks it of records of the past, which the provider no longer has.
        """
        return sees(scope, owner)

    def sees(self, scope: Scope, record: Record) -> bool:
        """Whether `query` and `get` find a record, present or past, in a scope. It never blocks."""
        return self.lists(scope, record.scope)

    async def close(self) -> None:
        """Release connections and watchers; the adapter is not used afterwards."""
        return

    @abstractmethod
    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record, durably once this returns (except with `async_ingestion`)."""

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        """Return the outcome of a write that is stored later; None: it is not stored yet.

        Capability `async_ingestion`.

        Raises:
            NotFound: the provider no longer knows the event.
            Invalid: it failed, for the reason in the sentence, and nothing was stored.
        """
        raise Unsupported(f"The provider {self.key} stores at once.")

    @abstractmethod
    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return at most `top_k` snippets, best first; without a match, an empty bundle."""

    @abstractmethod
    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record, or None where there is none in this scope."""

    @abstractmethod
    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records. Raises `Conflict`, removing none, if a given revision is stale."""

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page of records; capability `browse`."""
        raise Unsupported(f"The provider {self.key} cannot be browsed.")

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record; capability `correction`. Raises `NotFound`, `Conflict`."""
        raise Unsupported(f"The provider {self.key} cannot correct a record in place.")

    async def profile(self, scope: Scope) -> Profile:
        """Summarise a scope; capability `profile`."""
        raise Unsupported(f"The provider {self.key} makes no profiles.")

    async def sync(self, source: SourceRef | None = None) -> SyncReply:
        """Read the outside source again, or rebuild derived state; capability `sync`.

        With a `source`, only that one is read. Raises `Unsupported` where this is not possible.
        """
        raise Unsupported(f"The provider {self.key} has nothing to sync.")

    async def embed(self, most: int) -> EmbedReply:
        """Embed at most `most` texts that lack a vector of the configured model; 0 only reports.

        Once all texts are embedded, queries switch to that model. While another process embeds,
        nothing is done. Called where `Health.embedding` is set; in a read-only binding it changes
        only files of the `data_dir`.
        """
        raise Unsupported(f"The provider {self.key} embeds no texts.")

    async def explain(self, request: QueryRequest) -> Explanation:
        """Return the stages by which a query is answered; capability `explain`."""
        raise Unsupported(f"The provider {self.key} does not explain its results.")

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a record's versions, newest first; capability `history`."""
        raise Unsupported(f"The provider {self.key} keeps no history.")

    async def versions(self, scope: Scope) -> Sequence[Record]:
        """Return every version of the records visible to a scope; capability `validity`.

        Deleted and expired records are included. Each version has its validity window. The versions
        of a record are adjacent, the oldest first, and their windows do not overlap. A record whose
        past the provider does not keep, such as a file that is edited in place, is left out.
        """
        raise Unsupported(f"The provider {self.key} keeps no versions of its records.")

    async def links(self, handles: Sequence[RecordHandle], scope: Scope) -> Mapping[str, Links]:
        """Return the links and backlinks of records, by record id; capability `links`.

        Records without links are left out, as are link ends that `scope` does not see.
        """
        raise Unsupported(f"The provider {self.key} knows of no links.")

    async def tags(self, scope: Scope) -> Sequence[TagCount]:
        """Count the tags of the records that `browse` lists for a scope; capability `tags`."""
        raise Unsupported(f"The provider {self.key} counts no tags.")

    async def namespaces(self) -> Sequence[Namespace]:
        """List the provider's partitions; capability `namespaces`."""
        raise Unsupported(f"The provider {self.key} has no namespaces.")

    async def create_namespace(
        self, name: str, *, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Create a namespace, or replace it entirely; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} makes no namespaces.")

    async def patch_namespace(
        self, name: str, *, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Set a namespace's expiry, or replace its metadata; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} changes no namespaces.")

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace and its records, irreversibly; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} removes no namespaces.")

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's complete state, in order; capability `restore`."""
        raise Unsupported(f"The provider {self.key} takes no snapshots.")

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put records back exactly as they were; capability `restore`.

        For a snapshot without a record, the record is removed. Raises `Conflict` if a record's
        place is taken by something else.
        """
        raise Unsupported(f"The provider {self.key} cannot restore a record.")

    async def proposals(self, scope: Scope) -> Sequence[Proposal]:
        """Return what waits in the other program for a decision; capability `proposals`.

        To accept one, the service restores `Proposal.accepted`; to refuse it, a snapshot of its
        handle without a record.
        """
        raise Unsupported(f"The provider {self.key} has no changes that wait.")

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the unreadable items that reads of `scope` omit; called after every read.

        A provider that has no such problems, or raises errors for them, need not override this.
        """
        return ()

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase the remains of deleted records: versions, words, index entries.

        A provider that keeps nothing of a deleted record, or nothing that it can erase (`keeps`),
        need not override this.
        """
        return EraseReply(beyond=(self.keeps,) if self.keeps else ())

    def made_of(self, record: Record, source: Record) -> bool:
        """Whether the provider itself made a record of another one, by what `record` says of that.

        A provider that makes no records need not override this.
        """
        return False

    async def without(self, record_ids: Collection[str]) -> "Adapter":
        """Return a copy of the present state without some records; capability `without`.

        The copy answers `query` and `browse` as this adapter would once the records were forgotten,
        including their ranks. It is a read-only snapshot, costs nothing, sends nothing to another
        machine, and is discarded when closed. Unknown ids are ignored. Raises `Unsupported` where
        the config rules it out.
        """
        raise Unsupported(f"The provider {self.key} cannot be read without some of its records.")

    async def health(self) -> Health:
        """Return whether the provider can serve. Cheap; never raises because it is down."""
        return Health()

    def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the handles of records changed outside of memtui; capability `watch`."""
        raise Unsupported(f"The provider {self.key} cannot be watched.")
