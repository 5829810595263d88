"""A server of notes without the SDK, which misbehaves as its arguments say.

Run as a program: `fakes.py FOLDER [tool=behaviour …]`. It notes its process id and each call of a
tool in files of the folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

FAKE = Path(__file__)
TOOLS = ("search_notes", "list_notes", "get_note", "add_note", "change_note", "delete_note")
NOTE = {"key": "k1", "body": "An otter.", "extra": {}, "score": 1}
ESCAPE = "\x1b[31mred\x1b]0;owned\x07 \u202e"


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def behave(how, wanted):  # noqa: C901
    """Do something odd; return whether the reply is still to be sent."""
    out = sys.stdout
    if how == "dies":
        print("It hurts: hunter2", file=sys.stderr)
        os._exit(3)
    elif how == "silent":
        return False
    elif how == "endless":
        while True:
            out.write("x" * 65536)
    elif how == "noise":
        out.write("not JSON\n\n[]\n7\n\xff\n" + "[" * 50_000 + "\n")
    elif how == "flood":
        while True:
            send(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 500}}
            )
    elif how == "wrong_ids":
        for odd in (wanted - 1, wanted + 1, str(wanted), None, True, [wanted], float(wanted)):
            send({"jsonrpc": "2.0", "id": odd, "result": {"structuredContent": {"notes": []}}})
    elif how == "asks":
        send({"jsonrpc": "2.0", "id": wanted, "method": "ping"})
        send({"jsonrpc": "2.0", "id": "s", "method": "roots/list"})
        answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
        (folder / "answers.json").write_text(json.dumps(answers))
    elif how == "late":
        while not (folder / "go").exists():
            time.sleep(0.01)
    return True


def result_of(how, tool, arguments):  # noqa: C901
    if how == "short_pages":
        start = arguments["offset"]
        notes = [{**NOTE, "key": f"k{start}"}] if start < 3 else []
        return {"structuredContent": {"notes": notes}}
    if how == "empty":
        return {"structuredContent": {"notes": []}}
    if how == "is_error":
        return {"isError": True, "content": [{"type": "text", "text": f"It {ESCAPE} failed."}]}
    if how == "is_missing":
        return {"isError": True, "content": [{"type": "text", "text": "Note k1 not found."}]}
    if how == "odd_result":
        return {"structuredContent": 7, "content": {"type": "text"}}
    if how == "escapes":
        return {"structuredContent": {"notes": [{**NOTE, "body": ESCAPE, "key": ESCAPE}]}}
    if how == "texts":
        images = [{"type": "image", "data": ""}, {"type": "text", "text": 7}, 3]
        return {"content": [*images, {"type": "text", "text": json.dumps({"notes": [NOTE]})}]}
    if how == "odd_rows":
        rows = [
            NOTE,
            {**NOTE, "key": None},
            {**NOTE, "body": {}},
            7,
            None,
            [],
            {**NOTE, "key": "k2"},
        ]
        return {"structuredContent": {"notes": [*rows, {**NOTE, "key": "k3", "made": 1e300}]}}
    if how == "damaged":
        parts = json.loads(Path(sys.argv[1], "parts.json").read_text())
        rows = [{**NOTE, "key": f"k{n}", "extra": {"memtui": one}} for n, one in enumerate(parts)]
        return {"structuredContent": rows[0] if tool == "get_note" else {"notes": rows}}
    if tool in {"search_notes", "list_notes"}:
        return {"structuredContent": {"notes": [NOTE]}}
    return {"structuredContent": NOTE}


def main():  # noqa: C901
    behaviours = dict(one.split("=") for one in sys.argv[2:])
    with (folder / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    for line in sys.stdin:
        message = json.loads(line)
        method, wanted = message["method"], message.get("id")
        if wanted is None:
            continue
        tool = message["params"].get("name", method)
        how = behaviours.get(tool, "")
        if method == "tools/call":
            with (folder / "calls").open("a") as file:
                file.write(json.dumps([tool, message["params"]["arguments"]]) + "\n")
        if how == "once" or how.startswith("once_"):
            mark = folder / f"{tool}.once"
            how = "" if mark.exists() else how.removeprefix("once_")
            mark.touch()
        if not behave(how, wanted):
            continue
        if how == "refuses":
            error = {"code": -32602, "message": f"Bad {ESCAPE} arguments"}
            send({"jsonrpc": "2.0", "id": wanted, "error": error})
        elif how == "fails":
            send({"jsonrpc": "2.0", "id": wanted, "error": {"code": -32000, "message": ESCAPE}})
        elif how == "no_result":
            send({"jsonrpc": "2.0", "id": wanted, "result": "yes"})
        elif method == "initialize":
            server = {"name": "notes", "version": "1.0"}
            send({"jsonrpc": "2.0", "id": wanted, "result": {"serverInfo": server}})
        elif method == "tools/list":
            hint = behaviours.get("hint") != "writes"
            hints = {"readOnlyHint": hint}
            if behaviours.get("hint") == "destroys":
                hints = {"destructiveHint": True}
            names = TOOLS[: int(behaviours.get("tools", len(TOOLS)))]
            kind = "integer" if behaviours.get("keys") == "numbers" else "string"
            schema = {"type": "object", "properties": {"key": {"type": kind}, "box": True}}
            notes = {"annotations": hints, "inputSchema": schema}
            tools = [{"name": one, **notes} for one in names]
            send({"jsonrpc": "2.0", "id": wanted, "result": {"tools": [7, {}, *tools]}})
        else:
            send(
                {
                    "jsonrpc": "2.0",
                    "id": wanted,
                    "result": result_of(how, tool, message["params"].get("arguments")),
                }
            )
    if "stays" in behaviours:
        time.sleep(1000)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    main()
