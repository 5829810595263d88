"""What `memtui bindings conformance --forgetting` finds out, over real providers and bad ones."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    ContextBundle,
    Denied,
    Filter,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    OperationType,
    QueryRequest,
    Record,
    Scope,
    SourceRef,
    SyncReply,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.service import MemoryService, open_service
from memtui.service.answers import ReviewRule, RuleAction, RuleTest
from memtui.service.home.survey import PurgeRequest
from memtui.service.usecases.really_gone import GoneReport, check_forgetting
from tests.backends.test_every_writable import FOLDERS, PROGRAMS
from tests.homes import furnish
from tests.service.fake import FakeAdapter, down
from tests.service.usecases.ways import PERSON, Command

WITHIN_S = 0.3
"""How long what never comes, or never goes, is waited for here."""


class Resurrecting(FakeAdapter):
    """Its next sync restores the records that were forgotten."""

    key = "resurrecting"
    forgotten: ClassVar[dict[str, Record]] = {}

    def __init__(self, context: object) -> None:
        super().__init__(context)  # type: ignore[arg-type]
        self.capabilities = self.capabilities.model_copy(update={"sync": True})

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        for handle in request.handles:
            name = handle.provider_record_id
            self.forgotten[name] = self.held[name]
        return await super().forget(request)

    async def sync(self, source: SourceRef | None = None) -> SyncReply:
        self.held |= self.forgotten
        self.forgotten.clear()
        return SyncReply()


class DropsAll(FakeAdapter):
    """It forgets everything with the first that it is to forget."""

    key = "drops-all"

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        self.held.clear()
        return await super().forget(request)


class Lazy(FakeAdapter):
    """It forgets only the first of several memories."""

    key = "lazy"

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        return await super().forget(request.model_copy(update={"handles": request.handles[:1]}))


class Lagging(FakeAdapter):
    """Its searches find what is forgotten a few times more, and its lists do not."""

    key = "lagging"
    lag: ClassVar[int] = 0

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        type(self).lag = 9
        self.before = list(self.held.values())
        return await super().forget(request)

    async def query(self, request: QueryRequest) -> ContextBundle:
        if not self.lag:
            return await super().query(request)
        type(self).lag -= 1
        now, self.held = self.held, {str(n): one for n, one in enumerate(self.before)}
        try:
            return await super().query(request)
        finally:
            self.held = now


class Deriving(FakeAdapter):
    """It keeps a summary of each record, which stays when the record is forgotten."""

    key = "deriving"

    async def write(self, request: WriteRequest) -> WriteReply:
        reply = await super().write(request)
        if request.kind == "note":
            summary = {"content": f"In short: {request.content}", "kind": "summary"}
            await super().write(request.model_copy(update=summary))
        return reply


class Deaf(FakeAdapter):
    """It fails to answer once it has forgotten something."""

    key = "deaf"

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        reply = await super().forget(request)
        type(self).fault = down()
        return reply


class Silent(FakeAdapter):
    """It stores what it is given, and never finds it."""

    key = "silent"

    async def query(self, request: QueryRequest) -> ContextBundle:
        return ContextBundle()

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        return BrowsePage()

    async def get(self, handle: object, scope: Scope) -> None:
        return None


BAD = {one.key: one for one in (Resurrecting, DropsAll, Lazy, Lagging, Deriving, Deaf, Silent)}


@pytest.fixture
async def service(paths: Paths, settings: Settings, begun: Path) -> AsyncIterator[MemoryService]:
    furnish(paths, settings, begun)
    FakeAdapter.reset()
    opened = await open_service(paths, settings, providers={"fake": FakeAdapter, **BAD})
    yield opened
    FakeAdapter.fault = Deaf.fault = None
    await opened.close()
    FakeAdapter.reset()


async def report_of(service: MemoryService, key: str, **config: object) -> GoneReport:
    """Add a binding of a provider, and check what it forgets."""
    await service.bindings.add(PERSON, key, key, dict(config))
    return await check_forgetting(service, PERSON, key, within_s=WITHIN_S)


def outcomes(report: GoneReport) -> dict[str, str]:
    return {one.name: one.outcome for one in report.probes}


def held(kind: type[FakeAdapter]) -> list[str]:
    return [one.text for records in kind.records.values() for one in records.values()]


async def test_what_the_vault_forgets_is_gone_and_what_remains_is_named(
    service: MemoryService, paths: Paths
) -> None:
    report = await check_forgetting(service, PERSON, "default")
    found = outcomes(report)
    assert found["what stays"] == "kept"
    assert {found[one] for one in ("words", "neighbour", "list", "id", "after re-index")} == {
        "gone"
    }
    assert [one.detail for one in report.probes if one.name == "after re-index"] == [
        "asked 5 times"
    ]
    assert report.gone_after_s is not None
    assert len(report.record_ids) == 3
    assert any(str(paths.data / "bindings") in one for one in report.traces)
    assert {"operation log", "undo journal"} <= {*report.copies}
    there = [one async for one in service.pages(PERSON, BrowseRequest(scope=PERSON_SCOPE))]
    assert [one for page in there for one in page.records] == []
    done = await service.purging.apply(PERSON, PurgeRequest(project_id=report.project_id))
    assert done.left == ()


PERSON_SCOPE = Scope(company_id=PERSON.company_id)


@pytest.fixture(params=["facts", "claude-memory", "letta", "gemini", "langgraph", "agno"])
def binding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Json]]:
    """A provider of another program, as this program leaves its folder or file."""
    programs = {one.key: made for one, made in PROGRAMS.items()}
    folders = {one.key: config for one, config in FOLDERS.items()}
    with ExitStack() as stack:
        config: Json = {}
        if request.param in programs:
            program, settings = programs[request.param]
            config = {"path": str(tmp_path / "program.db"), **settings}
            stack.enter_context(program(config["path"]))
        elif request.param in folders:
            folder = tmp_path / "memory"
            folder.mkdir()
            if request.param == "letta":
                subprocess.run(["git", "init", "-q", folder], check=True)
            config = {"path": str(folder), **folders[request.param]}
        yield request.param, config


async def test_each_provider_keeps_the_neighbour_and_finds_nothing_forgotten(
    service: MemoryService, binding: tuple[str, Json]
) -> None:
    key, config = binding
    await service.bindings.add(PERSON, key, key, config)
    left: list[str] = []
    report = await check_forgetting(service, PERSON, key, within_s=5, tell_leftovers=left.extend)
    found = outcomes(report)
    assert found["what stays"] == "kept"
    assert {found["words"], found["list"], found["id"]} == {"gone"}
    assert left == []
    if key == "letta":
        assert any("git history" in one for one in report.beyond)


async def test_a_ghost_is_found_by_every_way_that_finds_it(service: MemoryService) -> None:
    FakeAdapter.haunted = True
    await service.bindings.add(PERSON, "fake", "fake", {})
    left: list[str] = []
    report = await check_forgetting(
        service, PERSON, "fake", within_s=WITHIN_S, tell_leftovers=left.extend
    )
    found = outcomes(report)
    assert {found[one] for one in ("words", "neighbour", "list", "id")} == {"found"}
    assert report.gone_after_s is None
    assert len(left) == 4


async def test_what_a_sync_brings_back_is_found_after_it_and_removed_again(
    service: MemoryService,
) -> None:
    Resurrecting.forgotten.clear()
    report = await report_of(service, "resurrecting")
    found = outcomes(report)
    assert found["words"] == "gone"
    assert found["after re-index"] == "found"
    assert held(Resurrecting) == []


async def test_a_provider_that_drops_everything_is_seen(service: MemoryService) -> None:
    found = outcomes(await report_of(service, "drops-all"))
    assert found["words"] == "gone"
    assert found["what stays"] == "lost"


async def test_each_memory_that_is_still_found_is_counted(service: MemoryService) -> None:
    report = await report_of(service, "lazy")
    found = {one.name: one.detail for one in report.probes if one.outcome == "found"}
    assert {found["words"], found["list"], found["id"]} == {"2 of 3"}


async def test_what_is_found_for_a_while_is_asked_for_until_it_is_gone(
    service: MemoryService,
) -> None:
    await service.bindings.add(PERSON, "lagging", "lagging", {})
    report = await check_forgetting(service, PERSON, "lagging", within_s=60)
    assert outcomes(report)["words"] == "gone"
    assert report.gone_after_s


async def test_what_was_derived_is_found_by_the_word_it_repeats(service: MemoryService) -> None:
    found = outcomes(await report_of(service, "deriving"))
    assert found["id"] == "gone"
    assert {found["words"], found["list"]} == {"found"}
    assert held(Deriving) == []


async def test_a_provider_that_goes_down_is_no_provider_that_forgets(
    service: MemoryService,
) -> None:
    left: list[str] = []
    await service.bindings.add(PERSON, "deaf", "deaf", {})
    report = await check_forgetting(
        service, PERSON, "deaf", within_s=WITHIN_S, tell_leftovers=left.extend
    )
    found = outcomes(report)
    assert {found["words"], found["list"], found["what stays"]} == {"not asked"}
    assert len(left) == 1


async def test_what_is_never_found_is_no_proof(service: MemoryService) -> None:
    await service.bindings.add(PERSON, "silent", "silent", {})
    with pytest.raises(Unavailable, match="did not find what was written"):
        await check_forgetting(service, PERSON, "silent", within_s=WITHIN_S)


async def test_what_cannot_be_written_or_is_reviewed_is_refused_unasked(
    service: MemoryService,
) -> None:
    def never() -> None:
        raise AssertionError("nobody is asked where it is refused anyway")

    await service.bindings.add(PERSON, "fake", "fake", {})
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "fake", rule)
    agent = PERSON.model_copy(update={"principal": "agent:coding"})
    with pytest.raises(Denied, match="reviewed"):
        await check_forgetting(service, agent, "fake", agree=never)
    with pytest.raises(AssertionError, match="nobody is asked"):  # a person is not reviewed
        await check_forgetting(service, PERSON, "fake", agree=never)
    await service.bindings.update(PERSON, "fake", read_only=True)
    with pytest.raises(Denied, match="read-only"):
        await check_forgetting(service, PERSON, "fake", agree=never)
    assert "write" not in FakeAdapter.calls


async def test_nothing_is_written_where_a_person_does_not_agree(service: MemoryService) -> None:
    def refuses() -> None:
        raise Invalid("No.")

    await service.bindings.add(PERSON, "fake", "fake", {})
    with pytest.raises(Invalid):
        await check_forgetting(service, PERSON, "fake", agree=refuses)
    assert "write" not in FakeAdapter.calls


@pytest.mark.parametrize("written", [1, 4])
async def test_what_was_planted_is_removed_where_it_is_interrupted(
    service: MemoryService, written: int
) -> None:
    await service.bindings.add(PERSON, "fake", "fake", {})
    FakeAdapter.haunted = False
    FakeAdapter.delay = 0.02
    running = asyncio.ensure_future(check_forgetting(service, PERSON, "fake"))
    while FakeAdapter.calls.count("write") < written:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert held(FakeAdapter) == []
    assert FakeAdapter.calls.count("write") == 4


async def test_every_question_is_logged_in_the_scratch_project(service: MemoryService) -> None:
    report = await check_forgetting(service, PERSON, "default")
    page = await service.log.page(PERSON, limit=500)
    kinds = {one.operation_type.value for one in page.operations
             if one.scope.project_id == report.project_id}  # fmt: skip
    assert {"write", "forget", "query", "browse", "get", "history"} <= kinds
    asked = await service.log.page(PERSON, Filter(operation_type=OperationType.QUERY))
    assert not asked.operations  # nobody's questions


async def test_the_command_says_what_it_found_and_how_to_erase_memtuis_copies(
    command: Command,
) -> None:
    refused = await command("bindings", "conformance", "--forgetting", "default")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    words = "bindings", "conformance", "--forgetting", "default", "--yes"
    done = await command(*words, "--project", "scratch")
    assert done.code == 0, done.err
    assert "✓ gone" in done.out
    assert "✓ kept" in done.out
    document = (await command(*words, "--json")).document
    assert document["passed"] is True
    assert f"memtui purge --project {document['project_id']} --yes" not in done.out
    assert "`memtui purge projects/scratch/" in done.out
    project = document["project_id"]
    erased = await command("purge", "--project", project, "--yes")
    assert erased.code == 0, erased.out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--forgetting", "default", "http://localhost:1"], 2, "--forgetting takes a binding"),
        (["--yes", "http://localhost:1"], 2, "go with --forgetting"),
        (["--forgetting", "nowhere", "--yes"], 1, "nowhere"),
        (["--forgetting", "default", "--within", "0", "--yes"], 2, "within"),
    ],
)
async def test_bad_input_is_one_sentence(
    service: MemoryService, command: Command, words: Sequence[str], code: int, sentence: str
) -> None:
    done = await command("bindings", "conformance", *words)
    assert done.code == code
    assert sentence in done.err
    assert "Traceback" not in done.err
