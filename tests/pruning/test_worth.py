"""What is worth least goes, so that a context fits its budget, and nothing worth more with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.context.assembly import least_left_out
from memtui.contract import Record, RecordHandle, Scope
from memtui.pruning.candidates import Reason, RetrievalTally
from memtui.pruning.worth import Worth, worth_of

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)


def worth(
    days: float, name: str = "a", *reasons: Reason, tokens: int = 40, watched: float = 100,
    **use: Any,
) -> Worth:  # fmt: skip
    record = Record(
        handle=RecordHandle(provider_key="vault", provider_record_id=name),
        text="text",
        kind="fact",
        scope=Scope(company_id="local", project_id="infra"),
        created_at=NOW - timedelta(days=days),
    )
    since = NOW - timedelta(days=watched)
    tally = RetrievalTally(**use)
    return worth_of(record, tally, reasons, tokens=tokens, now=NOW, counted_since=since)


def test_worth_counts_harm_and_doubles_then_feedback_then_use_then_age_then_length() -> None:
    least_first = [
        worth(1, "a", Reason.EXACT_DUPLICATE, count=9, helped=2),
        worth(1, "a", Reason.SAYS_OTHERWISE, count=9, helped=2),
        worth(1, count=9, not_helped=1),
        worth(61),
        worth(20),
        worth(61, count=1),
        worth(61, count=9),
        worth(3),
        worth(90, count=1, helped=1),
    ]
    assert sorted(least_first) == least_first
    assert worth(61, tokens=41) < worth(61)
    assert worth(61, "a") < worth(61, "b"), "no two are equal"
    old, new = worth(300, watched=1), worth(2, watched=1)
    assert old.standing == new.standing, "nobody counted before the binding was known"
    assert old < new


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (worth(61), "never delivered, 61 days old, 40 tokens"),
        (worth(0.5, count=1, tokens=1), "delivered once, made today, 1 token"),
        (worth(1, count=3, helped=2, not_helped=1),
         "helped 2 times, did not help once, delivered 3 times, 1 day old, 40 tokens"),
    ],
)  # fmt: skip
def test_worth_says_its_figures(found: Worth, words: str) -> None:
    assert found.words == words


@given(st.lists(st.integers(1, 9), max_size=9), st.integers(0, 40), st.integers(0, 9))
def test_nothing_goes_that_could_stay_beside_all_that_is_worth_more(
    sizes: list[int], budget: int, always: int
) -> None:
    ranked = range(len(sizes))  # by worth, the least first

    def tokens(gone: frozenset[int]) -> int:
        return always + sum(sizes[one] for one in ranked if one not in gone)

    found = least_left_out(ranked, tokens, sizes.__getitem__, budget)
    if always > budget:
        assert found is None
        return
    assert found is not None
    assert tokens(found) <= budget
    fitting = [
        set(kept)
        for count in range(len(sizes) + 1)
        for kept in combinations(ranked, count)
        if always + sum(sizes[one] for one in kept) <= budget
    ]
    best = max(fitting, key=lambda kept: sorted(kept, reverse=True))
    assert set(ranked) - found == best, "of two sets, the one with the more valuable record stays"
