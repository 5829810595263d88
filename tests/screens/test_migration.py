"""A migration on screen, over a real service, vaults, and a plugin on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, load_settings
from memtui.contract import BrowseRequest, ForgetRequest, QueryRequest, Scope
from memtui.migration.envelope import Loss
from memtui.migration.moving import Applied, Failure, MigrationProgress
from memtui.migration.planning import MigrationPlan, Refusal, ScopeCount
from memtui.migration.verifying import Mismatch, Verified
from memtui.screens import migration as lines
from memtui.screens.dialogs import Choose, Confirm, TypedConfirm
from memtui.screens.migration import Migration
from memtui.screens.steps import StepRow, columns, progress_content, row_content
from memtui.service import Caller, MemoryService
from memtui.service.usecases.comparing import agree, shadow_of
from memtui.widgets.columns import fit_cell
from memtui.widgets.virtual_list import VirtualList
from tests.backends.plugin_v1.servers.loopback import Request, serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless, screen_text
from tests.screens.piloting import act, running, toasts, until, write_notes
from tests.screens.test_namespaces import to_binding, typed

SCOPE = Scope(company_id="local")


@asynccontextmanager
async def opened(
    paths: Paths,
    settings: Settings,
    to: str,
    size: tuple[int, int] = (120, 40),
    source: str = "default",
) -> AsyncIterator[tuple[MemtuiApp, Pilot[Any], Migration]]:
    """Open a migration and wait for its dry run."""
    async with running(paths, settings, "bindings", size) as (app, pilot):
        await to_binding(app, pilot, source)
        await act(pilot, "bindings.migrate")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await typed(pilot, to)
        await until(pilot, lambda: isinstance(app.screen, Migration))
        screen = app.screen
        assert isinstance(screen, Migration)
        await settled(pilot, screen)
        yield app, pilot, screen


async def settled(pilot: Pilot[Any], screen: Migration) -> None:
    await until(pilot, lambda: pilot.app.screen is screen and not screen.run.busy)


async def confirmed(pilot: Pilot[Any], screen: Migration, key: str) -> None:
    """Take a step and say yes."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press("y")
    await settled(pilot, screen)


async def compared(pilot: Pilot[Any], screen: Migration, how: str) -> None:
    await pilot.press("c")
    await until(pilot, lambda: isinstance(pilot.app.screen, Choose))
    await typed(pilot, how)
    await settled(pilot, screen)


def listed(screen: Migration) -> VirtualList[StepRow]:
    found: VirtualList[StepRow] = screen.query_one("#row-list", VirtualList)
    return found


def rows(screen: Migration) -> list[str]:
    return [
        f"{row.what} {'' if row.records is None else row.records}".strip()
        for _, row in listed(screen).rows.held()
    ]


async def texts(service: MemoryService, caller: Caller, key: str) -> list[str]:
    request = BrowseRequest(scope=SCOPE, binding_key=key, limit=500)
    return sorted(record.text for record in (await service.browse(caller, request)).records)


async def serving(service: MemoryService, caller: Caller, key: str) -> bool:
    views = {view.key: view for view in await service.bindings.all(caller)}
    return bool(views[key].targets)


@pytest.mark.slow
async def test_from_a_vault_to_a_plugin_step_by_step_and_back(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, [f"Deploy number {one} from main" for one in range(12)])
    async with serve(talk(Reference())) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        async with opened(paths, settings, "plugin") as (app, pilot, screen):
            assert "project mech · note 12" in rows(screen)
            assert "→ workspace:mech" in screen_text(app)
            assert any(row.startswith("lost: history") for row in rows(screen))
            assert await texts(service, caller, "plugin") == []
            for key, why in (("c", "Nothing was moved yet"), ("l", "Nothing was moved yet")):
                await pilot.press(key)
                assert why in toasts(app)[-1]
            await confirmed(pilot, screen, "a")
            assert rows(screen)[:2] == ["written 12", "replaced 0"]
            moved = await texts(service, caller, "default")
            assert await texts(service, caller, "plugin") == moved
            await pilot.press("l")
            assert "must be found the same first" in toasts(app)[-1]
            request = BrowseRequest(scope=SCOPE, binding_key="plugin", limit=1)
            lost = (await service.browse(caller, request)).records[0]
            gone = ForgetRequest(scope=SCOPE, handles=(lost.handle,), binding_key="plugin")
            await service.forget(caller, gone)
            ask = "[[check]]\nask = 'deploy'\nproject = 'mech'\nwithin = 20\nholds = "
            paths.checks_file.write_text(f"{ask}'{lost.text}'\n")
            await compared(pilot, screen, "every")
            assert "missing 1" in rows(screen)
            assert "✗ deploy" in rows(screen)
            paths.checks_file.unlink()
            assert any(row.startswith("missing: ") for row in rows(screen))
            await confirmed(pilot, screen, "a")
            assert rows(screen)[:3] == ["written 1", "replaced 0", "unchanged 11"]
            await compared(pilot, screen, "5")
            assert rows(screen)[:2] == ["sample 5", "matched 5"]
            await compared(pilot, screen, "every")
            assert "all 12 of default are the same in plugin" in screen_text(app)
            await confirmed(pilot, screen, "l")
            assert await serving(service, caller, "plugin")
            assert "● cut over" in screen_text(app)
            await confirmed(pilot, screen, "u")
            assert await serving(service, caller, "default")
            assert "○ cut over" in screen_text(app)


