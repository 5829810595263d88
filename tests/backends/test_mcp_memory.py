from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.mcp_memory import McpMemoryAdapter, parse_graph
from memtui.backends.mcp_memory.graph import lines_found_by_server, relation_ends
from memtui.contract import BrowseRequest, QueryRequest, Record, Scope, SourceKind, Unavailable
from memtui.provider_kit.files.reading import ParsedFile

ACME = Scope(company_id="acme")


def graph(*lines: Any) -> str:
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"


def entity(name: Any, *observations: Any, **rest: Any) -> dict[str, Any]:
    return {
        "type": "entity",
        "name": name,
        "entityType": "tool",
        "observations": list(observations),
    } | rest


def relation(start: Any, kind: Any, end: Any) -> dict[str, Any]:
    return {"type": "relation", "from": start, "to": end, "relationType": kind}


async def records_of(adapter: McpMemoryAdapter) -> list[Record]:
    return list((await adapter.browse(BrowseRequest(scope=ACME, sort="title"))).records)


async def test_an_observation_is_a_record_with_the_entity_as_its_title(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(entity("ripgrep", "is fast", "skips ignored files")))
    adapter = await open_adapter(McpMemoryAdapter, path=path, project_id="search")
    first, second = sorted(await records_of(adapter), key=lambda record: record.text)
    assert (first.text, second.text) == ("is fast", "skips ignored files")
    assert first.title == second.title == "ripgrep"
    assert first.topic == "tool"
    assert first.kind == "observation"
    assert first.scope == Scope(company_id="acme", project_id="search")
    assert first.location is not None
    assert (first.location.path, first.location.line) == (str(path), 1)
    assert first.source is not None
    assert first.source.kind is SourceKind.EXTERNAL_DOCUMENT
    assert first.source.external_ref == f"{path}:1"


async def test_the_relations_of_an_entity_are_links_of_what_is_said_of_it(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    lines = [entity("rg", "is fast"), entity("grep"), relation("rg", "replaces", "grep")]
    path.write_text(
        graph(*lines, relation("rg", "needs", "pcre"), relation("emacs", "calls", "rg"))
    )
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    by_text = {one.text: one for one in await records_of(adapter)}
    found = await adapter.links([one.handle for one in by_text.values()], ACME)

    def told(text: str) -> list[list[tuple[str | None, str, bool]]]:
        links = found[by_text[text].handle.provider_record_id]
        both = (links.links, links.backlinks)
        return [[(one.relation, one.target, one.handle is not None) for one in of] for of in both]

    assert told("is fast") == [
        [("replaces", "grep", True), ("needs", "pcre", False)],
        [("calls", "emacs", True)],  # there is no such entity, but the relation that says so
    ]
    assert told("grep") == [[], [("replaces", "rg", True)]]
    assert told("rg → needs → pcre") == [[(None, "rg", True), (None, "pcre", False)], []]
    counts = ("observations", "relations", "goes_with")
    assert [by_text["grep"].metadata[name] for name in counts] == [0, 1, "1 relation"]
    [end] = found[by_text["grep"].handle.provider_record_id].backlinks
    assert end.handle is not None
    there = await adapter.get(end.handle, ACME)
    assert there is not None
    assert there.text == "rg"


async def test_lines_of_one_name_are_shown_together_and_each_keeps_its_line(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(
        graph(entity("d3", "draws"), entity("vim", "edits"), entity("d3", "draws", "zooms"))
    )
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    d3 = [record for record in await records_of(adapter) if record.title == "d3"]
    lines = [(record.text, record.location.line) for record in d3 if record.location]
    assert sorted(lines) == [("draws", 1), ("draws", 3), ("zooms", 3)]
    assert len({record.handle for record in d3}) == 3
    assert all(record.metadata["lines"] == [1, 3] for record in d3)
    assert (await adapter.health()).status == "ok"


async def test_a_relation_may_name_an_entity_that_is_not_there(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(relation("vim", "inspired", "helix"), entity("vim")))
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    found = {record.kind: record for record in await records_of(adapter)}
    assert found["relation"].text == "vim → inspired → helix"
    assert found["relation"].metadata["dangling"] == ["helix"]
    assert found["entity"].text == "vim"
    assert (await adapter.health()).status == "ok"


@pytest.mark.parametrize("sort", ["-updated_at", "created_at", "title"])
async def test_observations_keep_their_order_and_their_entity(
    tmp_path: Path, open_adapter: Any, sort: str
) -> None:
    steps = [f"step {number}" for number in (3, 1, 2, 5, 4)]
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(entity("deploy", *steps), entity("zebra", "striped")))
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    found: list[Record] = []
    request = BrowseRequest(scope=ACME, sort=sort, limit=2)
    while True:
        page = await adapter.browse(request)
        found += page.records
        if page.next_cursor is None:
            break
        request = request.model_copy(update={"cursor": page.next_cursor})
    assert [record.text for record in found] == [*steps, "striped"]
    assert [record.title for record in found] == ["deploy"] * 5 + ["zebra"]


def test_blanks_around_the_names_of_a_relation_are_none_of_them() -> None:
    assert relation_ends(" rg  →\tis faster than → grep ") == ("rg", "is faster than", "grep")


def test_variants_of_the_format_are_understood() -> None:
    parsed = parse_graph(
        graph(
            {"_type": "entity", "name": "a", "observations": "one alone", "source": "import"},
            entity("b", {"content": "as an object", "timestamp": "2026-02-03T10:00:00Z"}),
            entity("c", 7, ["x"]),
            {"_type": "relation", "from": "a", "to": "b"},
        )
    )
    texts = {entry.text: entry for entry in parsed.records if entry.kind != "entity"}
    assert set(texts) == {"one alone", "as an object", "7", '["x"]', "a → relates to → b"}
    assert texts["one alone"].metadata["extra"] == {"source": "import"}
    created = texts["as an object"].created_at
    assert created is not None
    assert created.isoformat() == "2026-02-03T10:00:00+00:00"
    assert texts["as an object"].metadata["observation"]["content"] == "as an object"
    assert parsed.flaws == ()


@pytest.mark.parametrize(
    "line",
    [
        "{broken",
        "[1, 2]",
        "null",
        '{"type": "note"}',
        '{"type": "entity"}',
        '{"type": "entity", "name": " "}',
        '{"type": "relation", "from": "a"}',
        '{"type": ["entity"], "name": "a"}',
        "[" * 100_000,
        '{"type": "entity", "name": "a", "observations": [' + "[" * 900 + "]" * 900 + "]}",
        "9" * 5_000,
    ],
)
def test_a_broken_line_is_a_flaw_where_it_stands(line: str) -> None:
    parsed = parse_graph(graph(entity("a", "kept"), line, entity("b", "kept too")))
    assert [entry.text for entry in parsed.records] == ["a", "kept", "b", "kept too"]
    assert [flaw.line for flaw in parsed.flaws] == [2]


def test_an_empty_observation_is_a_flaw() -> None:
    parsed = parse_graph(graph(entity("a", "", "said", None, {})))
    assert [entry.text for entry in parsed.records] == ["a", "said", "{}"]
    assert len(parsed.flaws) == 2


async def test_ids_survive_lines_before_and_a_rewrite(tmp_path: Path, open_adapter: Any) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(entity("vim", "edits"), relation("vim", "is", "vim")))
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    before = {record.text: record.handle for record in await records_of(adapter)}
    path.write_text(
        graph(entity("emacs", "runs"), relation("vim", "is", "vim"), entity("vim", "edits"))
    )
    after = {record.text: record.handle for record in await records_of(adapter)}
    assert after.items() >= before.items()


