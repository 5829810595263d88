from __future__ import annotations

import random
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memtui.pruning.duplicates import Likeness, Match, compare, form_of

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)
WORD = st.sampled_from(("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"))
PLAIN = st.lists(WORD, min_size=2, max_size=9)


def same(one: str, other: str) -> Match | None:
    there, back = compare(form_of(one), form_of(other)), compare(form_of(other), form_of(one))
    assert (there is None) == (back is None)
    return there


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Prefers dark mode.", "prefers DARK mode"),
        ("Prefers dark mode", "  Prefers\tdark\u00a0mode!  "),
        ("Don't deploy on Friday", "don’t deploy on friday."),
        ("Ships on Monday, reviews on Friday", "**Ships** on Monday; reviews on Friday"),
        ("Python 3.11", "python 3.11."),
        ("Budget is 1,000 dollars", "Budget is 1000 dollars"),
        ("ﬁle size", "file size"),
        ("self-care comes first", "self care comes first"),
        ("Тёмная тема", "тёмная ТЕМА!"),
        ("Тёмная тема", "темная тема"),
        ("用户喜欢深色模式", "用户喜欢深色模式。"),
        ("ユーザーはダークモードが好き", "ﾕｰｻﾞｰはﾀﾞｰｸﾓｰﾄﾞが好き"),
        ("STRASSE", "straße"),
        ("likes ❤\ufe0f", "likes ❤"),
        ("zero\u200bwidth", "zerowidth"),
        ("", "  "),
    ],
)
def test_dress_does_not_matter(one: str, other: str) -> None:
    match = same(one, other)
    assert match is not None
    assert match.likeness is Likeness.EXACT


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        (
            "In the evening Caroline paints",
            "Caroline paints in the evening",
            "The same words in another order.",
        ),
        ("The user prefers tea", "Prefers tea", "The same except for words without meaning."),
        ("cannot use Redux here", "can not use Redux here", "“cannot” and “can not”"),
        (
            "Maria likes recieving letters at home",
            "Maria likes receiving letters at home",
            "“recieving” and “receiving”",
        ),
        ("Reviews all commits on Friday", "Reviews all commit on Friday", "“commits”"),
        ("在工作中用户喜欢深色模式", "用户在工作中喜欢深色模式", "another order"),
        ("Вечером Мария рисует озеро", "Мария рисует озеро вечером", "another order"),
    ],
)
def test_order_fillers_and_slips_are_near(one: str, other: str, sentence: str) -> None:
    match = same(one, other)
    assert match is not None
    assert match.likeness is Likeness.NEAR
    assert sentence in match.sentence
    assert set(form_of(one).blocks) & set(form_of(other).blocks)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Python 3.11", "Python 3.12"),
        ("Melanie has been married for 5 years", "Melanie has been married for 6 years"),
        ("Has two dogs and a large garden", "Has three dogs and a large garden"),
        ("It is 5 degrees", "It is -5 degrees"),
        ("The build is 100% green", "The build is 100 green"),
        ("Has 2 cats and 3 dogs", "Has 3 cats and 2 dogs"),
        ("Deploys on Friday", "Never deploys on Friday"),
        ("Deploys on Friday", "Does not deploy on Friday"),
        ("Uses Redux", "No longer uses Redux"),
        ("Likes tea, not coffee", "Likes coffee, not tea"),
        ("Does not fear dogs but likes cats", "Does fear dogs but not likes cats"),
        ("Prefers tabs over spaces", "Prefers spaces over tabs"),
        ("Alice manages Bob", "Bob manages Alice"),
        ("Deploys from staging to production", "Deploys from production to staging"),
        ("Uses C++", "Uses C#"),
        ("Uses C++", "Uses C"),
        ("Uses Postgres for billing", "Uses MySQL for billing"),
        ("I think Phillip likes long walks", "I think Philip likes long walks"),
        ("Adopted the workflow of the team", "Adapted the workflow of the team"),
        ("The migration is complete for all teams", "The migration is completed for all teams"),
        ("deploy_branch: main", "deploy_branch: release"),
        ("owner: ana review", "review: ana owner"),
        ("Reads feature_x.py first", "Reads feature-x.py first"),
        ("Uses TypeScript", "Uses TypeScript and Python"),
        ("用户喜欢深色模式", "用户喜欢浅色模式"),
        ("用户喜欢深色模式", "用户不喜欢深色模式"),
        ("从北京到上海", "从上海到北京"),
        ("Мария любит чай", "Мария не любит чай"),
        ("Мария живёт в Москве", "Мария живёт в Казани"),
        ("mood 😀", "mood 😢"),
        ("!!!", "???"),
    ],
)
def test_a_changed_meaning_is_no_duplicate(one: str, other: str) -> None:
    assert same(one, other) is None


@given(ANY_TEXT)
def test_a_text_repeats_itself(text: str) -> None:
    match = same(text, text)
    assert match is not None
    assert match.likeness is Likeness.EXACT
    assert match.sentence == "The same text."


@given(ANY_TEXT, ANY_TEXT)
def test_any_two_texts_compare(one: str, other: str) -> None:
    same(one, other)


@given(PLAIN, st.randoms(use_true_random=False))
def test_case_punctuation_and_spacing_never_matter(words: list[str], draw: random.Random) -> None:
    dressed = "".join(
        draw.choice((str.upper, str.lower, str.title))(word) + draw.choice((" ", ", ", "; ", " – "))
        for word in words
    )
    match = same(" ".join(words), dressed)
    assert match is not None
    assert match.likeness is Likeness.EXACT


@given(PLAIN, st.integers(0, 9_999), st.integers(0, 9_999), st.integers(0, 9))
def test_another_number_always_matters(words: list[str], one: int, other: int, at: int) -> None:
    assume(one != other)
    before, after = words[:at], words[at:]
    assert (
        same(" ".join([*before, str(one), *after]), " ".join([*before, str(other), *after])) is None
    )


@given(PLAIN, st.sampled_from(["not", "never", "no", "без", "не", "cannot"]), st.integers(0, 9))
def test_a_negation_always_matters(words: list[str], negation: str, at: int) -> None:
    negated = " ".join([*words[:at], negation, *words[at:]])
    assert same(" ".join(words), negated) is None


@given(PLAIN, WORD, st.integers(0, 8))
def test_another_word_always_matters(words: list[str], other: str, at: int) -> None:
    assume(at < len(words) and words[at] != other)
    changed = [*words[:at], other, *words[at + 1 :]]
    assert same(" ".join(words), " ".join(changed)) is None


def test_a_long_text_is_compared_for_equality_only() -> None:
    words = [f"{letter}{number}" for letter in string.ascii_lowercase for number in range(100)]
    text, turned = " ".join(words), " ".join(reversed(words))
    assert same(text, turned) is None
    match = same(text, text.upper())
    assert match is not None
    assert match.likeness is Likeness.EXACT
