"""All bindings at once on screens 3 and 4, over a vault, another vault and a fact table."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.screens.dialogs import Choose, ConflictScreen, EditText
from memtui.screens.operations.screen import OperationsScreen
from memtui.screens.operations.view import OperationDetail
from memtui.screens.prune import PruneReview, count_unasked
from memtui.screens.runs import RunsScreen
from memtui.screens.state import AppState, ConfigurationChanged, PruneFigures
from memtui.screens.timeline import TimelineScreen
from memtui.service import Caller, MemoryService
from memtui.service.usecases import forgetting
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import screen_text
from tests.screens.piloting import counted, running, toasts, until, write_notes

MECH = Scope(company_id="local", project_id="mech")


async def fill(service: MemoryService, caller: Caller, shelf: Path) -> None:
    """Write a fact under one id into two vaults, and one into a table."""
    await service.bindings.add(caller, "shelf", "vault", {"path": str(shelf)})
    await service.bindings.add(caller, "table", "facts", {})
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for binding, text in (
        ("default", "deploy_branch: release"), ("shelf", "deploy_branch: main"),
        ("table", "deploys: Monday"),
    ):  # fmt: skip
        request = WriteRequest(
            scope=MECH, source=source, content=text, kind="fact", binding_key=binding
        )
        await service.write(caller, request)


def rows(app: MemtuiApp) -> dict[str, Record]:
    assert app.frame is not None
    found: VirtualList[Any] = app.frame.query_one(VirtualList)
    return {
        f"{getattr(row, 'binding_key', '')}: {row.text.split(': ')[1]}": row
        for _, row in found.rows.held()
    }


def answer_in_another_order(app: MemtuiApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have bindings that forget at once answer in another order than the log has them in."""
    session = app.state.session
    assert session is not None
    service, caller = session.service, session.caller
    forget = forgetting.forget

    async def reordered(*arguments: Any, **options: Any) -> forgetting.ForgottenEverywhere:
        gone = await forget(*arguments, **options)
        [newest] = (await service.log.page(caller, Filter(), limit=1)).operations
        answers = sorted(gone.answers, key=lambda one: one.operation_id != newest.operation_id)
        return gone.model_copy(update={"answers": tuple(answers)})

    monkeypatch.setattr(forgetting, "forget", reordered)


async def test_each_record_is_changed_in_its_own_binding(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    everything = {"default: release", "shelf: main", "table: Monday"}
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: list(rows(app)) == [": release"])
        await pilot.press("0")
        await until(pilot, lambda: set(rows(app)) == everything)
        assert "all bindings" in screen_text(app)
        assert counted(app) == "3"

        found: VirtualList[Any] = app.frame.query_one(VirtualList)  # type: ignore[union-attr]
        assert found.cursor == 0, "it stays at the top, whichever binding answered first"
        shelf = next(i for i, row in found.rows.held() if row.binding_key == "shelf")
        found.go_to(shelf)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditText))
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: "shelf: mainx" in rows(app))
        assert "default: release" in rows(app)  # which has the same id
        await pilot.press("u")
        await until(pilot, lambda: set(rows(app)) == everything)

        await pilot.press("A", "d")
        await until(pilot, lambda: "Forget 3 records" in screen_text(app))
        answer_in_another_order(app, monkeypatch)
        await pilot.press("y")
        await until(pilot, lambda: rows(app) == {})
        await pilot.press("u")
        await until(pilot, lambda: set(rows(app)) == everything)
        await pilot.press("0")
        await until(pilot, lambda: list(rows(app)) == [": release"])


async def test_a_conflict_is_resolved_in_the_binding_of_its_record(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: list(rows(app)) == [": release"])
        await pilot.press("0")
        await until(pilot, lambda: len(rows(app)) == 3 and not app.frame.reading)  # type: ignore[union-attr]
        found: VirtualList[Any] = app.frame.query_one(VirtualList)  # type: ignore[union-attr]
        row = rows(app)["shelf: main"]
        found.go_to(next(i for i, one in found.rows.held() if one.binding_key == "shelf"))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditText))
        theirs = CorrectRequest(
            scope=MECH, handle=row.handle, binding_key="shelf", text="deploy_branch: theirs"
        )
        await service.correct(caller, theirs)
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, ConflictScreen))
        await pilot.press("m")
        await until(pilot, lambda: "shelf: mainx" in rows(app))
        assert "default: release" in rows(app)  # which has the same id


