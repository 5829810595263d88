"""Memories of any MCP memory server, through its tools as a mapping describes them.

A mapping (`memtui.mcp_mapping`) says which tool searches, lists, adds, changes or deletes; an
ability without a tool is missing. What the server has no field for is kept in its metadata, or, if
it has none, by id in `known.json` in the `data_dir`.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar, Self
from uuid import uuid4

from memtui.backends.mcp.client import ToolClient, shortened
from memtui.backends.mcp.config import McpConfig
from memtui.backends.mcp.memories import KeptHere, kept_row, record_of, values_of
from memtui.contract import (
    OWNER_FIELDS,
    BindingContext,
    Capabilities,
    Conflict,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    Health,
    Invalid,
    Json,
    Matching,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteRequest,
    place_of_path,
)
from memtui.mcp_mapping import Mapping as ToolMapping
from memtui.mcp_mapping import ToolCall, bundled_mappings, load_mapping
from memtui.provider_kit import abilities_in, read_config, together
from memtui.provider_kit.kept import OWN, KeptFields
from memtui.provider_kit.search import TextIndex
from memtui.provider_kit.server_provider import Search, ServerProvider, ServerRows, read_rows

_PAGED = {"offset", "page"}
_READING = {"search": "search", "listing": "list", "get": "get"}
_CHANGING = {"add": "add", "update": "update", "delete": "delete"}
"""The words for the sections of a mapping, by the names of its fields."""
_MOST_NAMED = 30


class McpAdapter(ServerProvider[Json]):
    """Calls the tools of one server; a row of a reply is a memory.

    A memory without a place for its owner in the server belongs to whom `known.json` says, and else
    to the company.
    """

    key: ClassVar[str] = "mcp"
    who = "The MCP server"
    config_model = McpConfig
    capabilities = Capabilities(chosen_owners=True)
    cut_hint = "the server's list has no pages, so there may be more."
    api: Any

    def __init__(self, context: BindingContext, config: McpConfig, mapping: ToolMapping) -> None:
        super().__init__(context, config)
        self._config, self._mapping = config, mapping
        self._client: ToolClient = self.api
        self._lacking: list[str] = []
        """The tools of the mapping that the server does not have."""
        has_place = mapping.add is not None and "metadata" in mapping.add.names
        self._kept = KeptHere(context, is_here=not (has_place and mapping.record.metadata))

    @classmethod
    def config_of(cls, context: BindingContext) -> McpConfig:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = read_config(McpConfig, context)
        if bool(config.url) == bool(config.command):
            raise Invalid("Set either the command that starts the MCP server, or its url.")
        if config.url:
            super().config_of(context)
        elif not config.words():
            raise Invalid("The command is no program; write it as in a shell.")
        return config

    @classmethod
    def starts(cls, config: Json) -> str | None:
        """Return the command with the names of its variables."""
        found = McpConfig.model_validate(config)
        return found.command_line() if found.command else None

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the server with its arguments, and the files that its variables name."""
        config = cls.config_of(context)
        own = json.dumps(config.arguments, sort_keys=True)
        if config.url:
            return [(*place, "arguments", own) for place in super().places(context)]
        files = [Path(one) for one in config.env.values() if os.path.isabs(one)]  # noqa: PTH117
        return [
            ("command", config.command_line(), own),
            *(place_of_path(one) for one in files if one.suffix),
        ]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Start or reach the server and read its tools.

        Raises:
            Invalid: no mapping is set, or it does not fit.
            Unavailable: the server cannot be started or reached.
        """
        config = cls.config_of(context)
        mapping = load_mapping(config.mapping) if config.mapping else ToolMapping(title="")
        adapter = cls(context, config, mapping)
        try:
            await adapter.look()
        except BaseException:
            await adapter.close()
            raise
        return adapter

    async def look(self) -> None:
        """Read the server's tools; an ability is there if its tool is. Raises `Invalid`."""
        tools = await self._client.tools()
        if not self._mapping.tools & tools.keys():
            raise Invalid(proposal(str(self._client.server.get("name") or "nothing"), tools))
        self._lacking = sorted(self._mapping.tools - tools.keys())
        self._mapping = mapping_within(self._mapping, tools)
        self.capabilities = abilities_in(self.context, abilities_of(self._mapping))

    def connect(self, context: BindingContext, config: McpConfig) -> ToolClient:
        """Return the client. Raises `Invalid`."""
        headers = self.headers(self.token(context, config))
        return config.tool_client(self.who, context, headers)

    # Rows of replies as records

    async def _rows(self, call: ToolCall, values: Json, *, changes: bool = False) -> list[Json]:
        """Call a tool and return the memories in its reply; some may lack id or text.

        Raises:
            NotFound: the server says that there is no such memory.
            Unavailable: the server reports a failure; it may have changed something.
        """
        built = call.built({**self._config.arguments, **values})
        result = await self._client.call(call.tool, built, changes=changes)
        said = self._mapping.refusal(result)
        if said is not None:
            words = f"{self.who} failed at {call.tool}: {shortened(said)}"
            if any(one in said.lower() for one in self._mapping.missing):
                raise NotFound(words)
            if any(one in said.lower() for one in self._mapping.taken):
                raise Conflict(f"{words} Choose another title.")
            raise Unavailable(words, sent=changes)
        return await asyncio.to_thread(self._mapping.rows, call, result)

    async def _items(self, rows: list[Json], *, are_whole: bool = True) -> ServerRows[Json]:
        """Return the memories of rows, each once, with what memtui keeps of them.

        One whose text is cut is read again; so is every one of rows that are not whole.
        """
        known = await self._kept.now()
        found = read_rows(rows, partial(kept_row, known))

        async def whole(item: Json) -> ServerRows[Json]:
            if are_whole and not item.get("cut"):
                return ServerRows([item])
            again = await self._read(item["id"])
            return replace(again, items=[{**one, "score": item["score"]} for one in again.items])

        each = {item["id"]: item for item in found.items}
        read = [found, *await together(partial(whole, item) for item in each.values())]
        items = [item for one in read[1:] for item in one.items]
        return ServerRows(items, unreadable=sum(one.unreadable for one in read))

    def record_of(self, item: Json) -> Record:
        """Return a row as a record; its revision does not change as it is read."""
        uses = self._mapping.uses
        return record_of(item, self.handle_of(item["id"]), self.context.company_id, uses)

    def score_of(self, item: Json) -> float | None:
        """Return the server's score, or that of memtui's search by words."""
        score: float | None = item.get("score")
        return score

    async def list_items(self, most: int) -> ServerRows[Json]:
        """Read the list, page by page where the tool has pages."""
        call = self._mapping.listing
        if call is None:
            raise Unsupported(
                f"{self.who} has no tool that lists memories or reads one, so memtui cannot show, "
                "change or forget what is there."
            )
        has_pages = bool(call.names & _PAGED)
        size = min(call.page_size, most) if has_pages else most
        rows: list[Json] = []
        seen: set[str] = set()
        for number in count(1):
            # A server may return shorter pages than it was asked for, so the last one is empty.
            page = await self._rows(call, {"limit": size, "offset": len(rows), "page": number})
            fresh = {row["id"] for row in page} - seen
            if number > 1 and not fresh:
                break
            rows, seen = [*rows, *page], seen | fresh
            if not has_pages or len(seen) > most:
                break
        found = await self._items(rows)
        may_be_cut = "limit" in call.names and not has_pages
        is_more = may_be_cut or len(found.items) > most
        return ServerRows(found.items[:most], is_more, found.unreadable)

    async def search(self, query: str, most: int) -> ServerRows[Json]:
        """Return the tool's hits; where it compares phrases or is missing, memtui's own."""
        call = self._mapping.search
        if call is not None and call.by != "phrase":
            return await self._searched(call, query, most)
        rows = await self.rows(fresh=True)
        ranked = await asyncio.to_thread(self._ranked, rows.items, query)
        return ServerRows(ranked, rows.more and len(ranked) < most)

    def _ranked(self, items: Sequence[Json], query: str) -> list[Json]:
        by_id = {item["id"]: item for item in items}
        with closing(TextIndex([*map(self.record_of, items)])) as index:
            found = [(by_id[one.handle.provider_record_id], at) for one, at in index.search(query)]
        return [{**item, "score": score} for item, score in found]

    async def _searched(self, call: ToolCall, query: str, most: int) -> ServerRows[Json]:
        rows = await self._rows(call, {"query": query, "limit": most})
        # A hit without its metadata does not say whose it is.
        are_whole = self._kept.is_here or any(isinstance(one.get("metadata"), dict) for one in rows)
        found = await self._items(rows, are_whole=are_whole)
        is_more = "limit" in call.names and len(found.items) >= most
        return ServerRows(found.items, is_more, found.unreadable)

    async def hits(
        self, request: QueryRequest, search: Search[Json] | None = None
    ) -> tuple[list[Json], bool]:
        """Return the hits of memtui's search, or of the tool where the agents' is asked for."""
        call = self._mapping.search
        if call is not None and request.matching is Matching.AGENTS:
            search = partial(self._searched, call)
        return await super().hits(request, search)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one memory; None too where no tool lists memories or reads one."""
        return await super().get(handle, scope) if self._mapping.reads_again else None

    async def fetch(self, record_id: str) -> Json | None:
        """Return one memory by the tool for it, or else out of the list."""
        found = await self._read(record_id)
        if found.unreadable:
            raise Unavailable(f"{self.who} answered something unreadable: whose {record_id} is.")
        return next(iter(found.items), None)

    async def _read(self, record_id: str) -> ServerRows[Json]:
        call = self._mapping.get
        if call is None:
            found = await self.list_items(self._max_listed)
            return ServerRows([one for one in found.items if one["id"] == record_id])
        rows = await self._rows(call, {"id": self._mapping.id_argument(record_id)})
        there = [one for one in rows if one["id"] == record_id and one["text"]]
        return await self._items([{**one, "cut": False} for one in there])

    # Changes

    async def store(self, request: WriteRequest) -> Sequence[str]:
        """Add a memory; one with an id that is there already is a `Conflict`."""
        add, paths = self._mapping.add, self._mapping.record
        is_flat, taken = (add.flat, add.names) if add is not None else (False, frozenset[str]())
        placed = {name for name in OWNER_FIELDS if name in taken and getattr(paths, name)}
        owners = {name for name in OWNER_FIELDS if getattr(request.scope, name)}
        if self._kept.is_here and self._mapping.extracts and owners - placed:
            raise Unsupported(
                f"{self.who} makes memories of its own from a text and has no place for the owner; "
                "write what everybody may see, or use another binding."
            )
        odd = {
            name
            for name, value in request.metadata.items()
            if self._kept.is_here or (is_flat and not isinstance(value, str))
        }
        kept, metadata = KeptFields.of_write(request, reserved=odd)
        return await self._add(values_of(request), kept, metadata)

    async def _add(self, values: Json, kept: KeptFields, metadata: Json) -> list[str]:
        add, text = self._mapping.add, str(values["text"])
        if add is None:
            raise Unsupported(f"{self.who} has no tool that adds a memory.")
        if "created_at" in add.names:
            kept = kept.model_copy(update={"created_at": None})
        word = uuid4().hex[:8]
        if "title" in add.names:
            title = values.get("title") or add.untitled.replace("{new}", word)
            values = {**values, "title": title}
        values = {**values, **self._metadata(kept, metadata), "new": word}
        if known_id := self._mapping.id_given(values):
            await self._refuse_double(known_id, text)
        async with self._kept.during(kept, text, known_id) as ids:
            rows = await self._rows(add.first, values, changes=True) if add.first else []
            rows = rows or await self._rows(add, values, changes=True)
            ids.extend([row["id"] for row in rows if row["id"]] or filter(None, [known_id]))
            if not (ids or self.capabilities.async_ingestion or self._mapping.extracts):
                said = f"{self.who} does not say what it stored; list the memories to see it."
                raise Unavailable(said, sent=True)
        if self._mapping.reads_again and not (self._mapping.extracts or self._mapping.late):
            await self._refuse_changed(ids, text)
        return ids

    async def _refuse_changed(self, ids: Sequence[str], text: str) -> None:
        """Take out a memory that the server does not keep as it was written. Raises `Invalid`."""
        for each in ids:
            try:
                one = await self.fetch(each)
            except NotFound:
                continue
            except Invalid as error:  # of the read: the memory is stored
                raise Unavailable(str(error), sent=True) from error
            if one is not None and one["text"] != text:
                await self.remove(one)
                raise Invalid(
                    f"{self.who} does not keep this text as it is, so it was taken out again; "
                    "change its white space or its odd characters."
                )

    def _metadata(self, kept: KeptFields, metadata: Json) -> Json:
        """Return the values of the placeholder `metadata`: the server's, with memtui's part."""
        own, add = kept.to_json(), self._mapping.add
        text = json.dumps(own, ensure_ascii=False) if add is not None and add.flat else None
        return {"metadata": {**metadata, OWN: text or own}}

    async def _refuse_double(self, record_id: str, text: str) -> None:
        everything = Scope(company_id=self.context.company_id)
        current = await self.get(self.handle_of(record_id), everything)
        if current is not None:
            said = f"The text is stored already, as {record_id}; this server keeps each text once."
            raise Conflict(said, current=current, proposed=text)

    async def change(self, item: Json, request: CorrectRequest) -> str:
        """Change a memory by the tool for it, or else by adding the new one and deleting it."""
        record, call = self.record_of(item), self._mapping.update
        kept = item["kept"].corrected(request)
        new = record.model_copy(update=request.changes("text", "topic", "tags"))
        own = self._mapping.id_argument(item["id"])
        values = {**values_of(new), "id": own, "old_text": record.text}
        is_text_alone = not request.changes("topic", "tags", "summary")
        taken = call.names if call else frozenset()
        if not (is_text_alone or self._kept.is_here or "metadata" in taken):
            raise Unsupported(f"{self.who} changes the text of a memory and nothing else.")
        new_id: str = item["id"]
        is_kept_alone = new.text == record.text and self._kept.is_here and "tags" not in taken
        if call is not None and not is_kept_alone:
            values |= self._metadata(kept, item["metadata"])
            async with self._kept.during(kept, new.text) as ids:
                rows = await self._rows(call, values, changes=True)
                new_id = next((row["id"] for row in rows if row["id"]), new_id)
                ids.append(new_id)
        elif new.text != record.text:
            made = {"created_at": record.created_at, "created_by": record.created_by}
            kept = kept.model_copy(update=made)
            new_id = (await self._add(values_of(new), kept, item["metadata"]))[0]
            await self.remove_replaced(item, new_id)
        await self._kept.change({item["id"]: None, new_id: kept})
        return new_id

    async def remove(self, item: Json) -> bool:
        """Delete a memory."""
        call = self._mapping.delete
        if call is None:
            raise Unsupported(f"{self.who} has no tool that deletes a memory.")
        own = self._mapping.id_argument(item["id"])
        values = {**values_of(self.record_of(item)), "id": own}
        await self._rows(call, values, changes=True)
        await self._kept.change({item["id"]: None})
        return True

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase what `known.json` has of memories that are gone."""
        if not self._kept.is_here:
            return EraseReply()
        rows = await self.list_items(self._max_listed) if self._mapping.listing else None
        return await self._kept.erase(request, rows)

    async def check(self) -> Health:
        """Return the server's name, its tools and the abilities that the mapping makes of them."""
        tools, server = await self._client.tools(), self._client.server
        uses = ", ".join(uses_of(self._mapping))
        lacks = f"; the server has no {', '.join(self._lacking)}" if self._lacking else ""
        return Health(
            message=f"{server.get('name') or 'The server'} has {len(tools)} tools; the "
            f"mapping {self._mapping.name} uses them to {uses}{lacks}.",
            version=str(server.get("version") or "")[:100] or None,
        )


