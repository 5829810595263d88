"""What was being written when memtui was ended from outside, and its way back."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from textual.widgets import Input
from textual.worker import WorkerState

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, CorrectRequest, ForgetRequest, Record, Scope
from memtui.screens.dialogs import ConflictScreen, EditText, NewRecord, Prompt, WriteRecord
from memtui.screens.drafts import KeptDraft, keep_draft, kept_drafts, offered
from memtui.screens.state import GoTo
from memtui.service import Caller, MemoryService
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, type_at_once, until, write_notes

MECH = Scope(company_id="local", project_id="mech")


def folders(paths: Paths) -> list[Path]:
    return sorted(paths.data.glob("draft-*"))


def end(app: MemtuiApp) -> None:
    """End the app as a terminal that goes does, with a signal that comes more than once."""
    for _ in range(2):
        app._leave(128 + signal.SIGHUP)


async def test_a_dialog_that_was_not_mounted_yet_keeps_nothing(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploys by hand"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: app.screen.query_one(VirtualList).current)
        type_at_once(app, "e")
        while not isinstance(app.screen, EditText):
            await asyncio.sleep(0)
        assert not app.screen.is_mounted
        end(app)
    assert folders(paths) == []
    assert app.return_code == 128 + signal.SIGHUP


async def test_a_screen_prepared_as_memtui_ends_leaves_its_exit_code(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "records") as (app, _):

        async def draw_too_late() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            app.screen.query_one("#gone")

        late = app.run_worker(draw_too_late())
        await asyncio.sleep(0)
        end(app)
        while not late.is_finished:
            await asyncio.sleep(0)
    assert late.state is WorkerState.ERROR
    assert app.return_code == 128 + signal.SIGHUP


def to_edit(record: Record) -> GoTo:
    return GoTo("records", select=record.handle.provider_record_id, then="records.edit")


def text_of(app: MemtuiApp) -> str:
    assert isinstance(app.screen, EditText | WriteRecord)
    return app.screen.text


async def test_a_new_record_goes_on_after_memtui_was_ended(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: app.screen.query_one(VirtualList).current)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        await pilot.press(*"half a th")
        app.screen.query_one("#field-topic", Input).value = "deploys"
        end(app)
    [folder] = folders(paths)
    assert [file.stat().st_mode & 0o077 for file in (folder, *folder.iterdir())] == [0] * 4
    assert (folder / "record.md").read_text() == "half a th"

    for _ in range(2):  # a start that does not take it up leaves it there
        async with running(paths, settings, "operations") as (app, pilot):
            await until(pilot, lambda: any("“half a th”" in one for one in toasts(app)))
            await app.action_quit()
    async with running(paths, settings, "records") as (app, pilot):
        assert "“half a th” (to go on: a on screen 4)." in str(toasts(app))
        await until(pilot, lambda: app.screen.query_one(VirtualList).current)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        assert text_of(app) == "half a th"
        end(app)
    [again] = folders(paths)
    assert again != folder
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: app.screen.query_one(VirtualList).current)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        await pilot.press(*"ought", "ctrl+s")
        await until(pilot, lambda: "Written. u undoes it." in toasts(app))
        await app.action_quit()
    assert folders(paths) == []
    found = await service.browse(caller, BrowseRequest(scope=Scope(company_id="local")))
    assert {(one.text, one.topic) for one in found.records} == {
        ("half a thought", "deploys"),
        ("one", None),
    }


async def test_an_edit_goes_on_from_the_text_that_it_was_begun_with(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    [record, other] = await write_notes(service, caller, ["deploys by hand", "other"])
    async with running(paths, settings, "records") as (app, pilot):
        app.screen.post_message(GoTo("records", select=record.handle.provider_record_id))
        await until(
            pilot, lambda: "deploys by hand" in str(app.screen.query_one(VirtualList).current)
        )
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditText))
        await pilot.press(*", mine")
        end(app)
    assert len(folders(paths)) == 1
    change = CorrectRequest(scope=record.scope, handle=record.handle, text="deploys by ship")
    await service.correct(caller, change)
    async with running(paths, settings, "records") as (app, pilot):
        assert "to go on: e on “deploys by hand”" in str(toasts(app))
        for name, text in ((other, "other"), (record, "deploys by hand, mine")):
            app.screen.post_message(to_edit(name))
            await until(pilot, lambda: isinstance(app.screen, EditText) and app.screen.is_mounted)
            assert text_of(app) == text
            if name is other:
                await pilot.press("escape")
        assert "holds another text by now" in screen_text(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, ConflictScreen))
        end(app)
    [folder] = folders(paths)
    assert (folder / "record.md").read_text() == "deploys by hand, mine"

    async with running(paths, settings, "records") as (app, pilot):
        app.screen.post_message(to_edit(record))
        await until(pilot, lambda: isinstance(app.screen, EditText))
        await pilot.press("!")
        end(app)
    [folder] = folders(paths)  # the draft that it went on from is none beside it
    assert (folder / "record.md").read_text() == "deploys by hand, mine!"
    await service.forget(caller, ForgetRequest(scope=record.scope, handles=(record.handle,)))
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: app.screen.query_one(VirtualList).current)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        assert text_of(app) == "deploys by hand, mine!"


async def test_a_fact_that_was_being_typed_on_budget_is_kept(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one"])
    async with running(paths, settings, "budget") as (app, pilot):
        app.screen.post_message(GoTo(scope=MECH))
        await until(pilot, lambda: "context for project mech" in screen_text(app))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        await pilot.press(*"lua")
        end(app)
    [kept] = kept_drafts(paths.data).values()
    assert kept.new is not None
    assert (kept.text, kept.new.kind, kept.new.scope) == ("lua", "fact", MECH)


async def test_a_text_for_the_review_is_kept_and_whatever_is_told_is_harmless(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    for number, text in enumerate(HOSTILE):
        keep_draft(paths.data, KeptDraft(text=text, pending_id=f"held-{number}"))
    assert {one.text for one in kept_drafts(paths.data).values()} == set(HOSTILE)
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: toasts(app))
        assert_harmless(screen_text(app))
        assert app.state.mended == {f"held-{n}": text for n, text in enumerate(HOSTILE)}
        end(app)
    assert len(folders(paths)) == len(HOSTILE)
    (folders(paths)[0] / "meant-for.json").write_text("{")
    assert len(kept_drafts(paths.data)) == len(HOSTILE) - 1


async def test_of_two_texts_for_the_same_each_is_offered_in_its_turn(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    [record] = await write_notes(service, caller, ["one"])
    for text in ("one, here", "one, there"):
        draft = KeptDraft(text=text, binding_key="default", began_from=record)
        keep_draft(paths.data, draft)
        keep_draft(paths.data, KeptDraft(text=text, pending_id="held-1"))
    decided = 0
    while folders(paths):
        kept = {one.text for one in kept_drafts(paths.data).values() if one.began_from}
        async with running(paths, settings, "records") as (app, pilot):
            app.state.mended.clear()  # what waited for review was decided on
            if kept:
                app.screen.post_message(to_edit(record))
                await until(
                    pilot, lambda: isinstance(app.screen, EditText) and app.screen.is_mounted
                )
                assert text_of(app) in kept
                await pilot.press("escape", "y")
                await until(pilot, lambda: app.screen is app.frame)
            await app.action_quit()
        decided += 1
    assert decided == 2


def test_many_kept_texts_are_counted() -> None:
    new = NewRecord("a thought", MECH, "note", None, ())
    told = offered([KeptDraft(text=new.text, new=new)] * 5)
    assert told.count("a thought") == 3
    assert told.endswith("(to go on: a on screen 4), 2 more.")