async def test_everything_that_could_go_is_reviewed_at_once_and_comes_back_at_once(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    ana = Scope(company_id="local", subject_id="ana")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for binding, scope, text in (
        ("default", MECH, "Deploys: Monday"), ("default", MECH, "deploys: monday."),
        ("shelf", ana, "Likes tea"), ("shelf", ana, "likes tea."),
    ):  # fmt: skip
        request = WriteRequest(
            scope=scope, source=source, content=text, kind="note", binding_key=binding
        )
        await service.write(caller, request)

    async def left() -> int:
        request = BrowseRequest(scope=Scope(company_id="local"))
        return len((await service.everywhere.browse(caller, request)).records)

    async with running(paths, settings, "bindings") as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: "project mech" in screen_text(app))
        assert "could go" not in screen_text(app)
        await pilot.press("escape")
        app.controller.count_prunable(count_unasked)
        await until(pilot, lambda: app.state.prune_figures is not None)
        await pilot.press("5")
        await until(pilot, lambda: re.search("user +ana .*1 of 2 could go", screen_text(app)))
        await pilot.press("4")
        await until(pilot, lambda: len(rows(app)) == 3)
        assert "7 memories" not in screen_text(app)  # of which this binding has a part
        await pilot.press("0")
        verdict = re.compile(
            r"7 memories: \d+ tokens, \$0\.\d+ a session, 1 contradicting, 2 doubled"
        )
        await until(pilot, lambda: verdict.search(screen_text(app)))
        await pilot.press("0", "1", "s")
        await until(pilot, lambda: "project mech  3 of 5 could go" in screen_text(app))
        await pilot.press("escape", "P")
        await until(pilot, lambda: "2 marked   4 of 7 records could go" in screen_text(app))
        await pilot.press("s")
        await until(pilot, lambda: "user ana  1 of 2" in screen_text(app))
        assert "shelf  1 of 3" in screen_text(app)
        await pilot.press(*"ana", "enter")
        await until(pilot, lambda: "1 marked   1 of 2 records could go" in screen_text(app))
        assert "user ana" in screen_text(app)
        await pilot.press("escape", "s")
        await until(pilot, lambda: "project mech  3 of 5 could go" in screen_text(app))
        assert re.search("user +ana +1 of 2 could go", screen_text(app))
        await pilot.press("escape", "P")
        await until(pilot, lambda: "2 marked   4 of 7 records could go" in screen_text(app))
        await pilot.press("b")
        await until(pilot, lambda: "user ana, 1 of 1 marked" in screen_text(app))
        await pilot.press("d")
        await until(pilot, lambda: "Forget 2 records" in screen_text(app))
        assert "default and vault·shelf" in " ".join(screen_text(app).split())
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.frame)
        assert await left() == 5
        assert app.state.pruning is None
        await pilot.press("s")
        await until(pilot, lambda: "project mech" in screen_text(app))
        assert "could go" not in screen_text(app)
        await pilot.press("escape")
        await pilot.press("u")
        await until(pilot, lambda: any("Undone" in said for said in toasts(app)))
        assert await left() == 7

    later = datetime.now(UTC) + timedelta(days=40)
    async with running(paths, settings, "analytics", clock=lambda: later) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: "No record of project mech was written" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "5 of 5 records could go" in screen_text(app))
        assert "prune project mech" in screen_text(app)
        review = app.screen
        await pilot.press("A", "n")
        await until(pilot, lambda: "No record of project mech was written" in screen_text(app))
        await write_notes(service, caller, ["Sails on Fridays"], "yard")
        await pilot.press("r")
        await until(pilot, lambda: "No record of project yard was written" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is review and "5 marked" in screen_text(app))


