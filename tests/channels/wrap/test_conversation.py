"""What is read of the two sides of a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memtui.channels.wrap.conversation import Conversation
from memtui.channels.wrap.frames import FrameKind, WireFrame
from memtui.contract import OperationType
from memtui.mcp_mapping import Mapping


def hear(one: Conversation, asked: dict[str, Any], result: dict[str, Any]) -> list[Any]:
    """Let an agent ask and a server answer; returns the calls that ended."""
    said = {"jsonrpc": "2.0", "id": "x", **asked}
    for call in one.asked(WireFrame(FrameKind.ASKED, 1, 1.0, [json.dumps(said).encode()])):
        one.open(call)
    answer = {"jsonrpc": "2.0", "id": "x", "result": result}
    line = json.dumps(answer).encode()
    return [
        one.passed(call, said, 2.0)
        for call, said in one.answered(WireFrame(FrameKind.ANSWERED, 2, 2.0, [line]))
    ]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_server_is_known_by_the_name_that_it_gives(is_new: bool) -> None:
    """Of old in the answer to `initialize`, since 2026 in the `_meta` of each message."""
    one = Conversation()
    info = {"name": "memory-server", "version": "1"}
    client = {"name": "tester", "version": "2"}
    prefix = "io.modelcontextprotocol/"
    if is_new:
        params: dict[str, Any] = {"_meta": {f"{prefix}clientInfo": client}}
        hear(one, {"method": "tools/list", "params": params},
             {"tools": [], "_meta": {f"{prefix}serverInfo": info}})  # fmt: skip
    else:
        hear(one, {"method": "initialize", "params": {"clientInfo": client}}, {"serverInfo": info})
    assert one.mapping.name == "server-memory"
    assert one.client == "tester 2"
    graph = {"entities": [{"name": "Ana", "entityType": "x", "observations": ["likes tea"]}]}
    asked = {"name": "search_nodes", "arguments": {"query": "tea"}}
    [found] = hear(one, {"method": "tools/call", "params": asked}, {"structuredContent": graph})
    assert found.operation_type is OperationType.QUERY
    assert found.asked.start == "tea"
    assert [name.rpartition("/")[0] for name, _ in found.records] == ["entity/Ana"]


@pytest.mark.parametrize(
    "line", [b"", b"null", b"[1, [2]]", b"{" * 100_000, b'{"id": {}, "method": [], "params": []}',
             b'{"method": "tools/call", "id": [], "params": {"name": {}, "arguments": 1}}',
             b'{"id": "x", "result": {"tools": [null, {"name": 1}]}}'])  # fmt: skip
def test_odd_lines_are_read_without_a_fault(line: bytes) -> None:
    one = Conversation()
    for call in one.asked(WireFrame(FrameKind.ASKED, 1, 1.0, [line])):
        one.open(call)
    assert list(one.answered(WireFrame(FrameKind.ANSWERED, 2, 2.0, [line]))) == []
    for call in one.cut_off():
        assert one.passed(call, None, 3.0).operation_type is OperationType.WRITE


def test_a_hint_that_a_server_takes_back_counts_no_more() -> None:
    one = Conversation()
    hear(one, {"method": "tools/list"},
         {"tools": [{"name": "x", "annotations": {"readOnlyHint": True}}]})  # fmt: skip
    assert one.reads == {"x"}
    hear(one, {"method": "tools/list"}, {"tools": [{"name": "x"}]})
    assert not one.reads


def test_a_tool_that_reads_or_adds_by_an_argument_does_not_surely_read() -> None:
    search = {"tool": "memory", "arguments": {"query": "{query}"}}
    add = {"tool": "memory", "arguments": {"action": "add", "text": "{text}"}}
    mapping = Mapping.model_validate({"title": "x", "search": search, "add": add})
    assert Conversation(mapping=mapping).reads == frozenset()


def test_a_call_beside_carriage_returns_is_seen() -> None:
    """Servers in Python end a line there too."""
    call = b'{"id": 1, "method": "tools/call", "params": {"name": "keep"}}'
    line = b'{"id": 2, "method": "ping", "params":\r' + call + b"\r}\r\n"
    assert [
        one.tool for one in Conversation().asked(WireFrame(FrameKind.ASKED, 1, 1.0, [line]))
    ] == ["keep"]


def test_the_oldest_of_many_calls_without_an_answer_is_given_up() -> None:
    one = Conversation()
    given_up = []
    for number in range(1_002):
        call = {"id": number, "method": "tools/call", "params": {"name": "keep"}}
        [opened] = one.asked(WireFrame(FrameKind.ASKED, number, 1.0, [json.dumps(call).encode()]))
        given_up.append(one.open(opened))
    assert [call.number for call in given_up if call] == [0, 1]
