from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.memsearch import MemsearchAdapter, parse_day
from memtui.backends.memsearch.command import collection_of, project_of
from memtui.contract import (
    BrowseRequest,
    Filter,
    Invalid,
    Matching,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    Unavailable,
    Unsupported,
)
from tests.backends.mem0.servers import Embeddings
from tests.processes import is_running

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
        "The name 2026-02-31 is not a date, so its entries have no time."
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


EVERYTHING = """Before all.
# Plans
Of the year.

## session 08:30:15
- woke

### 08:45
- said before
<!-- turn:t-1 rollout:/r/1.jsonl source:cli -->

- first
- and more

<!-- session:s-2 turn:t-2 transcript:/x/2.jsonl rollout:/r/2.jsonl -->
- second
<!-- a note -->
### Loose ends
- third
## Later
### 09:00
- fourth
### Alone
"""


def test_every_part_of_a_day_is_a_record_with_all_that_is_known_of_it() -> None:
    parsed = parse_day(EVERYTHING, "team/2026-02-09")
    assert parsed.flaws == ()
    assert [
        (one.id, one.kind, one.title, one.text, one.line, one.run_id, one.external_ref)
        for one in parsed.records
    ] == [
        ("team/2026-02-09/", "note", None, "Before all.", 1, None, None),
        ("team/2026-02-09/plans", "note", "Plans", "Of the year.", 3, None, None),
        ("team/2026-02-09/session 08:30:15", "turn", "woke", "- woke", 6, None, None),
        ("team/2026-02-09/08:45", "turn", "said before", "- said before", 9, None, None),
        ("team/2026-02-09/t-1", "turn", "first", "- first\n- and more", 12, None, "/r/1.jsonl"),
        ("team/2026-02-09/t-2", "turn", "second", "- second\n<!-- a note -->", 16, "s-2",
         "/x/2.jsonl"),
        ("team/2026-02-09/loose ends", "turn", "Loose ends", "- third", 19, None, None),
        ("team/2026-02-09/later", "note", None, "Later", 20, None, None),
        ("team/2026-02-09/09:00", "turn", "fourth", "- fourth", 22, None, None),
        ("team/2026-02-09/alone", "note", None, "Alone", 23, None, None),
    ]  # fmt: skip
    clocks = ["", "", "08:30:15", "08:45", "08:45", "08:45", "08:30:15", "", "09:00", ""]
    assert [one.created_at for one in parsed.records] == [
        local(f"2026-02-09T{clock}" if clock else "2026-02-09") for clock in clocks
    ]
    first, named, plain = (parsed.records[at].metadata for at in (4, 5, 0))
    trail = ["Plans", "session 08:30:15", "08:45"]
    assert first == {"turn": "t-1", "rollout": "/r/1.jsonl", "source": "cli", "headings": trail}
    assert (named["session"], named["transcript"]) == ("s-2", "/x/2.jsonl")
    assert plain == {}


@pytest.mark.parametrize(("chars", "is_anchor"), [(4_000, True), (4_001, False)])
def test_a_comment_of_4000_characters_still_names_a_turn(chars: int, is_anchor: bool) -> None:
    anchor = "<!-- session:s turn: -->"
    anchor = anchor.replace("turn:", f"turn:{'t' * (chars - len(anchor))}")
    [entry] = parse_day(f"### 10:00\n  {anchor}\n- said", "2026-01-01").records
    assert (entry.run_id == "s", entry.text == "- said") == (is_anchor, is_anchor)


async def test_logs_of_folders_are_read_three_levels_deep(
    tmp_path: Path, open_adapter: Any
) -> None:
    for folder in ("", "a", "a/b", "a/b/c"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "2026-01-01.md").write_text(f"### 10:00\n- in /{folder}\n")
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    there = await browse(adapter)
    assert [(one.handle.provider_record_id, one.text) for one in there] == [
        ("2026-01-01/10:00", "- in /"),
        ("a/2026-01-01/10:00", "- in /a"),
        ("a/b/2026-01-01/10:00", "- in /a/b"),
    ]


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