@pytest.mark.slow
async def test_files_that_cannot_be_read_are_named_before_and_after(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "latin.md").write_bytes(b"Caf\xe9 opens at nine")
    (notes / "plain.md").write_text("A plain one.")
    await service.bindings.add(caller, "mine", "vault", {"path": str(notes)})
    await service.bindings.add(caller, "copies", "vault", {})
    async with opened(paths, settings, "copies", source="mine") as (app, pilot, screen):
        assert rows(screen)[:2] == ["the source may hold more", "refused 1"]
        words = next(row.where for _, row in listed(screen).rows.held())
        assert f"{notes}/latin.md:1: The line holds bytes that are not UTF-8" in words
        assert "1 place cannot be read" in screen_text(app)
        await confirmed(pilot, screen, "a")
        assert rows(screen)[:2] == ["the source may hold more", "written 1"]
        assert "failed: latin.md" in rows(screen)


@pytest.mark.slow
async def test_a_stopped_run_keeps_what_it_did_and_goes_on(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, [f"Deploy number {one} from main" for one in range(30)])
    # The server does not answer until the test has gone elsewhere and come back.
    settings = settings.model_copy(update={"provider_timeout_ms": 600_000})
    server = Reference()
    gate = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        if len(server.rows) >= 5:
            await gate.wait()
        return await talk(server)(request, writer)

    async with serve(answer) as url:
        await service.bindings.add(
            caller, "plugin", "plugin-v1", {"url": url, "timeout_seconds": 600}
        )
        async with opened(paths, settings, "plugin", (80, 24)) as (app, pilot, screen):
            await pilot.press("a")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: len(server.rows) >= 5)
            await pilot.press("a")
            assert "ctrl+c stops it" in toasts(app)[-1]

            # The palette leads elsewhere while it runs, and it goes on below.
            await pilot.press("ctrl+p", *"everywhere past", "enter")
            await until(pilot, lambda: "Something still runs here" in toasts(app)[-1])
            assert app.screen is screen
            await pilot.press("ctrl+p", *"operations: follow", "enter")
            await until(pilot, lambda: app.current_mode == "operations")
            await pilot.press("1")
            await until(pilot, lambda: app.screen is screen and screen.busy)
            await pilot.press("ctrl+c")
            gate.set()
            await settled(pilot, screen)
            assert "what was moved stays" in screen_text(app)
            assert 5 <= len(server.rows) < 30
            await until(pilot, lambda: "◐ applied in part" in screen.draw_head().plain)
            await confirmed(pilot, screen, "a")
            assert len(server.rows) == 30
            assert await texts(service, caller, "plugin") == await texts(service, caller, "default")
            await pilot.press("ctrl+p", *"operations: follow", "enter")
            await until(pilot, lambda: app.current_mode == "operations")


