from __future__ import annotations

from textual.app import App
from textual.widgets import Input

from memtui.config import Paths, Settings
from memtui.screens.dialogs import Choice, ChooseAll, Prompt, WriteRecord
from tests.screens.piloting import running, until


class _Host(App[None]):
    """An app that asks one thing."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str | None] = []

    def on_mount(self) -> None:
        self.push_screen(Prompt("Its name?", value="old"), self.answers.append)


async def test_each_choice_is_turned_by_itself_and_taken_together() -> None:
    answers: list[tuple[str, ...] | None] = []
    app: App[None] = App()
    async with app.run_test() as pilot:
        choices = [Choice(one, one) for one in ("runs", "comments", "documents")]
        asked: ChooseAll[str] = ChooseAll("Which?", choices, ("comments",))
        await app.push_screen(asked, answers.append)
        await pilot.press("space", "down", "enter", "down", "space")
        assert asked.is_written
        await pilot.press("space", "ctrl+s")
        await pilot.pause()
    assert answers == [("runs",)]


async def test_a_click_beside_a_dialog_goes_back() -> None:
    app = _Host()
    async with app.run_test() as pilot:
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert app.answers == [None]


async def test_a_click_beside_a_dialog_throws_away_nothing_that_is_written() -> None:
    app = _Host()
    async with app.run_test() as pilot:
        await pilot.press("e", "r")
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert app.answers == []
        assert app.screen.query_one(Input).value == "er"
        await pilot.press("escape")
        await pilot.pause()
        assert app.answers == [None]


async def test_the_app_is_left_from_a_dialog_but_not_with_what_is_written(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("a", "w", "ctrl+q")
        await until(pilot, lambda: app.screen.query(".dialog-title"))
        await pilot.press("ctrl+q")
        assert app.return_code is None
        assert isinstance(app.screen, WriteRecord)
        assert app.screen.text == "w"
        await pilot.press("escape", "y", "s")
        await until(pilot, lambda: app.screen.query(".dialog-input"))
        await pilot.press("q", "ctrl+q")
        assert app.return_code == 0
