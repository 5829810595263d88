from __future__ import annotations

from itertools import pairwise
from math import dist

from memtui.pruning.duplicates import static_vectors


def test_texts_of_like_meaning_lie_nearer_than_others() -> None:
    vectors = static_vectors()
    assert vectors is not None
    brief, short, other = vectors(
        ["She likes brief replies", "She prefers short answers", "The server runs on port 80"]
    )
    assert dist(brief, short) < dist(brief, other)


def test_any_text_has_a_vector() -> None:
    vectors = static_vectors()
    assert vectors is not None
    found = vectors(["", "\x00\x1b[31m", "\ud800", "развёртывание", "x" * 10_000])
    assert {len(one) for one in found} == {256}
    assert all(list(one) != list(other) for one, other in pairwise(found[1:]))
