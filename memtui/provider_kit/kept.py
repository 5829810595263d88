"""A record's fields for which a store has none, kept as JSON in its metadata."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Self

from pydantic import ConfigDict, ValidationError

from memtui.contract import (
    CorrectRequest,
    Json,
    Model,
    Record,
    Scope,
    SourceRef,
    UtcDatetime,
    WriteRequest,
)
from memtui.json_text import whole

OWN = "memtui"
"""memtui's key in a store's metadata."""
_SCOPE_IDS = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


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
    ids: dict[str, str] = {}
    """The ids of the record's scope, where the store has no place for them."""
    metadata: Json = {}
    """The metadata under names that the store reserves."""

    @classmethod
    def found_in(cls, metadata: Any) -> Self | None:
        """Return memtui's part of a store's metadata, where it is an object or JSON text.

        Empty where there is none, None where it cannot be read.
        """
        if not isinstance(metadata, dict):
            return None
        found = metadata.get(OWN, {})
        try:
            return cls.model_validate(whole(json.loads(found) if isinstance(found, str) else found))
        except (ValidationError, ValueError, RecursionError):
            return None

    @classmethod
    def of_write(
        cls, request: WriteRequest, *, reserved: Collection[str] = (), **given: Any
    ) -> tuple[Self, Json]:
        """Return memtui's part of a write, and the metadata that goes to the store as it is.

        memtui's part has the scope's ids too. `reserved` are the names of metadata that the store
        uses itself.
        """
        own = {OWN, *reserved}
        kept = cls.like(
            request,
            metadata={name: value for name, value in request.metadata.items() if name in own},
            **{
                "ids": request.scope.model_dump(exclude={"company_id"}, exclude_none=True),
                **given,
            },
        )
        return kept, {name: value for name, value in request.metadata.items() if name not in own}

    def record(self, company_id: str, metadata: Json, **given: Any) -> Record:
        """Return the record of a stored memory; `given` is what the store has a field for.

        `metadata` is the store's, of which memtui's part is left out.
        """
        own = {"company_id": company_id}
        ids = {name: self.ids[name] for name in _SCOPE_IDS if name in self.ids}
        others = {name: value for name, value in metadata.items() if name != OWN}
        return Record.like(
            self,
            **{
                "scope": Scope(**ids | own),
                "source": self.source and self.source.model_copy(update=own),
                "metadata": others | self.metadata,
                **given,
            },
        )

    @classmethod
    def read(cls, stored: object) -> Self:
        """Return the fields from their JSON; none where that is missing or not of memtui."""
        try:
            return cls.model_validate(stored or {})
        except ValidationError:
            return cls()

    def to_json(self) -> Json:
        """Return the fields that are set."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def corrected(self, request: CorrectRequest) -> Self:
        """Return them after a correction."""
        names = ("summary", "topic", "tags", "pinned", "expires_at")
        return self.model_copy(update=request.changes(*names))
