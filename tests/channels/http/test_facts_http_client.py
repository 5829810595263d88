"""The facts-http provider over this server: two machines' services that speak the endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from memtui.backends.facts_http import FactsHttpAdapter
from memtui.config import find_paths, load_settings
from memtui.contract import (
    Adapter,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.testing.checks import ChangeChecks, Kit, WriteChecks
from tests.backends.facts_http import test_facts_http_conformance as conformance
from tests.channels.http.conftest import DRIVE
from tests.channels.http.plugin_server import empty, facts_over

ANA = Scope(company_id="local", subject_id="ana")
APOLLO = Scope(company_id="local", project_id=DRIVE)
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


class Client(Kit):
    """Each check begins with no facts on a server that all of them share."""

    capabilities = FactsHttpAdapter.capabilities

    home: ClassVar[Path]
    server: ClassVar[tuple[str, str]]

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        url, token = self.server
        context = self.context(
            tmp_path, url=url, token_secret="T", subject_id="ana", drives=["apollo", "gemini"]
        )
        adapter = await FactsHttpAdapter.open(
            context.model_copy(update={"secret": {"T": token}.get})
        )
        if not (tmp_path / "opened").exists():
            (tmp_path / "opened").touch()
            empty(self.home)
        return adapter


@pytest.mark.slow
class TestOverVault(Client, conformance.TestFactsHttp):
    """Every check that a provider must pass, asked through the wire."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.home = tmp_path_factory.mktemp("vault")
        with facts_over(cls.home, "vault", {"refresh_seconds": 0}) as cls.server:
            yield


@pytest.mark.slow
@pytest.mark.asyncio
class TestOverFacts(Client, WriteChecks, ChangeChecks):
    """What depends on how the facts are kept."""

    test_write_then_get = conformance.TestFactsHttp.test_write_then_get
    test_creation_time_is_kept = conformance.TestFactsHttp.test_creation_time_is_kept
    test_correct = conformance.TestFactsHttp.test_correct

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.home = tmp_path_factory.mktemp("facts")
        with facts_over(cls.home, "facts", {}) as cls.server:
            yield


@pytest.fixture
async def client_service(
    tmp_path: Path,
    memories: MemoryService,
    caller: Caller,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[MemoryService]:
    """Another home, whose company is bound to the server."""
    made = await memories.tokens.add(caller, "other machine", "user:ana")
    monkeypatch.setenv("TOK", made.token)
    paths = find_paths(tmp_path / "other")
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    config = {"url": url, "token_secret": "TOK", "subject_id": "ana", "drives": [DRIVE]}
    await service.bindings.add(caller, "hosted", "facts-http", config)
    await service.bindings.set_target(caller, "company", "local", "hosted")
    yield service
    await service.close()


async def texts(service: MemoryService, caller: Caller, scope: Scope) -> list[str]:
    page = await service.browse(caller, BrowseRequest(scope=scope, filter=Filter(kind="fact")))
    return sorted(record.text for record in page.records)


def fact(text: str, scope: Scope) -> WriteRequest:
    return WriteRequest(scope=scope, source=SOURCE, content=text, kind="fact")


async def test_write_browse_correct_forget_undo(
    client_service: MemoryService, memories: MemoryService, caller: Caller
) -> None:
    wrote = [
        await client_service.write(caller, fact("Likes tea. 日本語", ANA)),
        await client_service.write(caller, fact("Uses Go: always.", APOLLO)),
    ]
    for service in (client_service, memories):
        assert await texts(service, caller, ANA) == ["Likes tea. 日本語"]
        assert await texts(service, caller, APOLLO) == ["Uses Go: always."]
    old = wrote[1].records[0]
    change = CorrectRequest(
        scope=APOLLO, handle=old.handle, text="Uses Rust.", revision=old.revision
    )
    corrected = await client_service.correct(caller, change)
    assert await texts(memories, caller, APOLLO) == ["Uses Rust."]
    handles = (wrote[0].handles[0], corrected.handles[0])
    both = ANA.model_copy(update={"project_id": DRIVE})
    forgot = await client_service.forget(caller, ForgetRequest(scope=both, handles=handles))
    assert (len(forgot.handles), forgot.ghosts) == (2, ())
    assert await texts(memories, caller, ANA) == await texts(memories, caller, APOLLO) == []
    await client_service.undo(caller)
    assert await texts(memories, caller, ANA) == ["Likes tea. 日本語"]
    assert await texts(memories, caller, APOLLO) == ["Uses Rust."]


async def test_each_call_is_an_operation_on_both_sides(
    client_service: MemoryService, memories: MemoryService, caller: Caller
) -> None:
    await client_service.write(caller, fact("Once.", APOLLO))
    for service, channel in ((client_service, "test"), (memories, "http")):
        chosen = Filter(operation_type=OperationType.WRITE)
        (operation,) = (await service.log.page(caller, chosen)).operations
        assert (operation.principal, operation.channel) == ("user:ana", channel)
        assert operation.request["content"] == "Once."


async def test_refusals_come_through_as_they_were_meant(
    client_service: MemoryService, memories: MemoryService, caller: Caller
) -> None:
    wrote = await client_service.write(caller, fact("Once.", APOLLO))
    record = wrote.records[0]
    stale = ForgetRequest(
        scope=APOLLO,
        handles=(record.handle,),
        revisions={record.handle.provider_record_id: "another"},
    )
    with pytest.raises(Conflict):
        await client_service.forget(caller, stale)
    with pytest.raises(Invalid, match="200"):
        await client_service.write(
            caller.model_copy(update={"principal": "user:ana"}), fact("x" * 201, APOLLO)
        )
    await memories.tokens.remove(caller, "other machine")
    with pytest.raises(Denied, match="token"):
        await texts(client_service, caller, ANA)
