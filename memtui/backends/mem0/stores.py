"""`Mem0Store`, the interface to any mem0, and its clients for the open server and the platform.

The open server is mem0's library behind HTTP, so both have the same reply shapes. Neither has
pages, and both require a user, an agent or a run for every list and search. `*` matches any id; a
memory that has several of the three is returned for each.

| open server                   | platform                                           |
|-------------------------------|----------------------------------------------------|
| `POST /memories`              | `POST /v3/memories/add/`                           |
| `GET /memories?user_id&top_k` | `POST /v3/memories/?page&page_size`: `{filters}`   |
| `POST /search`                | `POST /v3/memories/search/`                        |
| `GET /memories/{id}`          | `GET /v1/memories/{id}/`, and so `PUT`, `DELETE`   |
| `GET /memories/{id}/history`  | `GET /v1/memories/{id}/history/`                   |

A write is `{messages, user_id, agent_id, run_id, metadata, infer}`, on the platform also `{app_id,
expiration_date, timestamp}`; a change is `{text, metadata}`, a search `{query, filters, top_k}`.
For a missing memory, the open server answers 200 `null` and the platform 404. The platform answers
`{event_id, status: PENDING}` if it stores later.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from memtui.backends.mem0.config import Mem0Config
from memtui.backends.mem0.memories import OWNERS, Mem0Draft, Mem0Memory, MemoryPage, read_memories
from memtui.contract import Invalid, Json, MemtuiError, NotFound, Unavailable
from memtui.provider_kit import together
from memtui.provider_kit.servers import JsonApi, Unreadable, path_segment, read_json, read_object

ANY = "*"
_PAGE = 100
_CAPS = frozenset({20, 100, 1_000, 10_000})
"""Silent limits of some versions of the open server or of a store."""
_LEAST_CAP = 1_000
"""Number of memories that every version of the open server can list at once."""
_ENDED, _FAILED = frozenset({"SUCCEEDED", "COMPLETED"}), frozenset({"FAILED", "CANCELLED"})
_EVERYTHING: Json = {"OR": [{name: ANY} for name in (*OWNERS.values(), "app_id")]}


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a write: the stored ids, or the event that will report it."""

    ids: tuple[str, ...]
    event: str | None = None
    changed: Mapping[str, str | None] = field(default_factory=dict)
    """The earlier text of those that were there before, by id; None: mem0 did not tell it."""


class Mem0Store(ABC):
    """One mem0. Every call raises the contract's errors."""

    api: JsonApi
    """The client of its server; the library's is not used."""
    has_apps: ClassVar[bool] = False
    """Whether it has an `app_id`, in which projects are stored."""

    @abstractmethod
    async def add(self, draft: Mem0Draft, *, infer: bool) -> Added:
        """Store a text, or the memories that mem0's model infers from it."""

    async def ingested(self, event: str) -> Added | None:
        """Return the outcome of an event; None: it has not ended. As `Adapter.ingested`."""
        raise NotFound(f"This mem0 knows no events, such as {event}.")

    @abstractmethod
    async def search(self, query: str, top_k: int, *, explain: bool = False) -> MemoryPage:
        """Return the best hits among all memories; `explain` adds the parts of their scores."""

    @abstractmethod
    async def list(self, most: int) -> MemoryPage:
        """Return at most `most` memories, expired ones included where mem0 returns them."""

    @abstractmethod
    async def get(self, memory_id: str) -> Mem0Memory | None:
        """Return one memory."""

    @abstractmethod
    async def update(self, memory_id: str, text: str, metadata: Json, expires: date | None) -> None:
        """Replace a memory's text and expiry; metadata keys are never removed."""

    @abstractmethod
    async def delete(self, memory_id: str) -> bool:
        """Delete a memory; False if there is none."""

    @abstractmethod
    async def history(self, memory_id: str) -> Any:
        """Return the rows of a memory's history."""

    @abstractmethod
    async def check(self) -> str:
        """Check that mem0 answers; return a sentence about it. Raises `Unavailable`, `Denied`."""

    async def erase(self, memory_ids: Sequence[str], *, apply: bool) -> Sequence[str] | None:
        """Return the texts that the history still has of deleted memories; `apply`: erase them.

        None: the history cannot be reached.
        """
        del memory_ids, apply
        return None

    async def close(self) -> None:
        """Close the connections or the store."""
        await self.api.close()


