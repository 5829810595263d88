"""An entry of the operation log, and its form in the log's tables."""

# Strings, as `from __future__ import annotations` makes, would be compiled for each model.
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import Field, ValidationError

from memtui.contract import (
    ExplainStage,
    Filter,
    Json,
    Model,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Usage,
    UtcDatetime,
)

if TYPE_CHECKING:
    from memtui.store.details import Details
else:
    Details = Json  # not validated, as an imported operation has other members

APP_CHANNEL = "tui"
"""The channel of the terminal app."""

LOOKS = (
    OperationType.BROWSE, OperationType.CONTEXT, OperationType.EXPLAIN, OperationType.GET,
    OperationType.HISTORY, OperationType.NAMESPACES, OperationType.PROFILE,
)  # fmt: skip
"""The reads by which the app draws its screens; a query is not one, as a person asks it."""

READS = (OperationType.QUERY, OperationType.CONTEXT)
"""The operations that count as a read of a record: a query's result, a model's context."""

DELIVERIES = (*READS, OperationType.GET, OperationType.HISTORY)
"""The operations by which a run gets to know a record."""

# Not IN: for a long list DuckDB uses a join, which loses the order of rows.
_LOOKS = " ".join(f"WHEN '{one}' THEN true" for one in LOOKS)
INTERNAL = (
    f"((channel = '{APP_CHANNEL}' AND CASE operation_type {_LOOKS} ELSE false END) "
    "OR coalesce(to_show, false))"
)
"""The SQL of `OperationDraft.internal`, for every database; an index has this exact expression."""

ASKED = ("query", "prompt", "content", "text", "record_id")
"""The members of a request that may contain its main text; the first that is a text counts."""


class OperationHandle(Model):
    """A record that an operation returned or touched, ranked from 1."""

    rank: int
    provider_key: str
    provider_record_id: str
    score: float | None = None
    binding_key: str | None = None
    """The record's binding, if it is not the operation's."""
    ghost: bool = False
    """True: it was forgotten, but the provider still returns it."""

    @property
    def handle(self) -> RecordHandle:
        """The handle that names the record to its provider."""
        # Not validated: an imported id may be invalid Unicode.
        return RecordHandle.model_construct(
            provider_key=self.provider_key, provider_record_id=self.provider_record_id
        )


Place = tuple[str, str]
"""A binding's key (empty: unknown) and a record's id there."""


def text_place(binding_key: str, text: str) -> Place:
    """Return what stands for a text among the places of held records: a digest, not an id."""
    words = " ".join(text.split()).encode(errors="surrogatepass")
    return binding_key, f"text {sha256(words).hexdigest()}"


class Absent(Model):
    """Stands for a value that was erased, or that was never logged."""

    commitment: str
    """The digest covers this instead of the value (`memtui.store.digest.commitment`)."""
    withheld: bool = False
    """True: it was never logged. False: it was erased."""


class LogFilter(Filter):
    """A filter of operations whose conditions on risks were looked up."""

    among: tuple[int, ...] | None = None
    """Only these operations, by `seq`; None: any."""
    but: tuple[int, ...] = ()
    """None of these."""
    folded: bool = False
    """Leave out each operation that is part of another one in the list (`part_of`)."""


def is_folded(chosen: Filter) -> bool:
    """Whether a filter lists a question over several bindings as one operation."""
    return isinstance(chosen, LogFilter) and chosen.folded


def apart(chosen: Filter) -> Filter:
    """Return the filter that lists each binding's operation of such a question."""
    return chosen.model_copy(update={"folded": False}) if is_folded(chosen) else chosen