# As its agents search: the command prints what the real memsearch 0.4 printed of DAY.

CHUNKS: list[dict[str, Any]] = [
    {
        "chunk_hash": "38857bd939330acb",
        "content": "### 09:41\n"
        "<!-- session:s-1 turn:t-2 transcript:/home/ann/my logs/s-1.jsonl -->\n"
        "- Tests of the importer fail on leap days",
        "heading": "09:41",
        "heading_level": 3,
        "start_line": 9,
        "end_line": 12,
        "score": 0.99,
    },
    {
        "chunk_hash": "b615804ee503bbe3",
        "content": "- Created release/1.4 from main",
        "heading": "09:20",
        "heading_level": 3,
        "start_line": 7,
        "end_line": 8,
        "score": 0.49,
    },
]
AS_AGENTS = QueryRequest(scope=ACME, query="-k what?\0", top_k=3, matching=Matching.AGENTS)


@pytest.fixture
async def by_program(tmp_path: Path, open_adapter: Any) -> Callable[..., Awaitable[Any]]:
    """Open the logs of a project with a program that answers what the test says."""

    async def open_with(script: str, **config: Any) -> MemsearchAdapter:
        folder = tmp_path / "My App" / ".memsearch" / "memory"
        folder.mkdir(parents=True)
        day = folder / "2026-02-09.md"
        day.write_text(DAY)
        (tmp_path / "out.json").write_text(
            json.dumps([{**chunk, "source": str(day)} for chunk in CHUNKS])
        )
        program = tmp_path / "memsearch"
        program.write_text(f"#!/bin/sh\n{script.format(folder=tmp_path)}\n")
        program.chmod(0o700)
        opened: MemsearchAdapter = await open_adapter(
            MemsearchAdapter, path=folder, command=program, **config
        )
        return opened

    return open_with


async def test_what_its_agents_find_are_our_records(tmp_path: Path, by_program: Any) -> None:
    adapter = await by_program('printf "%s\\n" "$PWD" "$@" > {folder}/asked; cat {folder}/out.json')
    found = await adapter.query(AS_AGENTS)
    assert [(one.metadata["turn"], one.score) for one in found.snippets] == [
        ("t-2", 0.99),
        ("t-1", 0.49),
    ]
    assert found.usage[0].cost_usd is None, "its model may cost something"
    project = tmp_path / "My App"
    name = f"ms_my_app_{hashlib.sha256(str(project).encode()).hexdigest()[:8]}"
    assert (tmp_path / "asked").read_text().split("\n") == [
        str(project), "search", "--top-k", "3", "--json-output", "--collection", name, "--",
        "-k what? ", "",
    ]  # fmt: skip
    assert list(await adapter.problems(ACME)) == []
    other = QueryRequest(scope=ACME, query=" ", matching=Matching.AGENTS)
    assert (await adapter.query(other)).snippets == ()


async def test_an_index_behind_the_files_is_told(tmp_path: Path, by_program: Any) -> None:
    adapter = await by_program("cat {folder}/out.json")
    day = tmp_path / "My App" / ".memsearch" / "memory" / "2026-02-09.md"
    day.write_text(DAY.replace("leap days", "new year"))
    found = await adapter.query(AS_AGENTS)
    assert [one.metadata["turn"] for one in found.snippets] == ["t-1"]
    [problem] = await adapter.problems(ACME)
    assert "1 of 2 results" in problem.message
    assert "memsearch index" in problem.message
    day.write_text(DAY)
    assert len((await adapter.query(AS_AGENTS)).snippets) == 2
    assert list(await adapter.problems(ACME)) == []


