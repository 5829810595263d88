"""What is purged is nowhere any more, what others say is untouched, and the log still proves."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import psycopg
import pytest
import pytest_asyncio

from memtui.analytics.layout import ArchiveFolder, sha256_of
from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    OperationStatus,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, MutationAnswer, Role, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.home.survey import PurgeRequest
from memtui.service.operations.namespaces import MemoryName
from memtui.service.runtime import SETUP_CHANNEL
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.homes import furnish
from tests.processes import killed_by_itself
from tests.service.purger import purge_and_die

ANA = Caller(company_id="local", principal="user:ana", channel="test")
SOURCE = SourceRef(kind="manual_note", company_id="local")
OF_PROJECT = Scope(company_id="local", project_id="apollo")
OF_BEA = Scope(company_id="local", subject_id="bea-of-the-night-shift")
OF_OTHERS = Scope(company_id="local", project_id="gemini")
WORDS = ("marmalade", "strawberry", "quince", "rhubarb")
"""What only the purged memories say; part of their file names too."""


@pytest.fixture
def settings(paths: Paths, database_url: str) -> Settings:
    return load_settings(paths, principal="user:ana", database_url=database_url)


@pytest_asyncio.fixture
async def service(paths: Paths, settings: Settings, begun: Path) -> AsyncIterator[MemoryService]:
    furnish(paths, settings, begun)
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()


@dataclass
class Told:
    """The memories that were made."""

    note: RecordHandle
    fact: RecordHandle
    other: RecordHandle


async def tell(service: MemoryService, scope: Scope) -> Told:
    """Write, correct, query, hand out and forget a note and a fact, with another beside them."""

    async def write(content: str, kind: str, of: Scope = scope) -> RecordHandle:
        request = WriteRequest(
            scope=of, source=SOURCE, content=content, kind=kind, tags=("launch",)
        )
        return (await service.write(ANA, request)).handles[0]

    told = Told(
        note=await write('The launch code is marmalade\non the "second" shelf — über all', "note"),
        fact=await write("launch_door: the strawberry channel of the hall", "fact"),
        other=await write("The launch code of others is on the second shelf", "note", OF_OTHERS),
    )
    for handle, text in (
        (told.note, 'The launch code is quince\non the "second" shelf'),
        (told.fact, "launch_door: the rhubarb channel of the hall"),
    ):
        await service.correct(ANA, CorrectRequest(scope=scope, handle=handle, text=text))
    for asked in ("launch code quince", "where is it"):
        await service.query(ANA, QueryRequest(scope=scope, query=asked))
    await service.query(
        ANA, QueryRequest(scope=Scope(company_id="local"), query="second shelf launch")
    )
    given = ContextRequest(scope=scope, prompt="launch quince", budget=2_000, delivered=True)
    assert "quince" in (await service.context(ANA, given)).text
    named = Filter(subject_id=scope.subject_id, project_id=scope.project_id)
    await service.browse(ANA, BrowseRequest(scope=Scope(company_id="local"), filter=named))
    return told


async def forget(service: MemoryService, scope: Scope, *handles: RecordHandle) -> None:
    await service.forget(ANA, ForgetRequest(scope=scope, handles=handles))


def everywhere(paths: Paths, database_url: str) -> Iterator[tuple[str, str]]:
    """All that lies in the home, by place: names, bytes, rows and what they encode."""
    files = [path for path in sorted(paths.data.rglob("*")) if path.is_file()]
    for path, raw in [(path, path.read_bytes()) for path in files]:
        yield f"{path} name", str(path.relative_to(paths.data))
        yield f"{path} bytes", raw.decode("utf-8", "replace")
        yield f"{path} utf-16", raw.decode("utf-16-le", "replace")
        if raw.startswith(b"SQLite format 3"):
            with closing(sqlite3.connect(path)) as connection:
                yield f"{path} rows", decoded("\n".join(connection.iterdump()))
        if raw.startswith(b"PAR1"):
            rows = duckdb.execute(f"SELECT * FROM read_parquet('{path}')").fetchall()
            yield f"{path} rows", decoded(repr(rows))
    if database_url:
        with psycopg.connect(database_url) as server:
            for (table,) in server.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall():
                found = server.execute(f'SELECT t::text FROM "{table}" t').fetchall()
                yield table, decoded(repr(found))
            stats = server.execute("SELECT s::text FROM pg_stats s WHERE schemaname = 'public'")
            yield "pg_stats", repr(stats.fetchall())


def decoded(text: str, depth: int = 4) -> str:
    """A text with what Base64 in it hides."""
    found = [text]
    if depth:
        for match in re.findall(r"[A-Za-z0-9+/]{20,}={0,2}", text):
            with suppress(ValueError):
                found.append(decoded(base64.b64decode(match, validate=True).decode(), depth - 1))
    return "\n".join(found)


def places_of(words: tuple[str, ...], paths: Paths, database_url: str) -> list[str]:
    return [
        f"{word} in {place}"
        for place, text in everywhere(paths, database_url)
        for word in words
        if word in text.lower()
    ]


def others(paths: Paths) -> dict[str, bytes]:
    """The bytes of what others remember."""
    vault = paths.data / "bindings"
    return {str(path): path.read_bytes() for path in vault.rglob("*gemini*/**/*.md")}


async def test_what_would_go_is_looked_for_as_an_operation(service: MemoryService) -> None:
    told = await tell(service, OF_BEA)
    record = PurgeRequest(record_id=told.fact.provider_record_id)
    agent = ANA.model_copy(update={"principal": "agent:coding", "acts_for": "user:ana"})
    plan = await service.purging.plan(ANA, record)
    with pytest.raises(Denied):
        await service.purging.plan(agent, record)
    assert (await service.purging.plan(ANA, record)).copies == plan.copies
    page = await service.log.page(ANA, Filter(operation_type=OperationType.BROWSE), limit=3)
    assert [(one.principal, one.status, one.result_count) for one in page.operations] == [
        ("user:ana", OperationStatus.OK, 1),
        ("agent:coding", OperationStatus.DENIED, 0),
        ("user:ana", OperationStatus.OK, 1),
    ]
    assert all(one.request["purpose"] == "purge" for one in page.operations)


async def test_a_stranger_is_refused_before_anything_is_looked_for(service: MemoryService) -> None:
    told = await tell(service, OF_BEA)
    owner = Membership(principal="user:ana", role=Role.OWNER)
    await service.members.set(ANA, owner)
    stranger = ANA.model_copy(update={"principal": "user:cy"})
    nowhere = PurgeRequest(record_id=told.fact.provider_record_id, binding_key="nowhere")
    for ask in (service.purging.plan, service.purging.apply):
        with pytest.raises(NotFound, match="known are: default"):
            await ask(ANA, nowhere)
        with pytest.raises(Denied, match="not a member"):
            await ask(stranger, nowhere)


@pytest.mark.parametrize("what", ["record", "subject", "project"])
async def test_what_is_purged_is_nowhere_and_the_log_still_proves(
    service: MemoryService, paths: Paths, settings: Settings, database_url: str, what: str
) -> None:
    scope = OF_BEA if what == "subject" else OF_PROJECT
    told = await tell(service, scope)
    before = others(paths)
    await service.analysis.seal(ANA, everything=True)
    await forget(service, scope, told.note, told.fact)
    assert before
    assert places_of(WORDS, paths, database_url)
    requests = {
        "record": [
            PurgeRequest(record_id=told.note.provider_record_id),
            PurgeRequest(record_id=told.fact.provider_record_id),
        ],
        "subject": [PurgeRequest(subject_id="bea-of-the-night-shift")],
        "project": [PurgeRequest(project_id="apollo")],
    }[what]
    kept = await service.log.page(ANA)
    for request in requests:
        plan = await service.purging.plan(ANA, request)
        assert {"sealed log", "undo journal"} <= {one.place for one in plan.copies}
        assert not plan.living
        done = await service.purging.apply(ANA, request)
        assert done.found is not None
        assert (done.left, done.others, done.found.unread) == ((), (), ())
        assert done.found.texts > 0
        if request.record_id is None:
            assert not (await service.purging.plan(ANA, request)).copies
        else:  # nothing tells it from one that never was
            with pytest.raises(NotFound, match="memtui keeps no copy of one; it never was, or was"):
                await service.purging.plan(ANA, request)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    assert (await service.analysis.verify_archive(ANA)).problems == ()
    if what == "subject":
        assert {one.subject_id for one in await service.log.scopes(ANA, 1_000)} == {None}
    await service.close()
    gone = (*WORDS, "bea-of-the-night-shift") if what == "subject" else WORDS
    assert places_of(gone, paths, database_url) == []
    assert others(paths) == before
    again = await open_service(paths, settings)
    try:
        found = {one.seq: one for one in (await again.log.page(ANA)).operations}
        assert [found[one.seq].digest for one in kept.operations] == [
            one.digest for one in kept.operations
        ]
        [other] = [
            one for one in found.values() if one.request.get("content", "") and not one.absent
        ]
        assert other.handles[0].provider_record_id == told.other.provider_record_id
        assert (await again.log.provenance(ANA, "default", told.other)).written == other
        erasures = [await again.log.erasures(ANA, one) for one in found.values() if one.absent]
        assert erasures
        assert all(one and one[0].principal == "user:ana" for one in erasures)
        with pytest.raises(Invalid, match="were erased by"):
            await again.undo(ANA, str(kept.operations[0].seq))
        purges = [one for one in found.values() if one.operation_type == "purge"]
        assert all(not re.search("marmalade|launch", json.dumps(one.request)) for one in purges)
        with pytest.raises(Invalid, match="cannot be undone"):
            await again.undo(ANA, purges[0].operation_id)
    finally:
        await again.close()


async def test_what_the_log_has_of_another_record_that_says_the_same_is_not_left(
    service: MemoryService,
) -> None:
    told = await tell(service, OF_PROJECT)
    said = "launch_door: the rhubarb channel of the hall"
    request = WriteRequest(scope=OF_OTHERS, source=SOURCE, content=said)
    await service.write(ANA, request)
    record_id = told.fact.provider_record_id
    done = await service.purging.apply(ANA, PurgeRequest(record_id=record_id, forget=True))
    assert done.left == ()
    assert any("memory_undo_journal" in one.place for one in done.others)


async def test_what_another_company_says_is_neither_left_nor_told(service: MemoryService) -> None:
    told = await tell(service, OF_PROJECT)
    await service.companies.add(
        Caller(company_id="beta", principal="user:ana", channel=SETUP_CHANNEL), "Beta"
    )
    other = ANA.model_copy(update={"company_id": "beta"})
    await service.bindings.add(other, "default", "vault", {})
    await service.bindings.set_target(other, "company", "beta", "default")
    said = "launch_door: the rhubarb channel of the hall"
    scope, source = Scope(company_id="beta"), SOURCE.model_copy(update={"company_id": "beta"})
    await service.write(other, WriteRequest(scope=scope, source=source, content=said))
    record_id = told.fact.provider_record_id
    done = await service.purging.apply(ANA, PurgeRequest(record_id=record_id, forget=True))
    assert done.left == ()
    assert not [one for one in done.others if "beta" in one.key]


async def test_a_record_of_a_binding_that_was_removed_is_found(
    service: MemoryService, paths: Paths
) -> None:
    told = await tell(service, OF_PROJECT)
    record_id = told.note.provider_record_id
    name = MemoryName(memory_id="1", record_id=record_id, namespace="workspace:apollo")
    await service.plugin.note(ANA, "default", [name])
    await forget(service, OF_PROJECT, told.note)
    await service.bindings.remove(ANA, "default")
    with pytest.raises(NotFound, match="no binding defualt; known are: default"):
        await service.purging.apply(ANA, PurgeRequest(record_id=record_id, binding_key="defualt"))
    done = await service.purging.apply(ANA, PurgeRequest(record_id=record_id))
    assert {"undo journal", "ids beside providers"} <= {one.place for one in done.copies}
    await service.close()
    found = places_of(("marmalade",), paths, "")
    assert not [place for place in found if "/bindings/" not in place]


@pytest.mark.parametrize("mended", [False, True])
async def test_no_altered_segment_is_written_anew(
    service: MemoryService, paths: Paths, *, mended: bool
) -> None:
    """It would count as proved from then on."""
    told = await tell(service, OF_PROJECT)
    await service.analysis.seal(ANA, everything=True)
    await forget(service, OF_PROJECT, told.note)
    folder = ArchiveFolder(paths.archive, "local")
    manifest = folder.read()
    [segment] = manifest.segments
    path = folder.file(segment, "operations")
    whole = path.read_bytes()
    place = len(whole) - 40
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    if mended:
        file = segment.files["operations"].model_copy(update={"sha256": sha256_of(path)})
        files = segment.files | {"operations": file}
        folder.write(
            manifest.model_copy(update={"segments": (segment.model_copy(update={"files": files}),)})
        )
    request = PurgeRequest(record_id=told.note.provider_record_id)
    with pytest.raises(Conflict, match="not match the log"):
        await service.purging.apply(ANA, request)
    assert (await service.analysis.verify_chain(ANA)).problem
    path.write_bytes(whole)
    folder.write(manifest)
    assert (await service.purging.apply(ANA, request)).left == ()
    assert (await service.analysis.verify_chain(ANA)).problem is None


async def test_an_altered_segment_stops_a_purge_before_anything_is_forgotten(
    service: MemoryService, paths: Paths
) -> None:
    told = await tell(service, OF_PROJECT)
    await service.analysis.seal(ANA, everything=True)
    folder = ArchiveFolder(paths.archive, "local")
    [segment] = folder.read().segments
    path = folder.file(segment, "operations")
    whole = path.read_bytes()
    path.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    memories = {
        one: one.read_bytes() for one in (paths.data / "bindings").rglob("*") if one.is_file()
    }
    request = PurgeRequest(project_id="apollo", forget=True)
    with pytest.raises(Conflict, match="not match the log"):
        await service.purging.apply(ANA, request)
    assert {one: one.read_bytes() for one in memories} == memories
    path.write_bytes(whole)
    assert (await service.get(ANA, told.note, OF_PROJECT)).record.text
    assert (await service.purging.apply(ANA, request)).forgotten == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "Name a record, a user, a project, a run, a document or an age, and one of"),
        ({"record_id": "a", "subject_id": "b"}, "Name a record, a user"),
        ({"before": datetime(2026, 1, 1, tzinfo=UTC), "forget": True}, "A purge by age erases"),
    ],
)
def test_a_request_that_names_no_one_thing_is_refused_in_a_sentence(
    asked: dict[str, object], said: str, database_url: str
) -> None:
    with pytest.raises(Invalid) as refused:
        PurgeRequest.model_validate(asked)
    assert str(refused.value).startswith(said)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with a sealed log and a fact that lives; and the fact's id."""
    home = tmp_path_factory.mktemp("prepared") / "home"
    paths = find_paths(home)

    async def prepare() -> str:
        service = await open_service(paths, load_settings(paths, principal="user:ana"))
        told = await tell(service, OF_PROJECT)
        await service.analysis.seal(ANA, everything=True)
        await service.query(ANA, QueryRequest(scope=OF_PROJECT, query="rhubarb channel"))
        await service.close()
        return told.fact.provider_record_id

    return home, asyncio.run(prepare())


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["forgotten", "waiting", "proved", "journal"],
)
async def test_a_purge_that_is_killed_is_ended_by_the_next(
    prepared: tuple[Path, str], tmp_path: Path, step: str
) -> None:
    template, record_id = prepared
    home = tmp_path / "home"
    shutil.copytree(template, home)
    request = PurgeRequest(record_id=record_id, forget=True)
    assert killed_by_itself(purge_and_die, home, request.model_dump_json(), step)
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    try:
        [unknown] = (await service.log.page(ANA, Filter(status="unknown"))).operations
        assert unknown.operation_type == "purge"
        assert (await service.analysis.verify_chain(ANA)).problem is None
        done = await service.purging.apply(ANA, request)
        assert done.left == ()
        assert (await service.analysis.verify_chain(ANA)).problem is None
        assert (await service.analysis.verify_archive(ANA)).problems == ()
    finally:
        await service.close()
    assert places_of(("strawberry", "rhubarb"), paths, "") == []
    assert places_of(("quince",), paths, "")


