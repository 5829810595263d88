"""An MCP server with a tool for each case; what it says does not depend on memtui."""

import json
import signal
import sys
import time
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {"name": "find", "annotations": {"readOnlyHint": True}},
    {"name": "keep", "outputSchema": {"type": "object"}},
    {"name": "fail"},
    {"name": "silent"},
    {"name": "stay"},
]


def answer(said: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a request; None: there is none."""
    method, params = said["method"], said.get("params") or {}
    if method == "initialize":
        info = {"name": "toy", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{**one, "inputSchema": {"type": "object"}} for one in TOOLS]}
    tool, given = params.get("name"), params.get("arguments") or {}
    if tool == "silent":
        return None
    if tool == "stay":  # a server that does not end by itself
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    text = json.dumps({"kept": given}) if tool != "fail" else "It is full."
    return {"content": [{"type": "text", "text": text}], "isError": tool == "fail"}


def main() -> None:
    """Answer until the input ends."""
    print("toy server began", file=sys.stderr, flush=True)
    stays = False
    for line in sys.stdin.buffer:
        said = json.loads(line)
        for one in said if isinstance(said, list) else [said]:
            if "id" in one and "method" in one and (result := answer(one)) is not None:
                document = {"jsonrpc": "2.0", "id": one["id"], "result": result}
                print(json.dumps(document), flush=True)
                stays |= one.get("params", {}).get("name") == "stay"
    while stays:
        time.sleep(60)


if __name__ == "__main__":
    main()
