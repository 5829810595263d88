from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.channels.mcp.tools import Removed, Said, Stored, ToolAnswer
from memtui.visible import visible

hostile = st.text(alphabet=st.characters(codec=None, exclude_categories=())) | st.text(
    alphabet="a\x1b[31m\r\n\t\x07\x7f\x9b\u202e\u2066\u200b\u200d\u0301\u20dd\ufe0f\ud800\udfff\U000e0041"
)
MARKS = {"Mn", "Me"}


@given(hostile)
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    for char in shown:
        category = unicodedata.category(char)
        assert category not in {"Cc", "Cs", "Co", "Zl", "Zp"}, hex(ord(char))
        assert category != "Cf" or char in "\u200c\u200d", hex(ord(char))


@given(hostile)
def test_it_is_done_once_and_for_all(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown


@given(hostile)
def test_newlines_stay_only_where_they_are_wanted(text: str) -> None:
    assert "\n" not in visible(text)
    assert visible(text, keep_newlines=True).count("\n") == text.count("\n")


@given(hostile)
def test_characters_without_a_width_never_pile_up(text: str) -> None:
    run = 0
    for char in visible(text):
        run = run + 1 if unicodedata.category(char) in MARKS or char in "\u200c\u200d" else 0
        assert run <= 4


@given(hostile, st.integers(0, 20))
def test_a_limit_cuts_what_is_read(text: str, limit: int) -> None:
    shown = visible(text, limit=limit)
    if len(text) <= limit:
        assert shown == visible(text)
    else:
        assert shown == visible(text[:limit]) + "…"


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_plain_text_of_any_script_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\r\nb", "a␍⏎b"),
        ("a\tb", "a b"),
        ("a\x7fb\x00", "a\u2421b␀"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("e\u0301", "e\u0301"),
        ("z" + "\u0336" * 50 + "y", "z" + "\u0336" * 4 + "…y"),
        ("z" + "\u20dd" * 50, "z" + "\u20dd" * 4 + "…"),
        ("z" + "\u200d" * 50, "z" + "\u200d" * 4 + "…"),
        ("👩‍👩‍👧‍👦 ❤️‍🔥 👍🏽", "👩‍👩‍👧‍👦 ❤️‍🔥 👍🏽"),
        ("می‌خواهم", "می‌خواهم"),
        ("क्षत्रिय", "क्षत्रिय"),
        ("", ""),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert visible(text) == shown


class CountedText(str):
    """Counts the characters that are taken out of it."""

    __slots__ = ("taken",)

    def __getitem__(self, index):
        part = str(self)[index]
        self.taken = len(part)
        return part

    def __iter__(self):
        raise AssertionError("the whole text was read")

    def isascii(self):
        raise AssertionError("the whole text was read")


def test_past_the_limit_nothing_is_read() -> None:
    line = CountedText("\x1b\u0301" * 5_000_000)
    assert visible(line, limit=200) == visible("\x1b\u0301" * 100) + "…"
    assert line.taken == 200


@pytest.mark.parametrize("char", "\U0001fae8\U0001fae9\U0001faea\U0001f6d8\U0001fadf\U000323b0")
def test_a_character_newer_than_the_tables_of_python_stays(char: str) -> None:
    assert visible(f"a{char}b") == f"a{char}b"


@pytest.mark.parametrize(
    "char", "\uffff\U0001fffe\U0010ffff\ufdd0\ufff0\u2065\U000e0080\U000e0fff\U0001345f"
)
def test_what_is_no_character_or_never_seen_is_escaped(char: str) -> None:
    assert visible(char).startswith("\\")


@pytest.mark.parametrize(
    "answer",
    [
        Stored(operation_id="1", binding="a", ids=("one", "a\x1b[31m")),
        Stored(operation_id="1", binding="a\x1b[31m", ids=("one", "two")),
        Stored(operation_id="1", binding="a", ids=("one",), was="a\x1b[31m"),
        Stored(operation_id="1", binding="a", ids=("one",), similar={"b": 0.9, "a\x1b[31m": 0.8}),
        Removed(operation_id="1", binding="a", ids=("one", "a\x1b[31m")),
        Removed(operation_id="1", binding="a", ids=(), missing=("one", "a\x1b[31m")),
        Removed(operation_id="1", binding="a", ids=(), still_found=("one", "a\x1b[31m")),
        Removed(operation_id="1", binding="a", ids=(), refused={"one": "no", "a\x1b[31m": "no"}),
        Removed(operation_id="1", binding="a", ids=(), refused={"one": "a\x1b[31m"}),
        Said(operation_id="1", binding="a", id="a\x1b[31m", verdict="helped"),
    ],
    ids=repr,
)
def test_an_answer_to_an_agent_shows_no_name_raw(answer: ToolAnswer) -> None:
    assert "\x1b" not in answer.words()
    assert visible("a\x1b[31m") in answer.words()
