from __future__ import annotations

import pytest

from memtui.context.cost import BASELINE, share_of_prompt
from memtui.contract import Invalid


def test_the_baseline_is_the_seeds_table() -> None:
    table = share_of_prompt(0)
    assert [(row.min_tokens, row.max_tokens) for row in BASELINE] == [
        (1_500, 3_500),
        (3_000, 9_000),
        (700, 3_500),
        (1_500, 3_000),
    ]
    assert (table.baseline.min_tokens, table.baseline.max_tokens) == (6_700, 19_000)
    assert (table.min_share, table.max_share) == (0.0, 0.0)


def test_the_share_is_of_the_whole_prompt() -> None:
    table = share_of_prompt(500)
    assert (table.total.min_tokens, table.total.max_tokens) == (7_200, 19_500)
    assert table.min_share == pytest.approx(500 / 19_500)
    assert table.max_share == pytest.approx(500 / 7_200)
    assert not table.over_target
    assert share_of_prompt(2_000).over_target
    assert table.rows[-1].name == "Memory"


def test_a_negative_context_is_refused() -> None:
    with pytest.raises(Invalid):
        share_of_prompt(-1)
