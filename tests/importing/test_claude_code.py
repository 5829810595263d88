"""Claude Code's transcripts: every reply once, with its tokens, its price and its session."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import Invalid
from memtui.importing.claude_code import project_of
from memtui.service import MemoryService
from tests.importing.conftest import Log, json_lines, log_of

MODEL = "claude-sonnet-4-5-20250929"
USAGE = {
    "input_tokens": 10, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 5000,
    "output_tokens": 1, "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 2000, "ephemeral_5m_input_tokens": 0},
}  # fmt: skip


def line(second: int, uuid: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "user", "uuid": uuid, "sessionId": "s1", "cwd": "/home/ana/shop/src",
        "timestamp": f"2026-03-01T10:00:{second:02}.000Z", "isSidechain": False, **more,
    }  # fmt: skip


def reply(second: int, uuid: str, parent: str, name: str, output: int, **more: Any) -> Any:
    usage = USAGE | {"output_tokens": output}
    content = [{"type": "tool_use", "name": "Bash"} if output > 1 else {"type": "thinking"}]
    message = {
        "id": name,
        "model": "claude-sonnet-4-5-20250929",
        "usage": usage,
        "content": content,
    }
    message |= more.pop("message", {})
    return line(second, uuid, type="assistant", parentUuid=parent, message=message, **more)


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    folder = tmp_path / "claude" / "projects" / "-home-ana-shop"
    (folder / "s1" / "subagents").mkdir(parents=True)
    lines = [
        {"type": "summary", "summary": "x"},
        line(0, "u1"),
        reply(2, "u2", "u1", "msg_01AAAAAAAAAAAAAAAAAAAA", 1),
        line(3, "u8", message={"role": "user", "content": "meanwhile"}),
        reply(4, "u3", "u2", "msg_01AAAAAAAAAAAAAAAAAAAA", 300),
        reply(5, "u4", "u3", "api-error", 0, message={"model": "<synthetic>"}),
        reply(6, "u5", "u4", "no-usage", 0, message={"usage": None}),
        reply(7, "u6", "u5", "odd", 5, message={"usage": {"output_tokens": "many"}}),
        reply(8, "u7", "u6", "odder", 5, timestamp="when?"),
    ]
    path = json_lines(folder / "s1.jsonl", lines)
    path.write_text(path.read_text() + 'not json\n["no object"]\n' + '{"type": "assist')
    resumed = [*lines[:5], reply(40, "u9", "u3", "msg_01CCCCCCCCCCCCCCCCCCCC", 7, costUSD=0.5)]
    json_lines(folder / "s2.jsonl", resumed)
    future = {"model": "claude-future-9", "usage": {"input_tokens": 3, "output_tokens": 4}}
    side = reply(
        9, "u10", "?", "msg_01BBBBBBBBBBBBBBBBBBBB", 4,
        message=future, isSidechain=True, agentId="a1",
    )  # fmt: skip
    json_lines(folder / "s1" / "subagents" / "agent-a1.jsonl", [side])
    return folder.parent


async def test_every_reply_counts_once(service: MemoryService, load: Log, projects: Path) -> None:
    report = await load(projects)
    assert (report.format, report.operations, report.added) == ("claude-code", 3, 3)
    assert report.skipped == {
        "no JSON": 2, "no reply": 6, "no usage": 1, "not by a model": 1, "unreadable": 3,
    }  # fmt: skip
    assert report.repeated == 3
    assert (report.priced_here_count, report.unpriced_count) == (1, 1)
    first, side, last = await log_of(service)
    assert first.request["imported"]["id"] == "msg_01AAAAAAAAAAAAAAAAAAAA"
    assert (first.operation_type, first.status, first.door) == ("context", "ok", "import")
    assert (first.scope.agent_id, first.scope.project_id, first.scope.run_id) == (
        "claude-code", "shop", "s1",
    )  # fmt: skip
    [usage] = first.usage
    assert (usage.provider, usage.model) == ("anthropic", MODEL)
    assert (usage.input_tokens, usage.output_tokens) == (7010, 300)
    # 10 plain, 5,000 read from the cache, 2,000 written to it for an hour, 300 written.
    dollars = 10 * Decimal(3) + 5000 * Decimal("0.3") + 2000 * Decimal(6) + 300 * Decimal(15)
    assert usage.cost_usd == dollars / 1_000_000
    assert {name: usage.details[name] for name in usage.details if name != "priced_by"} == {
        "input_tokens": 10, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 5000,
        "ephemeral_1h_input_tokens": 2000,
    }  # fmt: skip
    assert first.latency_ms == 4000
    assert first.request["text"] == "thinking, Bash"
    assert first.source is not None
    assert first.source.external_ref == f"{projects}/-home-ana-shop/s1.jsonl:3"
    assert side.request["imported"]["sidechain"] is True
    assert (side.usage[0].cost_usd, side.usage[0].input_tokens) == (None, 3)
    assert last.usage[0].cost_usd == Decimal("0.5")  # what the transcript says wins


async def test_a_session_that_went_on(service: MemoryService, load: Log, projects: Path) -> None:
    session = projects / "-home-ana-shop" / "s2.jsonl"
    assert (await load(session)).added == 2
    more = [*map(json.loads, session.read_text().splitlines()), reply(50, "u20", "u9", "new", 9)]
    json_lines(session, more)
    assert ((report := await load(session)).added, report.known) == (1, 2)
    assert (await load(projects, dry_run=True)).added == 1
    assert len(await log_of(service)) == 3


async def test_a_folder_without_transcripts(load: Log, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no transcript"):
        await load(tmp_path)
    with pytest.raises(Invalid, match="only transcripts of Claude Code come in folders"):
        await load(tmp_path, form="csv")


@pytest.mark.parametrize(
    ("path", "cwd", "project"),
    [
        ("/h/.claude/projects/-home-ana-my-shop/s.jsonl", "/home/ana/my-shop", "my-shop"),
        ("/h/.claude/projects/-home-ana-my-shop/s.jsonl", "/home/ana/my-shop/a/b", "my-shop"),
        ("/h/.claude/projects/-home-ana-my-shop/s.jsonl", "/elsewhere", "elsewhere"),
        ("/h/.claude/projects/-home-ana-x/s1/subagents/a.jsonl", "/home/ana/x/y", "x"),
        ("/h/.claude/projects/-home-ana-x/s.jsonl", None, "-home-ana-x"),
        ("/copied/s.jsonl", "/home/ana/x", "x"),
        ("/copied/s.jsonl", None, None),
        ("/h/projects/C--work-x/s.jsonl", "C:\\work\\x\\src", "x"),
    ],
)
def test_the_project_is_the_folder_of_the_slug(
    path: str, cwd: str | None, project: str | None
) -> None:
    assert project_of(Path(path), cwd) == project
