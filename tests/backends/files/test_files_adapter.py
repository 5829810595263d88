from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.memsearch import MemsearchAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from tests.backends.watching import give_up_a_watch

ACME = Scope(company_id="acme")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for day in range(1, 10):
        turns = [f"### 1{hour}:00\n- day {day} hour {hour} " + "x" * hour for hour in range(5)]
        (folder / f"2026-03-0{day}.md").write_text("\n\n".join(turns))
    (folder / "ideas.md").write_text("An idea without a date.\n")
    return folder


@pytest.mark.parametrize(
    "sort", ["created_at", "-created_at", "-updated_at", "title", "size", "-size", "kind", "topic"]
)
async def test_pages_hold_every_record_once_in_order(
    sort: str, logs: Path, open_adapter: Any
) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    whole = await adapter.browse(BrowseRequest(scope=ACME, sort=sort, limit=1000))
    assert (whole.total, len(whole.records), whole.next_cursor) == (46, 46, None)
    paged = []
    cursor = None
    while True:
        page = await adapter.browse(BrowseRequest(scope=ACME, sort=sort, limit=7, cursor=cursor))
        assert page.total == 46
        paged.extend(page.records)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert paged == list(whole.records)
    if sort.endswith("created_at"):
        dated = [record.created_at for record in paged]
        assert dated[-1] is None
        assert dated[:-1] == sorted(dated[:-1], reverse=sort.startswith("-"))


async def test_a_record_that_goes_between_pages_hides_no_other(
    logs: Path, open_adapter: Any
) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    first = await adapter.browse(BrowseRequest(scope=ACME, sort="created_at", limit=5))
    (logs / "2026-03-01.md").unlink()
    second = await adapter.browse(
        BrowseRequest(scope=ACME, sort="created_at", limit=5, cursor=first.next_cursor)
    )
    assert [record.handle.provider_record_id[:10] for record in second.records] == [
        "2026-03-02"
    ] * 5


