from __future__ import annotations

import re

import pytest

from memtui.actions import ACTIONS, INPUT_GROUPS, SCREENS, groups_on
from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, Scope
from memtui.screens.changes import ChangesScreen
from memtui.screens.dialogs import Choose, Confirm
from memtui.screens.help import Help, group_help, group_title
from memtui.screens.keymap import load_keymap
from memtui.screens.modal import ModalListScreen
from memtui.screens.operations.proof import Proof
from memtui.screens.palette import Palette
from memtui.screens.timeline import TimelineScreen
from memtui.service import Caller, MemoryService
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, type_at_once, until, write_notes

WHY = {"app.scope": "Not today."}


def test_help_names_every_key_of_a_screen_and_why_one_does_not_work() -> None:
    keymap = load_keymap({"app.scope": "f7"})
    for tab in SCREENS:
        shown = group_help(groups_on(tab.mode), keymap, lambda name: WHY.get(name, "")).plain
        keys = set(re.findall(r"^  (\S+(?: \S+)*)  ", shown, re.MULTILINE))
        named = {key for one in keys for key in one.split()}
        for action in ACTIONS.values():
            if action.group in groups_on(tab.mode):
                assert not action.keys or keymap.label(action.id) in named, action.id
                found = group_help(
                    groups_on(tab.mode), keymap, str, 0, action.description.casefold()
                ).plain
                assert action.description in found
        assert "f7" in shown
        assert "(Not today.)" in shown


def test_the_keys_of_a_screen_fit_what_a_person_reads() -> None:
    for tab in SCREENS:
        groups = [one for one in groups_on(tab.mode) if one not in INPUT_GROUPS]
        shown = group_help(groups, load_keymap({}), lambda _: "").plain
        rows = [line for line in shown.splitlines() if line.startswith("  ")]
        assert len(rows) <= 43 - 3 * (tab.mode == "records"), tab.mode


def test_a_reason_that_many_keys_share_stands_once() -> None:
    why = {"records.erase": "Not this one.", **dict.fromkeys(
        ("records.forget", "records.pin", "records.expire"), "Nothing is selected.")}  # fmt: skip
    shown = group_help(("records",), load_keymap({}), lambda name: why.get(name, "")).plain
    changes = shown.partition("Records: change\n")[2]
    assert changes.startswith("  ¹ Nothing is selected.\n")
    assert shown.count("Nothing is selected.") == 1
    assert shown.count(" ¹") == 1 + 3
    assert "shows them first.  (Not this one.)" in shown


@pytest.mark.parametrize("width", [60, 71, 100])
def test_keys_stand_apart_from_what_they_do(width: int) -> None:
    shown = group_help(("list",), load_keymap({}), lambda _: "", width).plain
    assert "ctrl+d ctrl+u pgdn pgup  Move" in shown
    assert max(map(len, shown.splitlines())) <= width


async def test_help_is_narrowed_by_typing_and_closed_by_its_own_key(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await pilot.press("question_mark", *"forget marked")
        await until(pilot, lambda: "Forget the marked records" in screen_text(app))
        assert "Mark all rows" not in screen_text(app)
        await pilot.press("ctrl+u", *"zz")
        await until(pilot, lambda: "No key does that." in screen_text(app))
        await pilot.press("ctrl+u", "question_mark")
        await until(pilot, lambda: app.screen is app.frame)


async def test_the_tour_is_one_key_away_from_help(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, lambda: "f3 tour" in screen_text(app))
        await pilot.press("f3")
        await until(pilot, lambda: "Welcome to memtui" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.frame)


async def test_the_palette_finds_actions_of_other_screens_and_goes_there(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["Use tabs."])
    async with running(paths, settings, "budget", (80, 24)) as (app, pilot):
        await pilot.press("ctrl+p", *"verify")
        await until(pilot, lambda: "Operations: verify" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Proof))
        await pilot.press("escape", "4")
        # What acts on a row waits until the row is seen.
        await pilot.press("ctrl+p", *"operations undo", "enter")
        await until(pilot, lambda: app.current_mode == "operations" and app.screen is app.frame)
    assert (
        len((await service.browse(caller, BrowseRequest(scope=Scope(company_id="local")))).records)
        == 1
    )