@pytest.mark.slow
async def test_what_was_not_listed_whole_is_cut_over_only_by_its_name(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    server = Reference()
    async with serve(talk(server)) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        await service.bindings.set_target(caller, "project", "mech", "plugin")
        await service.namespaces.put(caller, "plugin", "workspace:mech")
        for number in range(105):
            body = {"content": f"Row {number}", "kind": "summary", "source": "agent"}
            server._write("workspace:mech", body)
        async with opened(paths, settings, "default", (200, 60), "plugin") as (app, pilot, screen):
            assert "at least 100 records to move" in screen_text(app)
            await confirmed(pilot, screen, "a")
            await compared(pilot, screen, "every")
            assert "plugin cannot be listed completely and may have more" in screen_text(app)
            assert screen._state is not None
            assert not screen._state.verified_whole
            await pilot.press("l")
            await until(pilot, lambda: isinstance(app.screen, TypedConfirm))
            assert "cannot be listed completely" in screen_text(app)
            assert "stays as it is, and u rolls back." in screen_text(app)
            await typed(pilot, "y")
            assert await serving(service, caller, "plugin")
            await typed(pilot, "default")
            await settled(pilot, screen)
            assert not await serving(service, caller, "plugin")


@pytest.mark.slow
async def test_refusals_are_sentences(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await service.bindings.add(caller, "locked", "vault", {}, read_only=True)
    await service.bindings.add(caller, "dead", "plugin-v1", {"url": "http://127.0.0.1:1"})
    async with opened(paths, settings, "locked") as (app, pilot, screen):
        await pilot.press("a")
        assert "The binding locked is read-only" in toasts(app)[-1]
        await pilot.press("u")
        assert "Nothing was cut over" in toasts(app)[-1]
        assert "holds nothing to move" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)
    async with opened(paths, settings, "dead") as (app, pilot, screen):
        assert "r tries again" in screen_text(app)
        await pilot.press("a")
        assert "See the dry run first" in toasts(app)[-1]
    locked = load_settings(paths, principal="user:ana", read_only=True)
    async with opened(paths, locked, "locked") as (app, pilot, _):
        await pilot.press("a")
        assert "memtui was started with --read-only." in toasts(app)[-1]


def test_progress_says_how_much_how_fast_and_how_long() -> None:
    begun = MigrationProgress(done=0, total=2_000, failed=0, rate=0.0, seconds_left=None)
    assert progress_content("moving", begun).plain == f"… moving  {'░' * 20}  0 of 2,000"
    later = MigrationProgress(done=500, total=2_000, failed=2, rate=142.4, seconds_left=10.5)
    assert progress_content("moving", later).plain == (
        f"… moving  {'█' * 5}{'░' * 15}  500 of 2,000  142/s  10.5 s left  2 failed"
    )
    unknown = MigrationProgress(done=500, total=None, failed=0, rate=1.0, seconds_left=None)
    assert progress_content("moving", unknown).plain == "… moving  500  1/s"


@pytest.mark.parametrize("text", [text[:5_000] for text in HOSTILE])
def test_hostile_names_are_harmless(text: str) -> None:
    plan = MigrationPlan(
        source=text,
        destination=text,
        records=1,
        scopes=(ScopeCount(scope=text, kind=text, records=1, place=text),),
        losses=(Loss(what=text, records=1, carried=False),),
        refused=1,
        refusals=(Refusal(record_id=text, reason=text),),
    )
    done = Applied(
        failed=1,
        failures=(Failure(record_id=text, reason=text),),
        losses=(Loss(what=text, records=1, carried=True),),
    )
    found = Verified(
        source_records=1, checked=1, matched=0, missing=1, different=0, extra=0, others=0,
        mismatches=(Mismatch(what="missing", source_id=text, fields=(text,)),),
    )  # fmt: skip
    for row in (*lines.planned(plan), *lines.applied(done), *lines.verified(found)):
        for column in columns():
            assert_harmless(fit_cell(column.of(row).text, column.width))
        assert_content_harmless(row_content(row, 60))


@pytest.mark.slow
async def test_the_answers_of_both_are_compared_after_a_yes(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    question = QueryRequest(scope=SCOPE, query="deploy", binding_key="default")
    await service.query(caller, question)
    async with serve(talk(Reference())) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        async with opened(paths, settings, "plugin") as (app, pilot, screen):
            await pilot.press("t")
            await until(pilot, lambda: "esc leave it" in screen_text(app))
            await pilot.press("question_mark")
            await until(pilot, lambda: "In a migration" in screen_text(app))
            await pilot.press("escape", "escape")
            await until(pilot, lambda: app.screen is screen)
            await confirmed(pilot, screen, "t")
            assert rows(screen)[0] == "answered"
            assert "1 question answered by both" in screen_text(app)
            assert "memtui compare shadow start default plugin" in " ".join(
                screen_text(app).split()
            )
            leaves = (await shadow_of(service, caller, ("default", "plugin"))).leaves
            assert [one.partition(" ")[0] for one in leaves] == ["plugin"]
            await agree(service, caller, ("default", "plugin"), leaves, 1, share=1, most_calls=9)
            await pilot.press("t")
            await settled(pilot, screen)
            await until(pilot, lambda: "0 questions answered by both" in screen_text(app))
            assert "memtui compare cutover default plugin" in " ".join(screen_text(app).split())