def answer(tmp_path: Path, *chunks: tuple[Path, int, int, str, float | None]) -> None:
    """Let the program answer with chunks: file, first and last line, text, and score."""
    keys = ("source", "start_line", "end_line", "content", "score")
    told = [dict(zip(keys, (str(file), *rest), strict=True)) for file, *rest in chunks]
    (tmp_path / "out.json").write_text(f"Loading a model\n{json.dumps(told)}")


ASKED = "- The user asked for a release branch"
BOTH = "x\n  - Created release/1.4 from main\n- Tests of the importer fail on leap days"
HAND = "- Written by hand, without a turn"


@pytest.mark.parametrize(
    ("first", "last", "content", "turns"),
    [
        (6, 6, ASKED, ["t-1"]),
        (1, 6, ASKED, ["t-1"]),
        (6, 11, BOTH, ["t-1", "t-2"]),
        (6, 10, BOTH, ["t-1"]),
        (7, 10, BOTH, ["t-1"]),
        (7, 11, BOTH, ["t-2"]),
        (12, 15, BOTH, ["t-2"]),
        (15, 16, HAND, [None]),
        (17, 90, HAND, [None]),
        (1, 5, ASKED, []),
        (6, 6, BOTH[2:3], []),
    ],
)
async def test_a_chunk_is_the_records_that_begin_in_it_or_the_last_before_it(
    tmp_path: Path, by_program: Any, first: int, last: int, content: str, turns: list[str | None]
) -> None:
    adapter = await by_program("cat {folder}/out.json")
    answer(tmp_path, (adapter.config.path / "2026-02-09.md", first, last, content, 0.5))
    found = await adapter.query(AS_AGENTS)
    assert [one.metadata.get("turn") for one in found.snippets] == turns
    assert len(await adapter.problems(ACME)) == (not turns)


async def test_of_several_logs_each_record_comes_once_with_its_best_score(
    tmp_path: Path, by_program: Any
) -> None:
    adapter = await by_program("cat {folder}/out.json", project_id="app")
    folder = adapter.config.path
    (folder / "2026-02-10.md").write_text("### 07:00\n- Slept\n### 08:00\n- Ate\n")
    (tmp_path / "link").symlink_to(folder)
    old, new = folder / "2026-02-09.md", tmp_path / "link" / "2026-02-10.md"
    answer(
        tmp_path, (new, 2, 4, "- Slept\n- Ate", 0.9), (old, 16, 16, HAND, 0.8),
        (new, 2, 2, "- Slept", 0.7), (tmp_path / "gone.md", 1, 9, HAND, None),
    )  # fmt: skip

    async def found(top_k: int, **asked: Any) -> tuple[list[tuple[str, float | None]], bool]:
        request = AS_AGENTS.model_copy(update={"top_k": top_k, **asked})
        bundle = await adapter.query(request)
        return [(one.text, one.score) for one in bundle.snippets], bundle.capped

    every = [("- Slept", 0.9), ("- Ate", 0.9), (HAND, 0.8)]
    assert await found(5) == (every, False)
    assert await found(4) == (every, True), "the program may have more"
    assert await found(2) == (every[:2], True)
    assert await found(5, filter=Filter(text="slept")) == (every[:1], False)
    assert await found(5, scope=Scope(company_id="acme", project_id="web")) == ([], False)
    answer(tmp_path, (new, 2, 4, "- Slept\n- Ate", None), (new, 9, 9, "gone", 0.1))
    assert await found(3) == ([("- Slept", None), ("- Ate", None)], False)
    [problem] = await adapter.problems(Scope(company_id="acme", project_id="app"))
    assert problem.message.startswith("1 of 2 results")
    assert problem.scope == Scope(company_id="acme", project_id="app")
    assert problem.location is not None
    assert problem.location.path == str(folder)
    assert list(await adapter.problems(Scope(company_id="acme", project_id="web"))) == []


