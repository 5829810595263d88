"""A server's fact as the contract's record."""

from __future__ import annotations

from datetime import UTC, datetime

from memtui.backends.facts.fact import MAKER
from memtui.backends.facts.tables import parsed
from memtui.backends.files.reading import digest
from memtui.contract import Conflict, Record, RecordHandle, Scope

from .wire import WireFact

KEY = "facts-http"
_LAST = datetime.max.replace(tzinfo=UTC)


def handle_of(kind: str, fact_id: str) -> RecordHandle:
    """Return the handle of a `user`'s or a `drive`'s fact."""
    return RecordHandle(provider_key=KEY, provider_record_id=f"{kind}:{fact_id}")


def wire_id(handle: RecordHandle) -> tuple[str, str]:
    """Return the kind (`user` or `drive`) and the server's id of a handle."""
    kind, _, fact_id = handle.provider_record_id.partition(":")
    return kind, fact_id


def record_of(fact: WireFact, kind: str, owner: str, company_id: str) -> Record:
    """Return a fact of a user or a drive as a record."""
    field = "project_id" if kind == "drive" else "subject_id"
    moment = parsed(fact.created_at)
    told = (fact.id, fact.fact, fact.created_at, fact.source, fact.created_by)
    return Record(
        handle=handle_of(kind, fact.id),
        text=fact.fact,
        scope=Scope(company_id=company_id, **{field: owner}),
        kind="fact",
        created_at=moment,
        updated_at=moment,
        created_by=fact.created_by,
        revision=digest(*(part or "" for part in told)),
        metadata={MAKER: fact.source} if fact.source else {},
    )


def place_of(record: Record) -> tuple[str, str]:
    """Return the kind and the id of whom a record is about."""
    project_id = record.scope.project_id
    return ("drive", project_id) if project_id else ("user", record.scope.subject_id or "")


def age(record: Record) -> tuple[datetime, str]:
    """Return what sorts records from the oldest on, those without a time last."""
    return record.created_at or _LAST, record.handle.provider_record_id


def check_revision(record: Record, revision: str | None, proposed: str | None) -> None:
    """Raise `Conflict` if a change is based on another revision than the record's."""
    if revision is not None and revision != record.revision:
        raise Conflict(
            "The fact changed since you read it; look at both and decide.",
            current=record,
            proposed=proposed,
        )
