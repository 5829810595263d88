"""What every memory provider and every caller share.

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
    ├── Invalid       the request cannot be right whoever sends it
    └── Unsupported   the provider has no such ability
"""

from __future__ import annotations

import os
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
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

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

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
"""A timezone-aware moment, kept in UTC."""

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
"""What many of these come to."""

Tokens = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of tokens that any database can hold."""

Milliseconds = Annotated[float, Field(allow_inf_nan=False)]


class MemtuiError(Exception):
    """Base of every error that memtui raises on purpose; its text is one sentence for a person."""

    @property
    def kind(self) -> str:
        """Which of this module's errors it is, also where it is a subclass: `NotFound`."""
        kinds = (kind.__name__ for kind in type(self).__mro__ if MemtuiError in kind.__bases__)
        return next(kinds, type(self).__name__)

    details: Mapping[str, object] = {}
    """What a program is told besides, by name: the rows of a file that do not fit."""

    moved: RecordHandle | None = None
    """The handle that a record has now, where a correction failed and put it back as a new one."""


class Unavailable(MemtuiError):
    """The provider could not be reached, timed out, or answered something unreadable.

    `sent` tells whether the request may have reached the provider; for a mutation that means the
    outcome is unknown. `operation_id` then names the operation, once it is logged.
    """

    def __init__(
        self, message: str, *, sent: bool = False, operation_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.operation_id = operation_id


class NotFound(MemtuiError):
    """What was asked for does not exist in the scope it was asked in."""


class Conflict(MemtuiError):
    """The record is no longer what the caller based its change on.

    `current` is the record as the provider holds it now (None: it is gone), `proposed` the text
    the caller wanted to put there.
    """

    def __init__(
        self, message: str, *, current: Record | None = None, proposed: str | None = None
    ) -> None:
        super().__init__(message)
        self.current = current
        self.proposed = proposed


class Denied(MemtuiError):
    """The caller is not allowed to do this, or the target is read-only."""


class Invalid(MemtuiError):
    """The request is malformed or out of bounds."""


class Unsupported(MemtuiError):
    """The provider does not offer this ability; its capabilities say so."""


class Model(BaseModel):
    """Base of the contract's values: frozen, no unknown fields.

    A command pays for what it uses: a class is built when it is first validated, and its fields'
    docstrings are read when its JSON schema is asked for. What does not fit is not repeated in the
    error: it may be a memory, or a secret, and errors go to the log file.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True
    )

    @classmethod
    def like(cls, other: object, **given: Any) -> Self:
        """Return the value with the fields that another has under the same names, and `given`."""
        shared = {
            name: getattr(other, name)
            for name in cls.__pydantic_fields__
            if name not in given and hasattr(other, name)
        }
        return cls(**shared, **given)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Describe the fields in their docstrings' words."""
        reference = super().__get_pydantic_json_schema__(core_schema, handler)
        properties = handler.resolve_ref_schema(reference).get("properties", {})
        for name, words in field_docstrings(cls).items():
            if name in properties:
                properties[name].setdefault("description", words)
        return reference


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands below each field of a class and its bases, as far as there is source."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base not in {BaseModel, Model}:
            found |= _docstrings_in(sys.modules.get(base.__module__)).get(base.__qualname__, {})
    return found


@cache  # a schema asks for each class in it, and a file of many takes long to parse
def _docstrings_in(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """Return what stands below the fields of the classes of a module, by their qualified names."""
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
        return {}  # it was made without a file
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
    """What an operation did. The first five are seed 000's; the rest make the log complete."""

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
    """What a model will see was assembled."""
    NAMESPACES = "namespaces"
    UNDO = "undo"
    CONFIGURE = "configure"
    CHECK = "check"
    """What became of an operation of unknown outcome was looked up."""
    SEAL = "seal"
    """The oldest operations were moved into files, whose SHA-256 it holds."""
    PURGE = "purge"
    """Values were erased; it says of which operations and fields."""
    EMBED = "embed"
    """Texts were embedded, so that they are found by meaning."""
    FEEDBACK = "feedback"
    """Somebody said of a result that it helped, or did not; the handle's score is 1 or 0 then."""
    REPAIR = "repair"
    """A new database took the place of a lost one; it says which operations are lost."""
    REVIEW = "review"
    """A person refused what was held for review. An acceptance is the write itself."""

    @property
    def mutates(self) -> bool:
        """Whether it changes what a provider or the control plane holds."""
        return self in _MUTATIONS


_MUTATIONS = frozenset(
    {
        OperationType.WRITE,
        OperationType.FORGET,
        OperationType.CORRECT,
        OperationType.SYNC,
        OperationType.UNDO,
        OperationType.CONFIGURE,
        OperationType.PURGE,
        OperationType.REPAIR,
        OperationType.REVIEW,
    }
)


class OperationStatus(StrEnum):
    """How an operation ended.

    `CANCELLED`: whoever asked for it stopped it, which is not a failure. `PENDING`: nothing is
    changed until a person lets it. `UNKNOWN`: it was begun and nobody saw its end.
    """

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CONFLICT = "conflict"
    CANCELLED = "cancelled"
    PENDING = "pending"
    UNKNOWN = "unknown"


class QueryIntent(StrEnum):
    """What a query is for; a preamble goes into a prompt, an answer to a person."""

    AGENT_PREAMBLE = "agent_preamble"
    ANSWER = "answer"
    BROWSE = "browse"


class Matching(StrEnum):
    """Whose search answers a query: what memtui finds, or what the provider's own agents would."""

    MEMTUI = "memtui"
    AGENTS = "agents"


class WriteMode(StrEnum):
    """`UPSERT` replaces a record of the same id or key; `SUMMARIZE` lets the provider condense."""

    APPEND = "append"
    UPSERT = "upsert"
    SUMMARIZE = "summarize"


class Capabilities(Model):
    """What a provider can do beyond write, query, get and forget."""

    profile: bool = False
    browse: bool = False
    correction: bool = False
    async_ingestion: bool = False
    """A write is searchable later, not at once."""
    multimodal: bool = False
    """It keeps pictures and sounds. None of memtui's providers does: they keep text alone, and
    `memtui note --file` refuses a picture."""
    provider_managed_extraction: bool = False
    """What is written is not what is stored: the provider extracts its own records from it."""
    writable: bool = True
    """False: the provider only reads; write, forget and correct raise `Unsupported`."""
    sync: bool = False
    explain: bool = False
    history: bool = False
    namespaces: bool = False
    namespace_changes: bool = False
    """Namespaces can be made, given an expiry, browsed one by one, and removed."""
    restore: bool = False
    """`snapshot` and `restore` put a record back exactly as it was, id included."""
    keeps_ids: bool = False
    """A write with a `record_id` stores the record under that id."""
    expiry: bool = False
    pin: bool = False
    validity: bool = False
    """Records carry a validity window; history of a key is kept."""
    chosen_owners: bool = False
    """A query or a list of the company can be narrowed to what some scopes own."""
    summaries: bool = False
    """A record keeps a summary beside its text."""
    similar: bool = False
    """A search is so quick and cheap that each save may look for what is as good as there."""
    full_text: bool = False
    semantic: bool = False
    given_embeddings: bool = False
    """A text to keep and a query may bring their vectors; else those are left out."""
    agents_search: bool = False
    """A query can be answered as the provider answers its own agents, who do not ask memtui."""
    watch: bool = False
    links: bool = False
    """Records refer to each other, and it is known what refers to one."""
    tags: bool = False
    """The tags of its records are counted without reading them all."""
    without: bool = False
    """It can be read as it would be without some records, on this machine and at no cost."""

    def words(self) -> list[str]:
        """The abilities that are there, as words for a person."""
        names = {"without": "impact"}
        return [names.get(name, name.replace("_", " ")) for name, value in self if value]


class Scope(Model):
    """Whose memory: the company always, the rest as narrow as the caller knows."""

    company_id: Annotated[str, Field(min_length=1, max_length=200)]
    agent_id: str | None = None
    project_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    subject_id: str | None = None
    """The external or user identity that the memory is about."""

    def outside_run(self) -> Scope:
        """Return it for what is done to memories of a run and is not part of the run."""
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
    """What one model or provider call consumed."""

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
    """Return a name or a tag as it is compared: whatever its case and its Unicode form."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()


def has_tag(tags: Iterable[str], wanted: str) -> bool:
    """Whether one of the tags is the wanted one, or below it: `a/b` is below `A`."""
    name = folded(wanted)
    return any(tag == name or tag.startswith(f"{name}/") for tag in map(folded, tags))


def distinct_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return each tag once, as it is first written."""
    found: dict[str, str] = {}
    for tag in tags:
        found.setdefault(folded(tag), tag)
    return tuple(found.values())


Tags = Annotated[tuple[str, ...], AfterValidator(distinct_tags)]


class RecordHandle(Model):
    """The name of one record: the provider's key and the provider's own id."""

    provider_key: str
    provider_record_id: Annotated[str, Field(min_length=1)]


class Location(Model):
    """A place that can be opened: a file and a line counted from 1."""

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
    """A shorter form of `text`, by which it is searched and shown where there is one."""
    kind: str = "note"
    """The provider's word for the sort of record: note, fact, guidance, reference, summary …"""
    topic: str | None = None
    tags: Tags = ()
    created_at: UtcDatetime | None = None
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    """The principal that wrote it; where that is no person and named another author, both:
    `agent:coding (says user:ana)`."""
    expires_at: UtcDatetime | None = None
    """From this moment on the record is not returned."""
    pinned: bool = False
    valid_from: UtcDatetime | None = None
    valid_to: UtcDatetime | None = None
    """End of the validity window; None means it still holds."""
    revision: str | None = None
    """Opaque; changes whenever the record does. Base a correction on it."""
    location: Location | None = None
    read_only: bool = False
    """It belongs to something else, is read where it lies, and is not a memory to change, move or
    prune."""
    problem: str | None = None
    """Why it cannot be read whole: until that is fixed, it is neither changed nor copied."""
    metadata: Json = {}

    @property
    def shown(self) -> str:
        """What lists and answers say: its summary, where it has none its text (seed 002 §6)."""
        return self.summary or self.text


def holds_at(record: Record, moment: datetime) -> bool:
    """Whether a moment lies in a record's validity window, and before its expiry.

    A window begins with its `valid_from` and ends before its `valid_to`.
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
    """What is written there: a name, a title or a path, with the heading behind a `#`."""
    words: str | None = None
    """What is shown in the target's place."""
    relation: str | None = None
    """What sort of reference it is, where that is said."""
    handle: RecordHandle | None = None
    """The record at the other end; None: it leads to no record that the asker sees."""
    title: str | None = None
    """That record's title, or the first line of its text."""
    scope: Scope | None = None
    """Whose that record is."""
    location: Location | None = None
    """Where the reference stands."""


class Links(Model):
    """What a record refers to, in the order of its text, and what refers to it."""

    links: tuple[Link, ...] = ()
    backlinks: tuple[Link, ...] = ()
    backlinks_capped: bool = False
    """More refers to it than is told."""


class TagCount(Model):
    """How many records of one owner have a tag."""

    tag: str
    scope: Scope
    """The owner's."""
    records: int


class Snippet(Record):
    """A record as a query returned it."""

    score: float | None = None
    """Higher is better; comparable within one reply only."""


class Snapshot(Model):
    """A record's whole state at one moment, enough to put it back.

    `record` is None where there was no such record. `state` is the adapter's own and opaque.
    """

    handle: RecordHandle
    record: Record | None
    state: Json = {}
    replaces: str | None = None
    """The revision of what stands there when it is to be put back; None: nobody has looked."""


class Measure(StrEnum):
    """What of an operation can be compared with a number."""

    COST = "cost"
    """US dollars of its priced usage; one without a price is neither above nor below anything."""
    LATENCY = "latency"
    """Milliseconds."""
    TOKENS = "tokens"
    """Input, output and embedding tokens together."""
    RESULTS = "results"
    """Records returned or touched."""
    SCORE = "score"
    """The best score of the records returned; where none has a score, it compares with nothing."""


class Comparison(Model):
    """An operation's measure against a number."""

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
"""The most words, values or comparisons of a sort; a store refuses longer statements."""


FewT = TypeVar("FewT", bound=Sized)


def _few(given: FewT) -> FewT:
    if len(given.split() if isinstance(given, str) else given) > _MOST_WORDS:
        raise ValueError(f"a filter takes at most {_MOST_WORDS} words or values of a sort")
    return given


class Term(Model):
    """Several values of a field, any of which will do, or values that it must not have.

    What has no value in the field passes where values are excluded.
    """

    field: Literal[
        "agent_id", "project_id", "issue_id", "comment_id", "run_id", "subject_id", "source_kind",
        "topic", "tag", "kind", "operation_type", "status", "binding_key", "channel", "principal",
        "text", "fuzzy",
    ]  # fmt: skip
    """A field of `Filter`; `text` and `fuzzy` are words, and only excluded."""
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
    """What is asked of how a record is used."""

    READ = "read"
    """How long ago a query or a context had it last, in seconds; None: never."""
    COST = "cost"
    """The tokens of its line in every context that it stands in."""
    DUP = "dup"
    """Whether it repeats another one, which is the one to keep."""


MOST_OF_A_USE = 10**10
"""Upper bound of usage filters, in seconds or tokens."""


class UseTest(Model):
    """What is asked of how a record is used; the service knows that, and no provider is asked."""

    use: Use
    sign: Literal["<", "<=", "=", ">=", ">"] = "="
    value: Annotated[int, Field(ge=0, le=MOST_OF_A_USE)] | None = None
    excluded: bool = False

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        signs: dict[Use, set[str]] = {
            Use.READ: {"="} if self.value is None else {"<", ">"},
            Use.COST: set() if self.value is None else {self.sign},
            Use.DUP: {"="} if self.value is None else set(),
        }
        if self.sign not in signs[self.use]:
            raise ValueError(f"{self.use} cannot be {self.sign} {self.value}")
        return self


class FieldTest(NamedTuple):
    """What a filter asks of one field: to have any of the values, or none of them."""

    field: str
    values: tuple[str, ...]
    excluded: bool = False


class Filter(Model):
    """The one filter of every screen and command; unset fields do not narrow.

    Records honour the scope, source, time (`created_at`), topic, tag, kind, text and fuzzy fields;
    operations honour the scope, source, time (`started_at`), type, status, binding, channel,
    principal, text and fuzzy fields and the comparisons (`memtui.filters.PENDING`). `field_tests`
    is what most of them come to.
    """

    agent_id: str | None = None
    project_id: str | None = None
    issue_id: str | None = None
    """Of the scope or of the source, as `run_id` is."""
    comment_id: str | None = None
    """Of the source."""
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
    """Each must be found where `text` is looked for, as `memtui.fuzzy` says."""
    topic: str | None = None
    tag: str | None = None
    """It, or one below it: `ops` is found in `ops/oncall` too."""
    kind: str | None = None
    operation_type: OperationType | None = None
    status: OperationStatus | None = None
    binding_key: str | None = None
    channel: str | None = None
    principal: str | None = None
    """`agent:` with nothing behind it is every agent."""
    comparisons: Annotated[tuple[Comparison, ...], AfterValidator(_few)] = ()
    """All of them must hold."""
    terms: Annotated[tuple[Term, ...], AfterValidator(_in_order)] = ()
    """All of them must hold, beside the fields: at most two of a field, one of them excluding."""
    uses: tuple[UseTest, ...] = ()
    """All of them must hold, of records."""
    internal: bool = False
    """Include memtui's own reads; ignored where a channel is named."""

    def field_tests(self) -> Iterator[FieldTest]:
        """Yield what is asked of each field but moments, words that must be there and numbers."""
        for field in _VALUED:
            if (value := getattr(self, field)) is not None:
                yield FieldTest(field, (value,))
        yield from (FieldTest(one.field, one.values, one.excluded) for one in self.terms)

    def any_of(self, field: str) -> tuple[str, ...]:
        """Return the values that a field may have; none where the filter does not say."""
        found = (
            one.values for one in self.field_tests() if one.field == field and not one.excluded
        )
        return next(found, ())

    def allows(self, field: str, value: str | None) -> bool:
        """Whether what has this value in a field, None for none, passes as far as that goes."""
        return all(
            (value in one.values) != one.excluded
            for one in self.field_tests()
            if one.field == field
        )

    def narrowed_to(self, **values: object) -> Self:
        """Return the filter with a field set to one of the values that it may have."""
        kept = tuple(one for one in self.terms if one.excluded or one.field not in values)
        return self.model_copy(update={**values, "terms": kept})

    @property
    def excludes_internal(self) -> bool:
        """Whether such reads of memtui's own are left out."""
        return not self.internal and all(one.field != "channel" for one in self.field_tests())

    def with_internal(self) -> Self:
        """Return it with those operations let through."""
        return self.model_copy(update={"internal": True})


_VALUED = [
    name
    for name in get_args(Term.model_fields["field"].annotation)
    if name not in {"text", "fuzzy"}
]

EVERYTHING = Filter(internal=True)
"""Lets every operation through."""

OWNER_FIELDS = ("project_id", "subject_id", "agent_id")
"""A scope may name several. What is written in it belongs to the first that is set, none: to the
company; the others say where it comes from."""

ORCHESTRATOR = "orchestrator"
"""The agent whose facts every project and agent type is told (seed 002 §7)."""


def owner_of(scope: Scope) -> tuple[str, str]:
    """Return the owner of what is written in a scope: the field that names it, and its id."""
    for field in OWNER_FIELDS:
        if value := getattr(scope, field):
            return field, value
    return "company_id", scope.company_id


_OWNER_WORDS = {"project_id": "project", "subject_id": "user", "agent_id": "agent"}


def owner_words(scope: Scope) -> str:
    """Name the owner of what is written in a scope: `project apollo`, `company acme`."""
    field, name = owner_of(scope)
    return f"{_OWNER_WORDS.get(field, 'company')} {name}"


def owner_scope(scope: Scope) -> Scope:
    """Return the scope that names the owner and nothing else."""
    return Scope(**{"company_id": scope.company_id, **dict([owner_of(scope)])})


def owner_scopes(scope: Scope) -> list[Scope]:
    """Return a scope for each owner that a scope names, the one it writes to first."""
    company = {"company_id": scope.company_id}
    named = [(field, getattr(scope, field)) for field in OWNER_FIELDS]
    own = [Scope.model_validate({**company, field: value}) for field, value in named if value]
    return own or [Scope(**company)]


def own_filter(scope: Scope, *, kind: str | None, topic: str | None = None) -> Filter:
    """Return the filter that lets through an owner's records, and few others."""
    field, value = owner_of(scope)
    ids = {field: value} if field in OWNER_FIELDS else {}
    return Filter.model_validate({"kind": kind, "topic": topic, **ids})


def owned(records: Iterable[Record], scope: Scope) -> list[Record]:
    """Return the records of the scope's owner; a scope of the company alone owns them all."""
    owner = owner_of(scope)
    if owner[0] == "company_id":
        return list(records)
    return [record for record in records if owner_of(record.scope) == owner]


class WriteRequest(Model):
    """Store `content`. `binding_key` None lets the service resolve; an adapter gets it set."""

    scope: Scope
    source: SourceRef | None
    """None: nobody knows, of a record that is stored again."""
    content: Annotated[str, Field(min_length=1)]
    binding_key: str | None = None
    mode: WriteMode = WriteMode.APPEND
    metadata: Json = {}
    record_id: str | None = None
    """The id to store it under, where the provider keeps ids."""
    kind: str = "note"
    title: str | None = None
    summary: str | None = None
    """What it is searched by and shown as; `content` is the original, which opens (seed 002 §6)."""
    topic: str | None = None
    tags: Tags = ()
    pinned: bool = False
    created_at: UtcDatetime | None = None
    """When the memory came to be, if not now."""
    created_by: str | None = None
    users: tuple[str, ...] = ()
    """What an application's own tables may call the person behind it, the best first; the service
    sets it."""
    expires_at: UtcDatetime | None = None
    valid_from: UtcDatetime | None = None
    """Since when it holds, if not from now on; capability `validity`."""
    valid_to: UtcDatetime | None = None
    """From when on it no longer holds; capability `validity`."""
    embedding: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _has_a_window(self) -> Self:
        if self.valid_from and self.valid_to and self.valid_to <= self.valid_from:
            raise ValueError("the window must end after it begins")
        return self


class WriteReply(Model):
    """`records` may be empty where the provider stores later (`async_ingestion`)."""

    records: tuple[RecordHandle, ...] = ()
    before: tuple[Snapshot, ...] = ()
    """With capability `restore`: a snapshot a record, in order, as it was before the write (an
    upsert replaces; a new record's snapshot has no record)."""
    usage: tuple[Usage, ...] = ()


class QueryRequest(Model):
    """Find what is relevant to `query` in `scope`."""

    scope: Scope
    query: str
    binding_key: str | None = None
    top_k: Annotated[int, Field(ge=1, le=1000)] = 10
    intent: QueryIntent = QueryIntent.ANSWER
    max_tokens: Annotated[int, Field(ge=1)] | None = 500
    """What the texts of a preamble may come to, by the provider's estimate; None sets no limit."""
    filter: Filter = Filter()
    """Only what passes it. An adapter may leave this to the service, which looks at each snippet
    and asks for more of them where too few pass."""
    metadata_filter: Json = {}
    topic: str | None = None
    as_of: UtcDatetime | None = None
    """Answer with what was valid at that moment; capability `validity`."""
    embedding: tuple[float, ...] | None = None
    owners: tuple[Scope, ...] = ()
    """Only what one of these scopes owns; capability `chosen_owners`."""
    helped: frozenset[str] = frozenset()
    """Ids of records that helped before, of which a preamble may make more; the service gives them.
    """
    matching: Matching = Matching.MEMTUI
    """`AGENTS`: as the provider's own agents search; capability `agents_search`."""


class ContextBundle(Model):
    """What a query found, best first."""

    snippets: tuple[Snippet, ...] = ()
    profile_summary: str | None = None
    """What the provider says of the scope as a whole; the service asks `profile` for a preamble."""
    usage: tuple[Usage, ...] = ()
    capped: bool = False
    """True: the provider cut the reply, more may match."""
    stages: tuple[ExplainStage, ...] = ()
    """How it came about, where the provider tells it with the answer. It is logged with the query,
    so it quotes neither the query nor a record."""


class ForgetRequest(Model):
    """Remove records. `revisions` maps record ids to the revision the caller saw."""

    scope: Scope
    handles: tuple[RecordHandle, ...]
    binding_key: str | None = None
    revisions: Mapping[str, str] = {}
    source: SourceRef | None = None
    """The work object on whose behalf it is done."""

    @classmethod
    def of(cls, records: Sequence[Record], scope: Scope, binding_key: str | None = None) -> Self:
        """Return the request to forget records; one that changed since it was read stays."""
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
    """Of records that stay as they are, by id, why: a sentence for a person."""
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
    """An empty one takes it away."""
    topic: str | None = None
    tags: Tags | None = None
    expires_at: UtcDatetime | None = None
    never_expires: bool = False
    """Take the expiry away; not together with `expires_at`."""
    source: SourceRef | None = None
    """The work object on whose behalf it is done."""
    created_by: str | None = None
    """Who gives it the new text, for a provider that keeps each version's author."""

    @model_validator(mode="after")
    def _has_one_expiry(self) -> Self:
        if self.never_expires and self.expires_at is not None:
            raise ValueError("a record either expires or never does")
        return self

    @property
    def sets_expiry(self) -> bool:
        """Whether the expiry becomes `expires_at`, where None means that there is none."""
        return self.never_expires or self.expires_at is not None


class CorrectReply(Model):
    """`handle` differs from the request's where the provider could not keep the id."""

    handle: RecordHandle
    usage: tuple[Usage, ...] = ()


class BrowseRequest(Model):
    """One page of what is stored, for inspection rather than relevance."""

    scope: Scope
    binding_key: str | None = None
    filter: Filter = Filter()
    sort: str = "-updated_at"
    """A record field, `-` for descending; adapters support created_at, updated_at, title, size."""
    cursor: str | None = None
    """From the page before; opaque."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    namespace: str | None = None
    """Only what lies in this one; capability `namespace_changes`."""
    owners: tuple[Scope, ...] = ()
    """Only what one of these scopes owns; capability `chosen_owners`."""
    expired: bool = False
    """Also what has expired and is still stored, where the provider can tell."""
    as_of: UtcDatetime | None = None
    """List what was valid at that moment; capability `validity`."""
    links: bool = False
    """Also say what the records link to and what links to them, where the provider knows; the
    service asks it by `Adapter.links`."""


class BrowsePage(Model):
    """Records of one page. `total` None: unknown; `at_least`: the true total may be larger."""

    records: tuple[Record, ...] = ()
    next_cursor: str | None = None
    total: int | None = None
    at_least: bool = False
    unread: tuple[str, ...] = ()
    """In sentences, what was not read and which setting reads further, where `at_least`; and what
    cannot be known of the records."""
    unfinished: bool = False
    """The provider stopped looking for want of time; asking for the first page again goes on."""
    usage: tuple[Usage, ...] = ()


class RecordVersion(Model):
    """One version of a record, newest first in a history."""

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
    """What a sync or re-index saw and changed, in records."""

    seen: int = 0
    changed: int = 0
    removed: int = 0
    usage: tuple[Usage, ...] = ()


class EraseRequest(Model):
    """Erase for good what a provider keeps of records that are gone; those that live stay whole."""

    scope: Scope
    """A project or a subject: all that is kept of its gone records. Of the company alone: none."""
    record_ids: tuple[str, ...] = ()
    """Records that are gone."""
    apply: bool = False
    """False: only say what there is."""


class EraseReply(Model):
    """What a provider keeps, or has erased."""

    kept: Mapping[str, int] = {}
    """By place, how many versions, rows or words there are of it."""
    texts: tuple[str, ...] = ()
    """What they say, so that they can be looked for."""
    record_ids: tuple[str, ...] = ()
    """The gone records that were found."""
    folders: tuple[Path, ...] = ()
    """Where the provider keeps memories outside of its `data_dir`: files, or folders of them."""
    beyond: tuple[str, ...] = ()
    """One sentence for each copy that the provider cannot reach."""


class ExplainStage(Model):
    """One stage of a retrieval and what it contributed, by record id."""

    name: str
    detail: str
    scores: Mapping[str, float] = {}


class Explanation(Model):
    """How a query came to its reply."""

    stages: tuple[ExplainStage, ...]
    usage: tuple[Usage, ...] = ()


class Namespace(Model):
    """A partition of a provider, with the number of records it holds where that is known."""

    name: str
    kind: str
    records: int | None = None
    expires_at: UtcDatetime | None = None
    metadata: Json = {}


class Problem(Model):
    """Something a provider holds but cannot read whole, and where it is."""

    message: str
    location: Location | None = None
    scope: Scope | None = None
    """Whose memory it is in, where that is known; who may not see that is not told."""
    search_only: bool = False
    """It concerns what is found by meaning; a list or a record lacks nothing because of it."""

    def sentence(self) -> str:
        """Return it for a person, its file and line in front."""
        place = self.location
        return f"{place.path}:{place.line}: {self.message}" if place else self.message


class Embedding(Model):
    """How far a provider's texts are embedded, to be found by meaning."""

    model: str
    """The model that the config names."""
    dimensions: int | None = None
    texts: int
    """Different texts in all."""
    embedded: int
    """Those of them that have a vector of this model."""
    serving: str | None = None
    """The model whose vectors answer now; None: words alone do."""
    address: str | None = None
    """The other machine that texts go to, as `https://host:port`."""
    agreed: bool = True
    """Whether they may: the company has agreed to that address."""

    @property
    def is_done(self) -> bool:
        """Whether this model answers, for every text."""
        return self.embedded == self.texts and (self.serving == self.model or not self.texts)


class EmbedReply(Model):
    """How far the texts are embedded after a round of it."""

    embedding: Embedding
    usage: tuple[Usage, ...] = ()


class Health(Model):
    """Whether a provider can serve now. `degraded`: it answers, with less than it should."""

    status: Annotated[str, Field(pattern="^(ok|degraded|down)$")] = "ok"
    message: str = ""
    version: str | None = None
    records: int | None = None
    problems: tuple[Problem, ...] = ()
    embedding: Embedding | None = None
    """Where the provider itself embeds texts; None: it does not, or nobody set a model."""


class BindingContext(Model):
    """What an adapter is opened with."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    company_id: str
    binding_key: str
    config: Json = {}
    read_only: bool = False
    data_dir: Path
    """A private folder of this binding for state that may be deleted, such as an index."""
    secret: Callable[[str], str | None] = lambda _name: None
    """Looks a secret up by name in the system keyring or the environment."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    redact: Callable[[str], str] = lambda text: text
    """Takes the secrets out of a text that is to leave this machine."""
    agreed: frozenset[str] = frozenset()
    """Other machines' addresses (`https://host:port`) that texts to embed may be sent to."""


def place_of_path(path: Path) -> tuple[str, ...]:
    """Name a file or folder for `Adapter.places`, links resolved. Blocking."""
    return ("path", *Path(os.path.realpath(path.expanduser())).parts)


def place_of_url(url: str) -> tuple[str, ...]:
    """Name a server and the path on it for `Adapter.places`; this machine has one name."""
    parts = urlsplit(url)
    host = (parts.hostname or "localhost").rstrip(".")
    port = parts.port or _PORTS.get(parts.scheme)
    own = "localhost" if host in _THIS_MACHINE else host
    return "url", f"{own}:{port}{parts.path.rstrip('/')}"


_PORTS = {"http": 80, "https": 443, "postgresql": 5432}
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared


class Adapter(ABC):
    """A memory provider behind the contract.

    Required: `write`, `query`, `get`, `forget`. The other methods are optional; override one and
    set its capability. The service calls none whose capability is unset, and calls every method
    from one event loop, several at a time.

    A handle's `provider_key` is the provider's name (`key`). An adapter never sees a scope of
    another company: it is opened once a binding, and a binding belongs to one company.
    """

    key: ClassVar[str]
    """The provider's name, the same as its entry point."""
    config_model: ClassVar[type[BaseModel]]
    """Validates the binding's config; its docstrings are the provider's documentation."""
    capabilities: Capabilities = Capabilities()
    only_facts: ClassVar[bool] = False
    """It keeps facts alone, lines without kind and title."""
    lacks: frozenset[str] = frozenset()
    """The fields of a record that it has no place for, beside what its capabilities say; an open
    adapter may know better than its class. One that lacks `metadata` cannot carry the others there.
    The service fills them in from its log."""
    pinned_weight: ClassVar[float] = 1.0
    """What a query multiplies a pinned record's score by."""
    speaks_plugin_contract: ClassVar[bool] = False
    """Behind it is a memory plugin, which `memtui conformance` can check."""

    @classmethod
    @abstractmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the provider. Raises `Invalid` for a bad config, `Unavailable` if it is down."""

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Say where a binding keeps its records, so that no two companies share a store.

        A place is named from the outside in and holds every place that begins with it, as a folder
        does: `place_of_path` and `place_of_url` name the usual ones, and more words may follow,
        such as a table. What is the same is named the same. None: nobody else can reach the store.
        The binding's own `data_dir` need not be named. Blocking, and nothing is opened for it.
        """
        del context
        return ()

    @classmethod
    def lives_in(cls, data_dir: Path) -> bool | None:
        """Whether a binding's `data_dir` holds its records; None: no record is ever kept there.

        A repair tells by it what a binding was. Blocking, and nothing is opened for it.
        """
        del data_dir
        return None

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Say where what is written in a scope is kept: a folder, a namespace, an owner.

        Nothing is opened for it, and it does not block. None: nobody knows before. Raises `Invalid`
        if there is no place for it.
        """
        del config, scope
        return None

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a record that is sure not to be taken. Nothing is opened for it."""
        del config, record

    async def close(self) -> None:
        """Let go of connections and watchers; the adapter is not used afterwards."""
        return

    @abstractmethod
    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record. Once it returns the record is durable (`async_ingestion` excepted)."""

    @abstractmethod
    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return at most `top_k` snippets, best first; nothing found is an empty bundle."""

    @abstractmethod
    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record, or None where there is none in this scope."""

    @abstractmethod
    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records. Raises `Conflict` before removing any if a given revision is stale."""

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page; capability `browse`."""
        raise Unsupported(f"The provider {self.key} cannot be browsed.")

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record; capability `correction`. Raises `NotFound`, `Conflict`."""
        raise Unsupported(f"The provider {self.key} cannot correct a record in place.")

    async def profile(self, scope: Scope) -> Profile:
        """Summarise a scope; capability `profile`."""
        raise Unsupported(f"The provider {self.key} makes no profiles.")

    async def sync(self, source: SourceRef | None = None) -> SyncReply:
        """Read the outside source again, or rebuild derived state; capability `sync`.

        A `source` that is given is read alone. Raises `Unsupported` where that cannot be.
        """
        raise Unsupported(f"The provider {self.key} has nothing to sync.")

    async def embed(self, most: int) -> EmbedReply:
        """Embed texts that have no vector yet of the config's model, at most so many; 0 only tells.

        With the last of them that model takes the place of the one that answered so far. Where
        another process is at it, nothing is done. Called where `health` tells of an embedding; in
        a read-only binding it makes what lies in the `data_dir` alone.
        """
        raise Unsupported(f"The provider {self.key} embeds no texts.")

    async def explain(self, request: QueryRequest) -> Explanation:
        """Trace how a query is answered; capability `explain`."""
        raise Unsupported(f"The provider {self.key} does not explain its results.")

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a record's versions, newest first; capability `history`."""
        raise Unsupported(f"The provider {self.key} keeps no history.")

    async def versions(self, scope: Scope) -> Sequence[Record]:
        """Return every version of the records whose past is kept; capability `validity`.

        Of those that a scope sees, what is gone and what has expired is among them. Each has the
        window in which it held. The versions of one record stand together, the oldest first, and
        their windows do not overlap. A record whose past the provider does not keep, such as a file
        that is edited in place, is left out.
        """
        raise Unsupported(f"The provider {self.key} keeps no versions of its records.")

    async def links(self, handles: Sequence[RecordHandle], scope: Scope) -> Mapping[str, Links]:
        """Return by record id what records link to and what links to them; capability `links`.

        A record without any is left out, and so is an end that `scope` does not see.
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
        """Make a namespace, or replace one whole; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} makes no namespaces.")

    async def patch_namespace(
        self, name: str, *, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Set a namespace's expiry, or its metadata whole; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} changes no namespaces.")

    async def delete_namespace(self, name: str) -> None:
        """Remove a namespace and what is in it, beyond recall; capability `namespace_changes`."""
        raise Unsupported(f"The provider {self.key} removes no namespaces.")

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's whole state, in order; capability `restore`."""
        raise Unsupported(f"The provider {self.key} takes no snapshots.")

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put records back exactly as they were; capability `restore`.

        A snapshot without a record means that there must be none: it is removed. Raises
        `Conflict` if something else stands in a record's place.
        """
        raise Unsupported(f"The provider {self.key} cannot restore a record.")

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Say what a read of `scope` lacks because it cannot be read; asked after every read.

        A provider that knows of none, or that fails where it cannot read, leaves this as it is.
        """
        return ()

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase what is kept of records that are gone: versions, words, what indexes still hold.

        A provider that keeps nothing of what it has forgotten leaves this as it is.
        """
        return EraseReply()

    async def without(self, record_ids: Collection[str]) -> Adapter:
        """Return what it holds now as it would be without some records; capability `without`.

        The copy answers `query` and `browse` as this adapter would once the records were forgotten,
        ranks and all. It follows nothing that happens later, can only be read, costs nothing, sends
        nothing anywhere, and is thrown away when it is closed. An id of no record leaves nothing
        out. Raises `Unsupported` where its config does not let that be.
        """
        raise Unsupported(f"The provider {self.key} cannot be read without some of its records.")

    async def health(self) -> Health:
        """Say whether the provider can serve, cheaply; never raises for being down."""
        return Health()

    def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the handles that changed outside of memtui; capability `watch`."""
        raise Unsupported(f"The provider {self.key} cannot be watched.")