async def test_what_lives_stays_with_its_history_unless_it_is_forgotten_first(
    service: MemoryService, paths: Paths, database_url: str
) -> None:
    told = await tell(service, OF_BEA)
    before = {
        path: path.read_bytes()
        for pattern in ("*.md", "*.jsonl")
        for path in (paths.data / "bindings").rglob(pattern)
    }
    plan = await service.purging.plan(ANA, PurgeRequest(subject_id=OF_BEA.subject_id))
    assert {one.record_id for one in plan.living} == {
        told.note.provider_record_id,
        told.fact.provider_record_id,
    }
    done = await service.purging.apply(ANA, PurgeRequest(subject_id=OF_BEA.subject_id))
    assert [one.record_id for one in done.living] == [one.record_id for one in plan.living]
    assert {path: path.read_bytes() for path in before} == before
    found = (await service.log.provenance(ANA, "default", told.fact)).mutations
    assert [one.operation_type for one in found] == ["correct", "write"]
    assert all(one.absent and one.request["content"] is None for one in found)
    request = PurgeRequest(subject_id=OF_BEA.subject_id, forget=True)
    assert len((await service.purging.plan(ANA, request)).living) == 2
    assert (await service.purging.apply(ANA, request)).forgotten == 2
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()
    assert places_of((*WORDS, str(OF_BEA.subject_id)), paths, database_url) == []


