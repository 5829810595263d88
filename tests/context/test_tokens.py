from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.context.cost import TokenCounter, _encoder

openai = import_module("rs_bpe.bpe").openai

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)


@pytest.fixture
def no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "rs_bpe", None)
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    _encoder.cache_clear()
    yield
    _encoder.cache_clear()


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ("gpt-4o", "o200k_base"),
        ("GPT-4o-mini", "o200k_base"),
        ("openai/gpt-5.1", "o200k_base"),
        ("openrouter/openai/o3-mini", "o200k_base"),
        ("ft:gpt-4o:acme::1", "o200k_base"),
        ("openai:o1", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
    ],
)
def test_openai_models_are_counted_exactly(model: str, tokenizer: str) -> None:
    text = "Prefers TypeScript, 日本語 and 12345 emoji 👩‍💻."
    counter = TokenCounter(model)
    assert (counter.exact, counter.tokenizer) == (True, tokenizer)
    assert counter.tokens(text) == len(getattr(openai, tokenizer)().encode(text))


@pytest.mark.parametrize("model", [None, "", "claude-opus-4-1", "gemini-2.5-pro", "o11", "gpt-45"])
def test_other_models_are_marked_as_estimates(model: str | None) -> None:
    counter = TokenCounter(model)
    assert not counter.exact
    assert counter.note.startswith("Estimated for ")


def test_claude_is_estimated_above_the_proxy() -> None:
    claude, proxy = TokenCounter("anthropic/claude-sonnet-4-5"), TokenCounter("llama-4")
    assert claude.tokenizer == "o200k_base + 20%"
    assert proxy.tokens("word " * 100) == 101
    assert claude.tokens("word " * 100) == 122
    assert claude.tokens("") == 0


@given(ANY_TEXT)
def test_the_count_is_the_tokenizers_own(text: str) -> None:
    counter = TokenCounter("gpt-4o")
    as_utf8 = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert counter.tokens(text) == len(openai.o200k_base().encode(as_utf8))


@pytest.mark.parametrize("text", ["\x00", "a\ud800b", "\udfff" * 3, "<|endoftext|>", "\u202e\x1b"])
def test_hostile_text_counts(text: str) -> None:
    assert TokenCounter("gpt-4").tokens(text) > 0
    assert TokenCounter("claude-opus-4-1").tokens(text) > 0


@pytest.mark.parametrize("piece", ["a", " ", "\n", "\x00", "The deploy is green. ", "日本"])
def test_ten_megabytes_count(piece: str) -> None:
    text = piece * (10_000_000 // len(piece.encode()))
    assert TokenCounter("gpt-4o").tokens(text) > 50_000


@pytest.mark.usefixtures("no_vocabulary")
def test_without_the_vocabulary_package_it_estimates_and_says_so() -> None:
    counter = TokenCounter("gpt-4o")
    assert counter.tokens("x" * 41) == 11
    assert (counter.exact, counter.tokenizer) == (False, "UTF-8 bytes / 4")
    assert "install rs-bpe" in counter.note
    assert counter.tokens("") == 0
    assert counter.tokens("a\ud800") == 1
    assert TokenCounter("claude-opus-4-1").tokens("x" * 40) == 12
