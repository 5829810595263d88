"""An MCP server that keeps texts in one JSON file, for `benchmarks.crash_points`.

Run as a program with the file's path. It has no place for an owner, so memtui keeps that itself.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import Any

TOOLS = {"list_notes": True, "add_note": False, "change_note": False, "delete_note": False}
"""Each with whether it only reads."""
MAPPING = """
title = "Texts"
[record]
id = "key"
text = "body"
[list]
tool = "list_notes"
arguments = { limit = "{limit}", offset = "{offset}" }
rows = "notes[]"
[add]
tool = "add_note"
arguments = { body = "{text}" }
rows = ""
[update]
tool = "change_note"
arguments = { key = "{id}", body = "{text}" }
rows = ""
[delete]
tool = "delete_note"
arguments = { key = "{id}" }
"""


def call(path: str, tool: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do what a tool does, and return its result. Raises `LookupError` where there is no note."""
    with open(path) as file:  # noqa: PTH123 - without pathlib it starts twice as fast
        notes = json.load(file)
    if tool == "list_notes":
        rows = [{"key": key, "body": body} for key, body in notes.items()]
        return {"notes": rows[asked["offset"] : asked["offset"] + asked["limit"]]}
    key = str(uuid.uuid4()) if tool == "add_note" else asked["key"]
    if tool == "delete_note":
        del notes[key]
    elif tool == "add_note" or key in notes:
        notes[key] = asked["body"]
    else:
        raise KeyError(key)
    with open(f"{path}.new", "w") as file:  # noqa: PTH123
        json.dump(notes, file)
    os.replace(f"{path}.new", path)  # noqa: PTH105
    return {"key": key, "body": asked.get("body")}


def answer(path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if message["method"] == "initialize":
        return {"protocolVersion": "2025-06-18", "serverInfo": {"name": "texts", "version": "1"}}
    if message["method"] == "tools/list":
        hints = [{"name": one, "annotations": {"readOnlyHint": TOOLS[one]}} for one in TOOLS]
        return {"tools": hints}
    asked = message["params"]
    try:
        return {"structuredContent": call(path, asked["name"], asked["arguments"])}
    except LookupError:
        return {"isError": True, "content": [{"type": "text", "text": "The note is not found."}]}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(sys.argv[1], message)
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