async def test_the_palette_finds_an_action_and_does_it(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await pilot.press("ctrl+p", *"risky ones")
        await until(pilot, lambda: "risk:any" in screen_text(app))
        await pilot.press("escape", "ctrl+p", *"jump")
        await until(pilot, lambda: "Operations: go to time" in screen_text(app))
        await pilot.press("ctrl+u", *"backup")
        await until(pilot, lambda: "`memtui --help` lists" in screen_text(app))
        await pilot.press("escape", "ctrl+p", *"everywhere help")
        await until(pilot, lambda: "Everywhere: help" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Help))


async def test_the_palette_has_the_actions_of_a_review_and_leads_everywhere_from_it(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["Use tabs.", "use tabs."])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: "Use tabs." in screen_text(app))

        async def find(words: str, label: str) -> None:
            await pilot.press("ctrl+p")
            type_at_once(app, *words)
            await until(pilot, lambda: label in screen_text(app))
            await pilot.press("enter")

        for key, group in (("P", "prune"), ("dollar_sign", "limits"), ("W", "changes"),
                           ("Q", "review"), ("h", "timeline")):  # fmt: skip
            await pilot.press("4")
            await until(pilot, lambda: app.current_mode == "records" and app.screen is app.frame)
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, ModalListScreen))
            review = app.screen
            assert isinstance(review, ModalListScreen)
            title = group_title(group)
            await pilot.press("ctrl+p")
            await until(pilot, lambda title=title: f"{title}: " in screen_text(app))  # type: ignore[misc]
            await pilot.press("ctrl+p")
            await until(pilot, lambda review=review: app.screen is review)  # type: ignore[misc]
            # Its own action, one of the whole app over it, and one of another screen.
            await find(f"{title}: help", f"{title}: help")
            await until(pilot, lambda: isinstance(app.screen, Help))
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(app.screen, Palette))
            await pilot.press("escape")
            await find("Everywhere: tour", "Everywhere: tour")
            await until(pilot, lambda: "Welcome to memtui" in screen_text(app))
            await pilot.press("escape")
            await until(pilot, lambda review=review: app.screen is review)  # type: ignore[misc]
            await find("verify", "Operations: verify")
            await until(pilot, lambda: isinstance(app.screen, Proof))
            assert app.current_mode == "operations"
            assert review not in app.screen_stack
            await pilot.press("escape")

        # An action of the whole app is carried out in place of all reviews.
        await pilot.press("4", "W")
        await until(pilot, lambda: isinstance(app.screen, ChangesScreen) and app.screen.current)
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, TimelineScreen))
        await find("everywhere scope", "Everywhere: scope")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        assert not any(isinstance(one, ModalListScreen) for one in app.screen_stack)
        await pilot.press("escape")

        # A saved view is shown in place of the review.
        await pilot.press("4", "V", *"mine", "enter")
        await until(pilot, lambda: app.state.views)
        await pilot.press("2", "W")
        await until(pilot, lambda: isinstance(app.screen, ModalListScreen))
        await find("view: mine", "View: mine")
        await until(pilot, lambda: app.current_mode == "records" and app.screen is app.frame)

        # A question keeps its place, and says so.
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Answer this or leave it" in " ".join(toasts(app)))
        assert isinstance(app.screen, Confirm)


async def test_numbers_and_the_tour_do_the_same_on_every_layer(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["Use tabs."])
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await until(pilot, lambda: "Use tabs." in screen_text(app))
        for keys in ("d", "h", "W", "dollar_sign"):
            for key, mode in (("5", "budget"), ("4", "records")):
                await pilot.press(keys)
                await until(pilot, lambda: app.screen is not app.frame)
                await pilot.press("f3")
                await until(pilot, lambda: "Welcome to memtui" in screen_text(app))
                await pilot.press("f3")
                await until(pilot, lambda: "Welcome to memtui" not in screen_text(app))
                await pilot.press(key)
                await until(pilot, lambda: app.screen is app.frame)
                assert app.current_mode == mode
                await pilot.press("4")
                await until(pilot, lambda: app.current_mode == "records")
        await pilot.press("s", "5")
        assert app.screen is not app.frame, "a digit in a line is text"
