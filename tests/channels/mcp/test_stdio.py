"""The server over standard input and output, with the lines that clients send."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from memtui import __version__
from memtui.channels.mcp import stdio
from memtui.channels.mcp.guide import INSTRUCTIONS
from memtui.channels.mcp.tools import TOOLS

_CLIENT = {"name": "t", "version": "1"}


def _initialize(request_id: object = 0, version: str = "2025-06-18") -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def _answers(home: Path, lines: Sequence[bytes], count: int) -> list[dict[str, Any]]:
    """Return the first `count` messages that the server answers to lines."""
    command = [sys.executable, "-m", "memtui", "--home", str(home), "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(b"\n".join((*lines, b"")))
        server.stdin.flush()
        found = [json.loads(server.stdout.readline()) for _ in range(count)]
        server.stdin.close()
        assert server.stdout.read() == b""
    assert server.returncode == 0
    return found


def _call(request_id: int, name: str, arguments: str) -> bytes:
    asked = f'{{"name":"{name}","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":{asked}}}'.encode()


def test_every_line_is_answered(tmp_path: Path) -> None:
    lines = [
        "\ufeff".encode() + json.dumps(_initialize("first")).encode(),
        _INITIALIZED,
        _call(1, "memory_note", r'{"text":"cut emoji \ud83d"}'),
        _call(2, "memory_note", '{"text":"a literal\ttab","tags":"[\\"ops\\"]","title":null}'),
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":["memory_note"]}',
        b'{"jsonrpc":"2.0","id":4,"method"',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
        b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"\xff":1}}',
        b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"n":NaN}}',
    ]
    found = _answers(tmp_path / "home", lines, 8)
    assert [one["result"]["serverInfo"]["name"] for one in found if one["id"] == "first"] == [
        "memtui"
    ]
    by_id = {one["id"]: one for one in found}
    assert "Stored in default" in by_id[1]["result"]["content"][0]["text"]
    assert "Stored in default" in by_id[2]["result"]["content"][0]["text"]
    assert by_id[3]["error"]["code"] == -32600
    assert [one["error"]["code"] for one in found if one["id"] is None] == [-32700, -32700]
    assert by_id[5]["result"] == {}
    assert 6 in by_id


def test_the_early_answer_is_that_of_the_sdk(tmp_path: Path) -> None:
    assert HANDSHAKE_PROTOCOL_VERSIONS == stdio.VERSIONS
    asked = json.dumps(_initialize(1, "1999-01-01")).encode()
    [early] = _answers(tmp_path / "home", [asked], 1)
    ping = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
    [_, late] = _answers(tmp_path / "home", [ping, asked], 2)
    assert early == late


def test_the_instructions_name_no_tool() -> None:
    assert [tool.name for tool in TOOLS if tool.name in INSTRUCTIONS] == []


def test_initialize_is_answered_before_the_sdk_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from memtui.channels.mcp import stdio\n"
        "stdio.open_early(['--home', 'x', 'mcp', '--project', 'apollo'])\n"
        "stdio.streams()._lines.get()\n"
        "print(*sorted({'mcp', 'pydantic', 'typer', 'httpx'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(_initialize()).encode() + b"\n",
        capture_output=True,
        check=True,
    )
    assert ended.stderr == b"\n"
    assert json.loads(ended.stdout)["result"]["instructions"] == INSTRUCTIONS


@pytest.mark.parametrize(
    "words",
    [["mcp", "clients"], ["mcp", "--http"], ["mcp", "--help"], ["mcp", "install", "x"], ["note"]],
)
def test_other_commands_leave_the_streams_alone(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "streams", lambda: pytest.fail("the streams were opened"))
    stdio.open_early(["--home", "mcp", *words])


_LIST = b'{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{}}'


def _listed(home: Path, count: int) -> list[dict[str, Any]]:
    """Return what is sent after the answer to `initialize` where the tools are asked for."""
    lines = [json.dumps(_initialize()).encode(), _INITIALIZED, _LIST]
    return _answers(home, lines, count + 1)[1:]


def test_the_tools_that_were_listed_are_told_before_the_sdk_is_imported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    [told] = _listed(home, 1)
    assert {one["name"] for one in told["result"]["tools"]} >= {"memory_search", "memory_note"}
    program = (
        "import sys\n"
        "from memtui.channels.mcp import stdio\n"
        f"stdio.open_early(['--home', {str(home)!r}, 'mcp'])\n"
        "for _ in range(3): stdio.streams()._lines.get()\n"
        "print(*sorted({'mcp', 'pydantic', 'typer', 'httpx'} & set(sys.modules)), file=sys.stderr)"
    )
    lines = [json.dumps(_initialize()).encode(), _INITIALIZED, _LIST]
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=b"\n".join((*lines, b"")),
        capture_output=True,
        check=True,
    )
    assert ended.stderr == b"\n"
    assert [json.loads(line) for line in ended.stdout.splitlines()][1:] == [told]
    # A client that got an outdated list hears that the tools changed.
    [kept] = (home / "mcp-tools").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    document = json.loads(kept.read_text())
    fewer = document | {"result": {"tools": document["result"]["tools"][1:]}}
    kept.write_text(json.dumps(fewer))
    early, changed = _listed(home, 2)
    assert early["result"] == fewer["result"]
    assert changed == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    # Those of another version count for nothing.
    kept.write_text(json.dumps(fewer | {"version": "0"}))
    assert _listed(home, 1) == [told]
    assert json.loads(kept.read_text()) == document


@pytest.mark.parametrize("damaged", ["no JSON", "[]", '{"version": 1}', '{"version": "V"}'])
def test_a_damaged_list_of_tools_is_none(damaged: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(damaged.replace("V", __version__))
    program = (
        "from pathlib import Path\n"
        "from memtui.channels.mcp import stdio\n"
        f"streams = stdio.StandardStreams(Path({str(kept)!r}))\n"
        "for _ in range(2): streams._lines.get()"
    )
    lines = [json.dumps(_initialize()).encode(), _LIST]
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=b"\n".join((*lines, b"")),
        capture_output=True,
        check=True,
    )
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [0]
