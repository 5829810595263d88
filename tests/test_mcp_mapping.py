from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import Invalid
from memtui.mcp_mapping import (
    MappedRecord,
    Mapping,
    bundled_mappings,
    data_of,
    load_mapping,
)
from memtui.provider_kit.files.reading import digest

NOTES = """
title = "Notes"
refused = ["error", "success=false"]

[record]
id = "key"
text = "body"
score = "near"

[search]
tool = "notes"
arguments = { action = "find", words = "{query}" }
rows = "found[]"

[add]
tool = "notes"
arguments = { action = "put", note = { body = "{text}", labels = "{tags}", box = "{box}" } }
rows = ""

[delete]
tool = "drop"
arguments = { keys = ["{id}"] }
rows = ""
"""


@pytest.fixture
def notes(tmp_path: Path) -> Mapping:
    return load(tmp_path, NOTES)


def load(tmp_path: Path, text: str) -> Mapping:
    (tmp_path / "notes.toml").write_text(text)
    return load_mapping(str(tmp_path / "notes.toml"))


def said(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts], **more}


@pytest.mark.parametrize("name", bundled_mappings())
def test_a_mapping_of_memtui_fits(name: str) -> None:
    mapping = load_mapping(name)
    assert mapping.name == name
    assert mapping.calls


def test_a_call_is_classified_by_its_tool_and_its_fixed_arguments(notes: Mapping) -> None:
    def kind(tool: str, **arguments: Any) -> str | None:
        found = notes.call_of(tool, arguments)
        return found and found[0]

    assert kind("notes", action="find", words="x") == "read"
    assert kind("notes", action="put", note={"body": "x"}) == "write"
    assert kind("drop") == "delete"
    assert kind("notes", action="purge") is None
    assert kind("other") is None


def test_values_without_a_value_are_left_out_of_the_arguments(notes: Mapping) -> None:
    assert notes.add is not None
    assert notes.add.built({"text": "a", "tags": ["x"]}) == {
        "action": "put", "note": {"body": "a", "labels": ["x"]},
    }  # fmt: skip
    assert notes.add.built({}) == {"action": "put"}
    assert notes.tools == {"notes", "drop"}


def test_ids_texts_and_words_are_read_from_the_arguments(notes: Mapping) -> None:
    assert notes.query("notes", {"action": "find", "words": "otters"}) == "otters"
    put = {"action": "put", "note": {"body": "a"}}
    assert notes.named("notes", put) == [MappedRecord("", "a")]
    assert notes.query("notes", put) is None
    keys = {"keys": ["k1", 2, None, {"odd": 1}]}
    assert [one.id for one in notes.named("drop", keys)] == ["k1", "2"]


@pytest.mark.parametrize(
    "result",
    [
        {"structuredContent": {"found": [{"key": 7, "body": "a", "near": 0.5}]}},
        {"structuredContent": {"result": '{"found": [{"key": 7, "body": "a", "near": 0.5}]}'}},
        said('{"found": [{"key": 7, "body": "a", "near": 0.5}]}'),
        said('{"found": "[{\\"key\\": 7, \\"body\\": \\"a\\", \\"near\\": 0.5}]"}'),
    ],
)
def test_records_are_read_wherever_a_server_puts_its_json(
    notes: Mapping, result: dict[str, Any]
) -> None:
    found = notes.records("notes", result, {"action": "find"})
    assert found == [MappedRecord("7", "a", 0.5)]


def test_several_texts_are_a_list() -> None:
    assert data_of(said('{"a": 1}', "plain")) == [{"a": 1}, "plain"]
    assert data_of({"content": "odd"}) == []
    assert data_of(said("[" * 200_000)) == "[" * 200_000


def test_a_reply_may_refuse(notes: Mapping) -> None:
    assert notes.refusal(said('{"error": "no such box"}')) == "no such box"
    assert notes.refusal(said('{"success": false, "message": "full"}')) == "full"
    assert notes.refusal(said("It broke.", isError=True)) == "It broke."
    assert notes.refusal({"isError": True}) == "it says no more"
    assert notes.refusal(said('{"success": true, "error": null}')) is None
    assert notes.records("drop", said('{"error": "x", "key": "k"}')) == []


def test_odd_rows_have_no_id_or_text(notes: Mapping) -> None:
    rows = [{"key": True, "body": 1, "near": "x"}, {"key": "k", "body": ["a", 2, "b"]}, 3, None]
    found = notes.records("notes", said(json.dumps({"found": rows})), {"action": "find"})
    assert found == [MappedRecord("", ""), MappedRecord("k", "a\nb"), MappedRecord("", "")]