async def test_hostile_text_stays_exact_and_ids_stay_printable(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    hostile = "\x1b]52;c;eA==\x07 \u202e [$error] [/a \x00 \ud800 \u2028 e" + "\u0301" * 50
    path.write_text(graph(entity(hostile, hostile), relation(hostile, hostile, hostile)))
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    records = await records_of(adapter)
    assert {record.text for record in records} == {hostile, f"{hostile} → {hostile} → {hostile}"}
    assert all(record.handle.provider_record_id.isprintable() for record in records)
    for record in records:
        assert await adapter.get(record.handle, ACME) == record
    found = await adapter.query(QueryRequest(scope=ACME, query=f"error {hostile}"))
    assert len(found.snippets) == 2


async def test_a_line_of_ten_megabytes_is_read_and_found(tmp_path: Path, open_adapter: Any) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(entity("big", "x " * 5_000_000 + "needle")))
    adapter = await open_adapter(McpMemoryAdapter, path=path)
    found = await adapter.query(QueryRequest(scope=ACME, query="needle"))
    assert [len(snippet.text) for snippet in found.snippets] == [10_000_006]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "b", "", " "]) | st.text(max_size=5) | JSON
LINES = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n")),
    JSON.map(json.dumps),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["entity", "relation", "x", None]),
            "_type": st.sampled_from(["entity", "relation"]),
            "name": NAMES,
            "entityType": NAMES,
            "observations": st.lists(JSON, max_size=4) | JSON,
            "from": NAMES,
            "to": NAMES,
            "relationType": NAMES,
            "other": JSON,
        },
    ).map(json.dumps),
)


@given(st.lists(LINES, max_size=12))
def test_every_line_ends_in_an_entry_or_a_flaw(lines: list[str]) -> None:
    parsed: ParsedFile = parse_graph("\n".join(lines))
    told = {entry.line for entry in parsed.records} | {flaw.line for flaw in parsed.flaws}
    told |= {line for entry in parsed.records for line in entry.metadata.get("lines", ())}
    # What stands for space in bytes: a file's line is looked at before it is text.
    assert told == {n for n, line in enumerate(lines, 1) if line.strip(" \t\n\r\v\f")}
    for entry in parsed.records:
        assert entry.text.strip()
        json.dumps(entry.metadata, allow_nan=False)


async def test_a_line_that_was_cut_off_is_told_with_every_read(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(graph(entity("vim", "modal")) + '{"type": "entity", "na')
    adapter = await open_adapter(McpMemoryAdapter, path=path, project_id="editors")
    [problem] = await adapter.problems(ACME)
    assert problem.sentence().startswith(f"{path}:2: The line is not valid JSON")
    assert problem.scope == Scope(company_id="acme", project_id="editors")
    assert list(await adapter.problems(Scope(company_id="acme", project_id="other"))) == []


def test_lines_are_found_as_the_server_finds_them() -> None:
    lines = [
        json.dumps(one)
        for one in (
            entity("ripgrep", "Is FAST"),
            entity("vim", "edits"),
            relation("vim", "is slower than", "ripgrep"),
            {"_type": "entity", "name": "fast old form", "entityType": "x", "observations": []},
            relation("emacs", "fast as", "nano"),
        )
    ]
    assert lines_found_by_server(lines, "s fas") == {1, 3}
    assert lines_found_by_server(lines, "TOOL") == {1, 2, 3}
    assert lines_found_by_server(lines, "fast edits") == set()


@pytest.mark.parametrize(
    ("broken", "query"),
    [("{", "vim"), ('{"type": "entity", "name": "a"}', "b"), (json.dumps(entity("a", {})), "b")],
)
def test_where_the_server_fails_its_agents_find_nothing(broken: str, query: str) -> None:
    with pytest.raises(Unavailable, match="line 2"):
        lines_found_by_server([json.dumps(entity("vim")), broken], query)
