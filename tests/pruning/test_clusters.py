from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.pruning import duplicates
from memtui.pruning.duplicates import (
    Item,
    Likeness,
    Match,
    TextForm,
    compare,
    find_clusters,
    form_of,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
TEXTS = st.lists(
    st.sampled_from(
        [
            "Prefers dark mode",
            "prefers DARK mode!",
            "Mode dark prefers",
            "Never prefers dark mode",
            "Prefers light mode",
            "Port 8080",
            "port 8081",
            "Alice manages Bob",
            "Bob manages Alice",
            "用户喜欢深色模式",
            "用户喜欢深色模式。",
            "",
        ]
    ),
    max_size=30,
)


def entries(texts: Sequence[str]) -> list[Item]:
    return [Item(id=f"{number:04}", text=text) for number, text in enumerate(texts)]


def members(texts: Sequence[str]) -> list[list[str]]:
    return [
        [cluster.survivor.text, *(one.item.text for one in cluster.duplicates)]
        for cluster in find_clusters(entries(texts))
    ]


def test_duplicates_gather_around_one_survivor() -> None:
    texts = ["Likes green tea", "Uses SQLite", "likes green tea!", "green tea likes", "Uses MySQL"]
    assert members(texts) == [["likes green tea!", "Likes green tea", "green tea likes"]]


def test_668_copies_are_one_cluster() -> None:
    (cluster,) = find_clusters(entries(["The sky is blue."] * 668))
    assert len(cluster.duplicates) == 667
    assert {one.match.likeness for one in cluster.duplicates} == {Likeness.EXACT}


@pytest.mark.parametrize(
    ("chosen", "others", "why"),
    [
        (
            Item("b", "likes tea", pinned=True),
            Item("a", "Likes tea!!", reads=9, at=NOW),
            "It is pinned.",
        ),
        (
            Item("b", "likes tea", reads=12),
            Item("a", "Likes tea!!", reads=3, at=NOW),
            "It was read most often: 12 times.",
        ),
        (
            Item("b", "likes tea", at=NOW),
            Item("a", "Likes tea!!", at=NOW - timedelta(days=1)),
            "It is the newest one, from 2026-05-01.",
        ),
        (Item("b", "Likes tea!!"), Item("a", "likes tea"), "It is the longest."),
        (
            Item("a", "likes tea"),
            Item("b", "Likes tea"),
            "It is the first; they differ in nothing else.",
        ),
    ],
)
def test_the_survivor_is_chosen_and_explained(chosen: Item, others: Item, why: str) -> None:
    (cluster,) = find_clusters([others, chosen])
    assert cluster.survivor == chosen
    assert cluster.why_survivor == why


def test_groups_are_not_held_against_each_other() -> None:
    assert find_clusters([Item("a", "x", group="ana"), Item("b", "x", group="ben")]) == []


@given(TEXTS, st.randoms(use_true_random=False))
def test_the_order_of_the_entries_does_not_matter(texts: list[str], draw: random.Random) -> None:
    straight = entries(texts)
    mixed = list(straight)
    draw.shuffle(mixed)
    assert find_clusters(straight) == find_clusters(mixed)


@given(TEXTS)
def test_every_member_was_compared_with_its_survivor(texts: list[str]) -> None:
    seen: set[str] = set()
    for cluster in find_clusters(entries(texts)):
        for one in cluster.duplicates:
            assert compare(form_of(one.item.text), form_of(cluster.survivor.text)) == one.match
            assert one.item.id not in seen
            seen.add(one.item.id)
        assert cluster.survivor.id not in seen


@given(TEXTS)
def test_nothing_left_alone_repeats_a_survivor_exactly(texts: list[str]) -> None:
    every = entries(texts)
    gone = {one.item.id for cluster in find_clusters(every) for one in cluster.duplicates}
    left = [form_of(entry.text).words for entry in every if entry.id not in gone]
    assert len(left) == len(set(left))


def test_near_texts_are_found_among_many() -> None:
    words = [f"{a}{b}{c}word" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    draw = random.Random(3)
    texts = [" ".join(draw.sample(words, 7)) for _ in range(2_000)]
    turned = [" ".join(text.split()[3:] + text.split()[:3]) for text in texts]
    found = find_clusters(entries([*texts, *turned]))
    assert len(found) == 2_000
    assert all(len(cluster.duplicates) == 1 for cluster in found)


def test_texts_of_the_same_letters_do_not_make_the_work_quadratic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    def counting(one: TextForm, other: TextForm) -> Match | None:
        nonlocal compared
        compared += 1
        return compare(one, other)

    monkeypatch.setattr(duplicates, "compare", counting)
    draw = random.Random(5)
    words = [f"word{letter}" for letter in "abcdefghi"]
    texts = ["not " + " ".join(draw.sample(words, 9)) for _ in range(2_000)]
    assert find_clusters(entries(texts))
    assert compared <= 24 * len(texts)


def test_vectors_join_other_words_of_the_same_meaning() -> None:
    table = {
        "Prefers concise answers": [1.0, 0.9, 0.1, 0.3],
        "Likes short replies": [1.0, 0.92, 0.1, 0.29],
        "Uses Postgres": [-0.2, 0.5, 1.0, -0.7],
    }
    found = find_clusters(entries(list(table)), vectors=lambda ts: [table[t] for t in ts])
    (cluster,) = found
    (one,) = cluster.duplicates
    assert {cluster.survivor.text, one.item.text} == {
        "Prefers concise answers",
        "Likes short replies",
    }
    assert one.match.likeness is Likeness.MEANING
    assert find_clusters(entries(list(table))) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Keeps 5 backups", "Stores 6 backups"),
        ("Likes meetings", "Does not like meetings"),
        ("He uses Postgres", "He uses MySQL"),
    ],
)
def test_vectors_do_not_join_another_number_name_or_negation(one: str, other: str) -> None:
    assert find_clusters(entries([one, other]), vectors=lambda ts: [[1.0, 0.5] for _ in ts]) == []


def test_only_short_texts_that_have_another_get_a_vector() -> None:
    long = [f"{'words and more of them ' * 20}{end}" for end in ("here", "there")]
    asked: list[str] = []

    def vectors(texts: Sequence[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0, 0.5] for _ in texts]

    found = find_clusters(entries([*long, "Keeps 5", "Drinks tea", "Tea it is"]), vectors=vectors)
    assert sorted(asked) == ["Drinks tea", "Tea it is"]
    assert len(found) == 1


def test_vectors_of_nothing_are_nothing() -> None:
    assert find_clusters(entries(["a", "b"]), vectors=lambda ts: [[] for _ in ts]) == []
    assert find_clusters(entries(["a", "b"]), vectors=lambda ts: [[0.0, 0.0] for _ in ts]) == []


def number_words(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def test_close_vectors_are_found_among_many() -> None:
    draw = random.Random(2)
    table: dict[str, list[float]] = {}
    for number in range(500):
        vector = [draw.gauss(0, 1) for _ in range(64)]
        name = "".join(draw.choice("abcdefghij") for _ in range(12))
        table[f"{name} early"] = vector
        table[f"{name[::-1]} late {number_words(number)}"] = [
            v + draw.gauss(0, 0.1) for v in vector
        ]
    found = find_clusters(entries(list(table)), vectors=lambda ts: [table[t] for t in ts])
    assert len(found) > 480
