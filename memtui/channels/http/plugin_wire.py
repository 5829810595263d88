"""The bodies of the memory plugin contract v1 (seed 001); `memtui.backends.plugin_v1` reads them.

In requests, null means left out, and unknown fields are ignored, as the contract demands. Replies
leave out empty fields.
"""

import json
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    StrictInt,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from memtui.backends.plugin_v1.config import LONGEST_NAMESPACE, NAMESPACE
from memtui.backends.plugin_v1.wire import MOST_ROWS
from memtui.contract import Model

DEFAULT_ROWS = 20
_MOST_IDS = 100
_MOST_NAMESPACES = 1_000
_MOST_NUMBERS = 16_384
_MOST_QUERY_CHARS = 10_000
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def is_uuid(text: str) -> bool:
    """Whether a text can be a memory's id."""
    return _UUID.fullmatch(text) is not None


def rfc3339(moment: datetime) -> str:
    """Return a moment in UTC with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("give a time as RFC 3339 writes it, such as 2026-07-01T12:00:00Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is out of range") from error


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character; take it out")
    return text


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object that any database can store. Raises `ValueError` for another."""
    json.dumps(value, allow_nan=False)
    if _holds_nul(value):
        raise ValueError("it holds a NUL character; take it out")
    return value


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value


def _lowered_uuid(text: str) -> str:
    if not is_uuid(text):
        raise ValueError("it is not a UUID")
    return text.lower()


Moment = Annotated[
    datetime,
    PlainValidator(_moment),
    PlainSerializer(rfc3339),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=LONGEST_NAMESPACE, pattern=f"^{NAMESPACE.pattern}$"),
]
Text = Annotated[str, AfterValidator(_without_nul)]
Object = Annotated[dict[str, Any], AfterValidator(_plain)]
MemoryId = Annotated[str, AfterValidator(_lowered_uuid), WithJsonSchema(
    {"type": "string", "format": "uuid", "pattern": f"^{_UUID.pattern}$"}
)]  # fmt: skip
Number = Annotated[float, Field(allow_inf_nan=False)]
Embedding = Annotated[list[Number], Field(max_length=_MOST_NUMBERS, fail_fast=True)]


class NamespaceKind(StrEnum):
    """The owner of a namespace."""

    WORKSPACE = "workspace"
    TEAM = "team"
    ORG = "org"
    CUSTOM = "custom"


class Kind(StrEnum):
    """The sort of a memory."""

    FACT = "fact"
    SUMMARY = "summary"
    CHECKPOINT = "checkpoint"


class Maker(StrEnum):
    """Who wrote a memory."""

    AGENT = "agent"
    RUNTIME = "runtime"
    USER = "user"


class Code(StrEnum):
    """The sort of a refusal."""

    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"


class PluginBody(Model):
    """Base of the bodies: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class NamespacePut(PluginBody):
    """A whole namespace: a field left out is cleared."""

    kind: NamespaceKind
    expires_at: Moment | None = None
    metadata: Object | None = None


class NamespacePatch(PluginBody):
    """The changes to a namespace: expiry, metadata or both."""

    expires_at: Moment | None = None
    metadata: Object | None = None

    @model_validator(mode="after")
    def _sets_something(self) -> Self:
        if self.expires_at is None and self.metadata is None:
            raise ValueError("no fields set; give expires_at or metadata")
        return self


class MemoryWrite(PluginBody):
    """A memory to store."""

    id: MemoryId | None = None
    """Stored under this id, in place of the memory that has it; left out, it gets a new one."""
    content: Annotated[Text, Field(min_length=1)]
    kind: Kind
    source: Maker
    expires_at: Moment | None = None
    propagation: Object | None = None
    """Stored and returned unchanged."""
    pin: StrictBool | None = None
    embedding: Embedding | None = None


class SearchBody(PluginBody):
    """A search: the query, and the namespaces to search."""

    namespaces: Annotated[
        list[Name], Field(min_length=1, max_length=_MOST_NAMESPACES, fail_fast=True)
    ]
    query: Annotated[Text, Field(max_length=_MOST_QUERY_CHARS)] | None = None
    """Left out or empty: everything, the pinned memories first, then the newest."""
    kinds: Annotated[list[Kind], Field(fail_fast=True)] | None = None
    limit: Annotated[StrictInt, Field(ge=0, le=MOST_ROWS)] | None = None
    """At most so many memories; 0 or left out: 20."""
    embedding: Embedding | None = None
    ids: Annotated[list[MemoryId], Field(max_length=_MOST_IDS, fail_fast=True)] | None = None
    """memtui's own extension `memtui.ids`: only the memories of these ids, without a query."""
    cursor: str | None = None
    """memtui's own extension `memtui.cursor`: list everything, the oldest first, without a query.
    Begin with an empty one, and go on with the reply's `next_cursor`."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        asked = [self.query or self.embedding, self.ids, self.cursor is not None]
        if sum(map(bool, asked)) > 1:
            raise ValueError("a cursor or ids go without a query, an embedding and each other")
        return self


class Forget(PluginBody):
    """The namespace that requests a deletion."""

    requested_by_namespace: Name


class HealthBody(PluginBody):
    """Whether the plugin can serve now, and what it can do."""

    status: Annotated[str, Field(pattern="^(ok|degraded)$")]
    version: str
    capabilities: list[str]


class NamespaceBody(PluginBody):
    """A stored namespace."""

    name: str
    kind: NamespaceKind
    expires_at: Moment | None = None
    metadata: dict[str, Any] | None = None
    created_at: Moment


class Written(PluginBody):
    """Where a memory was stored."""

    id: str
    namespace: str


class PendingBody(PluginBody):
    """Nothing is changed yet: a person reviews it first."""

    id: str
    """The memory's id; a new memory gets it once a person accepts it."""
    namespace: str
    status: Literal["pending"] = "pending"
    pending_id: str
    """What `memtui review show` takes."""
    reasons: list[str]
    """The names of the review rules that match it."""


class MemoryBody(PluginBody):
    """A memory as a search returns it."""

    id: str
    namespace: str
    content: str
    kind: Kind
    source: Maker
    expires_at: Moment | None = None
    propagation: dict[str, Any] | None = None
    pin: bool
    created_at: Moment
    score: float | None = None
    """Higher is better, within one reply."""


class SearchReply(PluginBody):
    """What a search found, best first."""

    memories: list[MemoryBody]
    next_cursor: str | None = None
    """Extension `memtui.cursor`: where the list goes on; left out at its end."""


class RefusalBody(PluginBody):
    """Why a request was not served."""

    code: Code
    message: str
    details: dict[str, Any] | None = None
