"""Memories of mcp-memory-service, through its HTTP API.

The server knows a memory by the hash of its text without case and blank edges, so it keeps each
text once and cannot change one: a correction stores the new text and then deletes the old memory.
It refuses a text that says nearly the same as one of the last day. It has tags, a type out of its
own list, and metadata; other fields are kept under `memtui` in the metadata.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from pydantic import Field

from memtui.contract import (
    BindingContext,
    Capabilities,
    Conflict,
    CorrectRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    Record,
    Scope,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.provider_kit import read_moment
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
from memtui.provider_kit.servers import path_segment, read_object

_PAGE = 100
_USES = frozenset({"access_count", "last_accessed_at", "access_queries"})
"""What each search writes into the metadata of its hits; it is no part of a record."""
_CHAT = "conversation_id"
"""Names the conversation, within which the server takes near duplicates."""
_RESERVED = frozenset({"tags", "type", *_USES})
_UNTYPED = "memory"
"""The kind of a memory without a type."""
_CHANGED_BY_KIND = "observation"
"""The type that the server gives to memories of a type that it does not know."""
_DOUBLE = "Duplicate"
"""Begins the server's refusal of a text that is stored already, or nearly so."""
_MOST_TAGS = _LONGEST_TAG = 100
_NO_TAG = "untagged"
"""The tag that the server gives to memories without one."""


class McpMemoryServiceConfig(ServerConfig):
    """The memories of an mcp-memory-service server.

    A search counts as a use of what it finds, also in a read-only binding: the server writes the
    time and the words of the query into the memory.
    """

    store: str = Field(default="default", min_length=1)
    """The server's store, one of its partitions; `all` reads every one and changes none."""
    near_duplicates: bool = False
    """Store a text also where the server has one of the last day that says nearly the same."""


class _Memory(KeptMemory):
    content_hash: str = Field(min_length=1, max_length=1000)
    content: str
    tags: tuple[str, ...] = ()
    memory_type: str | None = None
    created_at_iso: str | None = None
    updated_at_iso: str | None = None
    score: float | None = None
    """The similarity, from 0 to 1."""


_READ = read_one(_Memory.model_validate)


