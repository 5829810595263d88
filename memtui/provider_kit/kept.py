"""A record's fields for which a store has none, kept as JSON beside its text."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, ValidationError

from memtui.contract import CorrectRequest, Json, Model, SourceRef, UtcDatetime


class KeptFields(Model):
    """The fields that a store lacks; unset ones are not written.

    Whoever reads them ignores what another version of memtui has added.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    source: SourceRef | None = None
    kind: str | None = None
    title: str | None = None
    summary: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] | None = None
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    pinned: bool = False
    valid_from: UtcDatetime | None = None
    metadata: Json = {}

    @classmethod
    def read(cls, stored: object) -> Self:
        """Return the fields from their JSON; none where that is missing or not of memtui."""
        try:
            return cls.model_validate(stored or {})
        except ValidationError:
            return cls()

    def to_json(self) -> Json:
        """Return the fields that are set."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)

    def corrected(self, request: CorrectRequest) -> Self:
        """Return them after a correction."""
        names = ("summary", "topic", "tags", "pinned", "expires_at")
        return self.model_copy(update=request.changes(*names))