class OpenStore(Mem0Store):
    """mem0's library, local or behind a server: requests go by user, by agent and by run."""

    async def search(self, query: str, top_k: int, *, explain: bool = False) -> MemoryPage:
        """Search in everything that has a user, an agent or a run."""
        asked: Json = {"top_k": top_k, **({"explain": True} if explain else {})}
        return _merged(
            await together(partial(self.search_in, name, query, asked) for name in OWNERS.values()),
            most=top_k,
        )

    async def list(self, most: int) -> MemoryPage:
        """List everything that has a user, an agent or a run."""
        return _merged(
            await together(partial(self.list_in, name, most + 1) for name in OWNERS.values()),
            most=most,
            caps=_CAPS,
        )

    async def delete(self, memory_id: str) -> bool:
        """Delete a memory; after an error, look it up, as the error may only mean it is missing."""
        try:
            await self.drop(memory_id)
        except MemtuiError:
            if await self.get(memory_id) is None:
                return False
            raise
        return True

    @abstractmethod
    async def search_in(self, owner: str, query: str, asked: Json) -> MemoryPage:
        """Search the memories that have any id of this name, such as `user_id`."""

    @abstractmethod
    async def list_in(self, owner: str, top_k: int) -> MemoryPage:
        """List the memories that have any id of this name."""

    @abstractmethod
    async def drop(self, memory_id: str) -> None:
        """Delete a memory; a missing one may raise any of the contract's errors."""


def _merged(
    found: Sequence[MemoryPage], *, most: int, caps: frozenset[int] = frozenset()
) -> MemoryPage:
    """Return the memories of several replies, each once, best first if they have scores."""
    numbers = [len(rows.items) + rows.unreadable for rows in found]
    memories = {one.id: one for rows in found for one in rows.items}
    ordered = sorted(memories.values(), key=lambda one: -(one.score or 0.0))
    more = any(number >= most or number in caps for number in numbers)
    return MemoryPage(ordered[:most], more, max(rows.unreadable for rows in found))


def open_metadata(metadata: Json, expires: date | None) -> Json:
    """Return metadata with the expiry, which the library stores there."""
    return {**metadata, "expiration_date": expires.isoformat() if expires else None}


def first_metadata(draft: Mem0Draft) -> Json:
    """Return the metadata of a new memory, with its expiry and its creation time, if known."""
    metadata = open_metadata(draft.metadata, draft.expires) if draft.expires else draft.metadata
    if draft.created_at is None:
        return metadata
    return {**metadata, "created_at": draft.created_at.isoformat()}


