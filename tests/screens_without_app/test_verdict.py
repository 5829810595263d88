from __future__ import annotations

from decimal import Decimal

import pytest

from memtui.presenters.risks import verdict_words
from memtui.service.usecases.verdict import MemoryVerdict

FOUND = MemoryVerdict(1_206, 8_212, Decimal("0.0246"), 1, 0, 12, 340)
DOUBTS = "1 dangerous, 12 doubled, 340 stale"


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (200, f"1,206 memories: 8,212 tokens, $0.025 a session, {DOUBTS}"),
        (60, f"$0.025 a session, {DOUBTS}"),
        (34, DOUBTS),
        (33, ""),
        (-1, ""),
    ],
)
def test_a_verdict_says_most_that_fits(most: int, words: str) -> None:
    assert verdict_words(FOUND, most) == words
