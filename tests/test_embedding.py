"""Models that embed: the one in a package, and a server on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from memtui.contract import BindingContext, Denied, Invalid, Unavailable
from memtui.embedding import EmbeddingConfig, embedder, open_embedder, prefixes_of
from tests.loopback import Embeddings, vector


@pytest.fixture
def server() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


def test_static_vectors_are_those_of_the_package_itself() -> None:
    import wordllama

    texts = ["Deploys happen on Fridays.", "", "x" * 5_000, "развёртывание", "a\ud800b"] * 60
    found = embedder("static").embed(texts).vectors
    folder = Path(wordllama.__file__).parent
    theirs = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    expected = theirs.embed(clean)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(found * lengths, expected, atol=1e-5)
    assert not found[1].any()
    assert np.allclose(np.delete(np.linalg.norm(found, axis=1), range(1, 300, 5)), 1)


def test_a_server_is_asked_in_batches_and_each_call_is_usage(server: Embeddings) -> None:
    model = embedder(server.embedding, "k3y")
    assert model.address is None
    texts = [f"text {number}" for number in range(100)]
    found = model.embed(texts)
    assert [len(body["input"]) for body in server.bodies] == [64, 36]
    assert server.texts == texts
    expected = np.array([vector(text) for text in texts])
    assert np.allclose(found.vectors * np.linalg.norm(expected, axis=1, keepdims=True), expected)
    assert [(one.model, one.embedding_tokens, one.cost_usd) for one in found.usage] == [
        ("words", 1, Decimal(0))
    ] * 2
    assert model.dimensions == 256


def test_a_model_is_told_what_is_asked_and_what_is_stored(server: Embeddings) -> None:
    model = embedder(f"openai:{server.url}/v1#intfloat/multilingual-e5-small")
    model.embed(["deploys"], is_query=True)
    model.embed(["deploys"])
    assert server.texts == ["query: deploys", "passage: deploys"]
    assert prefixes_of("bge-m3") == prefixes_of("text-embedding-3-small")


def test_a_price_is_that_of_the_address_or_the_one_given(server: Embeddings) -> None:
    from datetime import UTC, datetime

    from memtui.prices import ModelCall, cost_of

    call = ModelCall("text-embedding-3-small", None, datetime.now(UTC), 1_000_000)
    assert cost_of(call, url="https://api.openai.com/v1") == ("openai", Decimal("0.02"))
    assert cost_of(call, url="https://llm.acme.example/v1") is None
    own = embedder(server.embedding, usd_per_million=Decimal(3)).embed(["a"])
    assert own.usage[0].cost_usd == Decimal("0.000003")


def test_a_busy_server_is_asked_again_and_a_query_is_not(server: Embeddings) -> None:
    model = embedder(server.embedding)
    server.refusals = [429]
    assert len(model.embed(["a"]).vectors) == 1
    server.refusals = [503]
    with pytest.raises(Unavailable, match="503"):
        model.embed(["a"], is_query=True)
    server.refusals = [401]
    with pytest.raises(Denied, match="check the token"):
        model.embed(["a"])


@pytest.mark.parametrize(
    "name", ["", "words", "openai:", "openai:http://127.0.0.1", "openai:ftp://a.example#m"]
)
def test_a_name_that_is_no_model_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(Invalid, match=r"embedding|address"):
        embedder(name)


def test_no_key_goes_out_in_the_clear() -> None:
    with pytest.raises(Invalid, match="unencrypted"):
        embedder("openai:http://gpu.example:8000/v1#m", "k3y")


def test_a_key_goes_to_its_own_server_alone(server: Embeddings, tmp_path: Path) -> None:
    own = f"openai:{server.url}/v1"
    config = EmbeddingConfig(embedding=f"{own}#new", embedding_secret="KEY")
    context = BindingContext(
        company_id="acme", binding_key="notes", data_dir=tmp_path, secret=lambda _: "k3y"
    )
    elsewhere = f"openai:{server.url}/other#old"
    for name in (None, f"{own}#old", elsewhere):
        model = open_embedder(config, context, name)
        assert model is not None
        model.embed(["a"])
    assert server.keys == ["Bearer k3y", "Bearer k3y", None]


def test_another_machine_gets_nothing_before_a_yes_and_no_secret_after(tmp_path: Path) -> None:
    config = EmbeddingConfig(embedding="openai:https://llm.acme.invalid/v1#m")
    context = BindingContext(company_id="acme", binding_key="notes", data_dir=tmp_path)
    closed = open_embedder(config, context)
    assert closed is not None
    with pytest.raises(Denied, match=r"notes go to https://llm\.acme\.invalid"):
        closed.embed(["a"])

    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return text

    agreed = {"agreed": frozenset({"https://llm.acme.invalid"}), "redact": redact}
    open_to_it = open_embedder(config, context.model_copy(update=agreed))
    assert open_to_it is not None
    with pytest.raises(Unavailable, match="cannot be reached"):
        open_to_it.embed(["a"], is_query=True)
    assert seen == ["a"]
