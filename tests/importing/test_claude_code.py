"""Claude Code's transcripts: every reply once, with its tokens, its price and its session."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import Invalid
from memtui.importing.projects import project_of
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
    assert (first.operation_type, first.status, first.channel) == ("context", "ok", "import")
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


MEMORY = "/home/ana/.claude/projects/-home-ana-shop/memory/topics/deploy.md"
CALLS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("Write", {"file_path": MEMORY, "content": "Deploy from main."}, "Ok.", {"type": "create"}),
    ("Write", {"file_path": MEMORY, "content": "Deploy on Monday."}, "Ok.", {"type": "update"}),
    ("Edit", {"file_path": "/srv/shop/CLAUDE.md", "old_string": "npm", "new_string": "uv"}, None,
     "Error: it was not read"),
    ("MultiEdit", {"file_path": "C:\\shop\\.claude\\rules\\go.md",
                   "edits": [{"new_string": "one"}, {"new_string": "two"}]}, "Updated.", {}),
    ("Write", {"file_path": "/home/ana/shop/memory/notes.md", "content": "no memory"}, "ok", {}),
    ("mcp__memory__create_entities",
     {"entities": [{"name": "Ana", "entityType": "person", "observations": ["tabs", "tea"]}]},
     [{"type": "text", "text": "[]"}], None),
    ("mcp__memory__search_nodes", {"query": "who drinks tea"},
     [{"type": "text", "text": '{"entities": [{"name": "Ana"}], "relations": []}'}], None),
    ("mcp__memory__delete_entities", {"entityNames": ["Ana", "Bo"]}, "Deleted.", None),
    ("mcp__mine__memory_note", {"text": "The key is sk-ant-api03-" + "x" * 90 + "AA."}, "Stored.",
     {"structuredContent": {"operation_id": "0123456789abcdef", "ids": ["notes/1.md"]}}),
    ("mcp__mine__remove_memory", {"scope": "user", "id": "f1"}, '{"operation_id": "fedcba"}', None),
    ("mcp__github__create_issue", {"title": "no memory"}, "ok", None),
    ("Bash", {"command": "rm -rf memory"}, "ok", None),
    ("mcp__memory__open_nodes", {"names": ["half a \ud800"]}, "[" * 5_000, 7),
    ("mcp__memory__add_observations", {"observations": [7, {"contents": "x"}]}, [7], [None]),
]  # fmt: skip


def called(projects: Path, name: str, calls: int) -> Path:
    """Write a session that calls tools; a reply of `None` is an error."""
    lines: list[Any] = []
    for number, (tool, given, reply, structured) in enumerate(CALLS[:calls]):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": given}
        lines.append(reply_with(2 * number, number, block))
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"toolu_{number}"}
        result |= {"content": "no", "is_error": True} if reply is None else {"content": reply}
        lines.append(
            line(2 * number + 1, f"r{number}", message={"role": "user", "content": [result]},
                 toolUseResult=structured)
        )  # fmt: skip
    return json_lines(projects / "-home-ana-shop" / name, lines)


def reply_with(second: int, number: int, block: dict[str, Any]) -> Any:
    name = f"msg_call_{number}"
    return reply(second, f"c{number}", "?", name, 5, message={"content": [block]})


async def test_what_a_session_did_to_memory(
    service: MemoryService, load: Log, caller: Any, tmp_path: Path
) -> None:
    projects = tmp_path / "projects"
    (projects / "-home-ana-shop").mkdir(parents=True)
    session = called(projects, "s1.jsonl", 3)
    await load(session)
    # It goes on, is resumed in another file, and its last call has no result yet.
    called(projects, "s1.jsonl", len(CALLS))
    waiting = {"type": "tool_use", "id": "late", "name": CALLS[0][0], "input": CALLS[0][1]}
    with called(projects, "s2.jsonl", 6).open("a") as file:
        file.write(json.dumps(reply_with(59, 99, waiting)) + "\n")
    report = await load(projects)
    assert report.skipped["no result yet"] == 1
    assert (await load(projects)).added == 0
    found = [one for one in await log_of(service) if one.operation_type != "context"]
    assert [(one.operation_type, one.status, one.provider_key) for one in found] == [
        ("write", "ok", "claude-memory"),
        ("correct", "ok", "claude-memory"),
        ("correct", "error", "instructions"),
        ("correct", "ok", "instructions"),
        ("write", "ok", "mcp-memory"),
        ("query", "ok", "mcp-memory"),
        ("forget", "ok", "mcp-memory"),
        ("write", "ok", None),
        ("forget", "ok", None),
        ("get", "ok", "mcp-memory"),
        ("write", "ok", "mcp-memory"),
    ]
    wrote, changed, failed, _, entities, asked, forgot, noted, removed, opened, odd = found
    assert opened.handles[0].provider_record_id == "half a \ud800"
    assert odd.handles == ()
    assert wrote.handles[0].provider_record_id == "topics/deploy.md"
    assert (wrote.request["content"], changed.latency_ms) == ("Deploy from main.", 1000)
    assert (failed.error_kind, failed.handles) == ("error", ())
    assert entities.request["content"] == "Ana (person): tabs; tea"
    assert (asked.request["query"], asked.result_count) == ("who drinks tea", 1)
    assert [one.provider_record_id for one in forgot.handles] == ["Ana", "Bo"]
    assert noted.request["imported"]["operation_id"] == "0123456789abcdef"
    assert "sk-ant" not in noted.model_dump_json()
    assert removed.source is not None
    assert (removed.source.run_id, removed.scope.project_id) == ("s1", "shop")
    reader = caller.model_copy(update={"company_id": "theirs"})
    replay = await service.runs.replay(reader, "s1")
    assert (replay.run.writes, replay.run.corrections, replay.run.failures) == (4, 3, 1)
    assert (replay.run.answered_queries, replay.run.forgets) == (1, 2)
    assert "half a \\ud800" in json.dumps(replay.model_dump(mode="json"))
    states = {one.state for step in replay.steps for one in step.records}
    assert states == {"unread"}


async def test_spliced_cut_and_padded_lines_lose_only_what_is_cut(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    one, two, three, four, five, six = (
        json.dumps(reply(at, f"u{at}", "?", f"msg_{at}", 10**at)) for at in range(6)
    )
    content = b"\n".join(
        part.encode()
        for part in (
            one,
            f"{two[:-150]}{three}",
            f"{four}{five}",
            "\0" * 300 + six,
            two[:200],
        )
    )
    path = tmp_path / "s1.jsonl"
    path.write_bytes(content)
    report = await load(path)
    assert (report.operations, report.output_tokens) == (5, 111_101)
    assert [(one.file, one.line) for one in report.bad] == [("s1.jsonl", 2), ("s1.jsonl", 5)]
