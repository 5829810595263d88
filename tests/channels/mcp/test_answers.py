"""How long an answer is, what of a long memory it holds, and what arguments mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import Implementation

from memtui.channels.mcp.tools import Memories, Memory, fitting
from memtui.contract import Scope
from memtui.service import Caller, MemoryService
from tests.channels.mcp.conftest import COMPANY, PROJECT, Connect, text_of

_FILLER = 'A "quoted" line of which nobody asks, number {}.\n'
_LIMIT = 8_000
_SCOPE = Scope(company_id=COMPANY, project_id=PROJECT)


def _long(number: int, answer: str) -> str:
    lines = [_FILLER.format(f"{number}.{line}") for line in range(300)]
    lines.insert(150, f"{answer}\n")
    return "".join(lines)


def _sizes(result: Any) -> tuple[int, int]:
    return len(text_of(result)), len(json.dumps(result.structured_content, ensure_ascii=False))


async def test_a_search_returns_passages_within_its_budget(
    connect: Connect, service: MemoryService, caller: Caller
) -> None:
    client = await connect()
    for number in range(12):
        text = _long(number, f"The release branch of service{number} is green.")
        await client.call_tool("memory_note", {"text": text, "title": f"Service {number}"})
    found = await client.call_tool("memory_search", {"query": "release branch", "limit": 12})
    memories = found.structured_content["memories"]
    assert len(memories) == 12
    assert all(one["is_passage"] and "release branch" in one["text"] for one in memories)
    assert max(_sizes(found)) <= _LIMIT

    seen: list[str] = []
    asked: dict[str, Any] = {"limit": 100}
    while True:
        page = await client.call_tool("memory_browse", asked)
        assert max(_sizes(page)) <= _LIMIT
        seen += [one["id"] for one in page.structured_content["memories"]]
        asked["cursor"] = page.structured_content.get("next_cursor")
        if asked["cursor"] is None:
            break
    assert sorted(seen) == sorted(one["id"] for one in memories)

    whole = ""
    at: int | None = 0
    while at is not None:
        part = await client.call_tool("memory_get", {"id": memories[0]["id"], "offset": at})
        assert max(_sizes(part)) <= _LIMIT
        whole += part.structured_content["memory"]["text"]
        at = part.structured_content.get("next_offset")
    record = await service.get(caller, memories[0]["id"], _SCOPE)
    assert whole == record.record.text


@pytest.mark.parametrize(
    ("name", "setting", "limit"),
    [
        ("codex-mcp-client", None, 8_000),
        ("claude-code", None, 24_000),
        ("claude-code", 2_000, 2_000),
    ],
)
async def test_the_budget_is_the_clients_or_the_settings(
    connect: Connect,
    service: MemoryService,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    setting: int | None,
    limit: int,
) -> None:
    changed = service.settings.model_copy(update={"mcp_answer_characters": setting})
    monkeypatch.setattr(service, "settings", changed)
    client = await connect(mode="legacy", client_info=Implementation(name=name, version="1"))
    noted = await client.call_tool("memory_note", {"text": _long(0, "x") * 2})
    [record_id] = noted.structured_content["ids"]
    found = await client.call_tool("memory_get", {"id": record_id})
    assert limit * 0.6 < max(_sizes(found)) <= limit


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("characters", [1_000, 8_000])
def test_no_answer_is_longer_than_its_budget(count: int, characters: int) -> None:
    one = Memory(
        id="i" * 60, text='"\n' * 4_000, title="t" * 5_000, kind="note", belongs_to="user ana"
    )
    answer = Memories(operation_id="o" * 32, binding="default", memories=(one,) * count)
    fitted = fitting(answer, "words", characters)
    document = fitted.model_dump(mode="json", exclude_none=True)
    assert len(json.dumps(document, ensure_ascii=False)) <= characters
    assert len(fitted.words()) <= characters
    assert fitted.memories
    assert fitted.incomplete == (len(fitted.memories) < count)


async def test_null_is_left_out_and_a_list_may_be_its_json_text(connect: Connect) -> None:
    client = await connect()
    asked = {"text": "Ships on Friday", "title": None, "tags": '["ops", "release"]', "topic": None}
    noted = await client.call_tool("memory_note", asked)
    assert not noted.is_error
    [record_id] = noted.structured_content["ids"]
    found = await client.call_tool("memory_get", {"id": record_id, "key": None, "binding": None})
    assert found.structured_content["memory"]["tags"] == ["ops", "release"]
    wrong = await client.call_tool("memory_note", {"text": "x", "tags": "ops"})
    assert wrong.is_error
    assert "tags" in text_of(wrong)
    gone = await client.call_tool("memory_forget", {"ids": json.dumps([record_id])})
    assert gone.structured_content["ids"] == [record_id]


async def test_a_note_is_pinned_expires_and_is_found_by_what_it_carries(
    connect: Connect, service: MemoryService, caller: Caller
) -> None:
    client = await connect()
    kept = {"tags": ["ops/oncall"], "pinned": True, "expires_at": "2199-01-01T00:00:00Z"}
    noted = await client.call_tool("memory_note", {"text": "Deploys are loud", **kept})
    await client.call_tool("memory_note", {"text": "Deploys are quiet", "tags": ["dev"]})
    [record_id] = noted.structured_content["ids"]
    record = (await service.get(caller, record_id, _SCOPE)).record
    assert record.pinned
    assert record.expires_at is not None
    assert record.expires_at.year == 2199

    for asked, count in (
        ({"tag": "ops"}, 1),
        ({"source_kind": "run"}, 2),
        ({"source_kind": "issue"}, 0),
        ({"as_of": "2001-01-01T00:00:00Z"}, 0),
    ):
        found = await client.call_tool("memory_search", {"query": "deploys", **asked})
        assert len(found.structured_content["memories"]) == count, asked
    listed = await client.call_tool("memory_browse", {"tag": "ops", "all_scopes": True})
    assert [one["id"] for one in listed.structured_content["memories"]] == [record_id]


async def test_a_note_under_a_heading_is_a_fact(connect: Connect) -> None:
    client = await connect()
    asked = {"text": "deploy_branch: release", "namespace": "Project"}
    assert not (await client.call_tool("memory_note", asked)).is_error
    found = await client.call_tool("memory_get", {"key": "deploy_branch", "namespace": "Project"})
    assert found.structured_content["value"] == "release"
