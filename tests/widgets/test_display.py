from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content
from textual.notifications import Notification
from textual.widgets._toast import Toast

from memtui.widgets.display import LONGEST, display, hanging, line
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_not_obeyed(text: str) -> None:
    shown = display(text)
    assert_content_harmless(shown)
    assert len(shown.plain) < LONGEST * 7
    assert shown.plain


@given(st.text(st.characters(), max_size=300))
def test_any_text_is_harmless(text: str) -> None:
    assert_harmless(display(text).plain)
    assert_harmless(line(text, display(text, style="bold")).plain)


def test_markup_is_letters() -> None:
    shown = display("[bold red]x[/] [$error]")
    assert shown.plain == "[bold red]x[/] [$error]"
    assert not shown.spans


def test_a_long_text_is_cut_and_the_rest_counted() -> None:
    assert display("x" * (LONGEST + 5)).plain.endswith(" … 5 more characters")
    assert display("x" * 50, limit=10).plain == "x" * 10 + "…"
    assert display(None).plain == ""


def test_empty_parts_leave_no_gap() -> None:
    assert line("a", None, "", Content(""), "b", gap=" · ").plain == "a · b"


def test_lines_hang_under_each_other() -> None:
    shown = hanging(Content("name  "), display("one two three four five"), 20).plain
    assert shown == "name  one two three\n      four five"
    assert hanging(Content("name  "), display("one two three four"), 16, most=1).plain == (
        "name  one two t…"
    )
    assert hanging(Content("name  "), display("one two"), 0).plain == "name  one two"


@given(st.text(max_size=200), st.integers(0, 80), st.integers(0, 3))
def test_hanging_never_passes_its_lines(text: str, width: int, most: int) -> None:
    shown = hanging(Content("x "), display(text), width, most=most)
    assert_harmless(shown.plain)
    if most and width > 20:
        assert shown.plain.count("\n") < most


@pytest.mark.parametrize("left_s", [-0.000_155, 0, 5])
def test_a_toast_that_is_over_while_it_is_made_does_not_hold_the_app_up(left_s: float) -> None:
    shown = Toast(Notification("Done.", timeout=left_s))
    assert 0 < shown._timeout <= max(left_s, 0.01)
