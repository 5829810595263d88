"""In 16 colours, text can be read on every ground, and dim text is told from the rest."""

from __future__ import annotations

import pytest
from rich.color import Color as TerminalColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.filter import dim_color
from textual.theme import Theme
from textual.widgets import Static

from memtui.screens.themes import own_themes
from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.few_colours import PlainOnGround, dimmed_on
from tests.screens.hostile import screen_text
from tests.screens.piloting import until


def drawn(style: str, page: str) -> Style:
    [segment] = PlainOnGround().apply([Segment("ok", Style.parse(style))], Color.parse(page))
    assert segment.style is not None
    return segment.style


@pytest.mark.parametrize(
    ("style", "page", "colour"),
    [
        ("dim magenta on blue", "ansi_default", 15),
        ("#0000aa on #000000", "#ffffff", 15),
        ("green on #ffffff", "#000000", 0),
    ],
)
def test_text_on_a_ground_of_its_own_is_white_or_black(style: str, page: str, colour: int) -> None:
    shown = drawn(style, page)
    assert shown.color is not None
    assert shown.color.number == colour
    assert not shown.dim


@pytest.mark.parametrize("style", ["dim green on #000000", "green", "green on default"])
def test_text_on_the_page_keeps_its_colour(style: str) -> None:
    assert drawn(style, "#000000") == Style.parse(style)


@pytest.mark.parametrize("theme", own_themes("standard")[:2], ids=lambda one: one.name)
def test_dim_text_and_what_is_selected_differ_from_the_rest(theme: Theme) -> None:
    chosen, selected = (
        theme.variables[name] for name in ("block-cursor-background", "input-selection-background")
    )
    page, text, *grounds = (
        TerminalColor.parse(str(one))
        for one in (theme.background, theme.foreground, chosen, selected)
    )
    assert len({numbered(page), numbered(text), numbered(dim_color(page, text))}) == 3
    assert numbered(page) not in {numbered(one) for one in grounds}


@pytest.mark.parametrize("theme", own_themes("256")[:2], ids=lambda one: one.name)
def test_grounds_in_256_colours_are_greys_and_the_chosen_row_differs(theme: Theme) -> None:
    chosen = TerminalColor.parse(str(theme.variables["block-cursor-background"]))
    shown = [
        TerminalColor.parse(str(one)).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        for one in (theme.background, theme.surface, theme.panel)
    ]
    assert all(len(set(one)) == 1 for one in shown)
    assert len({*shown, chosen.downgrade(ColorSystem.EIGHT_BIT).get_truecolor()}) == 4


@pytest.mark.parametrize(("ground", "grey"), [("#000000", 8), ("#ffffff", 8), ("#505050", 7)])
def test_dimmed_text_is_the_grey_that_is_far_from_its_ground(ground: str, grey: int) -> None:
    assert numbered(dimmed_on(Color.parse(ground)).rich_color) == grey


async def test_the_chosen_row_under_a_dialog_is_dimmed_as_the_rest() -> None:
    class Below(App[None]):
        CSS = "DimmingScreen { background: black 60%; } #chosen { background: blue; color: white; }"

        def compose(self) -> ComposeResult:
            yield Static("a row")
            yield Static("the chosen row", id="chosen")

    app = Below()
    async with app.run_test(size=(20, 2)) as pilot:
        app.add_class("-few-colours")
        await app.push_screen(DimmingScreen[None]())
        await until(pilot, lambda: "a row" in screen_text(app))
        below, chosen = app.screen._compositor.render_strips()
        assert {part.style for part in below} == {part.style for part in chosen}
        assert {part.style and part.style.color for part in below} == {
            dimmed_on(Color.parse("black")).rich_color
        }


def numbered(colour: TerminalColor) -> int | None:
    return colour.downgrade(ColorSystem.STANDARD).number
