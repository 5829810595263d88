"""What waits for review: its badge, its queue, and deciding with a key."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    OperationType,
    Scope,
    WriteRequest,
)
from memtui.presenters.format import ABOUT_SECOND_YES
from memtui.screens.following import tells_of_review
from memtui.screens.review import ReviewScreen, rule_words
from memtui.service import (
    Caller,
    Membership,
    MemoryService,
    ReviewRule,
    Role,
    RuleAction,
    RuleTest,
)
from memtui.widgets.editor import OneLineArea
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, type_at_once, until, write_notes

ANA = Caller(company_id="local", principal="user:ana", channel="test")
BOT = Caller(company_id="local", principal="agent:bot", channel="mcp")
SCOPE = Scope(company_id="local", project_id="mech")


async def texts(service: MemoryService) -> list[str]:
    page = await service.browse(ANA, BrowseRequest(scope=SCOPE))
    return sorted(one.text for one in page.records)


async def shows(pilot: Pilot[Any], app: MemtuiApp, words: str) -> None:
    await until(pilot, lambda: words in " ".join(screen_text(app).split()))


async def test_to_look_at_what_waits_is_no_news_of_it(service: MemoryService) -> None:
    [note] = await write_notes(service, ANA, ["Deploys happen from main"])
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(ANA, "default", rule)
    request = WriteRequest(scope=SCOPE, source=note.source, content="A finding")
    held = await service.write(BOT, request)
    await service.review.show(ANA, held.operation_id)
    await service.review.refuse(ANA, held.operation_id, "no")
    page = await service.log.page(ANA, Filter(), limit=3)
    told = [(one.operation_type.value, tells_of_review(one)) for one in page.operations]
    assert told == [("review", True), ("get", False), ("write", True)]


def test_why_a_write_waits_is_said_in_words() -> None:
    assert rule_words("hold all") == "hold all that agents write"
    assert rule_words("hold per-run 5") == "hold what a run writes after its first 5"
    assert rule_words("hold of-a-later-version x") == "hold of-a-later-version x"


@pytest.mark.slow
async def test_a_person_decides_on_what_agents_wrote(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    [kept] = await write_notes(service, ANA, ["Deploys happen from main"])
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(ANA, "default", rule)
    change = CorrectRequest(scope=SCOPE, handle=kept.handle, text="Deploys happen from evil")
    await service.correct(BOT, change)
    for text in ("First \x1b[2Jfinding", "Second finding", "Third finding"):
        request = WriteRequest(scope=SCOPE, source=kept.source, content=text)
        await service.write(BOT, request)
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await shows(pilot, app, "◔ 4 held")
        await pilot.press("Q")
        await shows(pilot, app, "- Deploys happen from main + Deploys happen from evil")
        assert isinstance(app.screen, ReviewScreen)
        looked = await service.log.page(
            ANA, Filter(operation_type=OperationType.GET, channel="tui")
        )
        assert [one.status for one in looked.operations] == ["ok"]

        await pilot.press("a")
        await until(pilot, lambda: any("Accepted 1 write" in one for one in toasts(app)))
        assert await texts(service) == ["Deploys happen from evil"]
        await shows(pilot, app, "First ␛[2Jfinding")
        await pilot.press("u", "y")
        await shows(pilot, app, "4 writes")
        assert await texts(service) == ["Deploys happen from main"]

        type_at_once(app, "d", *"mine", "escape", "G", "d", *"no", "enter", "d", *"nor", "enter")
        await shows(pilot, app, "2 writes")
        log = await service.log.page(ANA, Filter(operation_type=OperationType.REVIEW))
        refused = [one for one in log.operations if one.request["decision"] == "refuse"]
        assert [one.request["reason"] for one in refused] == ["nor", "no"]
        type_at_once(app, "u", "y")
        await shows(pilot, app, "3 writes")

        await service.write(ANA, WriteRequest(scope=SCOPE, source=kept.source, content="By hand"))
        await service.correct(ANA, change.model_copy(update={"text": "Deploys happen from trunk"}))
        await pilot.press("g", "r")
        await shows(pilot, app, "has changed since this write was held")
        type_at_once(app, "r", "a")  # it is not read again yet
        await shows(pilot, app, "would change has changed since")
        await pilot.press("y")
        await shows(pilot, app, "2 writes")
        assert "Deploys happen from evil" in await texts(service)

        await pilot.press("A")
        await shows(pilot, app, "accept 2")
        await pilot.press("a", "y")
        await shows(pilot, app, "Nothing waits for review.")
        assert len(await texts(service)) == 4
        type_at_once(app, "H", *"looks like", "enter", "down", "enter")
        await until(
            pilot,
            lambda: any("refuse text that looks like an instruction" in one for one in toasts(app)),
        )
        [binding] = await service.bindings.all(ANA)
        refused_too = ReviewRule(action=RuleAction.REFUSE, test=RuleTest.INSTRUCTION)
        assert binding.review == (rule, refused_too)
        await pilot.press("escape")
        await until(pilot, lambda: "held" not in screen_text(app).splitlines()[0])


async def test_a_correction_whose_record_is_gone_is_not_offered(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    [kept] = await write_notes(service, ANA, ["Deploys happen from main"])
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(ANA, "default", rule)
    change = CorrectRequest(scope=SCOPE, handle=kept.handle, text="Deploys happen from evil")
    await service.correct(BOT, change)
    await service.forget(ANA, ForgetRequest(scope=SCOPE, handles=(kept.handle,)))
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await shows(pilot, app, "◔ 1 held")
        await pilot.press("Q")
        await shows(pilot, app, "The record that it would change is gone")
        await pilot.press("a")
        await until(pilot, lambda: any("refuse it with d" in one for one in toasts(app)))
        assert isinstance(app.screen, ReviewScreen)
        await pilot.press("d", "enter")
        await shows(pilot, app, "Nothing waits for review.")


async def test_a_fact_is_fixed_on_one_line_and_kept_where_it_cannot_be_accepted(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    [kept] = await write_notes(service, ANA, ["Deploys happen from main"])
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(ANA, "default", rule)
    about = {"scope": SCOPE, "source": kept.source}
    await service.write(BOT, WriteRequest(**about, content="Likes te", kind="fact"))
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await shows(pilot, app, "◔ 1 held")
        await pilot.press("Q")
        await shows(pilot, app, "+ Likes te")
        await pilot.press("e")
        await shows(pilot, app, "enter accept")
        app.screen.query_one(OneLineArea).insert("a" * 200)
        await pilot.press("enter")
        await until(pilot, lambda: "Your text is kept; e on the write takes it up." in toasts(app))
        assert any("at most 200 characters" in one for one in toasts(app))
        await pilot.press("escape", "q")
        await shows(pilot, app, "throw away 1 text that is not saved")
        await pilot.press("escape", "Q")
        await shows(pilot, app, "+ Likes te")
        await pilot.press("e")
        await shows(pilot, app, "This is your draft")
        area = app.screen.query_one(OneLineArea)
        assert area.text == f"Likes te{'a' * 200}"
        area.text = "Likes tea"
        await pilot.press("enter")
        await until(pilot, lambda: any("accepted 1 write" in one for one in toasts(app)))
        assert not app.state.mended
    assert "Likes tea" in await texts(service)


@pytest.mark.slow
async def test_a_change_of_a_binding_is_agreed_to_by_a_second_person(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    for who in ("user:ana", "user:ben"):
        await service.members.set(ANA, Membership(principal=who, role=Role.OWNER))
    async with running(paths, settings, "bindings", (120, 40)) as (app, pilot):
        await shows(pilot, app, "vault·default")
        await pilot.press("g", "e")
        await shows(pilot, app, ABOUT_SECOND_YES[:60])
        await pilot.press("tab", "space", "ctrl+s")
        await shows(pilot, app, "on: changes of bindings")
    assert (await service.companies.get(ANA)).second_yes
    ben = settings.model_copy(update={"principal": "user:ben"})
    async with running(paths, ben, "bindings", (120, 40)) as (app, pilot):
        await shows(pilot, app, "vault·default")
        await pilot.press("down", "exclamation_mark")
        await until(pilot, lambda: "until another owner or admin accepts it" in str(toasts(app)))
        await shows(pilot, app, "◔ 1 held")
        await pilot.press("Q")
        await shows(pilot, app, "You proposed this")
        await pilot.press("a")
        await until(pilot, lambda: "You proposed this" in str(toasts(app)))
    [own] = await service.review.waiting(ANA)
    assert own.principal == "user:ben"
    ana = settings.model_copy(update={"principal": "user:ana"})
    async with running(paths, ana, "bindings", (120, 40)) as (app, pilot):
        await shows(pilot, app, "◔ 1 held")
        await pilot.press("Q")
        await shows(pilot, app, "+ read_only: true")
        await pilot.press("a")
        await until(pilot, lambda: any("Accepted 1 write" in one for one in toasts(app)))
        await pilot.press("escape", "g", "e")
        await shows(pilot, app, ABOUT_SECOND_YES[:60])
        await pilot.press("tab", "space", "ctrl+s")
        await until(pilot, lambda: "until another owner or admin accepts it" in str(toasts(app)))
        await shows(pilot, app, "on: changes of bindings")
    assert [one.read_only for one in await service.bindings.all(ANA)] == [True]
    [off] = await service.review.waiting(ANA)
    assert (off.is_own, (await service.companies.get(ANA)).second_yes) == (True, True)


@pytest.mark.slow
async def test_what_was_held_together_is_decided_on_as_one(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    notes = await write_notes(service, ANA, ["First trick", "Second trick", "A good note"])
    handles = tuple(one.handle for one in notes[:2])
    for some in (handles, (notes[2].handle,)):
        await service.review.hold(ANA, ForgetRequest(scope=SCOPE, handles=some), "a forum")
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await shows(pilot, app, "◔ 3 held")
        await shows(pilot, app, "◔")
        await pilot.press("Q")
        await shows(pilot, app, "No agent gets any of it until a person decides.")
        await pilot.press("a")
        await shows(pilot, app, "It is one of 2: a forum")
        await pilot.press("escape")
        await shows(pilot, app, "3 writes")
        await pilot.press("a", "enter")
        await shows(pilot, app, "Accept 2 removals?")
        await pilot.press("y")
        await until(pilot, lambda: any("Accepted 2 removals" in one for one in toasts(app)))
        assert await texts(service) == ["A good note"]
        await shows(pilot, app, "1 write")
        await pilot.press("d", *"fine", "enter")
        await until(pilot, lambda: any("Refused 1 removal" in one for one in toasts(app)))
        asked = BrowseRequest(scope=SCOPE)
        assert [one.text for one in (await service.browse(BOT, asked)).records] == ["A good note"]
