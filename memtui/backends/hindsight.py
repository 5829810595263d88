"""Facts and observations of a Hindsight bank, through its HTTP API.

Hindsight keeps a text as a document, and its model makes facts of it; a bank whose
`retain_extraction_mode` is `chunks` keeps the text itself. A fact can be edited and invalidated,
which keeps it for an audit and can be taken back; only a whole document can be deleted.
Observations are derived from facts, and name them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, urlencode

from pydantic import AliasChoices, BeforeValidator, Field

from memtui.contract import (
    BindingContext,
    Capabilities,
    Conflict,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Unavailable,
    Unsupported,
    WriteRequest,
    owner_of,
)
from memtui.provider_kit import UUID, check_revision, read_moment
from memtui.provider_kit.kept import OWN, KeptFields, KeptMemory
from memtui.provider_kit.server_provider import (
    ServerConfig,
    ServerProvider,
    ServerRows,
    read_one,
    read_page,
    read_pages,
    read_rows,
    revision_of,
)
from memtui.provider_kit.servers import path_segment, read_json, read_object

_PAGE = 500
_QUERY_CHARS = 2_000
_TOKENS_A_HIT = 500
_DERIVED = "observation"
_TOLD = {"document_id", "occurred_start", "occurred_end"}
_GONE = "invalidated"
_REASON = "forgotten through memtui"


class HindsightConfig(ServerConfig):
    """A memory bank of a Hindsight server: its facts, and the observations derived from them."""

    bank: str = Field(min_length=1)
    """The bank's id; a first write makes the bank."""
    extracts: bool = True
    """Its model makes facts of each text; false: the bank's `retain_extraction_mode` is `chunks`,
    so that the text itself is kept."""
    shared_observations: bool = False
    """Show observations to every owner; false: to the company alone, since one may be derived from
    the facts of several owners."""


class _Unit(KeptMemory):
    id: str = Field(pattern=UUID.pattern)
    text: str
    context: str | None = None
    kind: str = Field(default="world", validation_alias=AliasChoices("fact_type", "type"))
    document_id: str | None = None
    mentioned_at: str | None = None
    occurred_start: str | None = None
    occurred_end: str | None = None
    edited_at: str | None = None
    state: str = "valid"
    tags: Annotated[tuple[str, ...], BeforeValidator(lambda value: value or ())] = ()
    sources: Annotated[tuple[str, ...], BeforeValidator(lambda value: value or ())] = Field(
        default=(), validation_alias=AliasChoices("source_memory_ids", "source_fact_ids")
    )
    scores: Annotated[dict[str, float | None], BeforeValidator(lambda value: value or {})] = {}


