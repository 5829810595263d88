"""What the log says of calls that passed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from memtui.channels.hooks.joining import RunNote, note_run, process_of
from memtui.config import Paths
from memtui.contract import OperationStatus, OperationType
from memtui.service import Caller, MemoryService
from tests.channels.wrap.conftest import GIVEN_UP_S, KEY, TOY, Begin, Logged

TOKEN = "ghp_" + "a1B2" * 9


async def test_calls_are_logged_with_agent_run_tokens_and_answer(
    wrap: Begin, logged: Logged
) -> None:
    toy = wrap(KEY, "--agent", "coding", "--project", "apollo", "--run", "r1", "--", *TOY)
    toy.begin()
    assert json.loads(toy.call("find", words="otters")["content"][0]["text"])
    toy.call("keep", text=f"the token is {TOKEN}")
    assert toy.call("fail")["isError"]
    toy.say({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": {"name": "silent"}})
    code, said = toy.end()
    assert (code, said) == (0, "toy server began\n")
    found, kept, failed, silent = await logged(4)
    assert (found.operation_type, found.status) == (OperationType.GET, OperationStatus.OK)
    assert found.request["tool"] == "find"
    assert found.request["server_says"] == "it only reads"
    assert found.request["query"] == '{"words": "otters"}'
    assert found.request["text"] == '{"kept": {"words": "otters"}}'
    assert (found.principal, found.channel) == ("agent:coding", "wrap")
    assert (found.binding_key, found.provider_key) == (KEY, "mcp-memory")
    assert (found.scope.run_id, found.scope.project_id) == ("r1", "apollo")
    assert found.latency_ms is not None
    assert found.usage[0].input_tokens > 0 < found.usage[0].output_tokens
    assert found.cost_usd
    assert (kept.operation_type, kept.status) == (OperationType.WRITE, OperationStatus.OK)
    assert TOKEN not in kept.model_dump_json()
    assert "the token is" in kept.request["content"]
    assert (failed.status, failed.error_message) == (OperationStatus.ERROR, "It is full.")
    assert (silent.operation_type, silent.status) == (OperationType.WRITE, OperationStatus.UNKNOWN)
    assert silent.error_message == "No answer was seen before the connection ended."


async def test_a_call_that_the_agent_gave_up_is_cancelled(wrap: Begin, logged: Logged) -> None:
    toy = wrap()
    toy.begin()
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "silent"}}
    toy.say(call)
    toy.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})
    toy.end()
    [one] = await logged(1)
    assert one.status is OperationStatus.CANCELLED


async def test_a_write_that_passed_cannot_be_undone_and_says_why(
    wrap: Begin, logged: Logged, bound: MemoryService, caller: Caller
) -> None:
    toy = wrap()
    toy.begin()
    toy.call("keep", text="a")
    toy.end()
    [kept] = await logged(1)
    found = await bound.undo_candidate(caller, kept.operation_id)
    assert "memtui saw it pass" in (found.why_not or "")


async def test_a_batch_is_logged_call_by_call(wrap: Begin, logged: Logged) -> None:
    toy = wrap()
    toy.begin()
    toy.say(
        [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "find", "arguments": {"n": number}},
            }
            for number in (51, 52)
        ]
    )
    assert {toy.heard()["id"], toy.heard()["id"]} == {51, 52}
    assert toy.end()[0] == 0
    assert [one.request["query"] for one in await logged(2)] == ['{"n": 51}', '{"n": 52}']


def test_an_unknown_key_is_told_how_to_add(wrap: Begin) -> None:
    toy = wrap("nope", "--", *TOY)
    toy.process.wait(GIVEN_UP_S)
    code, said = toy.end()
    assert code == 1
    assert "There is no binding nope" in said
    assert "`memtui bindings add nope mcp`" in said


@pytest.mark.parametrize("words", [[KEY], [KEY, "--url", "http://x/", "--", "true"]])
def test_a_command_or_an_address_is_needed(wrap: Begin, words: list[str]) -> None:
    code, said = wrap(*words).end()
    assert code == 2
    assert "memtui mcp wrap KEY -- COMMAND" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_server_and_its_end_is_the_wraps(wrap: Begin, number: int) -> None:
    waiting = (
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(41))\n"
        "print(1, flush=True)\ntime.sleep(600)"
    )
    toy = wrap(KEY, "--", sys.executable, "-c", waiting)
    assert toy.heard() == 1
    toy.process.send_signal(number)
    assert toy.process.wait(GIVEN_UP_S) == 41


def test_a_killed_server_is_told_as_a_shell_does(wrap: Begin) -> None:
    toy = wrap(KEY, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert toy.end()[0] == 137


def test_a_server_that_stays_does_not_outlive_a_killed_wrap(wrap: Begin) -> None:
    toy = wrap()
    toy.begin()
    assert toy.call("stay")
    pids = [*toy.children()]
    assert len(pids) == 2
    toy.process.kill()
    deadline = time.monotonic() + GIVEN_UP_S
    while any(Path(f"/proc/{one}").exists() for one in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def test_calls_belong_to_the_run_that_a_hook_of_the_same_client_noted(
    wrap: Begin, logged: Logged, paths: Paths
) -> None:
    client = process_of(os.getpid())
    assert client is not None
    note_run(paths, client, RunNote("run-of-the-hook"))
    toy = wrap()
    toy.begin()
    toy.call("find", n=1)
    toy.end()
    [one] = await logged(1)
    assert one.scope.run_id == "run-of-the-hook"