async def test_keys_lead_from_a_row_of_the_review_to_its_record_and_back(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["Deploy from main", "deploy from main."])
    await service.query(caller, QueryRequest(scope=MECH, query="deploy"))
    async with running(paths, settings, "records") as (app, pilot):

        def row() -> str:
            current = app.screen.query_one(VirtualList).current
            return current.text if current is not None else ""

        async def reviewed() -> None:
            await until(
                pilot,
                lambda: (
                    isinstance(app.screen, PruneReview)
                    and not re.search("so far|still looking", screen_text(app))
                ),
            )

        await until(pilot, row)
        await pilot.press("P")
        await reviewed()
        await until(pilot, lambda: "1 marked" in screen_text(app))
        await pilot.press("T")
        assert toasts(app)[-1] == "No record is selected."
        await pilot.press("A", "j", "j")
        await until(pilot, lambda: "0 marked" in screen_text(app))
        there = row()
        for key, over in (("T", RunsScreen), ("h", TimelineScreen), ("w", Choose)):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, over))  # noqa: B023 - waited for
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, PruneReview))
            assert row() == there
        await pilot.press("R")
        await until(pilot, lambda: app.screen is app.frame and row() == there)
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, PruneReview) and row() == there)
        await reviewed()
        assert "0 marked" in screen_text(app), "it goes on where it stood"
        await pilot.press("w")
        await until(pilot, lambda: "Queries that returned it" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, OperationsScreen))


