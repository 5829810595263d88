"""The notes' server as a thread of the test: streamable HTTP, notes in memory."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

from tests.backends.mcp.fakes import TOOLS
from tests.loopback import Answer, Loopback

Note = dict[str, Any]


class Notes(Loopback):
    """Keeps the notes of the mapping that `docs/providers.md` shows."""

    def __init__(self) -> None:
        self.notes: dict[str, Note] = {}
        super().__init__()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        if "id" not in body:
            return 202, b""
        match body["method"]:
            case "initialize":
                result: Note = {"serverInfo": {"name": "notes"}, "protocolVersion": "2025-06-18"}
            case "tools/list":
                result = {"tools": [{"name": one} for one in TOOLS]}
            case _:
                result = self._called(body["params"]["name"], body["params"]["arguments"])
        return 200, {"jsonrpc": "2.0", "id": body["id"], "result": result}

    def _called(self, tool: str, given: Note) -> Note:
        key = given.get("key")
        if key is not None and key not in self.notes:
            return {"isError": True, "content": [{"type": "text", "text": "Note not found."}]}
        match tool:
            case "search_notes":
                found = self._found(given["query"])[: given["limit"]]
                return {"structuredContent": {"notes": found}}
            case "list_notes":
                rows = [*self.notes.values()][given["offset"] :][: given["limit"]]
                return {"structuredContent": {"notes": rows}}
            case "add_note":
                key = str(uuid.uuid4())
                made = given.get("made") or datetime.now(UTC).isoformat()
                self.notes[key] = {"key": key, "labels": [], **given, "made": made}
            case "change_note":
                self.notes[str(key)] |= {"labels": [], **given}
            case "delete_note":
                return {"structuredContent": self.notes.pop(str(key))}
        return {"structuredContent": self.notes[str(key)]}

    def _found(self, query: str) -> list[Note]:
        asked = _words(query)
        scored = [{**one, "score": len(asked & _words(one["body"]))} for one in self.notes.values()]
        return sorted((one for one in scored if one["score"]), key=lambda one: -one["score"])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
