from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.claude_memory import (
    LOADED_BYTES,
    LOADED_LINES,
    ClaudeMemoryAdapter,
    parse_index,
    parse_memory,
)
from memtui.contract import BrowseRequest, Record, Scope, SourceKind

ACME = Scope(company_id="acme")
SESSION = "5da15695-411e-4859-a37b-b739ede023ae"
FLAT = f"""---
name: Use a real database
description: Tests of the importer run on PostgreSQL
type: feedback
originSessionId: {SESSION}
---

Never mock the database in integration tests.
"""
NESTED = f"""---
name: deploy-branch
description: "deploys: from main"
metadata:
  node_type: memory
  type: project
  originSessionId: {SESSION}
  modified: 2026-07-29T13:16:34.420Z
---
Deploys leave from main.
"""


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "-home-ann-app" / "memory"
    folder.mkdir(parents=True)
    (folder / "feedback_db.md").write_text(FLAT)
    (folder / "project_deploy.md").write_text(NESTED)
    (folder / "MEMORY.md").write_text(
        "# Memory\n\n## Feedback\n- [Real database](feedback_db.md) — no mocks\n\n"
        "## Notes\nThe staging host is called `bee`.\n"
    )
    return folder


async def by_id(adapter: ClaudeMemoryAdapter) -> dict[str, Record]:
    page = await adapter.browse(BrowseRequest(scope=ACME))
    return {record.handle.provider_record_id: record for record in page.records}


async def test_both_generations_of_frontmatter_are_understood(
    memory: Path, open_adapter: Any
) -> None:
    transcript = memory.parent / f"{SESSION}.jsonl"
    transcript.write_text("{}\n")
    records = await by_id(await open_adapter(ClaudeMemoryAdapter, path=memory))
    flat, nested = records["feedback_db.md"], records["project_deploy.md"]
    assert flat.text == "Never mock the database in integration tests."
    assert flat.title == "Use a real database"
    assert flat.summary == "Tests of the importer run on PostgreSQL"
    assert (flat.kind, nested.kind) == ("feedback", "project")
    assert nested.summary == "deploys: from main"
    assert nested.updated_at == datetime(2026, 7, 29, 13, 16, 34, 420_000, UTC)
    for record in (flat, nested):
        assert record.source is not None
        assert record.source.kind is SourceKind.RUN
        assert record.source.run_id == SESSION
        assert record.source.external_ref == str(transcript)
    assert flat.location is not None
    assert (flat.location.path, flat.location.line) == (str(memory / "feedback_db.md"), 8)


async def test_a_transcript_that_is_gone_is_said_and_noticed_when_it_comes_back(
    memory: Path, open_adapter: Any
) -> None:
    adapter = await open_adapter(ClaudeMemoryAdapter, path=memory)
    record = (await by_id(adapter))["feedback_db.md"]
    assert record.source is not None
    assert (record.source.run_id, record.source.external_ref) == (SESSION, None)
    assert record.metadata["transcript"] == "missing"
    (memory.parent / f"{SESSION}.jsonl").write_text("{}\n")
    record = (await by_id(adapter))["feedback_db.md"]
    assert record.source is not None
    assert record.source.external_ref is not None


async def test_what_a_session_loads_is_marked(memory: Path, open_adapter: Any) -> None:
    records = await by_id(await open_adapter(ClaudeMemoryAdapter, path=memory))
    assert records["feedback_db.md"].metadata["loaded"] == "hook"
    assert records["feedback_db.md"].metadata["hook"] == "no mocks"
    assert records["project_deploy.md"].metadata["loaded"] == "no"
    own = records["MEMORY.md#Memory/Notes"]
    assert own.text == "The staging host is called `bee`."
    assert own.metadata["loaded"] == "text"
    assert own.location is not None
    assert own.location.line == 7
    assert set(records) == {"feedback_db.md", "project_deploy.md", "MEMORY.md#Memory/Notes"}


def test_lines_past_200_and_bytes_past_25000_are_not_loaded() -> None:
    long = "\n".join(["# Start", "first", *["filler"] * 197, "# Edge", "line 201", "# Late", "x"])
    states = {
        entry.title: entry.metadata["loaded"]
        for entry in parse_index(long, frozenset()).parsed.records
    }
    assert states == {"Start": "text", "Edge": "no", "Late": "no"}
    wide = "# Start\nfirst\n" + "ж" * 13_000 + "\n# Late\nx"
    entries = parse_index(wide, frozenset()).parsed.records
    assert [entry.metadata["loaded"] for entry in entries] == ["part", "no"]


def test_an_index_line_to_a_missing_file_is_a_flaw_and_stays_readable() -> None:
    index = parse_index("- [Gone](gone.md) — once known\n- [Out](../../x.md)\n", frozenset())
    assert [flaw.line for flaw in index.parsed.flaws] == [1, 2]
    (entry,) = index.parsed.records
    assert "once known" in entry.text


@pytest.mark.parametrize(
    "head",
    [
        "a: [",
        "a: b: c",
        "a: !!bool x",
        "- a",
        "a: \x1b[31m",
        "a: &x [*x]",
        "a: !!int ''",
        "a: " + "[" * 9_000,
    ],
)
async def test_broken_frontmatter_is_a_problem_and_the_text_a_record(
    head: str, memory: Path, open_adapter: Any
) -> None:
    text = f"---\n{head}\n---\nStill worth reading.\n"
    (memory / "broken.md").write_text(text)
    adapter = await open_adapter(ClaudeMemoryAdapter, path=memory)
    assert (await by_id(adapter))["broken.md"].text == "Still worth reading."
    (problem,) = (await adapter.health()).problems
    assert problem.location is not None
    assert problem.location.path == str(memory / "broken.md")
    assert (memory / "broken.md").read_text() == text