class OperationDraft(Model):
    """An operation that is not appended to the log yet.

    The log's table, files, views, exports, imports and digests are derived from these fields. A
    field with a title is shown under it wherever an operation is shown. A new field must be None
    where unknown: the digest (`memtui.store.digest`) covers its value, which earlier operations
    lack.
    """

    operation_id: str
    operation_type: OperationType
    status: OperationStatus
    binding_key: str | None = None
    provider_key: str | None = None
    binding_reason: str | None = Field(default=None, title="binding chosen")
    """Why this binding was chosen."""
    to_show: bool | None = None
    """True: memtui read it only for an answer about something else, a replay or an impact."""
    scope: Scope
    source: SourceRef | None = None
    principal: str
    channel: str
    request: Details = {}
    """The request, redacted: the query text, the content, the record ids …"""
    error_kind: str | None = None
    error_message: str | None = None
    result_count: int = 0
    """Number of records returned or touched, also if `handles` does not list them (a browse)."""
    capped: bool = False
    handles: tuple[OperationHandle, ...] = ()
    usage: tuple[Usage, ...] = ()
    started_at: UtcDatetime
    latency_ms: float | None
    """None: not measured, as in some imported logs."""
    undoes: str | None = None
    """The operation that this one undid."""
    part_of: str | None = Field(default=None, title="part of")
    """The first logged operation of one question over several bindings; None in that one."""
    absent: dict[str, Absent] = {}
    """The fields without a value, erased or withheld, by path, such as `request.content`."""
    salts: dict[str, str] = Field(default={}, exclude=True, repr=False)
    """Salts in hex, by path: of withheld fields, and of the fields left once others were erased."""

    @property
    def asked_scope(self) -> Scope:
        """The requested scope: without the agent, if memtui inferred it from the caller."""
        return (
            self.scope.model_copy(update={"agent_id": None}) if self._is("agent_id") else self.scope
        )

    @property
    def reason(self) -> SourceRef | None:
        """The source that the caller gave; None: none, or memtui inferred it from the memory."""
        return None if self._is("source") else self.source

    @property
    def author(self) -> str:
        """The author of the change; of an accepted pending change, whoever requested it."""
        is_decided = "decision" in self.request
        return str((is_decided and self.request.get("author")) or self.principal)

    def place_of(self, handle: OperationHandle) -> Place:
        """Return the binding and the id of one of its records."""
        return handle.binding_key or self.binding_key or "", handle.provider_record_id

    def _is(self, inferred: str) -> bool:
        named = self.request.get("inferred")
        return isinstance(named, list) and inferred in named

    @property
    def internal(self) -> bool:
        """Whether the app made this read to draw a screen, or a command to show its answer.

        Such a read is logged like others, but listed and counted only on request
        (`Filter.excludes_internal`), as it is no use of the memories.
        """
        is_look = self.channel == APP_CHANNEL and self.operation_type in LOOKS
        return is_look or self.to_show is True


class Operation(OperationDraft):
    """An entry of a company's log: `seq` counts from 1 without a gap, digests form a chain."""

    seq: int
    previous_digest: str
    digest: str
    salt: bytes | None = Field(default=None, exclude=True, repr=False)
    """The salts of all fields derive from it; None once a field was erased. Never shown."""

    @property
    def cost_usd(self) -> Decimal | None:
        """The sum of the priced usage in US dollars; None: no usage has a price."""
        priced = [usage.cost_usd for usage in self.usage if usage.cost_usd is not None]
        return sum(priced, Decimal(0)) if priced else None

    @property
    def tokens(self) -> int:
        """How many tokens it used: read, written and embedded ones."""
        return sum(
            one.input_tokens + one.output_tokens + one.embedding_tokens for one in self.usage
        )

    @property
    def damaged(self) -> bool:
        """Whether it is the placeholder of an unreadable row."""
        return self.status.value == DAMAGED

    @property
    def erased(self) -> bool:
        """Whether any of its values were erased."""
        return any(not gone.withheld for gone in self.absent.values())

    @property
    def stages(self) -> tuple[ExplainStage, ...]:
        """The stages of retrieval, if they were logged, with scores by record id."""
        logged = self.request.get("stages")
        found = []
        for one in logged if isinstance(logged, list) else ():
            try:
                scores = zip(self.handles, one.get("scores", ()), strict=False)
                by_id = {h.provider_record_id: score for h, score in scores if score is not None}
                found.append(ExplainStage(name=one["name"], detail=one["detail"], scores=by_id))
            except (AttributeError, KeyError, TypeError, ValidationError):  # imported, in any form
                return ()
        return tuple(found)

    @property
    def unpriced(self) -> bool:
        """Whether any of its usage has no price."""
        return any(usage.cost_usd is None for usage in self.usage)


class Parts(Model):
    """The operations of one question over several bindings, and their sums."""

    operations: tuple[Operation, ...]
    """In the order of the log, the one that was logged first included."""
    bindings: int
    failed: int
    """How many of the bindings did not answer, or not all of it."""
    result_count: int
    tokens: int
    cost_usd: Decimal | None
    """None: no usage has a price."""
    unpriced: bool
    """Whether any of the usage has no price."""
    latency_ms: float | None
    """The longest; None: none was measured."""

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Self:
        """Return the sums of at least one operation."""
        failed = (one for one in operations if one.status is not OperationStatus.OK)
        costs = [one.cost_usd for one in operations if one.cost_usd is not None]
        took = [one.latency_ms for one in operations if one.latency_ms is not None]
        return cls(
            operations=tuple(operations),
            bindings=_bindings(operations),
            failed=_bindings(failed),
            result_count=sum(one.result_count for one in operations),
            tokens=sum(one.tokens for one in operations),
            cost_usd=sum(costs, Decimal(0)) if costs else None,
            unpriced=any(one.unpriced for one in operations),
            latency_ms=max(took, default=None),
        )

    @property
    def lead(self) -> Operation:
        """The first that succeeded, else the first."""
        succeeded = (one for one in self.operations if one.status is OperationStatus.OK)
        return next(succeeded, self.operations[0])

    @property
    def usage(self) -> tuple[Usage, ...]:
        """The usage of all of them."""
        return tuple(usage for one in self.operations for usage in one.usage)


def _bindings(operations: Iterable[Operation]) -> int:
    # An operation that was refused before it was routed names no binding.
    return len({one.binding_key or one.operation_id for one in operations})


