"""The bodies of the fact endpoints (seed 004 §6.4); `memtui.backends.facts_http.client` reads them.

An id on the wire is opaque: it holds the record's own id, and for a drive's fact the drive too,
because `DELETE /api/memory/drive/{id}` names no drive.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from memtui.contract import Model, Record, SourceKind, SourceRef, UtcDatetime
from memtui.doors.http import ids
from memtui.service.answers import AGENT_PREFIX

Maker = Literal["ai", "user"]
_MADE_BY = "fact_source"


class Wire(Model):
    """Base of the bodies: names in camel case, as the seed writes them."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class WireSource(Wire):
    """The work object that a fact comes from."""

    kind: SourceKind
    issue_id: str | None = None
    comment_id: str | None = None
    document_key: str | None = None
    run_id: str | None = None
    activity_id: str | None = None
    external_ref: str | None = None

    def reference(self, company_id: str) -> SourceRef:
        """Return the contract's reference."""
        return SourceRef(company_id=company_id, **dict(self))


class NewFact(Wire):
    """A fact to remember."""

    fact: Annotated[str, Field(min_length=1)]
    """One line, of 200 characters at most unless the server is set to take more."""
    source_ref: WireSource | None = None
    """What it comes from; left out, it counts as noted by hand."""

    def reference(self, company_id: str) -> SourceRef:
        """Return the contract's source reference."""
        if self.source_ref is None:
            return SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=company_id)
        return self.source_ref.reference(company_id)


class UserFact(Wire):
    """A fact about a user."""

    id: str
    fact: str
    created_at: UtcDatetime | None
    source: Maker | None
    """Who made it."""


class DriveFact(UserFact):
    """A fact about a drive."""

    created_by: str | None
    """The principal that added it."""


class UserFacts(Wire):
    """A user's facts, the oldest first."""

    memories: list[UserFact]
    at_least: bool
    """True: the provider cut the list, there may be more."""


class DriveFacts(Wire):
    """A drive's facts, the oldest first."""

    memories: list[DriveFact]
    at_least: bool
    """True: the provider cut the list, there may be more."""


class Accepted(Wire):
    """The fact was taken, and its provider shows it later."""

    operation_id: str


class ErrorDetail(Wire):
    """What went wrong."""

    kind: str
    message: str


class ErrorBody(Wire):
    """A refusal."""

    error: ErrorDetail


def user_fact(record: Record) -> UserFact:
    """Return a record as a user's fact."""
    return UserFact(
        id=ids.encode(record.handle.provider_record_id),
        fact=record.text,
        created_at=record.created_at,
        source=_maker(record),
    )


def drive_fact(record: Record) -> DriveFact:
    """Return a record as a drive's fact."""
    owner = record.scope.project_id or ""
    return DriveFact(
        id=ids.encode(owner, record.handle.provider_record_id),
        fact=record.text,
        created_at=record.created_at,
        source=_maker(record),
        created_by=record.created_by,
    )


def _maker(record: Record) -> Maker | None:
    match record.metadata.get(_MADE_BY), record.created_by:
        case ("ai", _):
            return "ai"
        case ("user", _):
            return "user"
        case (_, None):
            return None
        case (_, principal):
            return "ai" if principal.startswith(AGENT_PREFIX) else "user"
