"""Tokens of a text, their price, and their share of the prompt."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import cache
from importlib import import_module
from typing import Literal

from memtui.contract import Invalid, Model, Usd
from memtui.prices import ModelCall, cost_of, table_name

DEFAULT_TOKENIZER = "o200k_base"

_O200K = re.compile(r"gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|chatgpt-4o|(?:o1|o3|o4-mini)(?![^-])")
_CL100K = re.compile(
    r"gpt-4(?![^-])|gpt-3\.5|gpt-35-turbo|text-embedding-3-|text-embedding-ada-002"
    r"|(?:davinci|babbage)-002"
)
_OWNER = re.compile(r".*/|openai:|ft:|azure:", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")

_MORE_THAN_O200K = {"claude": 20}
"""Percent by which a family's private tokenizer exceeds o200k_base on the same text.

Published comparisons put Claude at 16 % (prose) to 30 % (code) above it.
"""

_BYTES_A_TOKEN = 4


class TokenCounter:
    """Counts tokens as one model does.

    OpenAI's models are counted exactly, with a vocabulary from a package and without a download.
    Other models are estimated with `o200k_base`, Claude with 20 % more. Without that package (it
    has no wheel for every Python) the estimate is four UTF-8 bytes a token. `exact` tells which
    applies; `note` explains it to a person.

    A lone surrogate, which UTF-8 cannot carry, counts as U+FFFD. Special tokens such as
    `<|endoftext|>` count as the ordinary text they are. The time is linear in the text; nothing is
    cached, because a fact is counted in about a microsecond.
    """

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        encoding = _public_encoding(model or "")
        count = _encoder(encoding or DEFAULT_TOKENIZER)
        self.exact = encoding is not None and count is not None
        self._percent = 100 if self.exact else 100 + _surcharge(model or "")
        self._count = count or _by_bytes
        self.tokenizer = (
            "UTF-8 bytes / 4" if count is None else (encoding or DEFAULT_TOKENIZER)
        ) + ("" if self._percent == 100 else f" + {self._percent - 100}%")
        self.note = self._explain(vocabulary=count is not None)

    def tokens(self, text: str) -> int:
        """Return the number of tokens of `text`, counted as a whole."""
        try:
            counted = self._count(text)
        except UnicodeEncodeError:
            counted = self._count(_SURROGATE.sub("\ufffd", text))
        return -(-counted * self._percent // 100)

    def _explain(self, *, vocabulary: bool) -> str:
        if self.exact:
            return f"Counted exactly with {self.tokenizer}."
        name = self.model or "an unnamed model"
        if not vocabulary:
            return (
                f"Estimated for {name} at four bytes a token; install rs-bpe to count OpenAI's "
                "models exactly."
            )
        return (
            f"Estimated for {name} with {self.tokenizer}; its own tokenizer is not public or not "
            "in a package here."
        )


def _public_encoding(model: str) -> str | None:
    name = model.lower()
    while owner := _OWNER.match(name):
        name = name[owner.end() :]
    if _O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if _CL100K.match(name) else None


def _surcharge(model: str) -> int:
    name = model.lower()
    return next((more for family, more in _MORE_THAN_O200K.items() if family in name), 0)


@cache
def _encoder(encoding: str) -> Callable[[str], int] | None:
    """Return the counting function of a vocabulary; None where the package is not installed."""
    try:
        vocabularies = import_module("rs_bpe.bpe").openai
    except ImportError:
        return None
    count: Callable[[str], int] = getattr(vocabularies, encoding)().count
    return count


def _by_bytes(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_A_TOKEN)


REQUESTS = 1_000


class Price(Model):
    """The price of one request's input, in US dollars. None is unpriced, never free."""

    model: str
    provider: str | None = None
    """The provider whose price it is, as named in the price table."""
    input_tokens: int
    cost_usd: Usd | None = None
    per_1000_requests_usd: Usd | None = None
    table: str
    """The price table and its version."""
    table_date: date | None = None
    """The newest price change in the table before the request: the table itself has no date."""

    @property
    def priced(self) -> bool:
        """Whether the price is known."""
        return self.cost_usd is not None