class Mem0ServerStore(OpenStore):
    """The open server."""

    def __init__(self, config: Mem0Config, key: str | None) -> None:
        self.api = config.client("The mem0 server", {"X-API-Key": key} if key else {})
        self._most_listed = config.max_listed + 1

    async def add(self, draft: Mem0Draft, *, infer: bool) -> Added:
        """Store a text. Raises `Unavailable` if `infer` is set and the server has no model."""
        content: Json = {"messages": messages(draft.text), "metadata": first_metadata(draft)}
        body = {**content, **draft.owners, "infer": infer}
        return read_added(await self.api.ask("POST", "/memories", read_json, body))

    async def search_in(self, owner: str, query: str, asked: Json) -> MemoryPage:
        """Search by `filters`, which every version supports."""
        body = {"query": query, "filters": {owner: ANY}, **asked}
        return await self.api.ask("POST", "/search", _rows, body, changes=False)

    async def list_in(self, owner: str, top_k: int) -> MemoryPage:
        """List, expired memories included; some versions ignore the parameters.

        Some versions refuse to list more than a thousand; once this is known, no more are
        requested.
        """
        return await self._list({owner: ANY}, top_k)

    async def _list(self, owners: Mapping[str, str], top_k: int) -> MemoryPage:
        asked = min(top_k, self._most_listed)
        path = "/memories?" + urlencode({**owners, "top_k": asked, "show_expired": "true"})
        try:
            return await self.api.ask("GET", path, _rows, changes=False)
        except Invalid:
            if asked <= _LEAST_CAP:
                raise
        self._most_listed = _LEAST_CAP
        return await self._list(owners, top_k)

    async def get(self, memory_id: str) -> Mem0Memory | None:
        """Return one memory; None if the server answers `null`."""
        return await _one(self.api, f"/memories/{quote(memory_id)}")

    async def update(self, memory_id: str, text: str, metadata: Json, expires: date | None) -> None:
        """Change a memory; the given metadata is merged into the existing one."""
        body = {"text": text, "metadata": open_metadata(metadata, expires)}
        await self.api.ask("PUT", f"/memories/{quote(memory_id)}", bytes, body)

    async def drop(self, memory_id: str) -> None:
        """Delete a memory."""
        await self.api.ask("DELETE", f"/memories/{quote(memory_id)}", bytes)

    async def history(self, memory_id: str) -> Any:
        """Return the rows of a memory's history."""
        path = f"/memories/{quote(memory_id)}/history"
        return await self.api.ask("GET", path, read_json, changes=False)

    async def check(self) -> str:
        """List as `list` does, but for a run that does not exist."""
        await self._list({"user_id": ANY, "run_id": "memtui-health"}, self._most_listed)
        return "An open mem0 server answers."


