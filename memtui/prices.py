"""Cost of model calls, from the price table of the package genai-prices."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, NamedTuple

_PLACES = Decimal("1e-12")
_MILLION = 1_000_000


class ModelCall(NamedTuple):
    """Tokens of one model call. The cached tokens are included in the input tokens."""

    model: str
    provider: str | None
    at: datetime
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """The part of `cache_write_tokens` that is cached for an hour."""


def cost_of(call: ModelCall, *, url: str | None = None) -> tuple[str, Decimal] | None:
    """Return the price's provider and the cost in US dollars; None: a part has no price.

    `url`: where the call was sent. If given, it alone decides the provider; the names do not.
    """
    hour = call.at.replace(minute=0, second=0, microsecond=0)
    found = _prices(call.model, call.provider, hour, url)
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


def _at_plain_rates(rates: Mapping[str, Any], call: ModelCall) -> Decimal | None:
    """Compute the cost where each token kind has one rate, else None; faster than genai-prices."""
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


def _computed(prices: Any, call: ModelCall) -> Decimal:
    from genai_prices import Usage

    counts = {name: value for name, value in call._asdict().items() if name.endswith("_tokens")}
    used = Usage(**{name: count for name, count in counts.items() if count})
    return Decimal(prices.calc_price(used)["total_price"])


@lru_cache(maxsize=4096)
def _prices(
    model: str, provider: str | None, at: datetime, url: str | None = None
) -> tuple[str, Any] | None:
    """Return a model's prices at a moment; the table's prices change by the hour at most."""
    # The model's name may contain the provider, or the table may not know the provider's name.
    readings = [(provider.lower(), model)] if provider else []
    readings += [(owner, name) for owner, _, name in map(model.partition, "/:") if owner and name]
    for owner, name in (*([] if url else readings), (None, model)):
        try:
            found = _looked_up(name, owner, url, at)
        except LookupError:
            continue
        return found.provider.id, found.model_price
    return None


def _looked_up(model: str, provider: str | None, url: str | None, at: datetime) -> Any:
    from genai_prices import Usage, calc_price

    used = Usage(input_tokens=1)
    if url is not None:
        return calc_price(used, model, provider_api_url=url, genai_request_timestamp=at)
    return calc_price(used, model, provider_id=provider, genai_request_timestamp=at)


@cache
def table_name() -> str:
    """Return the price table's name and version."""
    from importlib.metadata import version

    return f"genai-prices {version('genai-prices')}"
