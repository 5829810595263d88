"""What a call of a model cost, by the kept price table; unknown is unpriced, never free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

_PLACES = Decimal("1e-12")
_MILLION = 1_000_000


class Call(NamedTuple):
    """What one call of a model consumed. The cached tokens are part of the input tokens."""

    model: str
    provider: str | None
    at: datetime
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of `cache_write_tokens` that are kept for an hour."""


def price(call: Call) -> tuple[str, Decimal] | None:
    """Return whose price it is and the cost in US dollars; None where a part has no price."""
    hour = call.at.replace(minute=0, second=0, microsecond=0)
    found = _prices(call.model, call.provider, hour)
    if found is None:
        return None
    provider, prices = found
    rates = vars(prices)
    for tokens, name in ((call.input_tokens, "input_mtok"), (call.output_tokens, "output_mtok")):
        if tokens and rates.get(name) is None:
            return None
    cost = _at_plain_rates(rates, call)
    if cost is None:
        cost = _computed(prices, call)
    return provider, cost.quantize(_PLACES)


def _at_plain_rates(rates: Mapping[str, Any], call: Call) -> Decimal | None:
    """Multiply it out where each sort of token has one rate; the table's own way is far slower."""
    cached = call.cache_read_tokens + call.cache_write_tokens
    counts = {
        "input_mtok": call.input_tokens - cached,
        "cache_read_mtok": call.cache_read_tokens,
        "cache_write_mtok": call.cache_write_tokens - call.cache_write_1h_tokens,
        "cache_write_1h_mtok": call.cache_write_1h_tokens,
        "output_mtok": call.output_tokens,
    }
    total = Decimal(0)
    for name, tokens in counts.items():
        if not tokens:
            continue
        rate = rates.get(name)
        if any(call.input_tokens >= tier.start for tier in getattr(rate, "tiers", ())):
            return None
        rate = getattr(rate, "base", rate)
        if not isinstance(rate, Decimal):
            return None
        total += tokens * rate
    return total / _MILLION


@lru_cache(maxsize=4096)
def _prices(model: str, provider: str | None, at: datetime) -> tuple[str, Any] | None:
    """Return a model's prices at a moment; the table's prices change by the hour at most."""
    from genai_prices import Usage, calc_price

    for owner, name in _readings(model, provider):
        try:
            found = calc_price(
                Usage(input_tokens=1), model_ref=name, provider_id=owner, genai_request_timestamp=at
            )
        except LookupError:
            continue
        return found.provider.id, found.model_price
    return None


def _readings(model: str, provider: str | None) -> Iterator[tuple[str | None, str]]:
    """The provider may be named in the model's name, or by a name that the table does not know."""
    if provider:
        yield provider.lower(), model
    for mark in "/:":
        owner, found, name = model.partition(mark)
        if found and owner and name:
            yield owner, name
    yield None, model


def _computed(prices: Any, call: Call) -> Decimal:
    from genai_prices import Usage

    counts = {
        "input_tokens": call.input_tokens,
        "output_tokens": call.output_tokens,
        "cache_read_tokens": call.cache_read_tokens,
        "cache_write_tokens": call.cache_write_tokens,
        "cache_write_1h_tokens": call.cache_write_1h_tokens,
    }
    used = Usage(**{name: count for name, count in counts.items() if count})
    return Decimal(prices.calc_price(used)["total_price"])
