from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.memsearch import MemsearchAdapter, parse_day
from memtui.contract import BrowseRequest, Filter, QueryRequest, Record, Scope, SourceKind

ACME = Scope(company_id="acme")
DAY = """
## Session 09:12

### 09:20
<!-- session:s-1 turn:t-1 transcript:/home/ann/my logs/s-1.jsonl -->
- The user asked for a release branch
- Created release/1.4 from main

### 09:41
<!-- session:s-1 turn:t-2 transcript:/home/ann/my logs/s-1.jsonl -->
- Tests of the importer fail on leap days

## Session 18:00

### 18:05
- Written by hand, without a turn
"""


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone()


async def browse(adapter: MemsearchAdapter, **chosen: Any) -> list[Record]:
    request = BrowseRequest(scope=ACME, sort="created_at", filter=Filter(**chosen))
    return list((await adapter.browse(request)).records)


async def test_a_turn_is_a_record_with_its_run_and_transcript(
    tmp_path: Path, open_adapter: Any
) -> None:
    path = tmp_path / "2026-02-09.md"
    path.write_text(DAY)
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    first, second, third = await browse(adapter)
    assert first.text.split("\n") == [
        "- The user asked for a release branch",
        "- Created release/1.4 from main",
    ]
    assert first.title == "The user asked for a release branch"
    assert first.created_at == local("2026-02-09T09:20")
    assert first.location is not None
    assert (first.location.path, first.location.line) == (str(path), 6)
    assert first.source is not None
    assert first.source.kind is SourceKind.RUN
    assert first.source.run_id == "s-1"
    assert first.source.external_ref == "/home/ann/my logs/s-1.jsonl"
    assert first.metadata["turn"] == "t-1"
    assert first.handle.provider_record_id == "2026-02-09/t-1"
    assert second.text == "- Tests of the importer fail on leap days"
    assert third.source is not None
    assert third.source.kind is SourceKind.EXTERNAL_DOCUMENT
    assert third.source.external_ref == f"{path}:16"
    assert third.handle.provider_record_id == "2026-02-09/18:05"
    assert (await adapter.health()).status == "ok"
    assert [record.handle for record in await browse(adapter, run_id="s-1")] == [
        first.handle,
        second.handle,
    ]


async def test_ids_stay_when_a_day_grows(tmp_path: Path, open_adapter: Any) -> None:
    path = tmp_path / "2026-02-09.md"
    path.write_text(DAY)
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    before = [record.handle for record in await browse(adapter)]
    with path.open("a") as file:
        file.write("\n### 18:05\n- In the same minute\n")
    after = [record.handle for record in await browse(adapter)]
    assert after[:3] == before
    assert after[3].provider_record_id == "2026-02-09/18:05~2"


def test_turns_without_a_heading_between_them_are_told_apart() -> None:
    parsed = parse_day(
        "### 10:00\n<!-- session:a turn:1 -->\n- one\n\n<!-- session:b turn:2 -->\n- two",
        "2026-01-01",
    )
    assert [(entry.run_id, entry.text, entry.line) for entry in parsed.records] == [
        ("a", "- one", 3),
        ("b", "- two", 6),
    ]


def test_a_turn_without_text_is_a_flaw() -> None:
    parsed = parse_day("### 10:00\n<!-- session:a turn:1 -->\n\n### 10:05\n- said", "2026-01-01")
    assert [flaw.line for flaw in parsed.flaws] == [2]
    assert [entry.text for entry in parsed.records] == ["- said"]


def test_headings_and_comments_in_a_fence_are_text() -> None:
    body = "```md\n### 11:00\n<!-- session:x turn:y -->\n```"
    parsed = parse_day(f"### 10:00\n- shown:\n{body}\n\n### 12:00\n- later", "2026-01-01")
    assert [entry.text for entry in parsed.records] == [f"- shown:\n{body}", "- later"]


def test_a_fence_that_never_closes_swallows_no_other_turn() -> None:
    parsed = parse_day("### 10:00\n```\n- open\n\n### 11:00\n- later", "2026-01-01")
    assert [entry.text for entry in parsed.records] == ["```\n- open", "- later"]


def test_a_name_that_is_no_date_leaves_entries_without_a_time() -> None:
    parsed = parse_day("### 10:00\n- said", "2026-02-31")
    assert [entry.created_at for entry in parsed.records] == [None]
    assert [flaw.message for flaw in parsed.flaws] == [
        "The name 2026-02-31 is no date, so its entries have no time."
    ]
    assert parse_day("### 10:00\n- said", "ideas").flaws == ()


async def test_text_that_is_not_utf8_is_shown_and_listed(tmp_path: Path, open_adapter: Any) -> None:
    (tmp_path / "2026-02-09.md").write_bytes(b"### 10:00\n- caf\xe9 opened\n")
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    assert [record.text for record in await browse(adapter)] == ["- caf\ufffd opened"]
    (problem,) = (await adapter.health()).problems
    assert problem.location is not None
    assert problem.location.line == 2


async def test_words_are_found_with_their_score_and_run(tmp_path: Path, open_adapter: Any) -> None:
    (tmp_path / "2026-02-09.md").write_text(DAY)
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    found = await adapter.query(QueryRequest(scope=ACME, query="what about failing tests?"))
    assert [snippet.metadata["turn"] for snippet in found.snippets] == ["t-2"]
    assert found.snippets[0].score is not None
    assert found.snippets[0].score > 0


STRUCTURE = st.sampled_from(
    [
        "",
        "## Session 10:00",
        "### 10:30",
        "### 24:99 odd",
        "# 2026-02-09",
        "#### deep",
        "```",
        "~~~~ text",
        "<!-- session:s turn:t transcript:/x/y.jsonl -->",
        "<!-- session:",
        "<!-- other -->",
        "---",
    ]
)


@given(
    st.lists(STRUCTURE | st.text(max_size=30), max_size=25), st.sampled_from(["2026-02-09", "x"])
)
def test_no_line_is_lost(lines: list[str], name: str) -> None:
    text = "\n".join(lines)
    parsed = parse_day(text, name)
    held = "\n".join(f"{entry.text}\n{entry.metadata}" for entry in parsed.records)
    flawed = {flaw.line for flaw in parsed.flaws}
    clock = re.compile(r" {0,3}#{2,3}\s.*(session\s+)?\d\d:\d\d.*|#\s+2026-02-09")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or clock.fullmatch(line) or line.startswith("<!-- session:s"):
            continue
        kept = line.strip().strip("#").strip() or line.strip()
        assert kept in held or repr(kept)[1:-1] in held or number in flawed


def test_a_bare_hash_is_text() -> None:
    assert [entry.text for entry in parse_day("#\n## ##", "x").records] == ["#\n## ##"]


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    for entry in parse_day(text, "2026-02-09").records:
        assert entry.text.strip()
        assert entry.line <= text.count("\n") + 1
