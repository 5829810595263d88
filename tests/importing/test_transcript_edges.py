"""Each line, part, call and token of a transcript counts, and windows and limits are exact."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from memtui.importing import claude_code
from memtui.importing.claude_code import Transcripts
from memtui.importing.staging import ParsedOperation
from memtui.store.operation import OperationDraft
from tests.importing.conftest import json_lines
from tests.importing.test_claude_code import MODEL, line, reply

MEMORY = "/home/ana/.claude/projects/-home-ana-shop/memory"


@pytest.fixture
def reader() -> Transcripts:
    return Transcripts("theirs", lambda path, at, why: lost.append((path.name, at, why)))


lost: list[tuple[str, int, str]] = []


def entries(reader: Transcripts, folder: Path, *lines: Any) -> list[ParsedOperation]:
    lost.clear()
    return list(reader.entries(json_lines(folder / "s1.jsonl", lines)))


def drafts(reader: Transcripts, folder: Path, *lines: Any) -> list[OperationDraft]:
    return [one.draft for one in entries(reader, folder, *lines)]


def test_a_reply_says_where_it_comes_from(reader: Transcripts, tmp_path: Path) -> None:
    more = {
        "requestId": "req", "gitBranch": "main", "version": "2.0", "agentId": "a1", "userType": "x",
    }  # fmt: skip
    whole = reply(2, "u2", "?", "m1", 5, isSidechain=True, **more)
    bare = reply(3, "u3", "?", "m2", 5, cwd=None, sessionId=None)
    first, second = drafts(reader, tmp_path, {"type": "summary"}, whole, bare)
    assert first.request["imported"] == {
        "file": "s1.jsonl", "line": 2, "id": "m1", "session": "s1", "request_id": "req",
        "cwd": "/home/ana/shop/src", "git_branch": "main", "version": "2.0", "agent": "a1",
        "sidechain": True,
    }  # fmt: skip
    assert second.request["imported"] == {"file": "s1.jsonl", "line": 3, "id": "m2"}
    assert (first.principal, first.channel, first.scope.project_id) == (
        "agent:claude-code", "import", "src",
    )  # fmt: skip
    assert first.source is not None
    assert second.source is not None
    assert (first.source.kind, first.source.run_id, first.source.company_id) == (
        "run", "s1", "theirs",
    )  # fmt: skip
    assert second.source.external_ref == f"{tmp_path}/s1.jsonl:3"
    assert (second.scope.run_id, second.source.run_id) == (None, None)
    assert dict(reader.skipped) == {"no reply": 1}


def test_a_reply_in_parts(reader: Transcripts, tmp_path: Path) -> None:
    def part(second: int, name: str, output: int, *content: Any, **usage: int) -> Any:
        message = {"content": list(content), "usage": {"output_tokens": output, **usage}}
        return reply(second, f"u{second}", "u0", name, output, message=message)

    text, bash = {"type": "text"}, {"type": "tool_use", "name": "Bash"}
    found = entries(
        reader, tmp_path, line(0, "u0"),
        part(2, "m1", 5, text, input_tokens=1), part(9, "m2", 1, bash, "odd"),
        part(4, "m1", 7, bash, text, input_tokens=2), part(3, "m1", 7, bash, input_tokens=3),
        part(5, "m1", 6, {"type": "thinking"}, input_tokens=4),
    )  # fmt: skip
    assert [(one.line, one.weight) for one in found] == [(2, 7), (3, 1)]
    first, second = (one.draft for one in found)
    assert (first.request["text"], second.request["text"]) == ("text, Bash, thinking", "Bash")
    assert (first.usage[0].input_tokens, first.usage[0].output_tokens) == (3, 7)
    assert (first.started_at.second, first.latency_ms, second.latency_ms) == (2, 5_000, 9_000)
    assert reader.repeated == 3


@pytest.mark.parametrize(
    ("asked", "answered", "latency"),
    [("10:00:00", "11:00:00", 3_600_000), ("10:00:00", "11:00:00.001", None),
     ("10:00:00", "10:00:00", 0), ("10:00:01", "10:00:00", None)],
)  # fmt: skip
def test_a_reply_takes_up_to_an_hour(
    reader: Transcripts, tmp_path: Path, asked: str, answered: str, latency: float | None
) -> None:
    question = line(0, "u1", timestamp=f"2026-03-01T{asked}Z")
    answer = reply(0, "u2", "u1", "m", 5, timestamp=f"2026-03-01T{answered}Z")
    [found] = drafts(reader, tmp_path, question, answer)
    assert found.latency_ms == latency


def test_what_is_remembered_of_a_long_session(
    reader: Transcripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_code, "_REMEMBERED_LINES", 3)
    monkeypatch.setattr(claude_code, "_OPEN_MESSAGES", 2)
    asked = [line(second, f"q{second}") for second in range(3)]
    found = drafts(reader, tmp_path, *asked, reply(5, "a1", "q1", "m1", 5))
    assert found[0].latency_ms == 4_000
    found = drafts(reader, tmp_path, *asked, reply(5, "a1", "q0", "m1", 5))
    assert found[0].latency_ms is None
    told = [reply(n, f"a{n}", "?", name, 5) for n, name in enumerate(("m1", "m2", "m3", "m1"))]
    assert [one.line for one in entries(reader, tmp_path, *told[:2], told[3])] == [1, 2]
    again = entries(reader, tmp_path, *told)
    assert [one.line for one in again] == [1, 2, 3, 4]
    assert again[0].key == again[3].key != again[1].key


def test_a_reply_without_an_id(reader: Transcripts, tmp_path: Path) -> None:
    lines = [reply(n, uuid, "?", "", 5) for n, uuid in enumerate(("u1", "u2", "", ""))]
    found = entries(reader, tmp_path, *lines)
    assert len({one.key for one in found}) == 4
    assert [one.draft.request["imported"]["id"] for one in found[:2]] == ["u1", "u2"]
    assert [one.key for one in entries(reader, tmp_path, *lines)] == [one.key for one in found]


def test_tokens_of_a_cache(reader: Transcripts, tmp_path: Path) -> None:
    def usage(**counts: Any) -> Any:
        message = {"usage": {"output_tokens": 1, **counts}}
        return reply(1, "u", "?", str(counts), 5, message=message)

    held = {"cache_creation_input_tokens": 100, "cache_read_input_tokens": 1_000}
    plain, hour, more = drafts(
        reader, tmp_path, usage(**held, input_tokens=10),
        usage(**held, cache_creation={"ephemeral_1h_input_tokens": 40}),
        usage(**held, cache_creation={"ephemeral_1h_input_tokens": 101}),
    )  # fmt: skip
    million = Decimal(1_000_000)
    costs = [one.usage[0].cost_usd for one in (plain, hour, more)]
    read, output = 1_000 * Decimal("0.3"), Decimal(15)
    assert costs == [
        (10 * 3 + read + 100 * Decimal("3.75") + output) / million,
        (read + 60 * Decimal("3.75") + 40 * 6 + output) / million,
        (read + 100 * 6 + output) / million,
    ]
    assert [one.usage[0].input_tokens for one in (plain, hour, more)] == [1_110, 1_100, 1_100]
    assert "ephemeral_1h_input_tokens" not in plain.usage[0].details
    assert more.usage[0].details["ephemeral_1h_input_tokens"] == 100
    [free] = drafts(reader, tmp_path, reply(1, "u", "?", "m", 5, costUSD=0))
    assert (free.usage[0].cost_usd, free.usage[0].model) == (Decimal(0), MODEL)
    assert "priced_by" not in free.usage[0].details


def test_lines_that_are_lost_are_named(reader: Transcripts, tmp_path: Path) -> None:
    found = entries(
        reader, tmp_path,
        reply(1, "u1", "?", "m1", 5, timestamp=None), reply(1, "u2", "?", "m2", 5, timestamp="?"),
        reply(1, "u3", "?", "m3", 5, message={"usage": {"input_tokens": -1}}),
        reply(1, "u4", "?", "m4", 5, sessionId="a\nb"), reply(1, "u5", "?", "m5", 5),
    )  # fmt: skip
    assert [one.draft.request["imported"]["id"] for one in found] == ["m5"]
    assert sorted(lost) == [
        ("s1.jsonl", number, "a field of it cannot be read") for number in (1, 2, 3, 4)
    ]
    assert reader.skipped["unreadable"] == 4


# Calls


def call(name: str, tool: str = "Write", **given: Any) -> dict[str, Any]:
    given = given or {"file_path": f"{MEMORY}/{name}.md", "content": name}
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def result(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "ok", **more}


def said(second: int, *blocks: Any, **more: Any) -> Any:
    """Return a line that holds blocks and is no reply, so that only calls become operations."""
    return line(second, f"u{second}", message={"content": list(blocks)}, **more)


def test_each_call_of_a_line_and_each_result(reader: Transcripts, tmp_path: Path) -> None:
    found = entries(
        reader, tmp_path,
        said(1, call("a"), {"type": "text"}, call("b"), call("c", "Bash", command="ls")),
        said(3, call("a", "Edit")),  # an id that is used already
        said(2, result("nobody"), result("b"), result("a", is_error=True)),
        said(4, result("a")),
        said(5, call("d"), call("e")), said(4, result("d"), toolUseResult={"type": "update"}),
        said(9, call("late", "Write")), said(9, call("f"), timestamp=None),
        said(9, result("e"), timestamp=None),
    )  # fmt: skip
    told = [(one.line, one.draft.operation_type, one.draft.status) for one in found]
    assert told == [
        (1, "write", "ok"), (1, "write", "error"), (5, "correct", "ok"), (5, "write", "ok"),
    ]  # fmt: skip
    b, a, d, e = (one.draft for one in found)
    assert [one.latency_ms for one in (b, a, d, e)] == [1_000, 1_000, 0, 0]
    assert (a.error_kind, a.error_message is None, b.error_kind) == ("error", False, None)
    assert (a.handles, a.result_count, b.result_count) == ((), 0, 1)
    assert b.request == {
        "record_id": "b.md", "content": "b", "content_chars": 1,
        "imported": {"file": "s1.jsonl", "line": 1, "id": "b", "session": "s1",
                     "cwd": "/home/ana/shop/src", "tool": "Write"},
    }  # fmt: skip
    assert (b.provider_key, b.handles[0].provider_key) == ("claude-memory", "claude-memory")
    assert len({one.key for one in found}) == 4
    assert reader.skipped["no result yet"] == 1


def test_the_records_of_a_call_are_ranked(reader: Transcripts, tmp_path: Path) -> None:
    answer = {"operation_id": "op", "ids": ["1", "2"]}
    forgotten = call("a", "mcp__m__memory_forget", ids=["x", "y"])
    asked = call("b", "mcp__m__memory_search", query="q", limit=3)
    forget, search, found = drafts(
        reader, tmp_path,
        said(1, forgotten, asked, call("c", "mcp__memory__search_nodes", query="q")),
        said(2, result("a")), said(2, result("b"), toolUseResult={"structuredContent": answer}),
        said(2, result("c", content='{"entities": [{"name": "Ana"}]}')),
    )  # fmt: skip
    assert [(one.rank, one.provider_record_id) for one in forget.handles] == [(1, "x"), (2, "y")]
    assert [(one.rank, one.provider_record_id) for one in search.handles] == [(1, "1"), (2, "2")]
    assert (search.result_count, search.request["imported"]["operation_id"]) == (2, "op")
    assert (search.request["query"], search.request["top_k"]) == ("q", 3)
    assert (search.provider_key, search.handles[0].provider_key) == (None, "memtui")
    assert (found.handles[0].provider_key, found.handles[0].provider_record_id) == (
        "mcp-memory", "Ana",
    )  # fmt: skip