def test_a_record_of_server_memory_is_an_observation() -> None:
    mapping = load_mapping("server-memory")
    entities = [{"name": "Ana", "entityType": "person", "observations": ["likes tea", "is tall"]}]
    graph = {"entities": entities, "relations": [{"from": "Ana", "to": "x", "relationType": "y"}]}
    found = mapping.records("read_graph", {"structuredContent": graph})
    assert [one.text for one in found] == ["likes tea", "is tall"]
    assert found[0].id == f"entity/Ana/{digest('likes tea')}"  # as the provider `mcp-memory`
    assert mapping.id_argument(found[0].id) == "Ana"
    made = mapping.named("create_entities", {"entities": entities})
    assert made == found
    deletions = [{"entityName": "Ana", "observations": ["is tall"]}]
    assert mapping.named("delete_observations", {"deletions": deletions}) == found[1:]
    assert mapping.named("delete_entities", {"entityNames": ["Ana"]}) == [MappedRecord("Ana", "")]
    kinds = [mapping.call_of(one, {}) for one in ("delete_entities", "create_relations")]
    assert [one and one[0] for one in kinds] == ["delete", "write"]


@pytest.mark.parametrize("setting", ["command = 'sh'", "url = 'http://x'", "env = { A = '1' }"])
def test_a_mapping_starts_and_reaches_nothing(tmp_path: Path, setting: str) -> None:
    with pytest.raises(Invalid, match="neither starts nor reaches a server, so remove that line"):
        load(tmp_path, f"{setting}\n{NOTES}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("title = ", "not TOML"),
        ("title = 'x'\nserach = {}", "serach"),
        ("title = 'x'\n[list]\ntool = 'a'\npage_size = 0", "page_size"),
        ("title = 'x'\n#" + "x" * 100_000, "larger than 100,000 characters"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        load(tmp_path, text)


def test_an_unknown_mapping_is_refused() -> None:
    with pytest.raises(Invalid, match="server-memory"):
        load_mapping("server-memry")
    with pytest.raises(Invalid, match="No such file"):
        load_mapping("./nowhere.toml")


def test_rows_multiply_no_further_than_the_limit(tmp_path: Path) -> None:
    twice = "arguments = { a = ['{id}'], b = ['{text}'] }"
    text = f"title = 'x'\n[delete]\ntool = 'd'\n{twice}"
    named = load(tmp_path, text).named("d", {"a": ["x"] * 5_000, "b": ["y"] * 5_000})
    assert len(named) == 1_000


ODD = """
title = "Odd"
strips = true
refused = ["^Error"]
gone = ["state=gone"]
read_only = ["sort=derived"]

[record]
id = "key"
text = "body"
cut = "cut"

[list]
tool = "list"
rows = "[]"

[add]
tool = "add"
arguments = { body = "{text}", extra = { "." = "{metadata}", tags = "{tags}" }, key = "{new}" }
id_after = "stored as "
rows = ""
"""


def test_an_id_is_found_in_a_sentence_and_a_refusal_by_its_first_words(tmp_path: Path) -> None:
    odd = load(tmp_path, ODD)
    assert odd.records("add", said("Memory stored as ab-7 (new).")) == [MappedRecord("ab-7", "")]
    assert odd.records("add", said("Thank you.")) == []
    assert odd.refusal(said("Error: stored as x")) == "Error: stored as x"
    assert odd.records("add", said("Error: stored as x")) == []


def test_signs_of_a_row_say_what_it_is(tmp_path: Path) -> None:
    odd = load(tmp_path, ODD)
    rows = [
        {"key": "a", "body": "\n A. \n", "cut": True},
        {"key": "b", "body": "B.", "state": "gone"},
        {"key": "c", "body": "C.", "sort": "derived"},
    ]
    assert odd.listing is not None
    found = odd.rows(odd.listing, said(json.dumps(rows)))
    assert [(one["id"], one["text"], one["read_only"]) for one in found] == [
        ("a", "A.", False), ("c", "C.", True),
    ]  # fmt: skip
    assert found[0]["cut"] is True


def test_what_stands_under_a_dot_is_put_into_its_object(tmp_path: Path) -> None:
    add = load(tmp_path, ODD).add
    assert add is not None
    built = add.built({"text": "A.", "metadata": {"k": 1}, "tags": ["x"], "new": "n"})
    assert built == {"body": "A.", "extra": {"k": 1, "tags": ["x"]}, "key": "n"}
    assert add.built({"text": "A."}) == {"body": "A."}


def test_the_mappings_of_memtui_know_the_calls_of_their_servers() -> None:
    calls = {
        "basic-memory": {
            "search_notes": "read", "write_note": "write", "edit_note": "correct",
            "delete_note": "delete", "move_note": "correct",
        },
        "hindsight": {
            "recall": "read", "retain": "write", "sync_retain": "write", "get_memory": "read",
            "update_memory": "correct", "invalidate_memory": "delete", "delete_bank": "delete",
        },
        "mcp-memory-service": {
            "memory_search": "read", "memory_store": "write", "memory_update": "correct",
            "memory_delete": "delete",
        },
        "mem0": {
            "search_memories": "read", "add_memory": "write", "update_memory": "correct",
            "delete_memory": "delete", "delete_all_memories": "delete",
        },
    }  # fmt: skip
    for name, kinds in calls.items():
        mapping = load_mapping(name)
        assert {tool: (mapping.call_of(tool, {}) or [None])[0] for tool in kinds} == kinds
