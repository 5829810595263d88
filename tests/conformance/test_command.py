"""`memtui bindings conformance`: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from memtui.channels.cli.main import run
from memtui.conformance import CHECKS

from .conftest import Serve
from .faults import PinIsIgnored
from .plugin import Plugin, Row

Command = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process, in which its server runs too."""

    async def invoke(*arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(run, ["bindings", "conformance", *arguments])
        return code, *capfd.readouterr()

    return invoke


async def test_rules_that_are_kept_are_ticked_and_the_exit_code_is_0(
    serve: Serve, command: Command
) -> None:
    code, out, _ = await command(await serve(Plugin()), "--only", "pin", "--only", "health-shape")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[:2] for line in lines[:5]] == [
        ["✓", "health-shape"], ["✓", "pin-kept"], ["✓", "pin-first"], ["✓", "pin-query"],
        ["✓", "pin-taken-away"],
    ]  # fmt: skip
    assert lines[5].startswith("5 passed, 0 failed in ")


class Hostile(PinIsIgnored):
    """It ignores pins, and answers with what a terminal would obey."""

    def wire(self, row: Row) -> Row:
        return super().wire(row) | {"note": "\x1b[31mred\u202e" + "x" * 5_000}

    def health(self) -> Row:
        return super().health() | {"capabilities": ["pin"]}


async def test_a_broken_rule_is_told_with_request_and_reply_and_the_exit_code_is_1(
    serve: Serve, command: Command
) -> None:
    code, out, _ = await command(
        await serve(Hostile()), "--only", "pin-first", "--only", "ttl-past"
    )
    assert code == 1
    assert "– ttl-past" in out
    assert "✗ pin-first" in out
    assert "    The pinned memory is not the first row." in out
    assert "    → POST /v1/search {" in out
    assert "    ← 200 application/json {" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert max(map(len, out.splitlines())) < 500
    assert out.splitlines()[-1].startswith("0 passed, 1 failed, 1 not applicable in ")


async def test_json_is_one_document(serve: Serve, command: Command) -> None:
    url = await serve(PinIsIgnored())
    code, out, _ = await command(url, "--json", "--only", "pin-first", "--only", "write-created")
    report = json.loads(out)
    assert code == 1
    assert report["url"] == url
    assert report["server"]["version"] == "1.0.0"
    assert "pin" in report["server"]["capabilities"]
    assert (report["passed"], report["failed"], report["not_applicable"]) == (1, 1, 0)
    good, bad = report["checks"]
    assert (good["name"], good["outcome"]) == ("write-created", "pass")
    assert good["request"] is None
    assert (bad["name"], bad["outcome"]) == ("pin-first", "fail")
    assert all(bad[field] for field in ("rule", "source", "detail"))
    assert bad["request"]["method"] == "POST"
    assert json.loads(bad["reply"]["body"])["memories"]
    assert bad["duration_ms"] > 0


@pytest.mark.slow
async def test_ctrl_c_cleans_up(serve: Serve) -> None:
    plugin = Plugin()
    url = await serve(plugin)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "memtui",
        "bindings",
        "conformance",
        url,
        stdout=asyncio.subprocess.PIPE,
    )
    while len(plugin.rows) < 5:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out.decode()
    assert plugin.spaces == {}


def test_a_server_that_is_not_there_is_exit_3(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bindings", "conformance", "http://127.0.0.1:9"]) == 3
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["http://127.0.0.1:9", "--only", "nonsense"],
     ["http://127.0.0.1:9", "--timeout", "0"]],
)  # fmt: skip
def test_wrong_usage_is_exit_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bindings", "conformance", *arguments]) == 2
    assert capfd.readouterr().out == ""


def test_the_list_names_every_check_and_asks_no_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bindings", "conformance", "--list"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 * len(CHECKS)
    assert run(["bindings", "conformance", "--list", "--json", "--only", "pin"]) == 0
    listed = json.loads(capfd.readouterr().out)["checks"]
    names = ["pin-kept", "pin-first", "pin-query", "pin-taken-away"]
    assert [one["name"] for one in listed] == names
    assert listed[0]["needs"] == ["pin"]
