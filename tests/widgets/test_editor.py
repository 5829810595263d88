"""The text area keeps a foreign text exactly and draws none of it raw."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.events import Paste

from memtui.widgets.editor import (
    LONGEST_IN_PLACE,
    ForeignInput,
    ForeignTextArea,
    OneLineArea,
    keeps,
)
from tests.screens.hostile import HOSTILE, assert_harmless


class Edit(App[None]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield ForeignTextArea(self.text)


@pytest.mark.parametrize("text", [text for text in HOSTILE if len(text) <= LONGEST_IN_PLACE])
async def test_nothing_raw_is_drawn_and_nothing_is_lost(text: str) -> None:
    app = Edit(text)
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.press("ctrl+end")
        area = app.query_one(ForeignTextArea)
        for y in range(12):
            assert_harmless(area.render_line(y).text)
        assert area.text == text or not keeps(text)


async def test_one_line_stays_one() -> None:
    class Ask(App[None]):
        BINDINGS = [("enter", "save", "save")]
        saved = ""

        def compose(self) -> ComposeResult:
            yield OneLineArea("likes")

        def action_save(self) -> None:
            self.saved = self.query_one(OneLineArea).text

    app = Ask()
    async with app.run_test(size=(40, 3)) as pilot:
        area = app.query_one(OneLineArea)
        area.focus()
        area.move_cursor(area.document.end)
        await pilot.press("space", "t")
        app.post_message(Paste("ea\r\nand Lua\n"))
        await pilot.press("!", "enter")
        assert app.saved == area.text == "likes tea and Lua!"


def test_what_a_text_area_would_change_is_known_beforehand() -> None:
    assert keeps("one\ntwo\n")
    assert keeps("one\r\ntwo")
    assert keeps("\x1b[31m")
    assert not keeps("one\r\ntwo\nthree")
    assert not keeps("a\u2028b")
    assert not keeps("a\x0cb")
    assert not keeps("x" * (LONGEST_IN_PLACE + 1))


async def test_a_placeholder_loses_whole_words_where_it_does_not_fit() -> None:
    class Ask(App[None]):
        def compose(self) -> ComposeResult:
            yield ForeignInput(placeholder="such as agent:coding since:7d", compact=True)

    app = Ask()
    async with app.run_test(size=(40, 3)) as pilot:
        for width, shown in ((26, "such as agent:coding …"), (40, "such as agent:coding since:7d")):
            await pilot.resize_terminal(width, 3)
            await pilot.pause()
            assert app.query_one(ForeignInput).render_line(0).text.strip() == shown


async def test_a_line_that_is_left_shows_its_beginning_unless_the_terminal_was_left() -> None:
    class Ask(App[None]):
        def compose(self) -> ComposeResult:
            yield ForeignInput("agent:coding since:7d", compact=True)

    app = Ask()
    async with app.run_test(size=(12, 3)) as pilot:
        line = app.query_one(ForeignInput)
        await pilot.press("end", "x")
        assert "since:7dx" in line.render_line(0).text
        app.app_focus = False
        await pilot.pause()
        app.app_focus = True
        await pilot.pause()
        assert "since:7dx" in line.render_line(0).text
        app.set_focus(None)
        await pilot.pause()
        assert line.render_line(0).text.startswith("agent:coding")
