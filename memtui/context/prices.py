"""What a prompt costs: US dollars out of a kept price table, `None` where the price is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache

from memtui.contract import Invalid, Model, Usd

REQUESTS = 1_000

_PLACES = Decimal("0.000000000001")


class Price(Model):
    """The price of one request's input, in US dollars. None is unpriced, never free."""

    model: str
    provider: str | None = None
    """Whose price it is, by the table's name for the provider."""
    input_tokens: int
    cost_usd: Usd | None = None
    per_1000_requests_usd: Usd | None = None
    table: str
    """The price table and its version."""
    table_date: date | None = None
    """The newest price change in the table up to the moment priced at; the table has no date."""

    @property
    def priced(self) -> bool:
        """Whether the price is known."""
        return self.cost_usd is not None


def price(
    model: str,
    input_tokens: int,
    *,
    provider: str | None = None,
    at: datetime | None = None,
) -> Price:
    """Price `input_tokens` of input to `model`, uncached, at the standard rate.

    Args:
        model: A model's name; `provider/model` and `provider:model` name the provider too.
        input_tokens: The size of one request's input.
        provider: The provider's id, where the model's name does not tell (embeddings).
        at: The moment of the request, for prices that change; now, if not given.

    Raises:
        Invalid: `input_tokens` is negative.
    """
    if input_tokens < 0:
        raise Invalid("A request cannot have fewer than 0 input tokens; give a count.")
    moment = at or datetime.now(UTC)
    for owner, name in _readings(model, provider):
        found = _look_up(owner, name, input_tokens, moment)
        if found is not None:
            whose, cost = found
            return Price(
                model=model,
                provider=whose,
                input_tokens=input_tokens,
                cost_usd=_usd(cost),
                per_1000_requests_usd=_usd(cost * REQUESTS),
                table=table_name(),
                table_date=_table_date(moment.date()),
            )
    return Price(
        model=model,
        provider=provider,
        input_tokens=input_tokens,
        table=table_name(),
        table_date=_table_date(moment.date()),
    )


@cache
def table_name() -> str:
    """Return the price table's name and version."""
    from importlib.metadata import version

    return f"genai-prices {version('genai-prices')}"


def _readings(model: str, provider: str | None) -> Iterator[tuple[str | None, str]]:
    yield provider, model
    if provider is None:
        for mark in "/:":
            owner, found, name = model.partition(mark)
            if found and owner and name:
                yield owner, name


def _look_up(
    provider: str | None, model: str, input_tokens: int, at: datetime
) -> tuple[str, Decimal] | None:
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(
            Usage(input_tokens=input_tokens),
            model_ref=model,
            provider_id=provider,
            genai_request_timestamp=at,
        )
    except LookupError:
        return None
    if vars(found.model_price).get("input_mtok") is None:
        return None
    return found.provider.id, found.input_price


def _usd(amount: Decimal) -> Decimal:
    return amount.quantize(_PLACES)


@cache
def _table_date(until: date) -> date | None:
    from genai_prices.data_snapshot import get_snapshot

    starts = (
        getattr(dated.constraint, "start_date", None)
        for provider in get_snapshot().providers
        for model in provider.models
        for dated in (
            *(model.prices if isinstance(model.prices, list) else ()),
            *(model.price_variants or ()),
        )
    )
    return max((start for start in starts if start is not None and start <= until), default=None)