def price(model: str, input_tokens: int, *, at: datetime | None = None) -> Price:
    """Price `input_tokens` of input to `model`, uncached, at the standard rate.

    Args:
        model: A model's name; `provider/model` and `provider:model` name the provider too.
        input_tokens: The size of one request's input.
        at: The moment of the request, for prices that change; now, if not given.

    Raises:
        Invalid: `input_tokens` is negative.
    """
    if input_tokens < 0:
        raise Invalid("A request cannot have fewer than 0 input tokens; give a count.")
    moment = at or datetime.now(UTC)
    # Price one token first: an unpriced model must not look free for zero tokens.
    is_priced = cost_of(ModelCall(model, None, moment, 1)) is not None
    found = cost_of(ModelCall(model, None, moment, input_tokens)) if is_priced else None
    provider, cost = found or (None, None)
    return Price(
        model=model,
        provider=provider,
        input_tokens=input_tokens,
        cost_usd=cost,
        per_1000_requests_usd=None if cost is None else cost * REQUESTS,
        table=table_name(),
        table_date=_table_date(moment.date()),
    )


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


TARGET_SHARE = 0.05
"""The memory context should stay under this share of the whole prompt (seed 004 §8.3)."""


class Component(Model):
    """A part of a prompt and its least and greatest size, in tokens."""

    name: str
    min_tokens: int
    max_tokens: int


BASELINE: tuple[Component, ...] = (
    Component(name="System prompt", min_tokens=1_500, max_tokens=3_500),
    Component(name="Tool definitions", min_tokens=3_000, max_tokens=9_000),
    Component(name="Conversation history", min_tokens=700, max_tokens=3_500),
    Component(name="Page tree", min_tokens=1_500, max_tokens=3_000),
)
"""Seed 004's parts of a request without memory, 6,700 to 19,000 tokens: used where nothing was
measured or set."""


class PromptSize(Model):
    """The size of a whole prompt, memory included, and its source."""

    source: Literal["measured", "set", "default"] = "default"
    """`measured`: in the log; `set`: the setting `prompt_tokens`; `default`: `BASELINE`."""
    tokens: int = 0
    """The median of the measured prompts, or the setting; 0 for the default."""
    prompts: int = 0
    """How many prompts were measured."""

    @property
    def name(self) -> str:
        """The prompt in short: `a measured prompt`."""
        names = {"measured": "a measured prompt", "set": "a prompt as set"}
        return names.get(self.source, "a typical prompt")

    @property
    def words(self) -> str:
        """The prompt with its size and source."""
        if self.source == "default":
            return f"{self.name}; none was measured, and prompt_tokens is not set"
        of = f", the median of {self.prompts:,}" if self.prompts else " (prompt_tokens)"
        return f"{self.name} of {self.tokens:,} tokens{of}"


TYPICAL_PROMPT = PromptSize()


class PromptShare(Model):
    """A prompt with its memory context: the rows of the table, the sums and the share."""

    prompt: PromptSize = TYPICAL_PROMPT
    rows: tuple[Component, ...]
    """The baseline's components, then the memory context."""
    baseline: Component
    total: Component
    min_share: float
    """The memory's part of the largest prompt, 0 to 1."""
    max_share: float
    """The memory's part of the smallest prompt, 0 to 1."""

    @property
    def over_target(self) -> bool:
        """Whether the memory takes more than its target even of the largest prompt."""
        return self.min_share > TARGET_SHARE


def share_of_prompt(memory_tokens: int, prompt: PromptSize = TYPICAL_PROMPT) -> PromptShare:
    """Return the share of a memory context of `memory_tokens` in a whole prompt.

    Raises:
        Invalid: `memory_tokens` is negative.
    """
    if memory_tokens < 0:
        raise Invalid("A memory context cannot have fewer than 0 tokens; give a count.")
    memory = Component(name="Memory", min_tokens=memory_tokens, max_tokens=memory_tokens)
    rest = max(0, prompt.tokens - memory_tokens)
    baseline = BASELINE
    if prompt.source != "default":
        baseline = (Component(name="Everything else", min_tokens=rest, max_tokens=rest),)
    rows = (*baseline, memory)
    total = _total("Total with memory", rows)
    return PromptShare(
        prompt=prompt,
        rows=rows,
        baseline=_total("Total baseline", baseline),
        total=total,
        min_share=memory_tokens / max(1, total.max_tokens),
        max_share=memory_tokens / max(1, total.min_tokens),
    )


def _total(name: str, rows: Sequence[Component]) -> Component:
    least, most = sum(row.min_tokens for row in rows), sum(row.max_tokens for row in rows)
    return Component(name=name, min_tokens=least, max_tokens=most)
