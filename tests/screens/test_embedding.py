"""The embedding model changed while the app is open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import QueryRequest, Scope
from memtui.screens.dialogs import Choose, Confirm
from memtui.service import Caller, MemoryService
from tests.loopback import Embeddings
from tests.screens.hostile import screen_text
from tests.screens.piloting import act, running, toasts, until, write_notes


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtui.screens.following.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("memtui.app._EMBED_SECONDS", 0.05)


@pytest.fixture
def server() -> Iterator[Embeddings]:
    running_server = Embeddings()
    yield running_server
    running_server.stop()


def shows(app: MemtuiApp, words: str) -> bool:
    return words in " ".join(screen_text(app).split())


async def configure(service: MemoryService, caller: Caller, embedding: str) -> None:
    await service.bindings.update(caller, "default", config={"embedding": embedding})


async def test_searches_go_on_while_another_model_is_built(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, server: Embeddings
) -> None:
    await configure(service, caller, "static")
    await write_notes(service, caller, [f"Deploy number {number}." for number in range(70)])
    await service.embedding.build(caller, "default")
    async with running(paths, settings, "bindings", size=(200, 60)) as (app, pilot):
        server.gate.clear()
        await configure(service, caller, server.embedding)
        await until(pilot, lambda: server.calls)  # the app has begun
        await until(pilot, lambda: shows(app, "re-index: embedding 0/70"))
        assert shows(app, "static answers meanwhile")
        asked = QueryRequest(scope=Scope(company_id="local", project_id="mech"), query="deploy 7")
        assert (await service.query(caller, asked)).snippets
        await act(pilot, "bindings.embedding")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await until(pilot, lambda: "New texts in default are not embedded." in toasts(app))
        server.gate.set()
        await until(pilot, lambda: shows(app, "embedding 64/70"))
        await act(pilot, "bindings.embedding")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await until(pilot, lambda: shows(app, f"by meaning with {server.embedding}"))
        assert len(server.texts) == 70


async def test_texts_go_to_another_machine_after_a_yes(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one"])
    await configure(service, caller, "openai:https://llm.acme.invalid/v1#m")
    async with running(paths, settings, "bindings", size=(200, 60)) as (app, pilot):
        await until(pilot, lambda: shows(app, "embedding not confirmed"))
        await act(pilot, "bindings.embedding")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert shows(app, "Send the texts of default to https://llm.acme.invalid?")
        await pilot.press("y")
        await until(pilot, lambda: any("cannot be reached" in said for said in toasts(app)))
        [view] = await service.bindings.all(caller)
        assert view.agreed == ("https://llm.acme.invalid",)
        await act(pilot, "bindings.embedding")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("down", "enter")
        await until(pilot, lambda: shows(app, "embedding not confirmed"))