@pytest.mark.parametrize(
    ("folder", "project", "collection"),
    [
        ("My App/.memsearch/memory", "My App", "ms_my_app_"),
        ("app/.memsearch/logs", "app/.memsearch/logs", "ms_logs_"),
        ("app/notes/memory", "app/notes/memory", "ms_memory_"),
        ("-Ä-1-/.memsearch/memory", "-Ä-1-", "ms_1_"),
        (f"{'y' * 41}/.memsearch/memory", "y" * 41, f"ms_{'y' * 40}_"),
    ],
)
def test_the_collection_of_a_project_is_named_as_its_plugins_name_it(
    tmp_path: Path, folder: str, project: str, collection: str
) -> None:
    found = project_of(tmp_path / folder)
    assert found == tmp_path / project
    digest = hashlib.sha256(str(found).encode()).hexdigest()[:8]
    assert collection_of(found) == f"{collection}{digest}"


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("echo \"Error: Collection 'mine' does not exist at 'x'. Run it.\" >&2; exit 1", NotFound,
         "memsearch index --collection mine"),
        ("echo Traceback >&2; echo 'openai.OpenAIError: Missing credentials.' >&2; exit 1",
         Unavailable, r"\(openai.OpenAIError: Missing credentials\)"),
        ("echo hello", Unavailable, r"with a list of chunks \(hello\)"),
        ("echo '[{{}}]'", Unavailable, "with a list of chunks"),
        ("yes & exec yes", Unavailable, "more than 8,000,000 bytes"),
    ],
)  # fmt: skip
async def test_a_search_that_fails_says_what_to_do(
    by_program: Any, script: str, error: type[MemtuiError], said: str
) -> None:
    adapter = await by_program(script, collection="mine")
    with pytest.raises(error, match=said):
        await adapter.query(AS_AGENTS)


async def test_a_late_search_is_ended_with_all_that_it_started(
    tmp_path: Path, by_program: Any
) -> None:
    script = "sleep 600 & echo $! > {folder}/child; exec sleep 600"
    adapter = await by_program(script, search_seconds=0.5)
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        await adapter.query(AS_AGENTS)
    child = int((tmp_path / "child").read_text())
    await until(lambda: not is_running(child))


async def test_a_search_that_is_cancelled_again_as_it_ends_leaves_no_process(
    by_program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **options))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    adapter = await by_program("exec sleep 600")
    asked = asyncio.create_task(adapter.query(AS_AGENTS))
    await until(lambda: bool(started))
    for _ in range(5):
        asked.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert started[0].returncode is not None, "nobody has waited for it"


async def until(done: Callable[[], bool]) -> None:
    while not done():
        await asyncio.sleep(0.01)


async def test_no_other_program_is_run(
    tmp_path: Path, open_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="must be memsearch"):
        await open_adapter(MemsearchAdapter, path=tmp_path, command="/bin/rm")
    monkeypatch.setenv("PATH", str(tmp_path))
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    with pytest.raises(Unsupported, match="was not found on the PATH"):
        await adapter.query(AS_AGENTS)


REAL = shutil.which("memsearch")


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="memsearch, half a gigabyte, is not on the PATH")
async def test_the_real_program_finds_our_records(
    tmp_path: Path, open_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = Embeddings()
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = tmp_path / ".memsearch" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(
        f'[embedding]\nprovider = "openai"\nmodel = "words"\napi_key = "none"\n'
        f'base_url = "{embeddings.url}/v1"\n'
    )
    folder = tmp_path / "app" / ".memsearch" / "memory"
    folder.mkdir(parents=True)
    (folder / "2026-02-09.md").write_text(DAY)
    collection = collection_of(project_of(folder))
    command = [str(REAL), "index", "--collection", collection, str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    adapter = await open_adapter(MemsearchAdapter, path=folder, search_seconds=60)
    asked = QueryRequest(
        scope=ACME, query="does the importer fail?", top_k=1, matching=Matching.AGENTS
    )
    found = await adapter.query(asked)
    embeddings.stop()
    assert [one.metadata["turn"] for one in found.snippets] == ["t-2"]
    assert found.capped
