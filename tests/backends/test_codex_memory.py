from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memtui.backends.codex_memory import CodexMemoryAdapter, parse_raw_memories, parse_sections
from memtui.contract import BrowseRequest, Record, Scope, SourceKind

ACME = Scope(company_id="acme")
THREAD, OTHER = "019d72d3-6266-79c3-a21a-c0016dec6fcf", "019ed800-3c94-7942-b81c-5bbfe3bc4bf4"
ROLLOUT = f"/home/ann/.codex/sessions/2026/04/09/rollout-{THREAD}.jsonl"
MEMORY = f"""# Task Group: importer
scope: the importer of this checkout
applies_to: cwd=/home/ann/app; reuse_rule=this checkout

## Task 1: Make the importer resume, outcome success

### rollout_summary_files

- rollout_summaries/a.md (cwd=/home/ann/app, rollout_path={ROLLOUT}, thread_id={THREAD}, x=y)
- rollout_summaries/b.md (cwd=/home/ann/app, thread_id={OTHER})

### keywords

- importer, resume

## Reusable knowledge

- The journal is written before the rows. [Task 1]
"""
RAW = f"""# Raw Memories

Merged stage-1 raw memories (latest first):

## Thread `{THREAD}`
updated_at: 2026-04-09T17:16:36+00:00
cwd: /home/ann/app
rollout_path: {ROLLOUT}
rollout_summary_file: a.md

---
description: the importer resumes
---
### Task 1
- resumes by the journal

## Thread `{OTHER}`
updated_at: 2026-04-08T17:16:36+00:00

"""


async def test_each_file_of_codex_is_read_for_what_it_is(tmp_path: Path, open_adapter: Any) -> None:
    folder = tmp_path / "memories"
    (folder / "rollout_summaries").mkdir(parents=True)
    (folder / "memory_summary.md").write_text("## User preferences\n- Prefers small commits.\n")
    (folder / "MEMORY.md").write_text(MEMORY)
    (folder / "raw_memories.md").write_text(RAW)
    (folder / "rollout_summaries" / "a.md").write_text(
        f"thread_id: {THREAD}\nupdated_at: 2026-04-09T17:16:36+00:00\ncwd: /home/ann/app\n\n"
        "# Resume\n\nThe importer resumes.\n"
    )
    adapter = await open_adapter(CodexMemoryAdapter, path=folder)
    page = await adapter.browse(BrowseRequest(scope=ACME))
    records = {one.handle.provider_record_id: one for one in page.records}
    group = "MEMORY.md#Task Group: importer"
    task = f"{group}/Task 1: Make the importer resume, outcome success"
    assert set(records) == {
        "memory_summary.md#User preferences", group, task, f"{group}/Reusable knowledge",
        f"raw_memories.md#{THREAD}", "rollout_summaries/a.md",
    }  # fmt: skip
    assert {records[one].topic for one in (group, task)} == {"importer"}
    assert records[task].metadata["keywords"] == "importer, resume"
    assert records[task].metadata["sessions"] == [THREAD, OTHER]
    for name in (task, f"raw_memories.md#{THREAD}"):
        assert source(records[name]) == (SourceKind.RUN, THREAD, ROLLOUT)
    raw = records[f"raw_memories.md#{THREAD}"]
    assert raw.text.endswith("- resumes by the journal")
    assert raw.text.startswith("---\ndescription")
    assert raw.metadata == {"cwd": "/home/ann/app", "rollout_summary_file": "a.md"}
    assert raw.location is not None
    assert RAW.split("\n")[raw.location.line - 1] == "---"
    summary = records["rollout_summaries/a.md"]
    assert (summary.text, summary.title) == ("# Resume\n\nThe importer resumes.", "Resume")
    assert source(summary)[:2] == (SourceKind.RUN, THREAD)
    [problem] = await adapter.problems(ACME)
    assert problem.location is not None
    assert RAW.split("\n")[problem.location.line - 1] == f"## Thread `{OTHER}`"


GROUPS = f"""Before any heading.

# Task Group: importer
## Task 1
### rollout_summary_files
- a (cwd=/x, note)
- b (thread_id={THREAD}, rollout_path={ROLLOUT})
### keywords
- rows
## Task 2
It failed.
### rollout_summary_files
- c (rollout_path=/r/c.jsonl, thread_id=c)
### keywords
-
## Task 3
# Loose
## Empty above
text
"""


