"""What a binding's provider reads again and says of a scope, on screen 1."""

from __future__ import annotations

from typing import Any

from memtui.config import Paths, Settings
from memtui.contract import QueryRequest, Scope, SourceKind, SourceRef, Unavailable
from memtui.screens.bindings.company import CompanyForm
from memtui.screens.dialogs import Saving, Sheet
from memtui.service import Caller, MemoryService
from memtui.service.answers import CompanyView
from memtui.widgets.panes import OptionRows
from tests.screens.held import Gate
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import act, running, toasts, until, write_notes
from tests.screens.test_namespaces import to_binding


async def test_a_binding_is_read_again_and_says_what_it_knows(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "hosted", "demo-hosted", {})
    await service.bindings.set_target(caller, "project", "mech", "hosted")
    texts = HOSTILE[:8]
    await write_notes(service, caller, texts)
    await write_notes(service, caller, ["Deploys from main"], project="web")
    async with running(paths, settings, "bindings", size=(80, 24)) as (app, pilot):
        await to_binding(app, pilot, "default")
        await act(pilot, "bindings.profile")
        await until(pilot, lambda: "This provider makes no profiles." in toasts(app))
        await act(pilot, "bindings.sync")
        await until(pilot, lambda: "Saw 1 record, changed 0, removed 0" in screen_text(app))
        await pilot.press("escape")
        await to_binding(app, pilot, "hosted")
        await act(pilot, "bindings.profile")
        await until(pilot, lambda: f"{len(texts)} memories" in screen_text(app))
        assert isinstance(app.screen, Sheet)
        assert "What hosted says of the whole company" in screen_text(app)
        assert_harmless(screen_text(app))
        await pilot.press("escape")
        await act(pilot, "bindings.sync")
        await until(pilot, lambda: "This provider has nothing to sync." in toasts(app))
        await service.bindings.update(caller, "default", read_only=True)
        await to_binding(app, pilot, "default")
        refused = "The binding default is read-only; ! on it in Bindings opens it."
        await until(pilot, lambda: app.frame and app.frame.why_disabled("bindings.sync") == refused)
        await act(pilot, "bindings.sync")
        await until(pilot, lambda: refused in toasts(app))
        assert sum("being read again" in told for told in toasts(app)) == 1, "the one that could be"


async def test_the_cursor_stays_with_the_binding_of_a_target_that_is_gone(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "hosted", "demo-hosted", {})
    await service.bindings.set_target(caller, "project", "mech", "hosted")
    async with running(paths, settings, "bindings") as (app, pilot):
        await to_binding(app, pilot, "hosted")
        await pilot.press("down")
        await act(pilot, "bindings.clear_target")
        await until(pilot, lambda: "hosted no longer serves project mech." in toasts(app))
        await until(pilot, lambda: "→ project mech" not in screen_text(app))
        await pilot.press("l")
        await until(pilot, lambda: "Who should hosted serve?" in screen_text(app))


async def test_of_an_agent_what_it_did_is_shown_and_nothing_else(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    agent = Caller(company_id="local", principal="agent:coding", acts_for="user:ana", channel="mcp")
    mech = Scope(company_id="local", project_id="mech")
    await service.query(agent, QueryRequest(scope=mech, query="who owns billing"))
    await service.query(caller, QueryRequest(scope=mech, query="not the agent's"))
    in_run = agent.model_copy(update={"run_id": "run-7"})
    await service.agents.seen(in_run, mech, may_vanish=False)
    async with running(paths, settings, "bindings") as (app, pilot):

        async def to_agent(key: str, said: str) -> None:
            await until(pilot, lambda: "Connected now" in screen_text(app))
            await pilot.press(key)
            await until(pilot, lambda: said in screen_text(app))
            await pilot.press("o")

        await to_agent("G", "o shows all that it was given and did.")
        await until(pilot, lambda: app.frame is not None and app.frame.MODE == "operations")
        await until(pilot, lambda: "who owns billing" in screen_text(app))
        assert app.state.filter_line == "channel:mcp by:agent:coding"
        assert "not the agent's" not in screen_text(app)
        await pilot.press("1")
        await to_agent("up", "o replays its run step by step.")
        await until(pilot, lambda: "This run did nothing yet" in screen_text(app))


async def test_the_company_is_named_and_its_sources_get_links(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    before = await service.companies.get(caller)
    async with running(paths, settings, "bindings", size=(80, 24)) as (app, pilot):
        await until(pilot, lambda: app.screen.query_one(OptionRows).option_count > 1)
        await pilot.press("g", "e")
        await until(pilot, lambda: isinstance(app.screen, CompanyForm))
        form = app.screen
        assert isinstance(form, CompanyForm)
        form.fields["name"].widget.value = "Acme"  # type: ignore[attr-defined]
        comment = form.fields["issue_comment"].widget
        comment.value = "https://t/{isue_id}"  # type: ignore[attr-defined]
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "is not part of a source" in screen_text(app))
        assert form.focused is comment
        comment.value = "https://t/{issue_id}#{comment_id}"  # type: ignore[attr-defined]
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen_text(app).startswith(" Acme "))
        state = app.state.session
        assert state is not None
        ref = SourceRef(
            kind=SourceKind.ISSUE_COMMENT, company_id="local", issue_id="I-1", comment_id="2"
        )
        assert state.company.link(ref) == "https://t/I-1#2"
        await pilot.press("u")
        await until(pilot, lambda: "Undo the change of settings" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: screen_text(app).startswith(" Local "))
    assert await service.companies.get(caller) == before


async def test_what_a_company_is_saved_as_cannot_be_thrown_away_meanwhile(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    company, gate = await service.companies.get(caller), Gate()
    answers: list[CompanyView | None] = []

    async def save(**values: Any) -> CompanyView:
        await gate.through()
        return await service.companies.update(caller, **values)

    async with running(paths, settings, "bindings", size=(80, 24)) as (app, pilot):
        form = CompanyForm(company, save)
        await app.push_screen(form, answers.append)
        form.fields["name"].widget.value = "Acme"  # type: ignore[attr-defined]
        gate.close()
        await pilot.press("ctrl+s", "escape")
        await until(pilot, lambda: "it cannot be stopped any more" in screen_text(app))
        assert isinstance(app.screen, Saving)
        gate.error = Unavailable("The database is locked.")
        gate.open()
        await until(pilot, lambda: "The database is locked." in screen_text(app))
        gate.error = None
        gate.close()
        await pilot.press("ctrl+s", "question_mark")
        gate.open()
        await until(pilot, lambda: answers)
        assert not app.screen_stack[1:], "a key for the form went to what is behind it"
    assert answers == [await service.companies.get(caller)]
    assert answers != [company]
