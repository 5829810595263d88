"""The border between a list and its details: moved by keys and mouse, and kept."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

from memtui.app import styles_path
from memtui.widgets.panes import DetailPane, OptionRows, Split


class Host(App[None]):
    """A list beside its details, or above them."""

    CSS_PATH = styles_path()
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(self, shares: dict[str, int]) -> None:
        super().__init__()
        self.shares = shares

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"rule": "grey", "thumb": "grey"}

    def compose(self) -> ComposeResult:
        with Split("records", self.shares):
            yield OptionRows()
            yield DetailPane(Static("words"))

    def on_split_moved(self, message: Split.Moved) -> None:
        self.shares[message.place] = message.share or 0

    @property
    def lengths(self) -> tuple[int, int]:
        """The list's and the details' cells along the way in which they stand."""
        parts = [self.query_one(OptionRows).region, self.query_one(DetailPane).region]
        wide = self.size.width >= 100
        first, second = (one.width if wide else one.height for one in parts)
        return first, second


@pytest.mark.parametrize(
    ("size", "place", "whole"),
    [((120, 40), "records beside", 120), ((80, 40), "records below", 40)],
)
async def test_the_border_moves_with_keys_and_mouse_and_is_kept(
    size: tuple[int, int], place: str, whole: int
) -> None:
    app = Host({})
    async with app.run_test(size=size) as pilot:
        app.query_one(OptionRows).focus()
        await pilot.pause()
        begin, _ = app.lengths
        await pilot.press("right_curly_bracket", "right_curly_bracket")
        await pilot.pause()
        assert app.shares == {place: pytest.approx(70, abs=1)}
        assert app.lengths == (round(whole * 0.7), whole - round(whole * 0.7))

        def at(cell: int) -> tuple[int, int]:
            return (cell, 3) if whole == 120 else (3, cell)

        edge = app.lengths[0]
        await pilot.mouse_down(offset=at(edge))
        await pilot.hover(offset=at(whole // 2))
        await pilot.mouse_up(offset=at(whole // 2))
        await pilot.hover(offset=at(whole // 4))
        assert app.shares == {place: 50}
        assert app.lengths == (whole // 2, whole // 2)
        assert isinstance(app.focused, OptionRows)
        await pilot.press(*["left_curly_bracket"] * 20)
        await pilot.pause()
        assert app.lengths[0] == round(whole * 0.15)
        kept = dict(app.shares)
        await pilot.click(offset=at(app.lengths[0]), times=2)
        await pilot.pause()
        assert app.lengths[0] == begin
        assert app.shares == {place: 0}
    again = Host(kept)
    async with again.run_test(size=size) as pilot:
        await pilot.pause()
        assert again.lengths[0] == round(whole * 0.15)
        await pilot.resize_terminal(90 if whole == 120 else 110, 40)
        await pilot.pause()
        assert again.lengths[0] not in {begin, round(whole * 0.15)}
