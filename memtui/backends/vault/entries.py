"""A record as the vault's parts pass it around, and as the contract shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memtui.contract import Json, Location, Record, RecordHandle, Scope, SourceRef

from .layout import Area

KEY = "vault"


@dataclass(frozen=True, slots=True)
class Entry:
    """One note, or one version of a fact, with everything that a search or a page needs."""

    id: str
    path: str
    line: int
    area: Area
    kind: str
    text: str
    revision: str
    project_id: str | None = None
    agent_id: str | None = None
    subject_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] = ()
    title: str | None = None
    created: datetime | None = None
    updated: datetime | None = None
    expires: datetime | None = None
    pinned: bool = False
    created_by: str | None = None
    source: Json | None = None
    """The source reference without its company."""
    metadata: Json = field(default_factory=dict)
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    is_current: bool = True
    """False for a version that held once."""
    names: str = ""
    """Words to be found by that are not in the text: subject, file name."""


def handle_of(record_id: str) -> RecordHandle:
    """Return the handle of a record id."""
    return RecordHandle(provider_key=KEY, provider_record_id=record_id)


def source_fields(source: SourceRef) -> Json:
    """Return a source reference as the vault keeps it: the vault belongs to one company."""
    return source.model_dump(mode="json", exclude={"company_id"}, exclude_none=True)


def source_of(fields: Json | None, company_id: str) -> SourceRef | None:
    """Return the source reference that the vault keeps as `fields`."""
    return SourceRef(company_id=company_id, **fields) if fields else None


def to_record(entry: Entry, company_id: str, root: str) -> Record:
    """Return the contract's record of an entry."""
    return Record(
        handle=handle_of(entry.id),
        text=entry.text,
        scope=Scope(
            company_id=company_id,
            agent_id=entry.agent_id,
            project_id=entry.project_id,
            issue_id=entry.issue_id,
            run_id=entry.run_id,
            subject_id=entry.subject_id,
        ),
        source=source_of(entry.source, company_id),
        title=entry.title,
        kind=entry.kind,
        topic=entry.topic,
        tags=entry.tags,
        created_at=entry.created,
        updated_at=entry.updated,
        created_by=entry.created_by,
        expires_at=entry.expires,
        pinned=entry.pinned,
        valid_from=entry.valid_from,
        valid_to=entry.valid_to,
        revision=entry.revision,
        location=Location(path=f"{root}/{entry.path}", line=entry.line),
        metadata=entry.metadata,
    )
