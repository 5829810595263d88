"""Each record, entity and edit that a tool call names is told, the second as well as the first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memtui.contract import OperationType
from memtui.importing import memory_calls
from memtui.importing.memory_calls import memory_call, returned, structured

MEMORY = "/home/ana/.claude/projects/-home-ana-shop/memory/"
ENTITIES = [{"name": name, "entityType": "person", "observations": ["tabs", "tea"]}
            for name in ("Ana", "Bo")]  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "given", "kind", "records", "content"),
    [
        ("Write", {"file_path": f"{MEMORY}a/b.md", "content": "x"}, "write", ["a/b.md"], "x"),
        ("Edit", {"file_path": f"{MEMORY}b.md", "new_string": "y"}, "correct", ["b.md"], "y"),
        ("MultiEdit",
         {"file_path": f"{MEMORY}b.md", "edits": [{"new_string": "y"}, 7, {"new_string": "z"}]},
         "correct", ["b.md"], "y\nz"),
        ("mcp__memory__create_entities", {"entities": [*ENTITIES, "x", ENTITIES[0]]}, "write",
         ["Ana", "Bo"], "Ana (person): tabs; tea\nBo (person): tabs; tea\nAna (person): tabs; tea"),
        ("mcp__memory__add_observations",
         {"observations": [{"entityName": "Ana", "contents": ["a", "b"]},
                           {"entityName": "Bo", "contents": ["c"]}]},
         "write", ["Ana", "Bo"], "Ana: a; b\nBo: c"),
        ("mcp__memory__delete_observations",
         {"deletions": [{"entityName": "Ana", "observations": ["a"]},
                        {"entityName": "Bo", "observations": ["c", "d"]}]},
         "forget", ["Ana", "Bo"], "Ana: a\nBo: c; d"),
        ("mcp__memory__create_relations",
         {"relations": [{"from": "Ana", "to": "Bo", "relationType": "knows"},
                        {"from": "Bo", "to": "Cy", "relationType": "likes"}]},
         "write", [], "Ana knows Bo\nBo likes Cy"),
        ("mcp__memory__open_nodes", {"names": ["Ana", "Bo", "Ana", ""]}, "get", ["Ana", "Bo"],
         None),
        ("mcp__mine__memory_forget", {"ids": ["1", "2"], "id": "0"}, "forget", ["0", "1", "2"],
         None),
        ("mcp__mine__save_memory", {"fact": "port: 1", "scope": "user"}, "write", [], "port: 1"),
        ("mcp__mine__memory_note", {"text": "T", "fact": "F"}, "write", [], "T\nF"),
    ],
)  # fmt: skip
def test_all_that_a_call_names_is_told(
    tool: str, given: dict[str, Any], kind: str, records: list[str], content: str | None
) -> None:
    call = memory_call(tool, given)
    assert call is not None
    assert (call.kind, call.record_ids) == (OperationType(kind), records)
    assert call.request.get("content") == content
    assert call.request.get("content_chars") == (None if content is None else len(content))


def test_a_question_keeps_its_words_and_how_many_were_asked_for() -> None:
    for limit, asked in ((5, {"top_k": 5}), (True, {}), ("5", {}), (None, {})):
        call = memory_call("mcp__mine__memory_search", {"query": "tea", "limit": limit})
        assert call is not None
        assert call.request == {"query": "tea"} | asked


def test_what_is_long_is_cut_at_its_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_calls, "_CONTENT_CHARS", 4)
    monkeypatch.setattr(memory_calls, "_MOST_RECORDS", 2)
    for text in ("1234", "12345"):
        call = memory_call("Write", {"file_path": f"{MEMORY}a.md", "content": text})
        assert call is not None
        assert (call.request["content"], call.request["content_chars"]) == ("1234", len(text))
    call = memory_call("mcp__memory__open_nodes", {"names": ["a", "b", "c"]})
    assert call is not None
    assert call.record_ids == ["a", "b"]


def test_each_record_of_a_reply_is_told_once() -> None:
    reply = {"ids": ["1", 7, "2", "1"], "memories": [{"id": "3"}, {"id": None}, {"id": "1"}],
             "entities": [{"name": "Ana"}, {"name": "Bo"}], "operation_id": "o"}  # fmt: skip
    parts = [{"type": "text", "text": "no"}, {"type": "text", "text": json.dumps(reply)}]
    for told in (reply, json.dumps(reply), {"structuredContent": reply}, parts):
        assert structured(told) == reply
    assert returned(reply) == ["1", "2", "3", "Ana", "Bo"]
    nothing: object
    for nothing in (None, 7, "text", "[", {"content": "x"}, [], {"operation_id": 7}):
        assert structured(nothing) == {}
