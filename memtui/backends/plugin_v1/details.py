"""What the contract has no field for, carried in `propagation` under one key of memtui's own.

Whatever else a row's `propagation` holds belongs to others: it is shown as
`metadata["propagation"]`, and every write of the row sends it back untouched.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, ValidationError

from memtui.contract import Json, Model, SourceRef, UtcDatetime, WriteRequest

from .wire import Row

KEY = "memtui"
FOREIGN = "propagation"
SCOPE_IDS = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


class Details(Model):
    """memtui's own part of a row; unset fields are not sent."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    id: str | None = None
    """The id that the caller gave, where it is not the plugin's."""
    source: SourceRef | None = None
    kind: str | None = None
    title: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] = ()
    created_at: UtcDatetime | None = None
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    """Set where the plugin itself keeps no expiry."""
    pinned: bool = False
    """Set where the plugin itself keeps no pin."""
    valid_from: UtcDatetime | None = None
    scope: dict[str, str] = {}
    metadata: Json = {}

    def as_json(self) -> Json:
        """Return what is sent."""
        return self.model_dump(mode="json", exclude_defaults=True)


def details_of(row: Row) -> Details | None:
    """Return memtui's part of a row: empty where there is none, None where it cannot be read."""
    held = row.raw.get("propagation")
    if held is None:
        return Details()
    if not isinstance(held, dict):
        return None
    try:
        return Details.model_validate(held.get(KEY, {}))
    except (ValidationError, RecursionError):
        return None


def is_ours(row: Row) -> bool:
    """Whether the row carries a part of memtui's."""
    held = row.raw.get("propagation")
    return isinstance(held, dict) and KEY in held


def foreign(row: Row | None) -> Json:
    """Return what others keep in a row's propagation."""
    held = row.raw.get("propagation") if row else None
    if not isinstance(held, dict):
        return {}
    return {name: value for name, value in held.items() if name != KEY}


def propagation(details: Details, others: Json) -> Json:
    """Return the whole propagation of a row."""
    return {**others, KEY: details.as_json()}


def details_for(
    request: WriteRequest, *, given_id: str | None, carry_expiry: bool, carry_pin: bool
) -> tuple[Details, Json]:
    """Return memtui's part of a new row, and others' part as `metadata["propagation"]` has it."""
    metadata = dict(request.metadata)
    others: Json = {}
    if isinstance(metadata.get(FOREIGN), dict):
        others = {name: value for name, value in metadata.pop(FOREIGN).items() if name != KEY}
    scope = {
        name: value for name in SCOPE_IDS if (value := getattr(request.scope, name)) is not None
    }
    details = Details(
        id=given_id,
        source=request.source,
        kind=request.kind,
        title=request.title,
        topic=request.topic,
        tags=request.tags,
        created_at=request.created_at,
        created_by=request.created_by,
        expires_at=request.expires_at if carry_expiry else None,
        pinned=request.pinned and carry_pin,
        valid_from=request.valid_from,
        scope=scope,
        metadata=metadata,
    )
    return details, others


def is_expired(row: Row, now: datetime) -> bool:
    """Whether the row is past its time, by the plugin's field or by memtui's."""
    details = details_of(row)
    ends = [row.expires_at, details.expires_at if details else None]
    return any(end is not None and end <= now for end in ends)


def whole(value: Any) -> Any:
    """Return JSON with halves of characters, which no database holds, as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(one) for one in value]
    if isinstance(value, dict):
        return {whole(name): whole(one) for name, one in value.items()}
    return value
