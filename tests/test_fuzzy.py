from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import Filter
from memtui.fuzzy import MOST_CHARACTERS, SLIP_FROM, finds

letters = st.text(alphabet="abcdeploé7", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("deploy", "Deploy the branch", True),
        ("dply", "DEPLOYMENT", True),
        ("ply", "redeploy", True),
        ("dplb", "deploy branch", False),
        ("dpl-prd", "deploy-prod", True),
        ("dplprd", "deploy-prod", False),
        ("yolped", "deploy", False),
        ("relaese", "the release", True),
        ("relexse", "the release", True),
        ("releasse", "the release", True),
        ("xelease", "the release", False),
        ("realaes", "the release", False),
        ("cots", "cost", False),
        ("развртвн", "РАЗВЁРТЫВАНИЕ", True),
        ("развертывание", "развёртывание", True),
        ("a.b", "axb a.b", True),
        ("a.b", "axb", False),
        ("[x]", "x", False),
    ],
)
def test_examples(word: str, text: str, found: bool) -> None:
    assert finds(word, text) is found


@given(letters, st.lists(letters, max_size=8))
def test_anything_may_stand_between_the_characters_but_the_end_of_a_word(
    word: str, between: list[str]
) -> None:
    gaps = [*between, *("" for _ in word)]
    spread = "".join(sign + gap for sign, gap in zip(word, gaps, strict=False))
    assert finds(word, f"x {spread}, y")
    if len(word) == 2:
        assert not finds(word, f"{word[0]} {word[1]}")


@given(letters.filter(lambda word: len(word) >= SLIP_FROM), st.data())
def test_one_slip_is_forgiven(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(word) - 1))
    assert finds(f"{word[:place]}z{word[place:]}", word)
    assert finds(f"{word[:place]}z{word[place + 1 :]}", word)
    if place > 1:
        swapped = word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :]
        assert finds(swapped, word)


def test_the_longest_word_is_the_contracts() -> None:
    words = Filter.model_json_schema()["$defs"]["Filter"]["properties"]["fuzzy"]["items"]
    assert words["maxLength"] == MOST_CHARACTERS
