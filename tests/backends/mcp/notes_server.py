"""A small MCP memory server, over stdio, or with a port over streamable HTTP.

It is written with the official SDK, and keeps its notes in one JSON file. With the path of a
socket it waits there and forks for each that connects, whose stdio and file it is sent.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

Note = dict[str, Any]

FILE = Path(sys.argv[1])
READS = ToolAnnotations(read_only_hint=True)
server = MCPServer("notes", version="1.0")


def stored() -> dict[str, Note]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def save(notes: dict[str, Note]) -> None:
    fresh = FILE.with_suffix(".new")
    fresh.write_text(json.dumps(notes))
    fresh.replace(FILE)


def words(text: str) -> set[str]:
    return {one.removesuffix("s") for one in re.findall(r"\w+", text.lower())}


@server.tool(annotations=READS)
def search_notes(query: str, limit: int = 10) -> dict[str, list[Note]]:
    """Search notes by words."""
    asked = words(query)
    found = [(len(asked & words(one["body"])), one) for one in stored().values()]
    best = sorted((one for one in found if one[0]), key=lambda one: -one[0])[:limit]
    return {"notes": [{**note, "score": float(score)} for score, note in best]}


@server.tool(annotations=READS)
def list_notes(limit: int = 10, offset: int = 0) -> dict[str, Any]:
    """List notes."""
    notes = [*stored().values()]
    return {"notes": notes[offset : offset + limit], "total": len(notes)}


@server.tool(annotations=READS)
def get_note(key: str) -> Note:
    """Return a note."""
    notes = stored()
    if key not in notes:
        raise ToolError(f"Note {key[:50]} not found.")
    return notes[key]


@server.tool()
def add_note(
    body: str,
    labels: list[str] | None = None,
    extra: Note | None = None,
    made: str | None = None,
) -> Note:
    """Add a note."""
    notes, key = stored(), str(uuid.uuid4())
    made = made or datetime.now(UTC).isoformat()
    notes[key] = {"key": key, "body": body, "labels": labels or [], "extra": extra, "made": made}
    save(notes)
    return notes[key]


@server.tool()
def change_note(
    key: str, body: str, labels: list[str] | None = None, extra: Note | None = None
) -> Note:
    """Change a note."""
    notes = stored()
    if key not in notes:
        raise ToolError(f"Note {key} not found.")
    notes[key] |= {"body": body, "labels": labels or [], "extra": extra}
    save(notes)
    return notes[key]


@server.tool()
def delete_note(key: str) -> str:
    """Delete a note."""
    notes = stored()
    if notes.pop(key, None) is None:
        raise ToolError(f"Note {key} not found.")
    save(notes)
    return "deleted"


def file_of_each(listening: socket.socket) -> Path:
    """Return the file of each that connects, in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        file, streams, *_ = socket.recv_fds(connection, 4096, 3)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        connection.detach()  # it is closed by the end of the process
        return Path(file.decode())


if __name__ == "__main__":
    if len(sys.argv) == 2:
        server.run("stdio")
    elif sys.argv[2].isdecimal():
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.bind(sys.argv[2])
            waiting.listen()
            print("listening", flush=True)
            FILE = file_of_each(waiting)
        server.run("stdio")
