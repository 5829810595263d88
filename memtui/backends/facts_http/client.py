"""A client of the endpoints of seed 004 §6.4, with the bodies that the seed leaves open.

Every request has the header `Authorization: Bearer TOKEN`; the token's owner is the user of
`/api/memory/user`.

| call                                | request           | reply                       |
|-------------------------------------|-------------------|-----------------------------|
| `GET /api/memory/user`              |                   | 200 `{"memories": [FACT]}`  |
| `POST /api/memory/user`             | `{"fact": "…"}`   | 201 FACT                    |
| `DELETE /api/memory/user/{id}`      |                   | 204                         |
| `GET /api/memory/drive/{driveId}`   |                   | 200 `{"memories": [FACT]}`  |
| `POST /api/memory/drive/{driveId}`  | `{"fact": "…"}`   | 201 FACT                    |
| `DELETE /api/memory/drive/{id}`     |                   | 204                         |

FACT is `{"id", "fact", "createdAt", "source", "createdBy"}`; `createdAt` is ISO 8601 in UTC,
`source` is `ai`, `user` or null, `createdBy` is there for drives. A refusal is
`{"error": {"kind": "…", "message": "…"}}` under 400 or 422 (invalid), 401 or 403 (denied), 404
(not found), 409 (conflict), 5xx (unavailable). Read with tolerance: a bare list, a null list, a
fact inside `{"memory": FACT}`, ids that are numbers, missing and unknown fields.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memtui.contract import RecordHandle
from memtui.provider_kit.servers import JsonApi, Unreadable, as_text, path_segment, read_json
from memtui.wording import misfit

KEY = "facts-http"


class FactsClient:
    """The calls to the server, as one user.

    Every call raises the contract's errors; `Unavailable.sent` is true if a change may have been
    made.
    """

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def list_facts(self, kind: str, owner: str) -> list[WireFact]:
        """Return the facts of the token's `user`, or of the `drive` of that id."""
        return await self._api.ask("GET", _path(kind, owner), _facts_of, changes=False)

    async def add(self, kind: str, owner: str, text: str) -> RecordHandle:
        """Store a fact about the token's `user`, or about the `drive` of that id."""
        fact = await self._api.ask("POST", _path(kind, owner), _fact_of, {"fact": text})
        return handle_of(kind, fact.id)

    async def delete(self, handle: RecordHandle) -> None:
        """Delete a fact. Raises `NotFound`."""
        kind, _, fact_id = handle.provider_record_id.partition(":")
        path = f"/api/memory/{kind}/{path_segment(fact_id, what='The fact')}"
        await self._api.ask("DELETE", path, lambda _reply: None)


def handle_of(kind: str, fact_id: str) -> RecordHandle:
    """Return the handle of a fact of a `user` or a `drive`."""
    return RecordHandle(provider_key=KEY, provider_record_id=f"{kind}:{fact_id}")


def _path(kind: str, owner: str) -> str:
    if kind == "user":
        return "/api/memory/user"
    return f"/api/memory/drive/{path_segment(owner, what='The drive')}"


class WireFact(BaseModel):
    """A fact in the server's replies."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Annotated[str, BeforeValidator(as_text), Field(min_length=1, max_length=1000)]
    fact: str
    created_at: Annotated[str | None, Field(alias="createdAt")] = None
    source: str | None = None
    created_by: Annotated[str | None, Field(alias="createdBy")] = None


def _facts_of(body: bytes) -> list[WireFact]:
    """Return the facts of a list. Raises `Unreadable`."""
    value = read_json(body)
    if isinstance(value, dict):
        if "memories" not in value:
            raise Unreadable("the list has no memories")
        value = value["memories"]
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable("memories is not a list")
    return [_fact(item) for item in value]


def _fact_of(body: bytes) -> WireFact:
    """Return the fact that was stored. Raises `Unreadable`."""
    value = read_json(body)
    if isinstance(value, dict) and isinstance(value.get("memory"), dict):
        value = value["memory"]
    return _fact(value)


def _fact(value: object) -> WireFact:
    try:
        return WireFact.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise Unreadable(f"a fact is wrong at {where}: {misfit(first)}") from error