class HindsightAdapter(ServerProvider[_Unit]):
    """A client of the endpoints below `/v1/default/banks/{bank}`."""

    key: ClassVar[str] = "hindsight"
    who = "The Hindsight server"
    config_model = HindsightConfig
    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, full_text=True, semantic=True,
        chosen_owners=True, provider_managed_extraction=True,
    )  # fmt: skip
    has_uuids = True
    partition = "bank"
    keeps = (
        "The Hindsight server's database behind {} may keep what is deleted in its log and backups."
    )
    why_read_only = "An observation is derived; correct or forget the facts that it names."

    def __init__(self, context: BindingContext, config: HindsightConfig) -> None:
        super().__init__(context, config)
        self._config = config
        self._bank = f"/v1/default/banks/{path_segment(config.bank, what='The bank')}"

    @classmethod
    def abilities(cls, config: ServerConfig) -> Capabilities:
        """Return what the bank does with a text."""
        extracts = {"provider_managed_extraction": getattr(config, "extracts", True)}
        return cls.capabilities.model_copy(update=extracts)

    def record_of(self, item: _Unit) -> Record:
        """Return a fact or an observation; the topic is its context."""
        kept = item.kept
        told = item.model_dump(include=_TOLD, exclude_none=True)
        if item.kind == _DERIVED:
            told["source_memory_ids"] = list(item.sources)
        created_at = kept.created_at or read_moment(item.mentioned_at)
        return kept.record(
            self.context.company_id,
            told | item.metadata,
            handle=self.handle_of(item.id),
            text=item.text,
            kind=kept.kind or item.kind,
            topic=item.context or None,
            tags=item.tags if kept.tags is None or set(kept.tags) != set(item.tags) else kept.tags,
            created_at=created_at,
            updated_at=read_moment(item.edited_at) or created_at,
            read_only=item.kind == _DERIVED,
            revision=revision_of(item.text, item.context, sorted(item.tags), item.metadata),
        )

    def is_seen(self, record: Record, scope: Scope, *, expired: bool = False) -> bool:
        """Whether a scope sees a record; an observation may be the company's alone."""
        is_company = owner_of(scope)[0] == "company_id" or self._config.shared_observations
        is_shown = is_company or not record.read_only
        return is_shown and super().is_seen(record, scope, expired=expired)

    def made_of(self, record: Record, source: Record) -> bool:
        """Whether an observation names a fact or another observation."""
        sources = record.metadata.get("source_memory_ids", ()) if record.read_only else ()
        return source.handle.provider_record_id in sources

    def score_of(self, item: _Unit) -> float | None:
        """Return Hindsight's final score."""
        return item.scores.get("final")

    async def list_items(self, most: int) -> ServerRows[_Unit]:
        """Read what is valid, the newest first. Raises `NotFound` before the bank's first write."""
        return await read_pages(self._page_from, _Unit.model_validate, lambda one: one.id, most)

    async def _page_from(self, offset: int, **asked: str) -> tuple[list[Any], int]:
        query = urlencode({"limit": _PAGE, "offset": offset, **asked})
        path = f"{self._bank}/memories/list?{query}"
        return await self.api.ask("GET", path, read_page("items"), changes=False)

    async def search(self, query: str, most: int) -> ServerRows[_Unit]:
        """Recall, as agents do."""
        if not re.search(r"\w", query):
            return ServerRows([])
        body = {"query": query[:_QUERY_CHARS], "max_tokens": most * _TOKENS_A_HIT}
        path = f"{self._bank}/memories/recall"
        reply = await self.api.ask("POST", path, read_object, body, changes=False)
        found = reply.get("results") or []
        return read_rows(found[:most], _Unit.model_validate, more=len(found) > most)

    async def fetch(self, record_id: str) -> _Unit | None:
        """Return what is valid. Raises `NotFound`."""
        found = await self._stored(record_id)
        return found if found.state != _GONE else None

    async def _stored(self, record_id: str) -> _Unit:
        path = f"{self._bank}/memories/{quote(record_id)}"
        return await self.api.ask("GET", path, read_one(_Unit.model_validate), changes=False)

    async def store(self, request: WriteRequest) -> Sequence[str]:
        """Store a text as a new document; return the facts that Hindsight made of it."""
        _check_text(request.content)
        odd = {one for one, value in request.metadata.items() if not isinstance(value, str)}
        kept, metadata = KeptFields.of_write(request, reserved=odd)
        document = str(uuid.uuid4())
        item: Json = {
            "content": request.content,
            "context": request.topic,
            "document_id": document,
            "metadata": {**metadata, OWN: json.dumps(kept.to_json(), ensure_ascii=False)},
            "tags": list(request.tags),
            "timestamp": request.created_at and request.created_at.isoformat(),
        }
        await self.api.ask("POST", f"{self._bank}/memories", read_object, {"items": [item]})
        rows, _ = await self._page_from(0, document_id=document)
        made = read_rows(rows, _Unit.model_validate).items
        if not self._config.extracts and [one.text for one in made] != [request.content]:
            try:
                await self.api.ask("DELETE", f"{self._bank}/documents/{document}", read_object)
            except MemtuiError as error:
                raise Unavailable(
                    f"Hindsight changed this text, and it could not be taken out again: {error}",
                    sent=True,
                ) from error
            raise Invalid(
                "Hindsight does not keep this text as it is, so it was taken out again; shorten "
                "it, or set the binding's extracts to true."
            )
        return [one.id for one in made]

    async def change(self, item: _Unit, request: CorrectRequest) -> str:
        """Edit a fact's text and context in place."""
        if request.tags is not None:
            raise Unsupported("Hindsight changes no tags of a memory; leave them out.")
        body = {"text": request.text, "context": request.topic}
        await self._patch(item.id, {one: body[one] for one in body if body[one] is not None})
        return item.id

    async def remove(self, item: _Unit) -> bool:
        """Invalidate a fact: recall leaves it out, and it can be brought back."""
        await self._patch(item.id, {"state": _GONE, "reason": _REASON})
        return True

    async def _patch(self, record_id: str, body: Json) -> None:
        _check_text(body.get("text") or "")
        path = f"{self._bank}/memories/{quote(record_id)}"
        await self.api.ask("PATCH", path, read_object, body)

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Delete the documents of invalidated facts, where no other fact was made of them."""
        texts, shared, documents = list[str](), 0, set[str]()
        for record_id in filter(self.may_be_id, request.record_ids):
            with suppress(NotFound):
                item = await self._stored(record_id)
                path = f"{self._bank}/documents/{quote(item.document_id or '')}"
                if item.state == _GONE and item.document_id:
                    kept = await self.api.ask("GET", path, read_object, changes=False)
                    texts.append(item.text)
                    shared += (is_shared := bool(kept.get("memory_unit_count")))
                    documents |= set() if is_shared else {path}
        for path in documents if request.apply else ():
            await self.api.ask("DELETE", path, read_object)
        stays = (
            f"Hindsight keeps {shared} invalidated facts, as other facts are of their documents."
        )
        own = self.keeps.format(self.context.binding_key)
        return EraseReply(
            kept={"invalidated facts": len(texts) - shared} if documents else {},
            texts=tuple(texts),
            beyond=(own, stays) if shared else (own,),
        )

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return an observation's texts; of a fact, Hindsight keeps the present one alone."""
        item = await self.find(handle, scope)
        if item is None:
            return ()
        path = f"{self._bank}/memories/{quote(item.id)}/history"
        rows = await self.api.ask("GET", path, read_json, changes=False)
        versions = [RecordVersion(text=item.text, valid_from=read_moment(item.edited_at))]
        for row in rows if isinstance(rows, list) else []:
            ended = read_moment(row.get("changed_at"))
            versions[-1] = versions[-1].model_copy(update={"valid_from": ended})
            versions.append(RecordVersion(text=str(row.get("previous_text")), valid_to=ended))
        return versions

    async def put_back(self, snapshot: Snapshot) -> None:
        """Make a fact valid again, with the text and context that it had, or invalidate it."""
        record_id, record = snapshot.handle.provider_record_id, snapshot.record
        try:
            item = await self._stored(record_id)
        except NotFound as error:
            if record is None:
                return
            raise Conflict(
                f"The memory {record_id} was deleted with its document; write it anew."
            ) from error
        if record is None:
            if item.state != _GONE:
                await self.remove(item)
            return
        if item.state == _GONE:
            await self._patch(record_id, {"state": "valid"})
        else:
            check_revision(self.record_of(item), snapshot.replaces)
        if (item.text, item.context or None) != (record.text, record.topic):
            await self._patch(record_id, {"text": record.text, "context": record.topic or ""})

    async def check(self) -> Health:
        """Return the server's version; the bank may not be there before its first write."""
        reply = await self.api.ask("GET", "/version", read_object, changes=False)
        try:
            _, number = await self._page_from(0, limit="1")
        except NotFound as error:
            return Health(status="degraded", message=str(error))
        return Health(version=reply.get("api_version"), records=number)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise Invalid("Hindsight drops a NUL from a text; remove it.")