class McpMemoryServiceAdapter(ServerProvider[_Memory]):
    """A client of the endpoints `/api/memories` and `/api/search`."""

    key: ClassVar[str] = "mcp-memory-service"
    who = "The mcp-memory-service server"
    config_model = McpMemoryServiceConfig
    partition = "store"
    keeps = (
        "The mcp-memory-service server keeps the text and vector of each forgotten memory in its "
        "database, marked as deleted; only its administrator can remove them there."
    )
    capabilities = Capabilities(browse=True, correction=True, semantic=True, chosen_owners=True)

    def __init__(self, context: BindingContext, config: McpMemoryServiceConfig) -> None:
        super().__init__(context, config)
        self._config = config
        self._store = urlencode({"store": config.store})

    @classmethod
    def headers(cls, token: str | None) -> Mapping[str, str]:
        """Return the API key, as the server's own clients send it."""
        return {} if token is None else {"X-API-Key": token}

    def record_of(self, item: _Memory) -> Record:
        """Return a memory as a record; its revision does not change with the uses."""
        kept, own = item.kept, item.metadata
        uses = _USES | ({_CHAT} if own.get(_CHAT) == OWN else set())
        metadata = {one: own[one] for one in own if one not in uses}
        author = own.get("agent_id")
        is_kept = kept.kind is not None and item.memory_type in {
            kept.kind.lower(), kept.kind, _CHANGED_BY_KIND, None,
        }  # fmt: skip
        has_tags = kept.tags is not None and _stored_tags(kept.tags) == set(item.tags)
        stored_at = read_moment(item.created_at_iso)
        return kept.record(
            self.context.company_id,
            metadata,
            handle=self.handle_of(item.content_hash),
            text=item.content,
            kind=kept.kind if is_kept else item.memory_type or _UNTYPED,
            tags=kept.tags if has_tags else tuple(one for one in item.tags if one != _NO_TAG),
            created_at=kept.created_at or stored_at,
            updated_at=read_moment(item.updated_at_iso) or stored_at,
            created_by=kept.created_by or (author if isinstance(author, str) else None),
            revision=revision_of(item.content, sorted(item.tags), item.memory_type, metadata),
        )

    async def list_items(self, most: int) -> ServerRows[_Memory]:
        """Read the list, the newest first."""
        return await read_pages(
            self._page_from, _Memory.model_validate, lambda one: one.content_hash, most
        )

    async def _page_from(self, offset: int) -> tuple[Sequence[Any], int]:
        number = offset // _PAGE + 1
        path = f"/api/memories?page={number}&page_size={_PAGE}&{self._store}"
        return await self.api.ask("GET", path, read_page("memories"), changes=False)

    async def search(self, query: str, most: int) -> ServerRows[_Memory]:
        """Return the nearest memories: however far they are, the server has nearest ones."""
        body = {"query": query, "n_results": most, "store": self._config.store}
        reply = await self.api.ask("POST", "/api/search", read_object, body, changes=False)
        hits = reply.get("results") or []
        rows = [{**one.get("memory", {}), "score": one.get("similarity_score")} for one in hits]
        return read_rows(rows, _Memory.model_validate, more=len(rows) >= most)

    async def fetch(self, record_id: str) -> _Memory:
        """Return one memory. Raises `NotFound`."""
        return await self.api.ask("GET", self._path(record_id), _READ, changes=False)

    async def store(self, request: WriteRequest) -> Sequence[str]:
        """Store a text, also one that was deleted before."""
        kept, metadata = KeptFields.of_write(request, reserved=_RESERVED)
        chat = OWN if self._config.near_duplicates else None
        chat = metadata.get(_CHAT, chat)
        return [await self._add(request.content, kept, metadata, chat)]

    async def _add(self, text: str, kept: KeptFields, metadata: Json, chat: object) -> str:
        """Store a text; the server takes near duplicates within a conversation, `chat`.

        Raises `Conflict` with the memory that says the same.
        """
        body: Json = {
            "content": text,
            "tags": sorted(_stored_tags(kept.tags or ())),
            "memory_type": None if kept.kind == _UNTYPED else kept.kind,
            "metadata": {**metadata, OWN: kept.to_json()},
            "store": self._config.store,
            "restore_deleted": True,
            _CHAT: None if chat is None else str(chat),
        }
        reply = await self.api.ask("POST", "/api/memories", read_object, body)
        said = str(reply.get("message"))
        if not reply.get("success"):
            raise await self._refused(text, said)
        if reply.get("content_hash") != hash_of(text):
            raise Unavailable(
                f"{self.who} stored the text in pieces ({said}); list the memories to see them.",
                sent=True,
            )
        return hash_of(text)

    async def _refused(self, text: str, said: str) -> MemtuiError:
        if not said.startswith(_DOUBLE):
            return Unavailable(f"{self.who} did not store the text: {said}.", sent=True)
        near = said.rstrip(")").rpartition("similar to ")[2]
        found_id = hash_of(text) if " " in near or near == _DOUBLE else near
        why = (
            f"The text is stored already, as {found_id}; this server keeps each text once."
            if found_id == hash_of(text)
            else f"The memory {found_id} says nearly the same; correct that one, or set the "
            "binding's near_duplicates to true."
        )
        everything = Scope(company_id=self.context.company_id)
        current = await self.get(self.handle_of(found_id), everything)
        return Conflict(why, current=current, proposed=text)

    async def change(self, item: _Memory, request: CorrectRequest) -> str:
        """Change tags and metadata in place; a new text becomes a new memory."""
        record = self.record_of(item)
        kept = item.kept.corrected(request)
        tags = record.tags if request.tags is None else request.tags
        known = {"kind": record.kind, "tags": tags, "created_at": record.created_at}
        kept = kept.model_copy(update={**known, "created_by": record.created_by})
        text = item.content if request.text is None else request.text
        new = hash_of(text)
        if text == item.content:
            body = {"tags": sorted(_stored_tags(tags)), "metadata": {OWN: kept.to_json()}}
            await self._done("PUT", self._path(new), body)
            return new
        if new == item.content_hash:
            raise Unsupported(
                "This server knows a memory by its text without case and blank edges, so these "
                "alone cannot be changed; forget the memory and write it anew."
            )
        if await self.is_there(new):
            raise await self._refused(text, _DOUBLE)
        metadata = {one: item.metadata[one] for one in item.metadata if one not in {*_USES, OWN}}
        try:
            await self._add(text, kept, metadata, item.metadata.get(_CHAT, OWN))
        except Unavailable as error:
            if not (error.sent and await self.is_there(new)):
                raise
        await self.remove_replaced(item, new)
        return new

    async def remove(self, item: _Memory) -> bool:
        """Delete a memory. Raises `NotFound`."""
        await self._done("DELETE", self._path(item.content_hash))
        return True

    async def _done(self, method: str, path: str, body: Json | None = None) -> None:
        """Send a change that the server may refuse in a reply of status 200."""
        reply = await self.api.ask(method, path, read_object, body)
        if not reply.get("success"):
            said = reply.get("message")
            raise Unavailable(f"{self.who} did not change the memory: {said}.", sent=True)

    async def check(self) -> Health:
        """Return the server's version and the number of its memories."""
        reply = await self.api.ask("GET", "/api/health/detailed", read_object, changes=False)
        stored = reply.get("storage") or {}
        is_well = reply.get("status") == "healthy"
        return Health(
            status="ok" if is_well else "degraded",
            message=f"mcp-memory-service answers, with the backend {stored.get('backend')}.",
            version=str(reply.get("version") or "") or None,
        )

    def _path(self, record_id: str) -> str:
        return f"/api/memories/{path_segment(record_id, what='The memory')}?{self._store}"


def hash_of(text: str) -> str:
    """Return the server's id of a text."""
    return hashlib.sha256(text.strip().lower().encode()).hexdigest()


def _stored_tags(tags: Sequence[str]) -> set[str]:
    """Return the form in which the server keeps tags. Raises `Invalid` for those it would cut."""
    found = {tag.replace(",", "-").strip().lower() for tag in tags} - {""}
    if len(found) > _MOST_TAGS or any(len(tag) > _LONGEST_TAG for tag in found):
        raise Invalid(
            f"This server keeps at most {_MOST_TAGS} tags of {_LONGEST_TAG} characters; leave the "
            "others out."
        )
    return found or {_NO_TAG}