async def test_a_question_to_all_names_where_each_result_is_from_and_who_fails(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    (tmp_path / "shelf").rename(tmp_path / "gone")
    (tmp_path / "shelf").write_text("no folder")
    async with running(paths, settings, "query", size=(120, 50)) as (app, pilot):
        await until(pilot, lambda: "esc results, where keys like 1-6 work" in screen_text(app))
        await pilot.press("escape", "i", *"deploy", "enter")
        await until(pilot, lambda: "1 result " in screen_text(app))
        assert "esc results" not in screen_text(app)
        await pilot.press("0")
        await until(pilot, lambda: "2 results" in screen_text(app))
        await until(pilot, lambda: "from 2 of 3 bindings" in screen_text(app))
        assert "no answer from shelf" in screen_text(app)
        shown = screen_text(app)
        assert "default · manual note" in shown
        assert "table · manual note" in shown
        assert "Found in" in shown
        await pilot.press("w")
        await until(pilot, lambda: "rank fusion" in screen_text(app))
        assert "shelf" in screen_text(app)  # and why it has no answer
        await pilot.press("escape", "R")
        await until(pilot, lambda: app.frame is not None and app.frame.MODE == "records")
        await until(pilot, lambda: len(rows(app)) == 1 and not app.state.everywhere)
        await pilot.press("0")
        await until(pilot, lambda: set(rows(app)) == {"default: release", "table: Monday"})
        assert "no answer from shelf" in screen_text(app)
        assert any("shelf" in one for one in toasts(app))
        told = toasts(app)
        await pilot.press("slash", *"monday", "enter")
        await until(pilot, lambda: set(rows(app)) == {"table: Monday"})
        await pilot.press("ctrl+l")
        await until(pilot, lambda: len(rows(app)) == 2 and "no answer from" in counted(app))
        assert toasts(app) == told, "nothing has changed that was not told"


@pytest.mark.parametrize("active", ["default", "shelf"])
async def test_risks_are_looked_for_again_in_a_binding_that_answers_again(
    active: str,
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    tmp_path: Path,
) -> None:
    shelf, gone = tmp_path / "shelf", tmp_path / "gone"
    await fill(service, caller, shelf)
    async with running(paths, settings, "records") as (app, pilot):

        def unchecked() -> tuple[str, ...] | None:
            """Look for risks, and return the bindings that were never checked."""
            app.controller.check_risks()
            return app.state.risks[1].unchecked_bindings if app.state.risks else None

        def health() -> str:
            return app.state.health.health.status if app.state.health else ""

        shelf.rename(gone)
        shelf.write_text("no folder")
        app.controller.choose(binding_key=active)
        await until(pilot, lambda: health() == ("ok" if active == "default" else "down"))
        await until(pilot, lambda: unchecked() == ("shelf",))
        shelf.unlink()
        gone.rename(shelf)
        if active == "shelf":
            app.controller.check_health()
            await until(pilot, lambda: health() == "ok")
        else:
            await pilot.press("r")
        await until(pilot, lambda: unchecked() == ())


async def test_a_change_during_a_count_leaves_no_verdict(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    async with running(paths, settings, "records") as (app, pilot):
        counts, changed = asyncio.Event(), asyncio.Event()

        async def count(state: AppState) -> PruneFigures | None:
            found = await count_unasked(state)
            counts.set()
            await changed.wait()
            return found

        def seen(text: str) -> bool:
            return text in screen_text(app)

        for text in ("Sails on Fridays", "Rests on Sundays"):
            app.controller.count_prunable(count)
            await counts.wait()
            await write_notes(service, caller, [text])
            await until(pilot, partial(seen, text))
            changed.set()
            await until(pilot, lambda: app.state.prune_figures)
            found = app.state.prune_figures
            assert found is not None
            assert found.verdict is None
            counts.clear()
            changed.clear()


async def test_a_duplicate_stays_whose_other_copy_went_meanwhile(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    handles: list[RecordHandle] = []
    for text in ("Deploys: Monday", "deploys: monday."):
        request = WriteRequest(scope=MECH, source=source, content=text, kind="note")
        handles += (await service.write(caller, request)).handles
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: "1 marked   1 of 2 records could go" in screen_text(app))
        review = app.screen._review  # type: ignore[attr-defined]
        [stays] = [one.handle for one in review.staying]
        assert stays in handles
        await service.forget(caller, ForgetRequest(scope=MECH, handles=(stays,)))
        await pilot.press("d")
        await until(pilot, lambda: "Forget 1 record" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: any("the record to keep" in said for said in toasts(app)))
    left = await service.browse(caller, BrowseRequest(scope=MECH))
    assert [one.handle for one in left.records] == [one for one in handles if one != stays]


async def test_a_binding_that_is_added_is_shown_among_all_at_once(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    await service.bindings.remove(caller, "shelf")
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("0")
        await until(pilot, lambda: set(rows(app)) == {"default: release", "table: Monday"})
        await pilot.press("1")
        await until(pilot, lambda: app.frame is not None and app.frame.MODE == "bindings")
        await service.bindings.add(caller, "shelf", "vault", {"path": str(tmp_path / "shelf")})
        app.screen.post_message(ConfigurationChanged())
        await until(pilot, lambda: any(one.key == "shelf" for one in app.state.bindings))
        await pilot.press("4")
        await until(pilot, lambda: "shelf: main" in rows(app))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_question_over_all_bindings_is_one_row_of_the_log_and_opens_to_each_of_them(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    tmp_path: Path,
    size: tuple[int, int],
) -> None:
    await fill(service, caller, tmp_path / "shelf")
    await service.everywhere.query(caller, QueryRequest(scope=MECH, query="deploys"))
    async with running(paths, settings, "operations", size) as (app, pilot):
        await until(pilot, lambda: "3 bindings: deploys" in screen_text(app))
        screen = pilot.app.screen
        assert isinstance(screen, OperationsScreen)
        logged = counted(app).split()[0]
        [first] = (row for _, row in screen.rows_list.rows.held() if row.part_of is None
                   and row.operation_type == "query")  # fmt: skip
        assert screen.rows_list.current == first

        await service.everywhere.query(caller, QueryRequest(scope=MECH, query="Monday"))
        await until(pilot, lambda: "3 bindings: Monday" in screen_text(app))
        assert counted(app).split()[0] == str(int(logged) + 1)
        await pilot.press("j", "enter")
        await until(pilot, lambda: "3 bindings" in screen_text(app) and screen.opened)
        detail = screen.query_one(OperationDetail)
        for binding in ("default", "shelf", "table"):
            assert re.search(f"✓  {binding}  #[0-9]+  [01] record", screen_text(app))
        assert detail.handle is None

        await pilot.press("j", "enter")
        await until(pilot, lambda: f"part of    {first.operation_id[:20]}" in screen_text(app))
        assert screen.current is not None
        assert screen.current.part_of == first.operation_id
        await pilot.press("escape")
        await until(pilot, lambda: screen.current == first)
        assert screen.opened
        assert len(screen._chosen) == 3  # what is copied, and whose records are shown
        await pilot.press("escape")
        await until(pilot, lambda: not screen.opened)

        await pilot.press("/", *"status:ok type:query", "enter")
        await until(pilot, lambda: counted(app).split()[0] == "6")
        assert "bindings: " not in screen_text(app)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "3 bindings: deploys" in screen_text(app))