SAID = {
    "colon": ("Use X: always", "Use X: always"),
    "colon at the end": ("Use X:", "Use X:"),
    "issue": ("Fix issue #12 first", "Fix issue #12 first"),
    "number alone": ("#12 is fixed", "#12 is fixed"),
    "a real comment": ("Fix it  # ours", "Fix it"),
    "quotes": ('"Use X": always', '"Use X": always'),
    "in quotes": ('"Use X: #always"', "Use X: #always"),
    "apostrophe": ("it's the user's: always", "it's the user's: always"),
    "two lines": ("Use X\n  when: Y", "Use X when: Y"),
    "block": ("|\n  Use X: always", "Use X: always"),
    "link": ("[[X]] and [[Y]]", "[[X]] and [[Y]]"),
    "brace": ("{x} and y", "{x} and y"),
    "at": ("@user wants tea", "@user wants tea"),
    "star": ("*.ts files", "*.ts files"),
    "backtick": ("`x` is tea", "`x` is tea"),
    "percent": ("%x: y", "%x: y"),
    "number": ("1.10", "1.10"),
    "no": ("No", "No"),
    "date": ("2026-01-02 03:04:05", "2026-01-02 03:04:05"),
}


@pytest.mark.parametrize("generation", ["type: feedback", "metadata:\n  type: feedback\n  x: a: b"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_descriptions_as_a_model_writes_them(
    generation: str, newline: str, memory: Path, open_adapter: Any
) -> None:
    for number, (written, _) in enumerate(SAID.values()):
        head = f"---\nname: {written}\ndescription: {written}\n{generation}\n---\nBody.\n"
        (memory / f"said{number}.md").write_bytes(head.replace("\n", newline).encode())
    records = await by_id(await open_adapter(ClaudeMemoryAdapter, path=memory))
    for number, (name, (_, said)) in enumerate(SAID.items()):
        one = records[f"said{number}.md"]
        assert (one.title, one.summary, one.kind, one.text) == (said, said, "feedback", "Body."), (
            name
        )


async def test_an_origin_cannot_point_out_of_the_folder(memory: Path, open_adapter: Any) -> None:
    (memory.parent.parent / "secret.jsonl").write_text("{}")
    (memory / "x.md").write_text("---\noriginSessionId: ../secret\n---\nbody\n")
    record = (await by_id(await open_adapter(ClaudeMemoryAdapter, path=memory)))["x.md"]
    assert record.source is not None
    assert record.source.kind is SourceKind.EXTERNAL_DOCUMENT
    assert record.source.external_ref == f"{memory / 'x.md'}:4"


async def test_links_out_of_the_folder_loops_and_folders_are_problems(
    memory: Path, tmp_path: Path, open_adapter: Any
) -> None:
    (tmp_path / "private.md").write_text("not yours")
    (memory / "out.md").symlink_to(tmp_path / "private.md")
    (memory / "loop.md").symlink_to(memory / "loop.md")
    (memory / "tree").symlink_to(memory)
    (memory / "folder.md").mkdir()
    os.mkfifo(memory / "pipe.md")
    adapter = await open_adapter(ClaudeMemoryAdapter, path=memory)
    texts = [record.text for record in (await by_id(adapter)).values()]
    assert "not yours" not in texts
    health = await adapter.health()
    assert {Path(p.location.path).name for p in health.problems if p.location} == {
        "out.md",
        "loop.md",
        "tree",
        "folder.md",
        "pipe.md",
    }
    assert health.records == 3


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_memory_is_shown_or_listed(head: str, body: str) -> None:
    for text in (body, f"---\n{head}\n---\n{body}"):
        parsed = parse_memory(text, "x.md")
        assert parsed.records or parsed.flaws


@given(
    st.lists(
        st.sampled_from(["# A", "- [t](a.md) hook", "- [t](b.md)", "```"]) | st.text(), max_size=20
    )
)
def test_no_line_of_the_index_is_lost(lines: list[str]) -> None:
    text = "\n".join(lines)
    index = parse_index(text, frozenset({"a.md"}))
    held = "\n".join(f"{entry.text}\n{entry.title}" for entry in index.parsed.records)
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#") and line != "- [t](a.md) hook":
            assert line.rstrip("\n") in held


def test_of_two_index_lines_of_a_memory_the_first_counts() -> None:
    index = parse_index("- [One](a.md) — first\n- [Two](b.md) — b\n- [Again](a.md) — second\n",
                        frozenset({"a.md", "b.md"}))  # fmt: skip
    told = {name: (link.title, link.hook, link.line) for name, link in index.links.items()}
    assert told == {"a.md": ("One", "first", 1), "b.md": ("Two", "b", 2)}


def test_an_index_is_loaded_up_to_its_last_line_or_byte() -> None:
    def unloaded(lines: list[str]) -> tuple[list[bool], list[int]]:
        text = "".join(f"{line}\n" for line in lines)
        index = parse_index(text, frozenset({"a.md", "z.md"}))
        links = [index.links[name].loaded for name in ("a.md", "z.md")]
        return links, [flaw.line for flaw in index.parsed.flaws]

    first, last = "- [A](a.md)", "- [Z](z.md)"
    rest = [first, *["x"] * (LOADED_LINES - 2)]
    assert unloaded([*rest, last]) == ([True, True], [])
    assert unloaded([*rest, "x", last]) == ([True, False], [LOADED_LINES + 1])
    room = LOADED_BYTES - len(first) - len(last) - 2
    assert unloaded([first, "é" * (room // 2) + "x" * (room % 2), last]) == ([True, True], [])
    longer = "é" * (room // 2) + "x" * (room % 2 + 1)
    assert unloaded([first, longer, last]) == ([True, False], [3])
