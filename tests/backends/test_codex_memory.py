from __future__ import annotations

from pathlib import Path
from typing import Any

from memtui.backends.codex_memory import CodexMemoryAdapter
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


def source(record: Record) -> tuple[SourceKind, str | None, str | None]:
    assert record.source is not None
    return record.source.kind, record.source.run_id, record.source.external_ref


async def test_a_codex_without_any_memory_yet_has_none(tmp_path: Path, open_adapter: Any) -> None:
    (tmp_path / "raw_memories.md").write_text("# Raw Memories\n\nNo raw memories yet.\n")
    adapter = await open_adapter(CodexMemoryAdapter, path=tmp_path)
    page = await adapter.browse(BrowseRequest(scope=ACME))
    assert not page.records
    assert (await adapter.health()).status == "ok"