class PlatformStore(Mem0Store):
    """mem0's platform."""

    has_apps = True

    def __init__(self, config: Mem0Config, key: str | None) -> None:
        self.api = config.client("mem0's platform", {"Authorization": f"Token {key}"})

    async def add(self, draft: Mem0Draft, *, infer: bool) -> Added:
        """Store a text; with `infer`, the platform stores later."""
        said = messages(draft.text)
        body: Json = {"messages": said, **draft.owners, "metadata": draft.metadata}
        if draft.expires:
            body["expiration_date"] = draft.expires.isoformat()
        if draft.created_at:
            body["timestamp"] = int(draft.created_at.timestamp())
        made = await self.api.ask("POST", "/v3/memories/add/", read_json, {**body, "infer": infer})
        return read_added(made)

    async def ingested(self, event: str) -> Added | None:
        """Return the outcome of the platform's event."""
        path = f"/v1/event/{path_segment(event, what='The event')}/"
        try:
            reply = await self.api.ask("GET", path, read_object, changes=False)
        except Invalid as error:  # the question was refused, which says nothing of the write
            raise Unavailable(str(error)) from error
        status = str(reply.get("status")).upper()
        if status in _FAILED:
            why = reply.get("error") or reply.get("message") or f"its event {event} says no more"
            raise Invalid(f"mem0 could not store it: {str(why).rstrip('.')}.")
        return read_added(reply) if status in _ENDED else None

    async def search(self, query: str, top_k: int, *, explain: bool = False) -> MemoryPage:
        """Search in everything that has a user, an agent, a run or an app."""
        del explain  # the parts come with every score
        body = {"query": query, "filters": _EVERYTHING, "top_k": top_k}
        rows = await self.api.ask("POST", "/v3/memories/search/", _rows, body, changes=False)
        return replace(rows, more=len(rows.items) >= top_k)

    async def list(self, most: int) -> MemoryPage:
        """Read the first page, which tells the number of pages, and then the others."""
        first, count = await self._page(1)
        pages = [first]
        if first.more:
            last = -(-min(count, most) // _PAGE)
            rest = await together(partial(self._page, number) for number in range(2, last + 1))
            pages += [rows for rows, _ in rest]
        memories = {one.id: one for rows in pages for one in rows.items}
        more = pages[-1].more or len(memories) > most
        unreadable = sum(rows.unreadable for rows in pages)
        return MemoryPage(list(memories.values())[:most], more, unreadable)

    async def _page(self, number: int) -> tuple[MemoryPage, int]:
        """Return a page and the total number of memories."""
        path = "/v3/memories/?" + urlencode({"page": number, "page_size": _PAGE})
        body = {"filters": _EVERYTHING, "show_expired": True}
        return await self.api.ask("POST", path, _counted, body, changes=False)

    async def get(self, memory_id: str) -> Mem0Memory | None:
        """Return one memory; None if the platform answers 404."""
        try:
            return await _one(self.api, f"/v1/memories/{quote(memory_id)}/")
        except NotFound:
            return None

    async def update(self, memory_id: str, text: str, metadata: Json, expires: date | None) -> None:
        """Change a memory; `expires` None removes the expiry."""
        day = expires.isoformat() if expires else None
        body = {"text": text, "metadata": metadata, "expiration_date": day}
        await self.api.ask("PUT", f"/v1/memories/{quote(memory_id)}/", bytes, body)

    async def delete(self, memory_id: str) -> bool:
        """Delete a memory; False if the platform answers 404."""
        try:
            await self.api.ask("DELETE", f"/v1/memories/{quote(memory_id)}/", bytes)
        except NotFound:
            return False
        return True

    async def history(self, memory_id: str) -> Any:
        """Return the rows of a memory's history."""
        path = f"/v1/memories/{quote(memory_id)}/history/"
        return await self.api.ask("GET", path, read_json, changes=False)

    async def check(self) -> str:
        """Ping the platform, which tells the key's owner."""
        reply = await self.api.ask("GET", "/v1/ping/", read_object, changes=False)
        return f"mem0's platform answers {reply.get('user_email') or 'this key'}."

    async def profile(self, user_id: str) -> str:
        """Return a user's profile; empty if there is none yet. Raises `Unavailable`."""
        path = f"/v2/entities/user/{path_segment(user_id, what='The user')}/profile/"
        try:
            reply = await self.api.ask("GET", path, read_object, changes=False)
        except NotFound:  # the platform does not know this user
            return ""
        profile = reply.get("profile")
        if reply.get("status") == "failed":
            raise Unavailable(f"mem0 could not make the profile of {user_id}; look at its events.")
        if isinstance(profile, dict):
            return "\n".join(f"{name}: {_in_words(value)}" for name, value in profile.items())
        return str(profile or "")


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rows(body: bytes) -> MemoryPage:
    return read_memories(read_json(body))


def _counted(body: bytes) -> tuple[MemoryPage, int]:
    reply = read_object(body)
    count = reply.get("count")
    if not isinstance(count, int):
        raise Unreadable("its list has no count")
    return read_memories(reply, more=bool(reply.get("next"))), count


async def _one(api: JsonApi, path: str) -> Mem0Memory | None:
    row = await api.ask("GET", path, read_json, changes=False)
    return None if row is None else next(iter(read_memories([row]).items), None)


def messages(text: str) -> list[Json]:
    """Return a text as a user's message: mem0 takes a conversation."""
    return [{"role": "user", "content": text}]


def read_added(reply: Any) -> Added:
    """Return the ids that a write stored, whether as additions or as updates."""
    rows = reply.get("results") if isinstance(reply, dict) else reply
    stored = {
        str(row["id"]): row
        for row in rows or ()
        if isinstance(row, dict) and row.get("id") and row.get("event", "ADD") in {"ADD", "UPDATE"}
    }
    changed = {
        name: row.get("previous_memory")
        for name, row in stored.items()
        if row.get("event") == "UPDATE"
    }
    event = reply.get("event_id") if isinstance(reply, dict) else None
    is_open = not stored and event is not None
    return Added(tuple(stored), str(event) if is_open else None, changed)