async def test_an_age_takes_texts_of_the_log_and_never_a_record(
    paths: Paths, settings: Settings
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    service = await open_service(paths, settings, clock=lambda: now)
    told = await tell(service, OF_PROJECT)
    await forget(service, OF_PROJECT, told.fact)
    vault = {path: path.read_bytes() for path in (paths.data / "bindings").rglob("*.md")}
    history = next((paths.data / "bindings").rglob("*.jsonl")).read_bytes()
    now = datetime(2026, 6, 1, tzinfo=UTC)
    await service.query(ANA, QueryRequest(scope=OF_PROJECT, query="a new search"))
    done = await service.purging.apply(ANA, PurgeRequest(before=datetime(2026, 5, 1, tzinfo=UTC)))
    assert done.left == ()
    found = (await service.log.page(ANA)).operations
    old = [one for one in found if one.started_at.month == 3 and one.operation_type != "configure"]
    assert not any(one.request.get("content") or one.request.get("query") for one in old)
    assert told.fact.provider_record_id not in {
        h.provider_record_id for o in old for h in o.handles
    }
    assert told.note.provider_record_id in {h.provider_record_id for o in old for h in o.handles}
    assert "a new search" in {one.request.get("query") for one in found}
    assert {path: path.read_bytes() for path in vault} == vault
    assert next((paths.data / "bindings").rglob("*.jsonl")).read_bytes() == history
    with pytest.raises(Invalid, match="were erased by"):
        await service.undo(ANA, old[0].operation_id)
    await service.close()


async def test_an_age_is_purged_by_itself_only_once_it_was_allowed(
    paths: Paths, database_url: str
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    settings = load_settings(
        paths, principal="user:ana", database_url=database_url, purge_after_days=30
    )
    service = await open_service(paths, settings, clock=lambda: now)
    await tell(service, OF_PROJECT)
    now = datetime(2026, 6, 1, tzinfo=UTC)
    assert await service.purging.due(ANA) is None
    await service.purging.keep_doing(ANA, 60)
    assert await service.purging.due(ANA) is None  # the setting asks for more than was allowed
    await service.purging.keep_doing(ANA, 30)
    done = await service.purging.due(ANA)
    assert done is not None
    assert done.copies
    assert await service.purging.due(ANA) is None  # once a day
    await service.purging.keep_doing(ANA, None)
    now = datetime(2026, 6, 3, tzinfo=UTC)
    assert await service.purging.due(ANA) is None
    await service.close()


async def test_owners_and_the_person_alone_may_purge(
    service: MemoryService, paths: Paths, settings: Settings
) -> None:
    told = await tell(service, OF_BEA)
    for principal, role, subject in (
        ("user:ana", Role.OWNER, None),
        ("user:bea", Role.MEMBER, OF_BEA.subject_id),
        ("user:cy", Role.MEMBER, None),
    ):
        member = Membership(principal=principal, role=role, subject_id=subject)
        await service.members.set(ANA, member)
    bea, cy = (ANA.model_copy(update={"principal": f"user:{name}"}) for name in ("bea", "cy"))
    agent = ANA.model_copy(update={"principal": "agent:coding", "acts_for": "user:ana"})
    own = PurgeRequest(subject_id=OF_BEA.subject_id)
    record = PurgeRequest(record_id=told.fact.provider_record_id)
    for caller, request in (
        (cy, own),
        (cy, record),
        (agent, own),
        (bea, PurgeRequest(project_id="gemini")),
        (bea, PurgeRequest(before=datetime(2026, 1, 1, tzinfo=UTC))),
    ):
        for ask in (service.purging.plan, service.purging.apply):
            with pytest.raises(Denied):
                await ask(caller, request)
    for ask in (service.purging.plan, service.purging.apply):
        with pytest.raises(Denied, match="Only bea-of-the-night-shift may"):
            await ask(ANA, own.model_copy(update={"forget": True}))
    assert (await service.purging.plan(bea, record)).living[0].text
    handles = (told.note,)
    await service.forget(bea, ForgetRequest(scope=OF_BEA, handles=handles))
    said = 'The launch code is quince\non the "second" shelf'
    await service.write(ANA, WriteRequest(scope=OF_OTHERS, source=SOURCE, content=said))
    told_owner = await service.purging.apply(ANA, own)
    assert [(one.record_id, one.text) for one in told_owner.living] == [("", "")]
    assert told_owner.others
    assert {(one.text, one.key) for one in told_owner.others} == {("", "")}
    assert not told_owner.left
    assert (
        await service.purging.apply(bea, own.model_copy(update={"forget": True}))
    ).forgotten == 1
    await service.close()
    read_only = await open_service(paths, settings.model_copy(update={"read_only": True}))
    with pytest.raises(Denied, match="read-only"):
        await read_only.purging.apply(ANA, own)
    assert (await read_only.purging.plan(ANA, own)).copies == ()
    await read_only.close()


async def test_the_copy_in_the_object_store_and_of_other_machines_is_renewed(
    paths: Paths, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/store"
    service = await open_service(paths, load_settings(paths, principal="user:ana", archive_url=url))
    told = await tell(service, OF_PROJECT)
    await forget(service, OF_PROJECT, told.note, told.fact)
    await service.analysis.seal(ANA, everything=True)
    elsewhere, store = find_paths(tmp_path / "elsewhere"), find_paths(tmp_path / "store")
    database = f"sqlite:///{paths.database}"
    other = await open_service(
        elsewhere, load_settings(elsewhere, database_url=database, archive_url=url)
    )
    await other.analysis.fetch(ANA)
    assert places_of(WORDS, store, "")
    done = await service.purging.apply(ANA, PurgeRequest(project_id="apollo"))
    assert "object store" in {one.place for one in done.copies}
    assert places_of(WORDS, store, "") == []
    assert (await other.analysis.verify_chain(ANA)).problem is not None
    await other.analysis.fetch(ANA)
    assert places_of(WORDS, find_paths(elsewhere.archive), "") == []
    assert (await other.analysis.verify_chain(ANA)).problem is None
    await other.close()
    await service.analysis.seal(ANA, everything=True)
    await service.close()


async def test_the_apps_own_files_lose_what_names_it(service: MemoryService, paths: Paths) -> None:
    told = await tell(service, OF_PROJECT)
    await forget(service, OF_PROJECT, told.fact, told.note)
    said = "launch_door: the rhubarb channel of the hall"
    lines = 'The launch code is marmalade\non the "second" shelf — über all'
    written = [json.dumps(lines), json.dumps(lines, ensure_ascii=False)]
    scope = OF_PROJECT.model_dump()
    session = {
        "companies": {"local": {"scope": scope, "filter_line": said}},
        "filters": [said, "x"],
        "kept": {said: 1, "y": [*written, "z"]},
    }
    paths.session_file.write_text(json.dumps(session))
    logs = [paths.log_file, paths.log_file.with_name("memtui.log.1")]
    for log in logs:
        log.write_text(f"one\nwent wrong with {said!r}\nthree\n")
    fact = told.fact.provider_record_id
    drafts = {"1": said, "2": "Says nothing of it by now", "3": "Of another"}
    for name, text in drafts.items():
        (paths.data / f"draft-{name}").mkdir()
        (paths.data / f"draft-{name}" / "record.md").write_text(text)
    for name, record_id in (("2", fact), ("3", told.other.provider_record_id)):
        (paths.data / f"draft-{name}" / "of.json").write_text(json.dumps(["default", record_id]))
    record = PurgeRequest(record_id=told.fact.provider_record_id)
    done = await service.purging.apply(ANA, record)
    assert done.left == ()
    assert json.loads(paths.session_file.read_text()) == {
        "companies": {"local": {"scope": scope, "filter_line": ""}}, "filters": ["x"],
        "kept": {"y": [*written, "z"]},
    }  # fmt: skip
    assert [log.read_text() for log in logs] == ["one\nthree\n"] * 2
    assert [one.name for one in paths.data.glob("draft-*")] == ["draft-3"]
    await service.purging.apply(ANA, PurgeRequest(project_id="apollo"))
    left = json.loads(paths.session_file.read_text())
    assert left["companies"]["local"]["scope"] is None
    assert left["kept"] == {"y": ["z"]}


async def test_of_a_text_of_several_lines_none_is_left_in_the_log_file(
    service: MemoryService, paths: Paths
) -> None:
    said = "The rhubarb channel\nis in the hall,\nbehind the clock."
    request = WriteRequest(scope=OF_PROJECT, source=SOURCE, content=said)
    note = (await service.write(ANA, request)).handles[0]
    traceback = f"Traceback\n  raise\nRuntimeError: not for {said} Again.\n"
    paths.log_file.write_text(f"one\n{traceback}two\nin JSON {json.dumps(said)}\nthree\n")
    await forget(service, OF_PROJECT, note)
    record = PurgeRequest(record_id=note.provider_record_id)
    done = await service.purging.apply(ANA, record)
    assert done.left == ()
    assert paths.log_file.read_text() == "one\nTraceback\n  raise\ntwo\nthree\n"


async def test_filters_and_statements_that_name_a_subject_go_with_it(
    service: MemoryService, paths: Paths
) -> None:
    about = [
        "subject:zoë", 'type:write subject:"zoë"', "SELECT 1 WHERE subject_id = 'zoë'",
        "type:write user:zoë", "-User:zoë", "user:zoë,bea", "subject:bea,zoë,cy",
    ]  # fmt: skip
    others = ["subject:zoëlle", "user:zoëlle,bea", "by:user:zoë", "principal = 'user:zoë'", "zoë"]
    paths.queries_file.write_text(json.dumps([*about, *others]))
    await service.purging.apply(ANA, PurgeRequest(subject_id="zoë"))
    assert json.loads(paths.queries_file.read_text()) == others


async def test_where_a_subjects_memory_came_from_bears_its_name_no_more(
    service: MemoryService, paths: Paths
) -> None:
    for scope, name in ((OF_BEA, "bea"), (OF_OTHERS, "gem")):
        source = SOURCE.model_copy(
            update={"activity_id": f"act-chat-{name}-0", "comment_id": f"{name}-17"}
        )
        content = f"The {name} channel is the rhubarb one of the hall"
        written = await service.write(
            ANA, WriteRequest(scope=scope, source=source, content=content)
        )
        await forget(service, scope, *written.handles)
    await service.purging.apply(ANA, PurgeRequest(subject_id=OF_BEA.subject_id))
    assert places_of(("act-chat-bea", "bea-17"), paths, "") == []
    assert places_of(("act-chat-gem", "gem-17"), paths, "") != []


@pytest.mark.parametrize("provider", ["facts", "plugin-v1"])
async def test_what_other_providers_leave_in_the_home_goes_too(
    service: MemoryService, paths: Paths, provider: str
) -> None:
    async with serve(talk(Reference())) as url:
        config = {"url": url} if provider == "plugin-v1" else {}
        await service.bindings.add(ANA, "beside", provider, config)
        request = WriteRequest(
            scope=OF_PROJECT, source=SOURCE, content="Only marmalade opens the launch channel",
            kind="fact", binding_key="beside",
        )  # fmt: skip
        [handle] = (await service.write(ANA, request)).handles
        asked = QueryRequest(scope=OF_PROJECT, query="launch channel", binding_key="beside")
        await service.query(ANA, asked)
        gone = ForgetRequest(scope=OF_PROJECT, handles=(handle,), binding_key="beside")
        await service.forget(ANA, gone)
        purge = PurgeRequest(record_id=handle.provider_record_id)
        done = await service.purging.apply(ANA, purge)
        assert done.left == ()
        assert (provider == "plugin-v1") == any("plugin of beside" in one for one in done.beyond)
        await service.close()
    assert places_of(("marmalade", handle.provider_record_id), paths, "") == []


async def test_a_user_is_purged_where_the_provider_keeps_the_project_alone(
    service: MemoryService, paths: Paths
) -> None:
    await service.bindings.add(ANA, "table", "facts", {})
    of_both = OF_PROJECT.model_copy(update={"subject_id": OF_BEA.subject_id})

    async def write(content: str, scope: Scope, record_id: str | None = None) -> RecordHandle:
        request = WriteRequest(
            scope=scope, source=SOURCE, content=content, kind="fact", binding_key="table",
            record_id=record_id, mode=WriteMode.UPSERT if record_id else WriteMode.APPEND,
        )  # fmt: skip
        [handle] = (await service.write(ANA, request)).handles
        return handle

    [mine, ours, theirs] = [
        await write("Only marmalade for breakfast", of_both),
        await write("The channel is strawberry red", OF_PROJECT),
        await write("The rhubarb grows by the gate", OF_OTHERS),
    ]
    # What was the project's before stays the project's.
    await write("The channel is quince yellow", of_both, ours.provider_record_id)
    asked = PurgeRequest(subject_id=OF_BEA.subject_id, forget=True)
    plan = await service.purging.plan(ANA, asked)
    assert [one.record_id for one in plan.living] == [mine.provider_record_id]
    await service.purging.apply(ANA, asked)
    page = await service.browse(
        ANA, BrowseRequest(scope=Scope(company_id="local"), binding_key="table")
    )
    assert {one.handle for one in page.records} == {ours, theirs}
    await service.close()
    assert places_of(("marmalade",), paths, "") == []


async def test_what_began_at_the_moment_itself_is_not_before_it(
    paths: Paths, settings: Settings
) -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    now = [moment]
    service = await open_service(paths, settings, clock=lambda: now[0])
    for microseconds in (-1, 0, 1):
        now[0] = moment + timedelta(microseconds=microseconds)
        await service.query(ANA, QueryRequest(scope=OF_PROJECT, query="where"))
    await service.purging.apply(ANA, PurgeRequest(before=moment))
    queries = (await service.log.page(ANA, Filter(operation_type="query"))).operations
    assert [one.request.get("query") for one in queries] == ["where", "where", None]
    await service.close()


async def test_a_record_is_purged_in_every_binding_that_knew_its_id(service: MemoryService) -> None:
    for key in ("second", "third"):
        await service.bindings.add(ANA, key, "facts", {})
    said = {
        "default": "The red channel",
        "second": "The blue channel",
        "third": "The green channel",
    }
    for key, text in said.items():
        wrote = WriteRequest(
            scope=OF_PROJECT, source=SOURCE, content=text, kind="fact", binding_key=key,
            record_id="the-channel",
        )  # fmt: skip
        [handle] = (await service.write(ANA, wrote)).handles
        name = MemoryName(memory_id="m", record_id=handle.provider_record_id, namespace="n")
        await service.plugin.note(ANA, key, [name])
        gone = ForgetRequest(scope=OF_PROJECT, handles=(handle,), binding_key=key)
        await service.forget(ANA, gone)
        said[key] = handle.provider_record_id
    for record_id in set(said.values()):
        await service.purging.apply(ANA, PurgeRequest(record_id=record_id))
    for key, record_id in said.items():
        assert await service.plugin.names(ANA, key, record_ids=[record_id]) == []


@pytest.mark.parametrize("undone", [False, True])
async def test_a_purge_spares_what_was_written_under_an_id_that_was_given_up(
    service: MemoryService, tmp_path: Path, *, undone: bool
) -> None:
    graph = tmp_path / "graph.jsonl"
    graph.touch()
    await service.bindings.add(ANA, "graph", "mcp-memory", {"path": str(graph)})

    async def write(text: str) -> RecordHandle:
        request = WriteRequest(
            scope=OF_BEA, source=SOURCE, content=text, kind="fact", binding_key="graph"
        )
        return (await service.write(ANA, request)).handles[0]

    blue = await write("Likes blue")
    to_green = CorrectRequest(scope=OF_BEA, handle=blue, text="Likes green", binding_key="graph")
    [green] = (await service.correct(ANA, to_green)).handles
    if undone:  # what was corrected is there again, and the other is written beside it
        await service.undo(ANA)
        assert await write("Likes green") == green
    else:
        assert await write("Likes blue") == blue
    await service.query(
        ANA, QueryRequest(scope=OF_BEA, query="likes blue green", binding_key="graph")
    )
    both = [blue.provider_record_id, green.provider_record_id]
    counts = await service.log.retrieval_stats(ANA, "graph", both)
    assert {name: one.count for name, one in counts.items()} == dict.fromkeys(both, 1)
    for one in (blue, green):
        assert (await service.history(ANA, one, OF_BEA, binding_key="graph")).handle == one
    erase = PurgeRequest(record_id=both[0], binding_key="graph", forget=True)
    await service.purging.apply(ANA, erase)
    page = await service.browse(ANA, BrowseRequest(scope=OF_BEA, binding_key="graph"))
    assert [one.text for one in page.records] == ["Likes green"]


async def test_an_id_that_an_undo_brought_back_is_the_records_again(
    service: MemoryService, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.jsonl"
    graph.touch()
    await service.bindings.add(ANA, "graph", "mcp-memory", {"path": str(graph)})
    request = WriteRequest(
        scope=OF_BEA, source=SOURCE, content="color: blue", kind="fact", binding_key="graph"
    )
    [blue] = (await service.write(ANA, request)).handles
    to_green = CorrectRequest(scope=OF_BEA, handle=blue, text="color: green", binding_key="graph")
    [green] = (await service.correct(ANA, to_green)).handles

    async def is_at(now: RecordHandle, undone: MutationAnswer) -> None:
        assert undone.handles == (now,)
        for one in (blue, green):
            found = await service.history(ANA, one, OF_BEA, binding_key="graph")
            assert found.handle == now
            assert (await service.get(ANA, one, OF_BEA, binding_key="graph")).record.handle == now

    undone = await service.undo(ANA)
    await is_at(blue, undone)
    redone = await service.undo(ANA, undone.operation_id)
    await is_at(green, redone)
    await is_at(blue, await service.undo(ANA, redone.operation_id))


async def test_what_stood_beside_a_fact_is_not_kept_with_its_neighbour(
    service: MemoryService, paths: Paths
) -> None:
    written = [
        WriteRequest(scope=OF_PROJECT, source=SOURCE, content=content, kind="fact")
        for content in ("first_door: the rhubarb channel of the hall", "second_door: blue")
    ]
    first, second = [(await service.write(ANA, one)).handles[0] for one in written]
    gone = await service.forget(ANA, ForgetRequest(scope=OF_PROJECT, handles=(second,)))
    await forget(service, OF_PROJECT, first)
    done = await service.purging.apply(ANA, PurgeRequest(record_id=first.provider_record_id))
    assert done.left == ()
    assert places_of(("rhubarb", "first_door"), paths, "") == []
    await service.undo(ANA, gone.operation_id)
    assert places_of(("rhubarb", "first_door"), paths, "") == []


async def test_a_purge_that_a_file_stops_says_how_it_goes_on(
    service: MemoryService, paths: Paths
) -> None:
    told = await tell(service, OF_PROJECT)
    vault = paths.data / "bindings" / "local" / "default" / "vault"
    note = vault / told.note.provider_record_id
    note.chmod(0o400)
    of_project = PurgeRequest(project_id="apollo", forget=True)
    with pytest.raises(Denied, match="So far the rest is only forgotten") as stopped:
        await service.purging.apply(ANA, of_project)
    [named] = re.findall(r"memtui undo (\S+)`", str(stopped.value))
    [fact] = (await service.undo(ANA, named)).records
    assert fact.handle == told.fact
    note.chmod(0o600)
    assert (await service.purging.apply(ANA, of_project)).left == ()
    assert places_of(WORDS, paths, "") == []
    assert (await service.analysis.verify_chain(ANA)).problem is None


async def test_a_record_that_is_held_goes_from_what_waits_too(
    service: MemoryService, paths: Paths, database_url: str
) -> None:
    told = await tell(service, OF_PROJECT)
    hold = ForgetRequest(scope=OF_PROJECT, handles=(told.note, told.fact))
    await service.review.hold(ANA, hold, "they came of something")
    [first, _] = await service.review.waiting(ANA)
    await service.review.refuse(ANA, first.pending_id)
    await service.forget(ANA, hold)
    for handle in hold.handles:
        done = await service.purging.apply(ANA, PurgeRequest(record_id=handle.provider_record_id))
        assert done.left == ()
    assert not await service.review.waiting(ANA)
    await service.close()
    assert places_of(WORDS, paths, database_url) == []
