"""A record's fields for which a store has none, kept as JSON in its metadata."""

import json
from collections.abc import Collection
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

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
ScopeId = Literal["agent_id", "project_id", "issue_id", "run_id", "subject_id"]
"""The ids of a scope; one of another name may narrow it too, so it is not ignored."""


def not_shown(number: int) -> str:
    """Return the sentence on memories of a server that cannot be read."""
    return (
        f"{number:,} memories of the server could not be read, so nobody is shown them; mend each "
        f"there, or remove {OWN} from its metadata, which makes it the company's."
    )


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
    ids: dict[ScopeId, str] = {}
    """The ids of the record's scope, where the store has no place for them."""
    metadata: Json = {}
    """The metadata under names that the store reserves."""

    @classmethod
    def found_in(cls, metadata: Any) -> Self:
        """Return memtui's part of a store's metadata, an object or JSON text; empty: it has none.

        Raises:
            ValueError: it cannot be read, so the memory's owner is unknown.
        """
        if not metadata:
            return cls()
        try:
            found = metadata.get(OWN, {})
            return cls.model_validate(whole(json.loads(found) if isinstance(found, str) else found))
        except (AttributeError, RecursionError) as error:
            raise ValueError("memtui's part of the metadata cannot be read") from error

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
        others = {name: value for name, value in metadata.items() if name != OWN}
        return Record.like(
            self,
            **{
                "scope": Scope(**own, **self.ids),
                "source": self.source and self.source.model_copy(update=own),
                "metadata": others | self.metadata,
                **given,
            },
        )

    def to_json(self) -> Json:
        """Return the fields that are set."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def corrected(self, request: CorrectRequest) -> Self:
        """Return them after a correction."""
        names = ("summary", "topic", "tags", "pinned", "expires_at")
        return self.model_copy(update=request.changes(*names))


class KeptMemory(BaseModel):
    """A memory as a server sends it, with memtui's part in its metadata.

    If that part cannot be read, the owner is unknown: the memory is not valid, and is shown to
    nobody.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)

    metadata: Annotated[Json, BeforeValidator(lambda value: value or {})] = {}

    @cached_property
    def kept(self) -> KeptFields:
        """The part of memtui. Raises `ValueError`."""
        return KeptFields.found_in(self.metadata)

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        _ = self.kept
        return self
