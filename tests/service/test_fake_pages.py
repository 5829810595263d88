"""Lists that the service makes of a provider's pages: tags, lists by use, stored secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    ForgetRequest,
    QueryRequest,
    Record,
    Scope,
    SourceRef,
    Usage,
    WriteRequest,
)
from memtui.filters import parse_filter
from memtui.service import Caller, Membership, MemoryService, Role
from memtui.store.tables import BINDINGS, JOURNAL
from tests.service.fake import FakeAdapter, down

ANA = Caller(company_id="acme", principal="user:ana", channel="test")
ACME = Scope(company_id="acme")
P, Q = (Scope(company_id="acme", project_id=name) for name in "pq")
SOURCE = SourceRef(kind="run", company_id="acme")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "ghp_" + "b" * 36


@pytest.fixture(autouse=True)
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    async def browse(self: FakeAdapter, request: BrowseRequest) -> BrowsePage:
        await self._called("browse")
        self.received.append(request)
        start, records = int(request.cursor or 0), [*self.held.values()]
        following = str(start + 2) if start + 2 < len(records) else None
        usage = (Usage(provider="fake", input_tokens=1),)
        page = tuple(records[start : start + 2])
        return BrowsePage(records=page, next_cursor=following, total=len(records), usage=usage)

    monkeypatch.setattr(FakeAdapter, "browse", browse)


async def write(service: MemoryService, text: str, scope: Scope = P, **fields: Any) -> Record:
    given = {"scope": scope, "source": SOURCE, "content": text, "created_at": NOW}
    return (await service.write(ANA, WriteRequest.model_validate(given | fields))).records[0]


async def test_the_tags_of_all_pages_and_bindings_are_counted(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.add(ANA, "second", "fake", {})
    earlier = NOW - timedelta(days=1)
    for scope, key, tags, at in (
        (P, "default", ("Ship", "late"), NOW), (P, "default", ("ship",), earlier),
        (Q, "default", ("ship", "q"), NOW), (P, "default", (), NOW),
        (P, "default", ("late", "alone"), NOW), (P, "second", ("SHIP", "Beta"), NOW),
    ):  # fmt: skip
        await write(service, "a", scope, binding_key=key, tags=tags, created_at=at)
    answer = await service.tags.counts(ANA, ACME)
    assert [(one.tag, one.records, one.by_binding) for one in answer.tags] == [
        ("ship", 4, {"default": 3, "second": 1}), ("late", 2, {"default": 2}),
        ("alone", 1, {"default": 1}), ("Beta", 1, {"second": 1}), ("q", 1, {"default": 1}),
    ]  # fmt: skip
    assert not answer.at_least
    assert [one.found for one in answer.bindings] == [4, 2]
    logged = {one.binding_key: one for one in (await service.log.page(ANA, limit=2)).operations}
    assert {key: (len(one.usage), one.result_count) for key, one in logged.items()} == {
        "default": (3, 4), "second": (1, 2),
    }  # fmt: skip
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    await service.members.set(
        ANA, Membership(principal="user:bea", role=Role.MEMBER, project_id="p")
    )
    bea = ANA.model_copy(update={"principal": "user:bea"})
    seen = {one.tag: one.records for one in (await service.tags.counts(bea, P)).tags}
    assert seen == {"ship": 3, "late": 2, "alone": 1, "Beta": 1}


@pytest.mark.parametrize(("field", "is_at_least"), [("at_least", True), ("unfinished", True),
                                                    ("total", False)])  # fmt: skip
async def test_tags_are_at_least_as_many_where_a_list_is_not_whole(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch, field: str, is_at_least: bool
) -> None:
    await write(service, "a", tags=("x",))

    async def browse(self: FakeAdapter, request: BrowseRequest) -> BrowsePage:
        value = 1 if field == "total" else True
        return BrowsePage.model_validate({"records": tuple(self.held.values()), field: value})

    monkeypatch.setattr(FakeAdapter, "browse", browse)
    assert (await service.tags.counts(ANA, ACME)).at_least is is_at_least


async def test_tags_are_at_least_as_many_where_a_binding_fails(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.bindings.add(ANA, "second", "fake", {})
    await write(service, "a", tags=("x",))
    browse: Any = FakeAdapter.browse

    async def fails(self: FakeAdapter, request: BrowseRequest) -> BrowsePage:
        if self.context.binding_key == "second":
            raise down()
        page: BrowsePage = await browse(self, request)
        return page

    monkeypatch.setattr(FakeAdapter, "browse", fails)
    answer = await service.tags.counts(ANA, ACME)
    assert ([one.tag for one in answer.tags], answer.at_least) == (["x"], True)


async def walk(service: MemoryService, line: str, limit: int) -> Sequence[Any]:
    request = BrowseRequest(scope=P, filter=parse_filter(line, now=NOW), limit=limit)
    pages = []
    while True:
        pages.append(page := await service.browse(ANA, request))
        if page.next_cursor is None:
            return pages
        request = request.model_copy(update={"cursor": page.next_cursor})


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_a_list_by_use_is_the_same_whatever_its_pages(
    service: MemoryService, limit: int
) -> None:
    for number in range(5):
        await write(service, f"Note {number} {'long ' * 30 * (number % 2)}")
    await service.query(ANA, QueryRequest(scope=P, query="2"))
    for line, expected in (("read:never", "0134"), ("-read:never", "2"), ("cost:>20", "13"),
                           ("cost:<=20 read:never", "04"), ("dup:no", "01234"),
                           ("cost:>999", "")):  # fmt: skip
        pages = await walk(service, line, limit)
        assert "".join(one.text[5] for page in pages for one in page.records) == expected, line
        assert all(len(page.records) == limit for page in pages[:-1])
        totals = {page.total for page in pages}
        if line.startswith("dup:"):
            assert totals == {5}
        else:
            assert totals == ({len(expected)} if len(pages) == 1 else {None})
        assert not any(page.at_least for page in pages)
        logged = (await service.log.page(ANA, limit=len(pages))).operations
        assert [one.result_count for one in logged[::-1]] == [len(page.records) for page in pages]
    assert len(logged[0].usage) == 3


async def test_a_list_by_reads_says_how_many_records_are_older_than_the_log(
    service: MemoryService,
) -> None:
    begun = (await service.log.page(ANA, limit=1, after=0)).operations[0].started_at
    for days, texts in ((1, ["A", "B"]), (0, ["C"])):
        for text in texts:
            await write(service, text, created_at=begun - timedelta(days=days))
    [page] = await walk(service, "read:never", 9)
    [told] = page.unread
    assert f"begins on {begun:%Y-%m-%d}, so what read 2 older records before" in told
    for line, limit in (("-read:never", 9), ("cost:>0", 9)):
        [page] = await walk(service, line, limit)
        assert page.unread == ()
    pages = await walk(service, "read:never", 1)
    assert [" 1 older record " in " ".join(page.unread) for page in pages] == [True, True, False]


async def test_a_secret_is_found_in_every_place_and_on_every_page(
    service: MemoryService, fake: type[FakeAdapter], tmp_path: Path
) -> None:
    records = [await write(service, f"Note {number}") for number in range(5)]
    eve = Scope(company_id="acme", subject_id="eve")
    records.append(await write(service, "Note of Eve", eve))
    ids = [one.handle.provider_record_id for one in records]
    for record in records[4:]:
        await service.forget(ANA, ForgetRequest(scope=record.scope, handles=(record.handle,)))
    journal: list[str] = []

    async def stored(*folders: Path) -> list[tuple[str, str]]:
        found = [one async for one in service.secrets.stored(ANA, folders)]
        assert "b" * 20 not in repr(found)
        assert all(one.labels == ("GITHUB_TOKEN",) for one in found)
        return [(one.place, one.where) for one in found]

    assert await stored(tmp_path) == []
    held = fake.records["acme/default"]
    for record_id in (ids[0], ids[3]):
        held[record_id] = held[record_id].model_copy(update={"text": f"opens with {SECRET}"})
    with service.runtime.database.write() as database:
        database.execute(update(BINDINGS).values(config={"label": f"token {SECRET}"}))
        for record in records[4:]:
            gone = JOURNAL.c.provider_record_id == record.handle.provider_record_id
            row = database.execute(
                select(JOURNAL).where(gone).order_by(JOURNAL.c.seq.desc())
            ).first()
            assert row is not None
            said = {"record": row.before["record"] | {"text": SECRET}}
            database.execute(update(JOURNAL).where(gone, JOURNAL.c.seq == row.seq)
                             .values(before=row.before | said))  # fmt: skip
            journal.append(str(row.seq))
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
        for name in ("x.json", "y.log", "z.bin"):
            (folder / name).write_text(f"opens with {SECRET}" if name != "y.log" else "no")
        (folder / "d.json").mkdir()
    expected = [
        ("undo journal", f"{journal[0]} {ids[4]}"), ("undo journal", f"{journal[1]} {ids[5]}"),
        ("configuration of binding", "default"), ("binding default", ids[0]),
        ("binding default", ids[3]), ("file", str(folders[0] / "x.json")),
        ("file", str(folders[1] / "x.json")),
    ]  # fmt: skip
    assert await stored(*folders, folders[0]) == expected
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    expected[1] = ("undo journal", journal[1])
    assert await stored(*folders) == expected
    with service.runtime.database.write() as database:
        database.execute(update(BINDINGS).values(enabled=False))
    assert await stored() == expected[:3]
