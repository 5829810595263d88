"""The part of a long text that answers a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.passages import passage

FILLER = "Nothing of interest happened on that day. " * 40
ANSWER = "The deployment branch is release, with three approvals."


@pytest.mark.parametrize("place", range(0, 3, 1))
def test_a_passage_is_around_the_match(place: int) -> None:
    parts = [FILLER, FILLER]
    parts.insert(place, ANSWER)
    found = passage("\n".join(parts), "which branch do we deploy from?", 200)
    assert ANSWER in found.text
    assert found.is_cut
    assert len(found.text) <= 200


def test_a_passage_holds_the_words_that_stand_together() -> None:
    text = f"branch {FILLER}\n{ANSWER}\n{FILLER} approvals"
    assert ANSWER in passage(text, "branch approvals", 150).text


def test_a_passage_is_found_whatever_the_spelling() -> None:
    text = FILLER + "Der Zweig für die Straße nach Łódź ist ｒｅｌｅａｓｅ. " + FILLER
    for query in ("lodz", "STRASSE", "release"):
        assert "nach" in passage(text, query, 120).text


def test_a_match_by_meaning_gives_the_beginning() -> None:
    found = passage(ANSWER + FILLER, "zebra", 100)
    assert found.text.startswith("The deployment branch is release")
    assert found.text.endswith("…")


def test_a_text_without_spaces_is_searched_by_pairs() -> None:
    text = "天气很好。" * 200 + "生产环境部署在东京。" + "天气很好。" * 200
    assert "部署在东京" in passage(text, "服务部署在哪里？", 60).text


def test_a_short_text_stays_whole() -> None:
    assert passage(ANSWER, "branch") == (ANSWER, False)


@given(st.text(), st.text(max_size=30), st.integers(3, 80))
def test_a_passage_is_a_part_of_the_text_and_never_longer(
    text: str, query: str, characters: int
) -> None:
    found = passage(text, query, characters)
    assert len(found.text) <= characters
    assert found.text.removeprefix("…").removesuffix("…") in text


def test_a_text_of_just_the_length_is_whole() -> None:
    text = (ANSWER + " ") * 3
    assert passage(text, "branch", len(text)) == (text, False)
    cut = passage(text, "branch", len(text) - 1)
    assert cut.is_cut
    assert len(cut.text) <= len(text) - 1
