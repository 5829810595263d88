"""The seed's two tables as they are, and memtui's own beside them (seed 004 §6.1).

Times are UTC: `timestamp` without a zone in PostgreSQL, ISO 8601 text with microseconds in
SQLite. They are read and written as text, so that a fact is put back with the very digits it had.
Tables that memtui creates have no foreign keys, because it knows no `users` and `drives`; tables
that are there already may have them.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Index,
    MetaData,
    RowMapping,
    Table,
    Text,
    cast,
    func,
    literal,
    null,
)

from memtui.backends.fact_base import MAKER, OWNER_IDS
from memtui.contract import (
    CorrectRequest,
    Json,
    Model,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.provider_kit import read_moment

KEY = "facts"
METADATA = MetaData()
MOMENT = Text().with_variant(DateTime(), "postgresql")

USERS = Table(
    "user_memories",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("userId", Text, nullable=False),
    Column("fact", Text, nullable=False),
    Column("createdAt", MOMENT, nullable=False, server_default=func.current_timestamp()),
    Column("source", Text),
    Index("user_memories_userId_idx", "userId"),
)

DRIVES = Table(
    "drive_memories",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("driveId", Text, nullable=False),
    Column("fact", Text, nullable=False),
    Column("createdAt", MOMENT, nullable=False, server_default=func.current_timestamp()),
    Column("createdBy", Text),
    Column("source", Text),
    Index("drive_memories_driveId_idx", "driveId"),
)

DETAILS = Table(
    "memtui_fact_details",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("updated_at", MOMENT),
    Column("expires_at", MOMENT),
    Column("pinned", Boolean, nullable=False),
    Column("topic", Text),
    Column("tags", Text, nullable=False),
    Column("source_kind", Text),
    Column("agent_id", Text),
    Column("issue_id", Text),
    Column("run_id", Text),
    Column("extra", Text, nullable=False),
)

TABLES = {"user": USERS, "drive": DRIVES}
OWNERS = {"user": "userId", "drive": "driveId"}


def is_postgres(connection: Connection) -> bool:
    """Whether it is PostgreSQL and not SQLite."""
    return connection.dialect.name == "postgresql"


def written(moment: datetime) -> str:
    """Return a moment as both databases read it."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec="microseconds")


def as_moment(connection: Connection, text: str | None) -> ColumnElement[Any]:
    """Return a moment's text as a value of the tables' own type; None is NULL."""
    if text is None:
        return null()
    return cast(literal(text, Text), DateTime) if is_postgres(connection) else literal(text, Text)


def as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return a moment's column as text, with all of its digits."""
    return cast(column, Text)


class Details(Model):
    """What the seed's tables have no column for, as `memtui_fact_details` holds it."""

    updated_at: str | None = None
    expires_at: str | None = None
    pinned: bool = False
    topic: str | None = None
    tags: str = ""
    """One JSON string a line, with a line end before and behind each."""
    source_kind: str | None = None
    agent_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    extra: str = "{}"
    """JSON: the scope's other ids, the source, the metadata, and who wrote it."""

    @classmethod
    def of(cls, request: WriteRequest, updated_at: str) -> Details:
        """Return what a write has to say beside its text."""
        scope, source = request.scope, request.source
        extra = {
            "scope": scope.model_dump(include={"agent_id", "issue_id", "run_id"}),
            "source": source.model_dump(mode="json", exclude_none=True),
            "metadata": {k: v for k, v in request.metadata.items() if k != MAKER},
            "created_by": request.created_by,
        }
        return cls(
            updated_at=updated_at,
            expires_at=written(request.expires_at) if request.expires_at else None,
            pinned=request.pinned,
            topic=request.topic,
            tags=tag_lines(request.tags),
            source_kind=source.kind.value,
            agent_id=scope.agent_id,
            issue_id=scope.issue_id or source.issue_id,
            run_id=scope.run_id or source.run_id,
            extra=json.dumps(extra, sort_keys=True),
        )

    def corrected(self, request: CorrectRequest, updated_at: str) -> Details:
        """Return these details with the fields that a correction sets."""
        changes: Json = {"updated_at": updated_at}
        if request.pinned is not None:
            changes["pinned"] = request.pinned
        if request.topic is not None:
            changes["topic"] = request.topic
        if request.tags is not None:
            changes["tags"] = tag_lines(request.tags)
        if request.sets_expiry:
            changes["expires_at"] = written(request.expires_at) if request.expires_at else None
        return self.model_copy(update=changes)

    def fields(self) -> Json:
        """Return the record's fields that these details tell; foreign JSON tells nothing."""
        extra = _json_object(self.extra)
        metadata = extra.get("metadata")
        return {
            "source": _source(extra.get("source")),
            "topic": self.topic,
            "tags": tuple(json.loads(line) for line in self.tags.split("\n") if line),
            "created_by": extra.get("created_by"),
            "updated_at": read_moment(self.updated_at),
            "expires_at": read_moment(self.expires_at),
            "pinned": self.pinned,
            "metadata": metadata if isinstance(metadata, dict) else {},
        }

    def scope_ids(self) -> Json:
        """Return the ids of the scope that the seed's tables have no column for."""
        ids = _json_object(self.extra).get("scope")
        return ids if isinstance(ids, dict) else {}


class Fact(Model):
    """A row of `user_memories` or `drive_memories`."""

    scope: str
    """`user` or `drive`."""
    owner: str
    id: str
    text: str
    created_at: str
    """With every digit that the database holds."""
    created_by: str | None = None
    source: str | None = None
    record_id: str
    """The handle's id: the row's, with a prefix where both tables hold the same."""
    details: Details | None = None

    @classmethod
    def of_row(cls, row: RowMapping) -> Fact:
        """Return a row of the select in `rows`."""
        own = {name: row[name] for name in cls.model_fields if name != "details"}
        held = row.get("extra") is not None
        details = Details(**{name: row[name] for name in Details.model_fields}) if held else None
        return cls(**own, details=details)

    @property
    def handle(self) -> RecordHandle:
        """The record's name."""
        return RecordHandle(provider_key=KEY, provider_record_id=self.record_id)

    @property
    def revision(self) -> str:
        """A digest of all that the tables hold of the fact."""
        held = self.model_dump_json(exclude={"record_id"})
        return hashlib.sha256(held.encode()).hexdigest()[:32]

    def record(self, company_id: str) -> Record:
        """Return the fact as the contract's record."""
        details = self.details or Details()
        told = details.fields()
        created_at, own = read_moment(self.created_at), {OWNER_IDS[self.scope]: self.owner}
        told |= {
            "updated_at": told["updated_at"] or created_at,
            "created_by": told["created_by"] or self.created_by,
            "metadata": {**told["metadata"], **({MAKER: self.source} if self.source else {})},
        }
        return Record(
            handle=self.handle,
            text=self.text,
            scope=Scope(company_id=company_id, **details.scope_ids(), **own),
            kind="fact",
            created_at=created_at,
            revision=self.revision,
            **told,
        )


def tag_lines(tags: tuple[str, ...]) -> str:
    """Return tags as the details keep them: a tag is found by its line, whole."""
    return "".join(f"\n{json.dumps(tag)}\n" for tag in tags)


def _json_object(text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _source(value: object) -> SourceRef | None:
    try:
        return SourceRef.model_validate(value)
    except ValidationError:
        return None