class OperationPage(Model):
    """A page of operations, newest first. `next_before`: the `before` of the next page."""

    operations: tuple[Operation, ...]
    total: int
    """How many operations match, over all pages."""
    left_out: int = 0
    """How many further matches are hidden as internal (`OperationDraft.internal`)."""
    folded: bool = False
    """Whether a question over several bindings is one operation here (`LogFilter.folded`)."""
    next_before: int | None = None
    """None: this is the last page."""


def set_by(operation: OperationDraft) -> list[str]:
    """Return the names of the fields that an edit set, such as `tags` or `unpinned`."""
    request: Mapping[str, object] = operation.request
    names = [name for name in _SET if name in request]
    return ["unpinned" if (name, request[name]) == ("pinned", False) else name for name in names]


_SET = ("content", "content_chars", "pinned", "topic", "tags", "expires_at", "never_expires")

Loaded = Mapping[Any, Any]
WordT = TypeVar("WordT", bound=StrEnum)

TITLES = {name: field.title for name, field in OperationDraft.model_fields.items() if field.title}
"""The fields that are shown unchanged, with their titles."""


def details(operation: OperationDraft) -> Iterator[tuple[str, str]]:
    """Yield title and text of the fields of `TITLES` that have a value."""
    for name, title in TITLES.items():
        if (value := getattr(operation, name)) is not None:
            yield title, str(value)


def _columns() -> Iterator[tuple[str, str]]:
    for name in OperationDraft.model_fields:
        if name == "scope":
            yield from ((part, f"scope.{part}") for part in _SCOPE_FIELDS if part != "company_id")
        elif name == "source":
            parts = (part for part in SourceRef.model_fields if part != "company_id")
            yield from ((f"source_{part}", f"source.{part}") for part in parts)
        elif name not in {"handles", "usage", "absent", "salts"}:
            yield name, name


_SCOPE_FIELDS = tuple(Scope.model_fields)
_USAGE_FIELDS = tuple(Usage.model_fields)
_HANDLE_FIELDS = tuple(name for name in OperationHandle.model_fields if name != "binding_key")

COLUMNS = dict(_columns())
"""The columns of a draft in the log's table, in order, each with its path in the draft."""

OWN_FIELDS = tuple(name for name, path in COLUMNS.items() if name == path)
"""The fields of a draft that are one column each."""

_SOURCE = {
    path.removeprefix("source."): name
    for name, path in COLUMNS.items()
    if path.startswith("source.")
}


def as_member(kind: type[WordT], word: str) -> WordT:
    """Return the member of an enumeration, or an ad-hoc member for a word that it lacks.

    So a row that another version wrote, or that was altered, is shown as it is.
    """
    try:
        return kind(word)
    except ValueError:
        foreign = str.__new__(kind, word)
        foreign._name_ = foreign._value_ = word
        return foreign


DAMAGED = "damaged"
"""The type and the status of the placeholder of an unreadable row."""


def damaged(seq: int, operation_id: str, company_id: str, at: datetime) -> Operation:
    """Return the placeholder that a list shows for an unreadable operation."""
    return Operation(
        seq=seq,
        operation_id=operation_id,
        operation_type=as_member(OperationType, DAMAGED),
        status=as_member(OperationStatus, DAMAGED),
        scope=Scope(company_id=company_id),
        principal="",
        channel="",
        error_message=why_damaged(seq),
        started_at=at,
        latency_ms=None,
        previous_digest="",
        digest="",
    )


def why_damaged(seq: int) -> str:
    """Return the error message for an unreadable operation."""
    return (
        f"Operation {seq} is damaged: the database contains values that memtui never writes; "
        "docs/recovery.md says what to do."
    )


def why_altered(seq: int) -> str:
    """Return the error message for an operation that does not match its digest."""
    return f"Operation {seq} was altered: it does not fit its digest."


def to_operation(
    row: Loaded, usage: Iterable[Loaded] = (), handles: Iterable[Loaded] = ()
) -> Operation:
    """Build an operation from its row and its usage and handle rows, in order."""
    source = {name: row[column] for name, column in _SOURCE.items()}
    if source["kind"]:
        source["kind"] = as_member(SourceKind, source["kind"])
    own_binding = row["binding_key"]
    own = {name: row[name] for name in OWN_FIELDS}
    own["operation_type"] = as_member(OperationType, own["operation_type"])
    own["status"] = as_member(OperationStatus, own["status"])
    return Operation(
        **own,
        **{name: row[name] for name in ("seq", "previous_digest", "digest", "salt")},
        absent=row["absent"] or {},
        salts=row["salts"] or {},
        scope=Scope(**{name: row[name] for name in _SCOPE_FIELDS}),
        source=SourceRef(company_id=row["company_id"], **source) if source["kind"] else None,
        usage=tuple(Usage(**{name: part[name] for name in _USAGE_FIELDS}) for part in usage),
        handles=tuple(
            OperationHandle(
                **{name: part[name] for name in _HANDLE_FIELDS},
                binding_key=None if part["binding_key"] == own_binding else part["binding_key"],
            )
            for part in handles
        ),
    )