def mapping_within(mapping: ToolMapping, tools: Mapping[str, bool | None]) -> ToolMapping:
    """Return a mapping without the sections of which the server has no tool.

    `tools` says of each whether it only reads; None: the server does not say it.

    Raises:
        Invalid: it reads with a tool that changes something.
    """
    calls = {name: getattr(mapping, name) for name in _READING | _CHANGING}
    gone = [name for name, one in calls.items() if one is not None and one.tool not in tools]
    for name in _READING:
        if (call := calls[name]) is not None and tools.get(call.tool) is False:
            raise Invalid(
                f"The mapping {mapping.name} reads with the tool {call.tool}, of which the server "
                "says that it changes something; name another tool."
            )
    return mapping.model_copy(update=dict.fromkeys(gone))


def abilities_of(mapping: ToolMapping) -> Capabilities:
    """Return the abilities that a mapping makes of a server's tools."""
    add, by = mapping.add, mapping.search.by if mapping.search else "phrase"
    can_replace = mapping.replaces and add is not None and mapping.delete is not None
    ids = mapping.record.id
    tells_ids = add is not None and (add.rows is not None or ids[:1] == (mapping.record.title,))
    return Capabilities(
        browse=mapping.listing is not None,
        correction=mapping.reads_again and (mapping.update is not None or can_replace),
        async_ingestion=mapping.late or not tells_ids,
        provider_managed_extraction=mapping.extracts,
        writable=add is not None,
        chosen_owners=True,
        full_text=by in {"words", "phrase"},
        semantic=by == "meaning",
        agents_search=mapping.search is not None and by == "phrase",
    )


def uses_of(mapping: ToolMapping) -> list[str]:
    """Return what a mapping has tools for, in words."""
    words = _READING | _CHANGING
    return [words[name] for name in words if getattr(mapping, name) is not None]


def proposal(server: str, tools: Mapping[str, object]) -> str:
    """Return the sentence that names a server's tools and the mapping of memtui that fits them."""
    known = map(load_mapping, bundled_mappings())
    fits = [one.name for one in known if server in one.servers or one.tools <= tools.keys()]
    advice = "memtui has no mapping for it; write one, and set mapping to its path"
    if fits:
        advice = f"set mapping to {' or '.join(fits)}"
    named = ", ".join(islice(tools, _MOST_NAMED))
    return f"The server calls itself {server} and has the tools {named}: {advice}."
