"""Deciding on several pending writes leaves the same from wherever it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, CorrectRequest, WriteRequest
from memtui.screens.review import ReviewScreen
from memtui.service import MemoryService, ReviewRule, RuleAction, RuleTest
from memtui.service.usecases.deciding import decide
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, until
from tests.service.usecases.ways import (
    ANA,
    BOT,
    PERSON,
    SOURCE,
    WAYS,
    Command,
    Way,
    last,
    logged,
    remember,
)


@pytest.mark.parametrize("way", WAYS)
async def test_what_waits_is_accepted_but_for_what_changed_meanwhile(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    [fact] = await remember(service, "Likes tea")
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    change = CorrectRequest(scope=ANA, handle=fact.handle, text="Likes beer")
    for text in ("Writes Lua", "Has a cat"):
        await service.write(BOT, WriteRequest(scope=ANA, source=SOURCE, content=text))
    await service.correct(BOT, change)
    await service.correct(PERSON, change.model_copy(update={"text": "Likes mate"}))
    begun = await last(service)
    if way == "service":
        waiting = await service.review.waiting(PERSON)
        found = await decide(service, PERSON, waiting, RuleAction.ACCEPT)
        assert [one.text for one, _ in found.failed] == ["Likes beer"]
    elif way == "command":
        assert (await command("review", "accept", "--all")).code == 5
    else:
        async with running(paths, settings, "records") as (app, pilot):
            await pilot.press("Q")
            await until(pilot, lambda: isinstance(app.screen, ReviewScreen))
            await until(pilot, lambda: "3 writes" in screen_text(app))
            await pilot.press("A", "a", "y")
            await until(pilot, lambda: "Accepted 2 writes; u undoes them." in toasts(app))
            await until(pilot, lambda: "1 write" in screen_text(app))
    assert [one.text for one in await service.review.waiting(PERSON)] == ["Likes beer"]
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    assert {one.text for one in page.records} == {"Likes mate", "Writes Lua", "Has a cat"}
    changes = [(one["type"], one["status"], one["group"]) for one in await logged(service, begun)]
    assert changes == [("write", "ok", 1), ("write", "ok", 1), ("correct", "conflict", 1)]
    await service.undo_together(PERSON)
    assert len(await service.review.waiting(PERSON)) == 3


@pytest.mark.parametrize("way", WAYS)
async def test_what_waits_in_another_program_is_decided_on_beside_memtuis_own(
    way: Way,
    service: MemoryService,
    command: Command,
    paths: Paths,
    settings: Settings,
    tmp_path: Path,
) -> None:
    folder, pending = tmp_path / "hermes" / "memories", tmp_path / "hermes" / "pending" / "memory"
    folder.mkdir(parents=True)
    pending.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("No weekends.")
    staged = {
        "0a0a0a0a": {"action": "add", "content": "Ask [b]Bo\x1b[31m."},
        "0b0b0b0b": {"action": "replace", "old_text": "weekends", "content": "No Fridays."},
        "0c0c0c0c": {"action": "remove", "old_text": "Sundays"},
    }
    for at, (name, payload) in enumerate(staged.items()):
        one = {"id": name, "payload": payload, "created_at": 1_700_000_000 + at}
        (pending / f"{name}.json").write_text(json.dumps(one))
    before = {one.name: one.read_bytes() for one in pending.iterdir()}
    await service.bindings.add(PERSON, "hermes", "hermes", {"path": str(folder)})
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    await service.write(BOT, WriteRequest(scope=ANA, source=SOURCE, content="Likes tea"))
    begun = await last(service)
    if way == "service":
        waiting = await service.review.waiting(PERSON)
        found = await decide(service, PERSON, waiting, RuleAction.ACCEPT)
        assert [one.text for one, _ in found.failed] == ["- Sundays"]
    elif way == "command":
        listed = (await command("review", "list", "--json")).document["waiting"]
        assert [one["reasons"][0] for one in listed] == ["waits in hermes"] * 3 + ["hold all"]
        shown = await command("review", "show", listed[1]["pending_id"], "--json")
        assert shown.document["differences"][0]["after"]["text"] == "No Fridays."
        assert (await command("review", "accept", "--all")).code != 0
    else:
        async with running(paths, settings, "records") as (app, pilot):
            await pilot.press("Q")
            await until(pilot, lambda: "4 writes" in screen_text(app))
            await until(pilot, lambda: "Ask [b]Bo␛[31m." in screen_text(app))
            await pilot.press("A", "a", "y")
            await until(pilot, lambda: "Accepted 3 writes; u undoes them." in toasts(app))
            await until(pilot, lambda: "No entry has" in screen_text(app))
    assert (folder / "MEMORY.md").read_text() == "No Fridays.\n§\nAsk [b]Bo\x1b[31m."
    assert [one.name for one in pending.iterdir()] == ["0c0c0c0c.json"]
    changes = [(one["type"], one["status"]) for one in await logged(service, begun)]
    assert sorted(changes) == [
        ("review", "error"), ("review", "ok"), ("review", "ok"), ("write", "ok"),
    ]  # fmt: skip
    await service.undo_together(PERSON)
    assert (folder / "MEMORY.md").read_text() == "No weekends."
    assert {one.name: one.read_bytes() for one in pending.iterdir()} == before
    assert len(await service.review.waiting(PERSON)) == 4
