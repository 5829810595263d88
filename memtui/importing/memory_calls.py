"""Recognise the calls of tools in a transcript that read or change a memory.

Three groups of tools do: those that write files, where the file is a memory; those of the MCP
memory server; and memtui's own. Tools of MCP servers are called `mcp__SERVER__TOOL`. Only the name
of the tool counts, since a person chooses the server's.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memtui.contract import OperationType
from memtui.importing import values

LOGGED = "operation_id"
"""The field in which memtui's own server returns the id of the call's operation."""

_CONTENT_CHARS = 2_000
"""Upper bound of a written text in the log."""
_MOST_RECORDS = 1_000

_AUTO_MEMORY = re.compile(r"(?:^|/)\.claude/projects/[^/]+/memory/(?P<id>.+\.md)$")
_AGENT_MEMORY = re.compile(r"(?:^|/)agent-memory(?:-local)?/(?P<id>.+\.md)$")
_INSTRUCTIONS = re.compile(
    r"(?:^|/)(?:CLAUDE(?:\.local)?\.md|AGENTS(?:\.override)?\.md|\.claude/rules/.+\.md)$"
)
_MCP = re.compile(r"mcp__.+?__(?P<tool>[a-z_]+)")


@dataclass(slots=True)
class MemoryCall:
    """An operation on memory, as far as the arguments of the call determine it."""

    kind: OperationType
    provider_key: str | None
    request: dict[str, Any]
    record_ids: list[str] = field(default_factory=list)


def memory_call(tool: str, given: Mapping[str, Any]) -> MemoryCall | None:
    """Return the memory operation that a call is; None: it concerns no memory."""
    if tool in {"Write", "Edit", "MultiEdit"}:
        return _file_call(tool, given)
    named = _MCP.fullmatch(tool)
    if named is None:
        return None
    for tools, provider in ((_SERVER_MEMORY, "mcp-memory"), (_OWN, None)):
        if (kind := tools.get(named["tool"])) is not None:
            return MemoryCall(kind, provider, _request(given), _names(given))
    return None


def structured(reply: object) -> dict[str, Any]:
    """Return the structured reply of a memory tool; empty: there is none.

    Clients log it as an object, as JSON text, or nested in a reply of their own. memtui's reply
    contains the operation's id, that of the memory server the entities.
    """
    if isinstance(reply, str):
        try:
            reply = json.loads(reply) if reply.startswith(("{", "[")) else None
        except (ValueError, RecursionError):
            return {}
    if isinstance(reply, Mapping):
        if isinstance(reply.get(LOGGED), str) or isinstance(reply.get("entities"), list):
            return dict(reply)
        reply = [reply.get(name) for name in ("structuredContent", "content", "text")]
    if isinstance(reply, list):
        return next(filter(None, map(structured, reply)), {})
    return {}


def returned(reply: Mapping[str, Any]) -> list[str]:
    """Return the records that a structured reply names, each once."""
    found = [*_strings(reply, "ids"), *(one.get("id") for one in _listed(reply, "memories"))]
    found += (one.get("name") for one in _listed(reply, "entities"))
    return _each_once(found)


def _file_call(tool: str, given: Mapping[str, Any]) -> MemoryCall | None:
    path = given.get("file_path")
    if not isinstance(path, str):
        return None
    slashed = path.replace("\\", "/")
    found = _AUTO_MEMORY.search(slashed) or _AGENT_MEMORY.search(slashed)
    if found is None and not _INSTRUCTIONS.search(slashed):
        return None
    kind = OperationType.WRITE if tool == "Write" else OperationType.CORRECT
    record_id = found["id"] if found else path
    request = {"record_id": record_id, **_content(_written(tool, given))}
    return MemoryCall(kind, "claude-memory" if found else "instructions", request, [record_id])


def _written(tool: str, given: Mapping[str, Any]) -> str:
    if tool == "Write":
        return str(given.get("content") or "")
    edits = given.get("edits")
    each = edits if isinstance(edits, list) else [given]
    return "\n".join(str(one.get("new_string") or "") for one in each if isinstance(one, Mapping))


def _content(text: str) -> dict[str, Any]:
    if not text:
        return {}
    return {"content": text[:_CONTENT_CHARS], "content_chars": len(text)}


_SERVER_MEMORY = {
    "create_entities": OperationType.WRITE,
    "create_relations": OperationType.WRITE,
    "add_observations": OperationType.WRITE,
    "delete_entities": OperationType.FORGET,
    "delete_observations": OperationType.FORGET,
    "delete_relations": OperationType.FORGET,
    "search_nodes": OperationType.QUERY,
    "open_nodes": OperationType.GET,
    "read_graph": OperationType.BROWSE,
}
"""The tools of the MCP memory server."""
_OWN = {
    "memory_search": OperationType.QUERY,
    "memory_browse": OperationType.BROWSE,
    "memory_get": OperationType.GET,
    "memory_profile": OperationType.PROFILE,
    "memory_note": OperationType.WRITE,
    "memory_correct": OperationType.CORRECT,
    "memory_forget": OperationType.FORGET,
    "save_memory": OperationType.WRITE,
    "remove_memory": OperationType.FORGET,
}
"""memtui's own tools (`memtui.channels.mcp.tools`)."""


def _request(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request to log: the query, else the text to write."""
    if isinstance(query := given.get("query"), str):
        limit = given.get("limit")
        asked = {"query": query[:_CONTENT_CHARS]}
        return asked | ({"top_k": limit} if type(limit) is int else {})
    return _content("\n".join(_texts(given)))


def _texts(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a call: a memory's, or one line for each entity, edit or relation."""
    for name in ("text", "fact"):
        if isinstance(text := given.get(name), str):
            yield text
    for one in _listed(given, "entities"):
        yield f"{one.get('name')} ({one.get('entityType')}): {_joined(one.get('observations'))}"
    for name in ("observations", "deletions"):
        for one in _listed(given, name):
            said = one.get("contents") or one.get("observations")
            yield f"{one.get('entityName')}: {_joined(said)}"
    for one in _listed(given, "relations"):
        yield f"{one.get('from')} {one.get('relationType')} {one.get('to')}"


def _names(given: Mapping[str, Any]) -> list[str]:
    """Return the records that a call names, each once: memtui's ids, or entities by name."""
    found = [given.get("id"), *_strings(given, "ids"), *_strings(given, "names")]
    found += _strings(given, "entityNames")
    found += (one.get("name") for one in _listed(given, "entities"))
    for name in ("observations", "deletions"):
        found += (one.get("entityName") for one in _listed(given, name))
    return _each_once(found)


def _each_once(found: Iterable[object]) -> list[str]:
    ids = dict.fromkeys(one for one in found if isinstance(one, str) and one)
    return list(ids)[:_MOST_RECORDS]


def _listed(given: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = given.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _strings(given: Mapping[str, Any], name: str) -> list[object]:
    found = given.get(name)
    return list(found) if isinstance(found, list) else []


def _joined(said: object) -> str:
    return "; ".join(map(values.text, said)) if isinstance(said, list) else ""
