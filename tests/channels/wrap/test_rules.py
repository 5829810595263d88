"""Rules of review on a wrapped binding: a write waits, passes or is refused; a read passes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths
from memtui.contract import BrowseRequest, OperationStatus, OperationType, Scope, WriteRequest
from memtui.service import Caller, MemoryService, ReviewRule, RuleAction, RuleTest
from tests.channels.wrap.conftest import KEY, TOY, Begin, Logged, Wrap
from tests.channels.wrap.test_trouble import log_process

TOKEN = "ghp_" + "a1B2" * 9
MAPPING = """
title = "Toy"
[record]
id = "id"
[search]
tool = "find"
arguments = { words = "{query}" }
[add]
tool = "keep"
arguments = { notes = [{ text = "{text}" }] }
[delete]
tool = "drop"
arguments = { ids = ["{id}"] }
"""


def rule(action: RuleAction, test: RuleTest, value: str = "") -> ReviewRule:
    return ReviewRule(action=action, test=test, value=value)


@pytest.fixture
async def ruled(bound: MemoryService, caller: Caller) -> MemoryService:
    """A binding that holds what speaks of otters, and refuses what speaks of eels."""
    for action, words in ((RuleAction.HOLD, "otters"), (RuleAction.REFUSE, "eels")):
        await bound.review.add_rule(caller, KEY, rule(action, RuleTest.TEXT, words))
    return bound


@pytest.fixture
def toy(wrap: Begin, tmp_path: Path, ruled: MemoryService) -> Wrap:
    """A server with a mapping, whose binding has the rules."""
    mapping = tmp_path / "toy.toml"
    mapping.write_text(MAPPING)
    toy = wrap(KEY, "--mapping", str(mapping), "--", *TOY)
    toy.begin()
    return toy


def keep(toy: Wrap, *texts: str) -> tuple[bool, str]:
    """Have the server keep texts; returns whether that is an error, and what is said."""
    said = toy.call("keep", notes=[{"text": one} for one in texts])
    return said["isError"], said["content"][0]["text"]


async def test_a_write_that_a_rule_meets_waits_and_is_sent_by_memtui_once_accepted(
    toy: Wrap, logged: Logged, ruled: MemoryService, caller: Caller
) -> None:
    is_error, said = keep(toy, f"otters like {TOKEN}", "a line beside it")
    assert is_error  # its tool's results have a schema, which this does not fit
    waiting = await ruled.review.waiting(caller)
    assert [one.text.partition(" ")[0] for one in waiting] == ["otters", "a"]
    assert all(one.pending_id in said for one in waiting)
    assert TOKEN not in waiting[0].model_dump_json()
    assert {one.channel for one in waiting} == {"wrap"}
    assert {one.status for one in await logged(2)} == {OperationStatus.PENDING}
    await ruled.review.accept(caller, waiting[1].pending_id)
    page = await ruled.browse(
        caller, BrowseRequest(scope=Scope(company_id="local"), binding_key=KEY)
    )
    assert [one.text for one in page.records] == ["a line beside it"]


async def test_what_no_rule_meets_passes_unchanged_and_is_logged_with_its_outcome(
    toy: Wrap, logged: Logged
) -> None:
    is_error, said = keep(toy, "plain")
    assert (is_error, said) == (False, '{"kept": {"notes": [{"text": "plain"}]}}')
    toy.end()
    [one] = await logged(1)
    assert (one.operation_type, one.status) == (OperationType.WRITE, OperationStatus.OK)
    assert one.request["content"] == "plain"


async def test_a_refused_write_does_not_pass(toy: Wrap, logged: Logged) -> None:
    is_error, said = keep(toy, "eels bite")
    assert is_error
    assert "refuses this change from agents" in said
    [one] = await logged(1)
    assert one.status is OperationStatus.DENIED


async def test_reads_pass_and_writes_are_refused_while_the_rules_cannot_be_read(
    toy: Wrap, logged: Logged
) -> None:
    keep(toy, "plain")
    await logged(1)
    watching = log_process(toy)
    os.kill(watching, signal.SIGSTOP)
    assert "words" in toy.call("find", words="otters")["content"][0]["text"]
    is_error, said = keep(toy, "plain again")
    assert is_error
    assert "cannot be read now; nothing was changed" in said
    os.kill(watching, signal.SIGCONT)


async def test_a_write_that_no_mapping_knows_is_refused_where_it_would_be_held(
    wrap: Begin, ruled: MemoryService, caller: Caller
) -> None:
    toy = wrap()
    toy.begin()
    said = toy.call("keep", anything="otters")
    assert said["isError"]
    assert "no mapping says all that keep changes" in said["content"][0]["text"]
    assert not toy.call("keep", anything="plain")["isError"]
    assert await ruled.review.waiting(caller) == []


async def test_a_deletion_of_what_a_rule_meets_waits(
    toy: Wrap, ruled: MemoryService, caller: Caller
) -> None:
    await ruled.review.add_rule(caller, KEY, rule(RuleAction.HOLD, RuleTest.AGENT, "assistant"))
    request = WriteRequest(scope=Scope(company_id="local"), source=None, content="x", title="Ana",
                           binding_key=KEY)  # fmt: skip
    written = await ruled.write(caller, request, copied=True)
    name = written.handles[0].provider_record_id
    while not await ruled.review.waiting(caller):  # the rule is looked at within a second
        said = toy.call("drop", ids=[name])["content"][0]["text"]
    assert "Held for review" in said
    both = toy.call("drop", ids=[name, "nowhere"])["content"][0]["text"]
    assert "finds no memory there that drop names" in both


async def test_rules_that_are_made_meanwhile_hold(
    wrap: Begin, bound: MemoryService, caller: Caller, tmp_path: Path, paths: Paths
) -> None:
    mapping = tmp_path / "toy.toml"
    mapping.write_text(MAPPING)
    toy = wrap(KEY, "--mapping", str(mapping), "--", *TOY)
    toy.begin()
    assert keep(toy, "one") == (False, '{"kept": {"notes": [{"text": "one"}]}}')
    await bound.review.add_rule(caller, KEY, rule(RuleAction.HOLD, RuleTest.ALL))
    note = paths.data / "wrapped" / f"-.{KEY}"
    while not note.exists() or note.read_text() != "has rules\n":
        await asyncio.sleep(0.05)
    assert keep(toy, "two")[0]
    [one] = await bound.review.waiting(caller)
    assert one.text == "two"


_KEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"keep"}}'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (_KEEP.replace(b'"params"', b'"method":"ping","params"'), "not plain JSON"),
        (_KEEP.replace(b'"params"', b'"Method":"ping","params"'), "not plain JSON"),
        (_KEEP.replace(b'"method"', b'"METHOD"'), "not plain JSON"),
        (_KEEP.replace(b'"keep"', b'"find","Name":"keep"'), "not plain JSON"),
        (_KEEP.replace(b"}}", b",}}"), "not plain JSON"),
        (b'{"method":"ping","params":\r' + _KEEP + b"\r}", "not plain JSON"),
        (b"\xef\xbb\xbf" + _KEEP, "not plain JSON"),
        (b"\xff\xfe", "not plain JSON"),
        (_KEEP.replace(b"tools/", b"tools/\xed\xa0\x80"), "not plain JSON"),
        (_KEEP.replace(b'"}}', b'","arguments":"{\\"text\\":\\"otters\\"}"}}'), "not plain JSON"),
        (_KEEP.replace(b'"}}', b'","arguments":["otters"]}}'), "not plain JSON"),
        (_KEEP.replace(b'{"name":"keep"}', b'["keep",{"text":"otters"}]'), "not plain JSON"),
        (b"[[" + _KEEP + b"]]", "one by one"),
        (b"[" + _KEEP + b"]", "one by one"),
        (_KEEP.replace(b"tools/call", b"memories/add"), "what this method changes"),
        (_KEEP.replace(b"tools/call", b"tools/call\\u0000"), "what this method changes"),
        (_KEEP.replace(b'"tools/call"', b'["tools/call"]'), "what this method changes"),
    ],
)
async def test_a_line_that_a_server_may_read_otherwise_does_not_pass(
    toy: Wrap, line: bytes, why: str
) -> None:
    assert toy.process.stdin is not None
    toy.process.stdin.write(line + b"\n")
    toy.process.stdin.flush()
    said = toy.heard()
    text = said["error"]["message"] if "error" in said else said["result"]["content"][0]["text"]
    assert why in text


@pytest.mark.parametrize("more", [{}, {"id": None}])
async def test_a_call_that_wants_no_answer_waits_for_the_rules_too(
    toy: Wrap, ruled: MemoryService, caller: Caller, more: dict[str, None]
) -> None:
    notes = {"notes": [{"text": "otters swim"}]}
    call = {"method": "tools/call", "params": {"name": "keep", "arguments": notes}}
    toy.say({"jsonrpc": "2.0", **call, **more})
    assert "Held for review" in toy.heard()["result"]["content"][0]["text"]
    [one] = await ruled.review.waiting(caller)
    assert one.text == "otters swim"


async def test_a_tool_whose_name_is_no_text_does_not_end_the_wrap(toy: Wrap) -> None:
    toy.ask("tools/call", name=["keep"])
    assert "words" in toy.call("find", words="x")["content"][0]["text"]


@pytest.mark.parametrize(
    "given",
    [
        {"notes": [{"text": "plain"}], "more": "otters"},
        {"notes": [{"text": "plain"}, {"txt": "otters"}]},
        {"notes": [{"text": "plain", "tags": {"of": ["otters"]}}]},
    ],
)
async def test_a_text_that_the_mapping_does_not_know_is_weighed_too(
    toy: Wrap, ruled: MemoryService, caller: Caller, given: dict[str, Any]
) -> None:
    said = toy.call("keep", **given)
    assert "no mapping says all that keep changes" in said["content"][0]["text"]
    assert await ruled.review.waiting(caller) == []
    assert keep(toy, "plain")[0] is False


async def test_no_memory_is_weighed_out_of_sight_of_the_rules(toy: Wrap) -> None:
    is_error, said = keep(toy, *["plain"] * 1_000, "otters")
    assert is_error
    assert "fewer than 1,000 memories" in said
