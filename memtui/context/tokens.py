"""Count tokens: exactly where the model's vocabulary is public, else as a marked estimate."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module

from memtui.contract import Model

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


class TokenCount(Model):
    """How many tokens a text is, and how that is known."""

    tokens: int
    exact: bool
    """False: an estimate, because the model's tokenizer is not public or not installed."""
    tokenizer: str


class TokenCounter:
    """Counts tokens as one model does.

    OpenAI's models are counted with their own vocabulary, out of a package and without a
    download. Any other model is estimated with `o200k_base`, Claude with 20 % more; where that
    vocabulary is not installed (it has no wheel for every Python), at four UTF-8 bytes a token.
    `exact` says which it is and `note` says it to a person.

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

    def count(self, text: str) -> TokenCount:
        """Count `text` and say how."""
        return TokenCount(tokens=self.tokens(text), exact=self.exact, tokenizer=self.tokenizer)

    def tokens(self, text: str) -> int:
        """Return the number of tokens of `text`, the tokenizer's own count on the whole text."""
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