def test_every_section_has_its_own_sessions_and_keywords() -> None:
    importer = "MEMORY.md#Task Group: importer"
    parsed = parse_sections(GROUPS, "MEMORY.md", "memory")
    assert [
        (one.id, one.text, one.line, one.title, one.topic, one.run_id, one.external_ref)
        for one in parsed.records
    ] == [
        ("MEMORY.md#", "Before any heading.", 1, "Before any heading.", None, None, None),
        (f"{importer}/Task 1", "Task 1", 4, "Task 1", "importer", THREAD, ROLLOUT),
        (f"{importer}/Task 2", "It failed.", 11, "Task 2", "importer", "c", "/r/c.jsonl"),
        (f"{importer}/Task 3", "Task 3", 16, "Task 3", "importer", None, None),
        ("MEMORY.md#Loose/Empty above", "text", 19, "Empty above", "Loose", None, None),
    ]
    assert {one.kind for one in parsed.records} == {"memory"}
    assert [one.metadata for one in parsed.records] == [
        {},
        {"headings": ["Task Group: importer", "Task 1"], "keywords": "rows"},
        {"headings": ["Task Group: importer", "Task 2"]},
        {"headings": ["Task Group: importer", "Task 3"]},
        {"headings": ["Loose", "Empty above"]},
    ]


def test_every_session_of_the_raw_memories_has_its_own_fields() -> None:
    text = (
        f"# Raw Memories\n\n## Thread `{THREAD}`\nupdated_at: 2026-04-09T17:16:36+02:00\n"
        "thread_id: other\nrollout_path: /r/1.jsonl\nbranch:  main \n\n\n- # One\n- more\n\n"
        f"## Thread `{OTHER}`  \n\nTwo.\nnot: a field\n"
        "## Thread `three`\n## Thread `four`\nupdated_at: soon\n\nFour.\n"
    )
    parsed = parse_raw_memories(text)
    assert [
        (one.id, one.text, one.line, one.title, one.kind, one.run_id, one.external_ref)
        for one in parsed.records
    ] == [
        (f"raw_memories.md#{THREAD}", "- # One\n- more", 10, "One", "raw memory", "other",
         "/r/1.jsonl"),
        (f"raw_memories.md#{OTHER}", "Two.\nnot: a field", 15, "Two.", "raw memory", OTHER, None),
        ("raw_memories.md#four", "Four.", 21, "Four.", "raw memory", "four", None),
    ]  # fmt: skip
    assert [one.metadata for one in parsed.records] == [{"branch": "main"}, {}, {}]
    assert [one.updated_at for one in parsed.records] == [
        datetime(2026, 4, 9, 15, 16, 36, tzinfo=UTC), None, None,
    ]  # fmt: skip
    assert [flaw.line for flaw in parsed.flaws] == [17]


async def test_every_rollout_is_read_and_an_empty_one_is_a_problem(
    tmp_path: Path, open_adapter: Any
) -> None:
    folder = tmp_path / "rollout_summaries"
    folder.mkdir()
    for name, text in {"a": "thread_id: a\n\nOne.\n", "b": "\nTwo.\n", "c": "cwd: /x\n"}.items():
        (folder / f"{name}.md").write_text(text)
    (tmp_path / "memory_summary.md").write_text("## Tips\nShort.\n")
    adapter = await open_adapter(CodexMemoryAdapter, path=tmp_path)
    page = await adapter.browse(BrowseRequest(scope=ACME, sort="title"))
    assert [
        (one.handle.provider_record_id, one.text, one.kind, one.topic, source(one)[1])
        for one in page.records
    ] == [
        ("rollout_summaries/a.md", "One.", "rollout summary", None, "a"),
        ("memory_summary.md#Tips", "Short.", "summary", "Tips", None),
        ("rollout_summaries/b.md", "Two.", "rollout summary", None, None),
    ]
    lines = [one.location.line for one in page.records if one.location]
    assert lines == [3, 2, 2]
    [problem] = await adapter.problems(ACME)
    assert problem.location is not None
    assert problem.location.path == str(folder / "c.md")


def source(record: Record) -> tuple[SourceKind, str | None, str | None]:
    assert record.source is not None
    return record.source.kind, record.source.run_id, record.source.external_ref


async def test_a_codex_without_any_memory_yet_has_none(tmp_path: Path, open_adapter: Any) -> None:
    (tmp_path / "raw_memories.md").write_text("# Raw Memories\n\nNo raw memories yet.\n")
    adapter = await open_adapter(CodexMemoryAdapter, path=tmp_path)
    page = await adapter.browse(BrowseRequest(scope=ACME))
    assert not page.records
    assert (await adapter.health()).status == "ok"
