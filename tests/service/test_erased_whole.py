"""Of what a purge is about every record, owner, binding, page, file and row goes; others stay."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.answers import ReviewRule
from memtui.service.home import purge, survey
from memtui.service.home.survey import PurgeRequest
from memtui.store import erasing
from memtui.store import log as store_log
from memtui.store.erasing import Aim
from tests.homes import furnish

BOSS = Caller(company_id="local", principal="user:boss", channel="test")
BOT = Caller(company_id="local", principal="agent:bot", channel="mcp", run_id="run-1")
COMPANY = Scope(company_id="local")
SOURCE = SourceRef(kind="manual_note", company_id="local")
BEA = Scope(company_id="local", subject_id="bea")
OWNERS = (BEA, BEA.model_copy(update={"project_id": "web"}))
"""Whose memories are the subject's: a project's too, where its provider says of whom they are."""
OTHERS = (Scope(company_id="local", subject_id="bert"), Scope(company_id="local", project_id="web"))
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """Goes on by a microsecond each time that it is looked at."""

    now = NOW
    step = timedelta(microseconds=1)

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service(
    paths: Paths, begun: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MemoryService]:
    """Two bindings, and pages and batches of two."""
    for module, name in (
        (purge, "_BATCH"), (purge, "_AT_ONCE"), (survey, "_AT_ONCE"), (erasing, "_PAGE"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 2)
    for module in (erasing, store_log):
        monkeypatch.setattr(module, "parts", partial(store_log.parts, size=2))
    settings = load_settings(paths, principal="user:boss")
    furnish(paths, settings, begun)
    opened = await open_service(paths, settings, clock=clock)
    await opened.bindings.add(BOSS, "table", "facts", {})
    yield opened
    await opened.close()


class Told:
    """Writes memories whose every word can be looked for."""

    def __init__(self, service: MemoryService) -> None:
        self.service = service
        self.number = 0

    def word(self, kind: str) -> str:
        self.number += 1
        return f"{kind}word{self.number:04}"

    async def write(self, kind: str, scope: Scope, key: str, **fields: Any) -> RecordHandle:
        is_note = key == "default" and self.number % 2 == 0
        given: dict[str, Any] = {
            "scope": scope, "source": SOURCE, "binding_key": key,
            "kind": "note" if is_note else "fact",
            "content": f"{self.word(kind)}: {self.word(kind)}", "tags": (self.word(kind),),
        }  # fmt: skip
        if is_note:
            given |= {"title": self.word(kind), "summary": self.word(kind)}
        answer = await self.service.write(BOSS, WriteRequest.model_validate(given | fields))
        return answer.handles[0]


def words_in(home: Path) -> str:
    """Return all that any file of a home holds, databases by their rows too."""
    found = []
    for path in (one for one in home.rglob("*") if one.is_file()):
        raw = path.read_bytes()
        found += [str(path), raw.decode("utf-8", "replace")]
        if raw.startswith(b"SQLite format 3"):
            with closing(sqlite3.connect(path)) as connection:
                found += connection.iterdump()
    return "\n".join(found)


@pytest.mark.slow
async def test_all_of_a_subject_goes_from_every_page_binding_and_owner(
    service: MemoryService, paths: Paths, clock: Clock
) -> None:
    told = Told(service)
    soon = NOW + timedelta(hours=1)
    kept: list[RecordHandle] = []
    for key in ("default", "table"):
        for scope in (*OWNERS, *OTHERS) if key == "default" else (BEA, *OTHERS):
            kind = "plum" if scope in OWNERS else "fig"
            handles = [await told.write(kind, scope, key) for _ in range(2)]
            handles.append(await told.write(kind, scope, key, expires_at=soon))
            change = CorrectRequest(
                scope=scope, handle=handles[0], binding_key=key,
                text=f"{told.word(kind)}: {told.word(kind)}", tags=(told.word(kind),),
            )  # fmt: skip
            handles[0] = (await service.correct(BOSS, change)).handles[0]
            query = QueryRequest(scope=scope, query=told.word(kind), binding_key=key)
            await service.query(BOSS, query)
            if kind == "fig":
                kept += handles
                continue
            gone = ForgetRequest(scope=scope, handles=tuple(handles[:1]), binding_key=key)
            await service.forget(BOSS, gone)
    rule = ReviewRule(action="hold", test="all")
    await service.review.add_rule(BOSS, "default", rule)
    for scope in (*OWNERS, *OTHERS):
        kind = "plum" if scope in OWNERS else "fig"
        for _ in range(2):
            given = {"scope": scope, "source": SOURCE, "content": told.word(kind)}
            assert (
                await service.write(BOT, WriteRequest(**given, summary=told.word(kind)))
            ).pending
            await service.query(BOSS, QueryRequest(scope=COMPANY, query=str(given["content"])))
    clock.now += timedelta(hours=2)
    before = words_in(paths.data)
    assert before.count("plumword") > 40

    answer = await service.purging.apply(BOSS, PurgeRequest(subject_id="bea", forget=True))
    assert (answer.left, answer.forgotten) == ((), 6)
    after = words_in(paths.data)
    assert "plumword" not in after
    wanted = {f"figword{n:04}" for n in range(told.number + 1) if f"figword{n:04}" in before}
    assert {one for one in wanted if one not in after} == set()
    listed = []
    for key in ("default", "table"):
        request = BrowseRequest(scope=COMPANY, binding_key=key, expired=True)
        listed += [record.handle for record in (await service.browse(BOSS, request)).records]
    assert {one.provider_record_id for one in kept} == {one.provider_record_id for one in listed}
    assert len(await service.review.waiting(BOSS)) == 4
    assert (await service.analysis.verify_chain(BOSS)).problem is None


async def test_what_an_age_erases_is_older_in_every_batch(
    service: MemoryService, paths: Paths, clock: Clock
) -> None:
    told, written = Told(service), {}
    rule = ReviewRule(action="hold", test="all")
    await service.review.add_rule(BOSS, "default", rule)
    clock.step = timedelta(0)
    for days, kind in enumerate(("plum", "fig")):
        clock.now = NOW + timedelta(days=days)
        given = {"scope": COMPANY, "source": SOURCE, "content": told.word(kind)}
        written[kind] = await service.write(BOSS, WriteRequest.model_validate(given))
        for _ in range(5):
            query = QueryRequest(scope=COMPANY, query=told.word(kind))
            await service.query(BOSS, query)
        for _ in range(3):
            given = {"scope": COMPANY, "source": SOURCE, "content": told.word(kind)}
            await service.write(BOT, WriteRequest.model_validate(given))
    age = PurgeRequest(before=NOW + timedelta(days=1))
    await service.purging.apply(BOSS, age)
    page = await service.log.page(BOSS, Filter(operation_type="query"), limit=20)
    asked = [one.request.get("query") for one in page.operations]
    assert [bool(one) for one in asked] == [True] * 5 + [False] * 5
    waiting = await service.review.waiting(BOSS)
    assert [one.text[:3] for one in waiting] == ["fig"] * 3
    await service.undo(BOSS, written["fig"].operation_id)
    with pytest.raises(Invalid, match="erased"):
        await service.undo(BOSS, written["plum"].operation_id)


async def test_an_age_takes_no_id_of_a_record_that_an_undo_brought_back(
    service: MemoryService, clock: Clock
) -> None:
    told = Told(service)
    first, second = [await told.write("fig", COMPANY, "default") for _ in range(2)]
    gone = await service.forget(BOSS, ForgetRequest(scope=COMPANY, handles=(first, second)))
    back = await service.undo(BOSS, gone.operation_id, records=[second.provider_record_id])
    assert [one.provider_record_id for one in back.handles] == [second.provider_record_id]
    await service.purging.apply(BOSS, PurgeRequest(before=clock.now + timedelta(days=1)))
    entry = await service.log.get(BOSS, gone.operation_id)
    assert {one.provider_record_id for one in entry.handles} == {"", second.provider_record_id}


async def test_a_text_that_a_record_of_the_subject_still_says_stays_in_the_apps_files(
    service: MemoryService, paths: Paths
) -> None:
    text = "Plum pudding for everybody who comes."
    given = {"scope": BEA, "source": SOURCE, "content": text, "kind": "note"}
    first, _ = [
        (await service.write(BOSS, WriteRequest.model_validate(given))).handles[0] for _ in range(2)
    ]
    await service.forget(BOSS, ForgetRequest(scope=BEA, handles=(first,)))
    paths.log_file.write_text(f"It failed at: {text}\n")
    done = await service.purging.apply(BOSS, PurgeRequest(subject_id="bea"))
    assert done.left == ()
    assert text in paths.log_file.read_text()


async def test_what_expired_goes_too_though_memtui_never_wrote_it(
    service: MemoryService, paths: Paths, clock: Clock
) -> None:
    soon = clock.now + timedelta(hours=1)
    text = "Plum pudding for everybody who comes."
    given = {"scope": BEA, "source": SOURCE, "content": text, "kind": "note", "expires_at": soon}
    handle = (await service.write(BOSS, WriteRequest.model_validate(given))).handles[0]
    place = (await service.get(BOSS, handle, BEA)).record.location
    assert place is not None
    copy = Path(place.path).with_name("copy.md")
    shutil.copy(place.path, copy)
    await service.sync(BOSS, "default")
    clock.now += timedelta(hours=2)
    done = await service.purging.apply(BOSS, PurgeRequest(subject_id="bea", forget=True))
    assert (done.forgotten, done.left, copy.exists()) == (2, (), False)
    assert "Plum pudding" not in words_in(paths.data)


NAMED = {"text": "plum pudding for everybody", "of": {"company_id": "local", "subject_id": "bea"}}


@pytest.mark.parametrize("name", ["session.json", "views.json", "queries.json"])
def test_each_file_of_the_app_loses_what_names_it(paths: Paths, name: str) -> None:
    said, other = NAMED["text"], "fig rolls for everybody else"
    elsewhere = {"company_id": "other", "subject_id": "bea"}
    document = {
        "list": [other, said, [said], {"a": [other, {"b": said}]}, NAMED["of"], elsewhere, 7],
        "text": said, "deep": {"text": f"and {said}", "kept": other}, said: other,
        "scope": NAMED["of"], "other": elsewhere, "plain": [1, None, True],
    }  # fmt: skip
    (paths.data / name).write_text(json.dumps(document))
    aim = Aim(company_id="local", subject_id="bea", texts=frozenset({str(said)}))
    purge._scrub_files(paths, aim)
    assert json.loads((paths.data / name).read_text()) == {
        "list": [other, elsewhere, 7], "text": "", "deep": {"text": "", "kept": other},
        "scope": None, "other": elsewhere, "plain": [1, None, True],
    }  # fmt: skip


@pytest.mark.parametrize("head", ["[[check]]", "[[ check ]]", "  [[check]]  # one", "[['check']]"])
def test_of_the_checks_those_go_that_say_it_with_what_stands_above_them(
    paths: Paths, head: str
) -> None:
    text = "plum pudding for everybody"
    first = f'# My checks.\n\n{head}\nask = "who?"\nholds = "fig rolls"\n\n'
    about = f'# Whether it knows of {text}.\n# At all.\n{head}\nask = "what?"\nholds = "plum"\n\n'
    said = f'# What is for dessert.\n{head}\nask = "what is there?"\nholds = "{text}"\n'
    last = f'# Another.\n{head}\nask = "which?"\nholds = "figs"\n'
    paths.checks_file.write_text(f"# Of {text}.\n{first}{about}{said}{last}")
    purge._scrub_files(paths, Aim(company_id="local", texts=frozenset({text})))
    assert paths.checks_file.read_text() == first + last


def test_drafts_of_what_is_gone_go_however_short_its_id_is(paths: Paths) -> None:
    for name, of in {"1": ["table", "7"], "2": ["other", "7"], "3": ["table", "w9"]}.items():
        (paths.data / f"draft-{name}").mkdir()
        (paths.data / f"draft-{name}" / "of.json").write_text(json.dumps(of))
    aim = Aim(company_id="local", gone={"table": frozenset({"7"})}, pending=frozenset({"w9"}))
    purge._scrub_files(paths, aim)
    assert [one.name for one in paths.data.glob("draft-*")] == ["draft-2"]


async def test_texts_are_kept_for_a_day_at_least(service: MemoryService) -> None:
    for days in (0, -1):
        with pytest.raises(Invalid, match="a day at least"):
            await service.purging.keep_doing(BOSS, days)
    await service.purging.keep_doing(BOSS, 1)


@pytest.mark.parametrize("suffix", ["", ".1", ".2"])
def test_lines_of_every_error_log_go_that_hold_a_part_of_a_text(paths: Paths, suffix: str) -> None:
    text = "plum pudding\nfor everybody\nin the house"
    lines = ["begin", "fig rolls", "said plum pudding", "for everybody", "in the house!", "end"]
    path = paths.log_file.with_name(paths.log_file.name + suffix)
    path.write_text("\n".join(lines) + "\n")
    purge._scrub_files(paths, Aim(company_id="local", texts=frozenset({text})))
    assert path.read_text().split() == ["begin", "fig", "rolls", "end"]


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ("鷺は橋の下に", {"content": "橋の下に鷺がいる。朝は魚を待つ。"}),
        ("marmalade", {"content": "Owls.", "tags": ("marmalade",)}),
        ("marmalade", {"content": "Owls.", "topic": "marmalade"}),
        ("owls marmalade", {"content": "Owls.", "metadata": {"eats": "marmalade"}}),
        ("Marmelādes", {"content": "Of marmelades and owls."}),
    ],
)
async def test_what_found_a_record_goes_in_every_script_and_field(
    service: MemoryService, paths: Paths, asked: str, fields: dict[str, Any]
) -> None:
    given = {"scope": COMPANY, "source": SOURCE, **fields}
    handle = (await service.write(BOSS, WriteRequest.model_validate(given))).handles[0]
    await service.write(BOSS, WriteRequest(scope=COMPANY, source=SOURCE, content="Harbour 港"))
    question = QueryRequest(scope=COMPANY, query=asked)
    other = QueryRequest(scope=COMPANY, query="harbour 港")
    for caller in (BOSS, BOT):
        await service.query(caller, question)
        await service.explain(caller, question)
        await service.explain(caller, other)
    done = await service.purging.apply(
        BOSS, PurgeRequest(record_id=handle.provider_record_id, forget=True)
    )
    assert done.left == ()
    said = words_in(paths.data)
    assert asked not in said
    assert "harbour 港" in said


async def test_what_no_memory_says_any_more_is_left_and_not_another_memorys(
    service: MemoryService, paths: Paths
) -> None:
    await service.bindings.add(BOSS, "gone", "vault", {})
    vaults = [paths.data / "bindings" / "local" / key / "vault" for key in ("default", "gone")]
    handles: list[RecordHandle] = []
    for key, text in (("default", "plum pudding for everybody"), ("gone", "Of figs for nobody.")):
        given = {"scope": COMPANY, "source": SOURCE, "binding_key": key, "content": text}
        handles += (await service.write(BOSS, WriteRequest.model_validate(given))).handles
    (vaults[0] / ".trash").mkdir()
    trash = vaults[0] / ".trash" / "old.md"
    trash.write_text("plum pudding for everybody")
    await service.bindings.remove(BOSS, "gone")
    for handle in handles:
        asked = PurgeRequest(record_id=handle.provider_record_id, forget=True)
        done = await service.purging.apply(BOSS, asked)
        assert done.others == ()
        place = trash if handle is handles[0] else vaults[1] / handle.provider_record_id
        assert str(place) in {one.place for one in done.left}
        trash.unlink(missing_ok=True)
