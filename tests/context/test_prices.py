from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.context.cost import price
from memtui.contract import Invalid

AT = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_known_model_is_priced_in_decimals() -> None:
    found = price("gpt-4o", 500, at=AT)
    assert found.cost_usd == Decimal("0.00125")
    assert found.per_1000_requests_usd == Decimal("1.25")
    assert isinstance(found.cost_usd, Decimal)
    assert found.provider == "openai"
    assert found.table.startswith("genai-prices 0.")
    assert found.table_date is not None
    assert date(2026, 1, 1) < found.table_date <= AT.date()


def test_the_name_may_tell_the_provider() -> None:
    assert price("openai/gpt-4o", 500, at=AT).cost_usd == Decimal("0.00125")
    embedding = price("openai:text-embedding-3-small", 500, at=AT)
    assert embedding.cost_usd == Decimal("0.00001")
    assert price("text-embedding-3-small", 500, at=AT).cost_usd is None


@pytest.mark.parametrize(
    "model", ["nope", "", "a\ud800", "\x00", "/", ":", "whisper-1", "github-copilot/gpt-4.1"]
)
def test_an_unknown_price_is_unpriced_and_not_free(model: str) -> None:
    found = price(model, 500, at=AT)
    assert not found.priced
    assert found.cost_usd is None
    assert found.per_1000_requests_usd is None


def test_no_tokens_of_a_priced_model_cost_nothing() -> None:
    assert price("gpt-4o", 0, at=AT).cost_usd == Decimal(0)


def test_negative_tokens_are_refused() -> None:
    with pytest.raises(Invalid):
        price("gpt-4o", -1)


@given(st.integers(0, 1_000_000))
def test_a_thousand_requests_cost_a_thousand_times_one(tokens: int) -> None:
    found = price("gpt-4o", tokens, at=AT)
    assert found.cost_usd is not None
    assert found.per_1000_requests_usd == found.cost_usd * 1000


@given(st.text(max_size=40))
def test_any_name_gets_an_answer(model: str) -> None:
    assert price(model, 10, at=AT).model == model