async def test_a_cursor_of_another_list_is_refused(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    page = await adapter.browse(BrowseRequest(scope=ACME, sort="size", limit=1))
    for sort, cursor in (
        ("title", page.next_cursor), ("size", "nonsense"), ("size", "W10="), ("colour", None),
    ):  # fmt: skip
        with pytest.raises(Invalid):
            await adapter.browse(BrowseRequest(scope=ACME, sort=sort, cursor=cursor))


async def test_filters_narrow_and_count(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs, project_id="app")

    async def total(**chosen: Any) -> int | None:
        request = BrowseRequest(scope=ACME, filter=Filter(**chosen))
        return int((await adapter.browse(request)).total or 0)

    assert await total(text="HOUR day 4") == 13
    assert await total(kind="note") == 1
    assert await total(kind="turn", project_id="app") == 45
    assert await total(project_id="other") == 0
    assert await total(source_kind=SourceKind.RUN) == 0
    assert await total(topic="x") == await total(tag="x") == await total(issue_id="x") == 0
    assert await total(since="2026-03-04T00:00:00Z", until="2026-03-05T00:00:00Z") == 5


async def test_another_project_or_company_sees_nothing(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs, project_id="app")
    handle = RecordHandle(provider_key="memsearch", provider_record_id="2026-03-01/10:00")
    mine = Scope(company_id="acme", project_id="app", run_id="any")
    assert await adapter.get(handle, mine) is not None
    for scope in (Scope(company_id="acme", project_id="web"), Scope(company_id="other")):
        assert await adapter.get(handle, scope) is None
        assert (await adapter.query(QueryRequest(scope=scope, query="day"))).snippets == ()
        assert (await adapter.browse(BrowseRequest(scope=scope))).total == 0
    foreign = handle.model_copy(update={"provider_key": "vault"})
    assert await adapter.get(foreign, mine) is None


async def test_a_query_ranks_caps_and_falls_back_to_parts_of_words(
    logs: Path, open_adapter: Any
) -> None:
    (logs / "2026-04-01.md").write_text("### 09:00\n- 部署分支是 release\n")
    adapter = await open_adapter(MemsearchAdapter, path=logs)

    async def texts(query: str, **more: Any) -> list[str]:
        request = QueryRequest(scope=ACME, query=query, **more)
        return [snippet.text for snippet in (await adapter.query(request)).snippets]

    assert len(await texts("hours", top_k=3)) == 3
    assert await texts("分支") == ["- 部署分支是 release"]
    assert await texts("elea") == ["- 部署分支是 release"]
    assert await texts('" NEAR( \0 \ud800 - * ^') == await texts("!?") == await texts(" ") == []
    assert await texts("the idea", metadata_filter={"turn": "x"}) == []
    assert await texts("the idea") == ["An idea without a date."]


async def test_every_change_is_refused_with_a_way_out(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    handle = RecordHandle(provider_key="memsearch", provider_record_id="ideas/")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
    with pytest.raises(Unsupported, match="read-only here"):
        await adapter.write(WriteRequest(scope=ACME, source=source, content="x"))
    with pytest.raises(Unsupported, match="read-only here"):
        await adapter.forget(ForgetRequest(scope=ACME, handles=(handle,)))
    with pytest.raises(Unsupported, match="read-only here"):
        await adapter.correct(CorrectRequest(scope=ACME, handle=handle, text="x"))
    assert not adapter.capabilities.writable


async def test_a_folder_that_goes_and_comes_back(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    assert (await adapter.health()).records == 46
    moved = logs.parent / "away"
    shutil.move(logs, moved)
    with pytest.raises(Unavailable, match="put it back"):
        await adapter.browse(BrowseRequest(scope=ACME))
    assert (await adapter.health()).status == "down"
    shutil.move(moved, logs)
    assert (await adapter.health()).records == 46


@pytest.mark.parametrize(
    "config", [{}, {"path": "relative"}, {"path": "/x\0y"}, {"path": "/", "colour": "red"}]
)
async def test_a_config_that_does_not_fit_is_refused(
    config: dict[str, str], open_adapter: Any
) -> None:
    with pytest.raises(Invalid, match="binding found"):
        await open_adapter(MemsearchAdapter, **config)


async def test_a_path_that_is_no_folder_is_unavailable(tmp_path: Path, open_adapter: Any) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "loop", "gone"):
        with pytest.raises(Unavailable):
            await open_adapter(MemsearchAdapter, path=tmp_path / name)


async def test_many_problems_are_counted_and_the_first_spelled_out(
    tmp_path: Path, open_adapter: Any
) -> None:
    turns = "### 10:00\n<!-- session:s turn:t -->\n" * 600
    (tmp_path / "2026-01-01.md").write_text(turns)
    adapter = await open_adapter(MemsearchAdapter, path=tmp_path)
    health = await adapter.health()
    assert (health.status, health.message, len(health.problems)) == (
        "degraded",
        "600 problems",
        501,
    )
    assert health.problems[-1].message == "100 more problems are not shown."


async def test_readers_at_once_while_a_file_is_rewritten_see_whole_records(
    logs: Path, open_adapter: Any
) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    versions = {f"- version {number} " + "y" * number * 997 for number in range(40)}

    def rewrite() -> None:
        for text in sorted(versions):
            (logs / "2026-05-01.md").write_text(f"### 10:00\n{text}\n### 11:00\n- end\n")

    async def read() -> None:
        for _ in range(20):
            found = await adapter.query(QueryRequest(scope=ACME, query="version day", top_k=100))
            assert len(found.snippets) >= 45

    await asyncio.gather(asyncio.to_thread(rewrite), *(read() for _ in range(4)))
    last = await adapter.browse(BrowseRequest(scope=ACME, filter=Filter(text="version")))
    assert [record.text in versions for record in last.records] == [True]


async def test_a_watch_that_is_given_up_ends_no_other(logs: Path, open_adapter: Any) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    await give_up_a_watch(adapter)
    waiting = asyncio.ensure_future(anext(adapter.watch()))
    edits = 0
    while not waiting.done():
        edits += 1
        (logs / "ideas.md").write_text(f"Another idea, {edits}.\n")
        await asyncio.wait([waiting], timeout=1)
    assert [handle.provider_record_id for handle in waiting.result()] == ["ideas/"]


async def test_changes_made_outside_are_told_until_the_adapter_closes(
    logs: Path, open_adapter: Any
) -> None:
    adapter = await open_adapter(MemsearchAdapter, path=logs)
    changes = adapter.watch()
    waiting = asyncio.ensure_future(anext(changes))
    edits = 0
    while not waiting.done():
        edits += 1
        (logs / "ideas.md").write_text(f"Another idea, {edits}.\n")
        await asyncio.wait([waiting], timeout=1)
    assert [handle.provider_record_id for handle in waiting.result()] == ["ideas/"]
    shutil.rmtree(logs)
    gone: set[RecordHandle] = set()
    while len(gone) < 46:
        gone |= set(await anext(changes))
    ended = asyncio.ensure_future(anext(changes, None))
    await adapter.close()
    assert await ended is None
