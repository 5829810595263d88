from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.events import Key
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

import memtui.service
from memtui.actions import SCREENS
from memtui.app import MemtuiApp, TerminalOutput, run_app, styles_path
from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    Invalid,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.screens.analytics.screen import AnalyticsScreen
from memtui.screens.bindings.screen import BindingsScreen
from memtui.screens.dialogs import Choose, Confirm, Sheet
from memtui.screens.kept import load_session
from memtui.screens.state import Phase
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.store.bindings import update_company
from memtui.store.operation import Operation
from memtui.widgets.choice_list import ChoiceList
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import Watched, click_on, toasts, until

SIZE = (120, 40)


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery looks at the home folder; give it one without memories."""
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path / "user")


async def ready(pilot: Pilot[None], app: MemtuiApp) -> None:
    """Wait until the service is open and the screen shows what it read."""
    await until(pilot, lambda: app.state.phase is not Phase.OPENING)
    await settle(pilot, app)


async def settle(pilot: Pilot[None], app: MemtuiApp) -> None:
    """Wait until nothing runs behind a pane but the watcher, which never ends."""
    for _ in range(2):
        await until(pilot, lambda: not _running(app))
        await pilot.pause()


def _running(app: MemtuiApp) -> list[str]:
    return [
        one.group
        for one in app.workers
        if not one.is_finished and not one.group.startswith("records-watch")
    ]


@asynccontextmanager
async def running(
    paths: Paths, settings: Settings, size: tuple[int, int] = SIZE, **options: Any
) -> AsyncIterator[tuple[MemtuiApp, Pilot[None]]]:
    app = Watched(paths, settings, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await ready(pilot, app)
        yield app, pilot


async def fill(paths: Paths, settings: Settings, *texts: str, **scope: str) -> None:
    service = await open_service(paths, settings)
    caller = Caller(company_id="local", principal="agent:coding", channel="test")
    for number, text in enumerate(texts):
        await service.write(
            caller,
            WriteRequest(
                scope=Scope(company_id="local", **scope),
                source=SourceRef(
                    kind=SourceKind.ISSUE_COMMENT,
                    company_id="local",
                    issue_id="31",
                    comment_id=str(number),
                ),
                content=text,
            ),
        )
    await service.close()


async def test_the_frame_is_painted_before_the_service_is_open(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def slow(*arguments: Any, **named: Any) -> MemoryService:
        await gate.wait()
        return await open_service(*arguments, **named)

    monkeypatch.setattr(memtui.service, "open_service", slow)
    app = MemtuiApp(paths, settings, screen="records")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert app.state.phase is Phase.OPENING
        assert "Opening your memories" in screen_text(app)
        assert "4 Records" in screen_text(app)
        await pilot.press("2")
        await pilot.pause()
        assert "Opening your memories" in screen_text(app)
        gate.set()
        await ready(pilot, app)
        assert "Opening your memories" not in screen_text(app)
        assert "vault·default" in screen_text(app)


async def test_a_service_that_does_not_open_says_why_and_opens_on_r(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **_named: Any) -> MemoryService:
        raise Unavailable("The database is locked; close the other memtui [/x].")

    monkeypatch.setattr(memtui.service, "open_service", refuse)
    async with running(paths, settings) as (app, pilot):
        assert "The database is locked; close the other memtui [/x]." in screen_text(app)
        assert "Press r to try again" in screen_text(app)
        await pilot.press("s")
        assert toasts(app) == ["The database is locked; close the other memtui [/x]."]
        monkeypatch.setattr(memtui.service, "open_service", open_service)
        await pilot.press("r")
        await ready(pilot, app)
        assert app.state.phase is Phase.READY


async def test_an_unknown_company_is_a_sentence(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, company="nobody") as (app, _):
        assert "There is no company nobody; the companies are Local." in screen_text(app)


async def test_numbers_and_clicks_go_to_the_screens(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, screen="bindings") as (app, pilot):
        for key, mode in (("2", "operations"), ("4", "records"), ("1", "bindings")):
            await pilot.press(key)
            await pilot.pause()
            assert app.frame is not None
            assert mode == app.frame.MODE
        await click_on(pilot, "4 Records")
        await pilot.pause()
        assert app.frame is not None
        assert app.frame.MODE == "records"


async def test_screens_are_prepared_while_nobody_types_and_ask_no_provider(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(paths, settings, "Deploys happen from main")
    monkeypatch.setattr("memtui.app._GAP_SECONDS", 0)
    async with running(paths, settings, screen="records", prepares=True) as (app, pilot):
        await until(pilot, lambda: len(app._frames) == len(SCREENS))
        await settle(pilot, app)
        read = {one.MODE: one for one in app._frames}
        log: VirtualList[Operation] = read["operations"].query_one(VirtualList)
        assert log.current is not None
        assert log.current.operation_type is OperationType.WRITE
        bindings = read["bindings"]
        assert isinstance(bindings, BindingsScreen)
        assert [one.key for one in bindings.view.bindings] == ["default"]
        assert not bindings.view.healths
        await until(pilot, lambda: bindings.view.findings is not None)
        with closing(sqlite3.connect(paths.database)) as database:
            done = "SELECT operation_type FROM memory_operations WHERE channel = 'tui'"
            assert list(database.execute(done)) == [("browse",)]  # which Records did
        prepared = {one.MODE: one for one in app._frames}
        figures = prepared["analytics"]
        assert isinstance(figures, AnalyticsScreen)
        await until(pilot, lambda: figures.plots)
        buckets = figures.board.buckets if figures.board else ()
        await pilot.press("6")
        await settle(pilot, app)
        assert app.frame is figures
        assert "Operations by day" in screen_text(app)
        assert figures.board is not None
        assert figures.board.buckets is buckets  # which were not added up again
        await pilot.press("4")
        assert all(one.is_mounted and one.query("#body *") for one in prepared.values())
        assert app.frame is prepared["records"]
        for key in ("3", *"deploys", "enter"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await settle(pilot, app)
        assert app.frame is prepared["query"]
        assert "Deploys happen from main" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.press("escape", "5")
        await settle(pilot, app)
        assert app.frame is prepared["budget"]
        assert app.frame.has_class("-narrow", "-short")
        assert app.focused is not None
        assert app.focused.screen is app.frame
        app.theme = "textual-light"
        await fill(paths, settings, "Use containers")
        await pilot.press("2")
        await until(pilot, lambda: "use-containers" in screen_text(app))
        assert app.frame is prepared["operations"]
        footer = app.frame.query_one("#key-footer")
        assert footer.styles.background == Color.parse(app.theme_variables["panel"])


async def test_reading_ahead_is_broken_off_and_begun_again(
    paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "Deploys happen from main")
    async with running(paths, settings, screen="operations") as (app, pilot):
        (log,) = app._frames
        rows = log.query_one(VirtualList)
        await pilot.press("4")
        await settle(pilot, app)
        log.forget()
        log.reload()
        for goes_on in (False, True):
            await log.prepare()
            assert log.reading
            if not goes_on:
                log.break_off()
            await settle(pilot, app)
            assert bool(rows.rows.count) is goes_on

        log.reload()
        await log.prepare()
        app.controller.choose(as_of=datetime.now(UTC))
        await settle(pilot, app)
        assert not rows.rows.count  # of what it was reading of now


async def test_a_filter_goes_along_to_every_screen_and_comes_back(
    paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "Deploys happen from main", "Use containers", project_id="p")
    async with running(paths, settings, screen="records") as (app, pilot):
        await pilot.press("slash", *"deploys", "enter")
        await settle(pilot, app)
        assert app.state.filter.text == "deploys"
        await pilot.press("2")
        await settle(pilot, app)
        assert app.screen.query_one("#filter-input", Input).value == "deploys"
        await pilot.press("ctrl+l")
        await settle(pilot, app)
        assert app.state.filter_line == ""
        assert app.state.filters == ("deploys",)

        # In the line too it takes away what is in force, and what is being written.
        for applied in (["enter", "slash"], []):
            await pilot.press("slash", *"use", *applied)
            await settle(pilot, app)
            assert app.state.filter_line == ("use" if applied else "")
            await pilot.press("ctrl+l")
            await settle(pilot, app)
            assert app.state.filter_line == ""
            line = app.screen.query_one("#filter-input", Input)
            assert (line.value, line.has_focus) == ("", True)
            await pilot.press("escape")


@pytest.mark.parametrize("screen", ["operations", "query", "records", "budget", "analytics"])
async def test_the_filter_line_keeps_keys_and_a_second_escape_clears_the_filter(
    screen: str, paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "Deploys happen from main", project_id="p")
    async with running(paths, settings, screen=screen) as (app, pilot):
        if screen == "query":  # the question has the focus, where / is text
            await pilot.press("escape")
        await pilot.press("slash", *"zzz", "tab", *"pq")
        assert app.screen.query_one("#filter-input", Input).value == "zzzpq"
        await pilot.press("escape")
        await settle(pilot, app)
        assert (app.state.filter_line, app.is_running) == ("zzzpq", True)
        if screen == "query":  # without an answer the question has the focus, and is left first
            await pilot.press("escape")
        await pilot.press("escape")
        await settle(pilot, app)
        assert app.state.filter_line == "", app.focused


async def test_the_scope_chooser_narrows_and_widens(paths: Paths, settings: Settings) -> None:
    await fill(paths, settings, "Deploys happen from main", project_id="fighters")
    async with running(paths, settings, screen="bindings") as (app, pilot):
        await pilot.press("s")
        await settle(pilot, app)
        assert isinstance(app.screen, Choose)
        await pilot.press(*"fight", "enter")
        await settle(pilot, app)
        assert app.state.scope.project_id == "fighters"
        assert "Local › fighters" in screen_text(app)
        await pilot.press("s")
        await settle(pilot, app)
        await pilot.press(*"remove", "enter")
        await settle(pilot, app)
        assert app.state.scope == Scope(company_id="local")


async def test_help_names_the_reason_and_a_disabled_key_says_it(
    paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "x")
    frozen = load_settings(paths, read_only=True)
    async with running(paths, frozen, screen="bindings") as (app, pilot):
        await pilot.press("d")
        assert toasts(app) == ["memtui was started with --read-only."]
        assert not isinstance(app.screen, Confirm)
        assert "read-only" in screen_text(app).splitlines()[0]
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Sheet)
        assert "¹ memtui was started with --read-only." in screen_text(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, Sheet)


async def test_a_removal_needs_another_key_than_the_one_that_asked(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, screen="bindings") as (app, pilot):
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(app.screen, Confirm)
        assert "Remove the binding vault·default?" in screen_text(app)
        for key in ("d", "enter", "escape"):
            await pilot.press(key)
        await settle(pilot, app)
        assert [one.key for one in app.state.bindings] == ["default"]
        await pilot.press("d", "y")
        await settle(pilot, app)
        assert app.state.bindings == ()
        assert "no binding" in screen_text(app).splitlines()[0]


async def test_a_question_is_answered_with_sources_and_costs(
    paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "Deploys happen from main", "Use containers")
    async with running(paths, settings, screen="query") as (app, pilot):
        await pilot.press(*"deploys", "enter")
        await settle(pilot, app)
        shown = screen_text(app)
        assert "1 result for “deploys”" in shown
        assert "issue 31 comment 0" in shown
        assert "no tokens used" in shown
        await pilot.press("w")
        await settle(pilot, app)
        assert "How “deploys” was answered" in screen_text(app)
        await pilot.press("escape")
        await app.frame.perform("query.same_source")  # type: ignore[union-attr]
        await settle(pilot, app)
        assert app.frame is not None
        assert app.frame.MODE == "records"
        assert app.state.filter.issue_id == "31"
        await pilot.press("3", "h")
        await settle(pilot, app)
        assert "Asked before" in screen_text(app)
        assert "1 hit" in screen_text(app)
        assert "1 record returned" in screen_text(app)


async def test_a_session_is_restored(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, screen="bindings") as (app, pilot):
        await pilot.press("2", "slash", *"type:write", "enter")
        await settle(pilot, app)
        app.theme = "ansi"
        await pilot.press("q")
    assert load_session(paths.session_file).company == "local"
    async with running(paths, settings) as (app, pilot):
        assert app.frame is not None
        assert app.frame.MODE == "operations"
        assert app.state.filter_line == "type:write"
        assert app.theme == "ansi"
    async with running(paths, load_settings(paths, theme="memtui-light")) as (app, pilot):
        assert app.theme == "memtui-light"
        await pilot.press("q")
    assert load_session(paths.session_file).theme == "ansi"  # what was given was of one start


async def test_a_remembered_company_that_is_gone_is_no_reason_to_fail(
    paths: Paths, settings: Settings
) -> None:
    paths.session_file.write_text('{"company": "imported"}')
    async with running(paths, settings) as (app, _):
        assert app.state.phase is Phase.READY
        assert app.state.scope.company_id == "local"


async def test_a_broken_session_is_told_and_no_more(paths: Paths, settings: Settings) -> None:
    paths.session_file.write_bytes(b"\xff{")
    async with running(paths, settings) as (app, _):
        assert app.state.phase is Phase.READY
        assert any("starts afresh" in said for said in toasts(app))


def test_a_keymap_that_does_not_fit_stops_the_start(paths: Paths) -> None:
    settings = load_settings(paths, keymap={"records.forgt": "x"})
    with pytest.raises(Invalid, match=r"did you mean records\.forget"):
        run_app(paths, settings)
    with pytest.raises(Invalid, match="no screen 'nowhere'"):
        MemtuiApp(paths, load_settings(paths), screen="nowhere")


async def test_a_moved_key_works_and_its_old_one_does_not(paths: Paths) -> None:
    settings = load_settings(paths, keymap={"app.help": "f9"})
    async with running(paths, settings) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        assert not isinstance(app.screen, Sheet)
        await pilot.press("f9")
        await pilot.pause()
        assert isinstance(app.screen, Sheet)


async def test_it_ends_when_asked_to_though_a_flood_of_keys_waits(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings) as (app, pilot):
        await pilot.press("4", "slash")
        await until(pilot, lambda: isinstance(app.focused, Input))
        line = app.focused
        assert isinstance(line, Input)
        for _ in range(2_000):
            app.post_message(Key("a", "a"))
        app.exit(return_code=143)
    assert line.value == ""


async def test_the_palette_lists_a_hostile_company(paths: Paths, settings: Settings) -> None:
    service = await open_service(paths, settings)
    other = Caller(company_id="other", principal="user:ana", channel="test")
    await service.companies.add(other, "Acme")
    with service._runtime.database.write() as database:  # as an import or another program may do
        update_company(database, "other", {"name": "Acme [/x] [$error] \x1b[31m\u202e"})
    await service.close()
    async with running(paths, settings) as (app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"company acme")
        await until(pilot, lambda: "Company: Acme [/x] [$error] ␛[31m" in screen_text(app))
        assert_harmless(screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.state.scope.company_id == "other")


async def test_hostile_records_are_harmless_on_every_screen(
    paths: Paths, settings: Settings
) -> None:
    texts = [f"deploy {text[:200_000]}" for text in HOSTILE if "\ud800" not in text]
    await fill(paths, settings, *texts, project_id="p [/x] ")
    async with running(paths, settings, screen="query") as (app, pilot):
        sizes = ((80, 24), (200, 60), (40, 12))

        async def look(size: tuple[int, int]) -> None:
            await pilot.resize_terminal(*size)
            assert_harmless(screen_text(app))

        await pilot.press(*"deploy", "enter")
        await settle(pilot, app)
        for size, _ in zip(cycle(sizes), texts, strict=False):
            await look(size)
            await pilot.press("j")
        for keys in (("w",), ("escape", "1"), ("2", "j", "j"), ("4", "j", "j"), ("s",)):
            await pilot.press(*keys)
            await settle(pilot, app)
            for size in sizes:
                await look(size)


async def test_every_size_shows_the_frame_and_resizing_is_live(
    paths: Paths, settings: Settings
) -> None:
    await fill(paths, settings, "Deploys happen from main")
    async with running(paths, settings, (200, 60), screen="query") as (app, pilot):
        for size, classes in (((200, 60), "-wide"), ((80, 24), "-narrow"), ((50, 14), "-tiny")):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert app.screen.has_class(classes)
            shown = screen_text(app).splitlines()
            assert "Local" in shown[0]
            assert "3 Query" in shown[1]
            assert "help" in shown[-1] or "results" in shown[-1]


def test_the_styles_are_found_and_use_theme_variables_only() -> None:
    import re

    text = styles_path().read_text(encoding="utf-8")
    assert not re.search(r":\s*[^;]*(#[0-9a-fA-F]{3,8}|rgb|hsl)", text)
    rules = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    by_place = re.findall(r":(?:first|last)-[a-z-]+|:(?:odd|even|empty)\b", rules)
    assert not by_place, "these have every widget of the type styled twice"


async def test_no_color_and_ansi_paint_no_colour_of_ours(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for theme in ("memtui-light", "ansi"):
        async with running(paths, load_settings(paths, theme=theme)) as (app, _):
            assert app.no_color
            assert app.theme == theme
            assert app.native_ansi_color is (theme == "ansi")


@pytest.mark.parametrize("theme", ["memtui", "memtui-light"])
async def test_sixteen_colours_show_which_row_is_selected(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "")
    async with running(paths, load_settings(paths, theme=theme)) as (app, _):
        assert app.console.color_system == "standard"
        row = app.screen.query_one(VirtualList).get_component_rich_style("virtual-list--cursor")
        ground = Color.parse(app.get_css_variables()["background"]).rich_color
        assert row.bgcolor is not None
        standard = ColorSystem.STANDARD
        assert row.reverse or row.bgcolor.downgrade(standard) != ground.downgrade(standard)


@pytest.mark.parametrize("theme", ["memtui", "memtui-light", "ansi"])
async def test_sixteen_colours_show_which_choice_is_highlighted(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "")
    async with running(paths, load_settings(paths, theme=theme)) as (app, pilot):
        await pilot.press("B")
        await pilot.pause()
        grounds = []
        for line in (0, 1):
            [first, *_] = app.screen.query_one(ChoiceList).render_line(line)
            assert first.style is not None
            assert first.style.bgcolor is not None
            grounds.append(first.style.bgcolor.downgrade(ColorSystem.STANDARD))
        assert grounds[0] != grounds[1]


async def test_a_fault_ends_with_one_sentence_and_the_log_has_the_rest(
    paths: Paths, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    app = MemtuiApp(paths, settings)

    async def divide() -> None:
        async with app.run_test() as pilot:
            await ready(pilot, app)
            app.call_later(lambda: 1 / 0)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await divide()
    assert app.return_code == 1
    assert "ZeroDivisionError" in caplog.text


async def test_a_database_that_is_taken_away_is_told_and_not_made_anew(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings) as (app, pilot):
        kept = paths.database.rename(paths.database.with_name("kept.db"))
        await pilot.press("r")
        await until(pilot, lambda: any("memtui.db is gone" in said for said in toasts(app)))
        await until(pilot, lambda: "✗ down" in screen_text(app))
        assert not paths.database.exists()
        kept.rename(paths.database)
        await pilot.press("r")
        await until(pilot, lambda: "✗ down" not in screen_text(app))


async def test_opening_a_damaged_database_is_a_sentence(paths: Paths, settings: Settings) -> None:
    paths.create()
    paths.database.write_bytes(b"this is not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(paths.database).execute("select * from x")
    async with running(paths, settings, tours=True) as (app, pilot):
        assert app.state.phase is Phase.FAILED
        await until(pilot, lambda: "Press r to try again" in screen_text(app))
        assert "Welcome" not in screen_text(app)
        assert "Traceback" not in screen_text(app)


def test_what_is_written_to_a_closed_terminal_is_dropped() -> None:
    terminal, end = os.openpty()
    file = os.fdopen(end, "w")
    output = TerminalOutput(file)
    output.write("seen")
    output.flush()
    os.close(terminal)
    with pytest.raises(OSError, match="Input/output"):
        os.write(end, b"lost")
    for _ in range(100):
        assert output.write("x" * 10_000) == 10_000
    output.flush()
    with suppress(OSError):
        file.close()


async def test_a_stranger_is_told_so_at_once(paths: Paths, settings: Settings) -> None:
    service = await open_service(paths, settings)
    owner = Membership(principal="user:eve", role=Role.OWNER)
    caller = Caller(company_id="local", principal="user:eve", channel="test")
    await service.members.set(caller, owner)
    await service.close()
    async with running(paths, settings) as (app, pilot):
        await until(pilot, lambda: app.state.phase is Phase.FAILED)
        assert "not a member here" in screen_text(app)


async def test_a_home_of_another_form_says_so_and_is_opened_again(
    paths: Paths, settings: Settings
) -> None:
    column, other = "capture_post_run", "captured_once"
    _rename(paths.database, column, other)
    async with running(paths, settings) as (app, pilot):
        assert f"no such column: {column}" in screen_text(app)
        assert "Press r to try again" in screen_text(app)
        _rename(paths.database, other, column)
        await pilot.press("r")
        await ready(pilot, app)
        assert app.state.phase is Phase.READY


def _rename(database: Path, column: str, other: str) -> None:
    with closing(sqlite3.connect(database)) as home:
        home.execute(f"ALTER TABLE memory_bindings RENAME COLUMN {column} TO {other}")


class _Late(Screen[None]):
    """Is mounted as the app ends, when Textual gives it no widgets."""

    def on_mount(self) -> None:
        self.app.exit(return_code=3)
        self.query_one(VirtualList).focus()


async def test_a_screen_that_is_mounted_as_memtui_ends_is_no_failure(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings) as (app, _):
        app.push_screen(_Late())
    assert app.return_code == 3
