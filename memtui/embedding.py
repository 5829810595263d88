"""Embedding models, each known by its name.

- `static`: word vectors from a package (the extra `semantic`); nothing is downloaded.
- `fastembed:MODEL`: a model of fastembed (the extra `fastembed`), downloaded at its first use.
- `openai:URL#MODEL`: any server with OpenAI's embeddings API, such as Ollama or vLLM.

A provider opens its model with `open_embedder`. Texts go to another machine only once the company
has agreed to its address, and without secrets. A server on a loopback address needs no agreement,
and is free unless the config names a price.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from memtui.contract import BindingContext, Denied, Invalid, Json, Model, Unavailable, Usage
from memtui.prices import ModelCall, cost_of
from memtui.provider_kit import need_secret
from memtui.provider_kit.servers import JsonApi, Unreadable, check_address, is_loopback, read_json
from memtui.wording import missing_extra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

STATIC = "static"
_NAMES = "static, fastembed:MODEL or openai:URL#MODEL"
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefixes that a model expects before a query, and before a stored text."""

    query: str = ""
    passage: str = ""


_BGE = Prefixes("Represent this sentence for searching relevant passages: ")
_PREFIXES = {
    "e5-mistral": Prefixes(
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
        "Query: "
    ),
    "e5-": Prefixes("query: ", "passage: "),
    "nomic-embed": Prefixes("search_query: ", "search_document: "),
    "bge-m3": Prefixes(),
    "bge-": _BGE,
    "mxbai-embed-large": _BGE,
    "arctic-embed-l-v2": Prefixes("query: "),
    "arctic-embed-m-v2": Prefixes("query: "),
    "arctic-embed2": Prefixes("query: "),
    "arctic-embed": _BGE,
    "embeddinggemma": Prefixes("task: search result | query: ", "title: none | text: "),
    "qwen3-embedding": Prefixes(
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
        "Query:"
    ),
}
"""By a part of the model's name, from the model cards; the first match counts."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of texts, in order."""

    vectors: Vectors
    """One row per text, of length 1; all zeros for a text without a word the model knows."""
    usage: tuple[Usage, ...] = ()
    """The usage of each call."""


class Embedder(ABC):
    """An embedding model. Blocking, and used from several threads."""

    name: str
    prefixes: Prefixes = Prefixes()
    dimensions: int | None = None
    """None: unknown until the first text is embedded."""
    address: str | None = None
    """The remote server that texts go to, as `https://host:port`; None: texts stay on this machine.
    """
    is_agreed: bool = True
    """Whether texts may go to that address."""
    is_instant: bool = False
    """Fast enough for a search to wait until new texts are embedded."""
    is_asked: bool = False
    """Vectors come from a server."""
    least: float = 0.0
    """Least cosine of a match, after subtracting what all texts have in common."""
    least_best: float = 0.0
    """Least cosine of the best match; if none reaches it, there are no matches."""
    lift: float = 0.0
    """Share of a hit's score that a neighbour found with it gets."""

    @abstractmethod
    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> Embeddings:
        """Embed texts, at most some hundreds; `is_query`: they are queries, not stored texts.

        Raises:
            Unavailable: the model cannot be reached now; queries give up early.
            Invalid: the model refuses these texts, or does not exist.
            Denied: the server refuses the key.
        """

    def close(self) -> None:
        """Cancel a running call, which then raises `Unavailable`."""
        return


def _checked(name: str | None) -> str | None:
    """Return the name of a model. Raises `ValueError` if it is malformed."""
    sort, _, rest = (name or STATIC).partition(":")
    url, _, model = rest.partition("#")
    is_known = {
        STATIC: not rest,
        "fastembed": bool(rest),
        "openai": bool(model) and url.startswith(("http://", "https://")),
    }
    if not is_known.get(sort):
        raise ValueError(f"{name!r} is not an embedding; use {_NAMES}")
    return name


def embedder(
    name: str,
    secret: str | None = None,
    *,
    prefixes: Prefixes | None = None,
    usd_per_million: Decimal | None = None,
) -> Embedder:
    """Return the model of a name. It is loaded, or its server called, with the first text.

    Args:
        name: `static`, `fastembed:MODEL` or `openai:URL#MODEL`.
        secret: The key for a server.
        prefixes: The model's prefixes; None: those known for its name.
        usd_per_million: US dollars for a million tokens; None: from the price table.

    Raises:
        Invalid: the name or the URL is malformed, or an extra is not installed.
    """
    try:
        _checked(name)
    except ValueError as error:
        raise Invalid(f"{error}.") from error
    sort, _, rest = name.partition(":")
    needed = {STATIC: "wordllama", "fastembed": "fastembed"}.get(sort, "numpy")
    if find_spec(needed) is None:
        extra = "fastembed" if needed == "fastembed" else "semantic"
        raise missing_extra(f"The embedding {name}", extra)
    if sort == STATIC:
        return _Static()
    if sort == "fastembed":
        return _FastEmbed(rest, prefixes or prefixes_of(rest))
    url, _, model = rest.partition("#")
    return _OpenAI(url, model, secret, prefixes or prefixes_of(model), usd_per_million)


def prefixes_of(model: str) -> Prefixes:
    """Return the prefixes known for a model of this name; empty ones if none are known."""
    folded = model.casefold()
    return next((found for part, found in _PREFIXES.items() if part in folded), Prefixes())


class EmbeddingConfig(Model):
    """Settings of the model that embeds a provider's texts."""

    embedding: Annotated[str | None, AfterValidator(_checked)] = None
    """The model for search by meaning: static, fastembed:MODEL or openai:URL#MODEL; unset: search
    by words only."""
    embedding_secret: str | None = None
    """The name of the secret, in the keyring or the environment, that holds the server's key."""
    embedding_prefixes: tuple[str, str] | None = None
    """What the model expects before a query and before a text; unset: chosen by the model's
    name."""
    embedding_usd: Decimal | None = Field(default=None, ge=0)
    """US dollars for a million tokens; unset: from the table of prices, and free on this
    machine."""


def open_embedder(
    config: EmbeddingConfig, context: BindingContext, name: str | None = None
) -> Embedder | None:
    """Return the model that a config names, or the earlier model `name`, whose vectors are stored.

    Secrets are removed from every text that goes to another machine. Until the company has agreed
    to the address (`BindingContext.agreed`), a call raises `Denied`.

    Raises:
        Invalid: the model or the secret does not exist.
    """
    wanted = name or config.embedding
    if wanted is None:
        return None
    secret, usd = None, None
    if wanted.partition("#")[0] == (config.embedding or "").partition("#")[0]:
        # Another server gets neither this one's key nor its price.
        usd = config.embedding_usd
        if config.embedding_secret and wanted.startswith("openai:"):
            secret = need_secret(context, config.embedding_secret, "the server's key")
    given = config.embedding_prefixes if wanted == config.embedding else None
    prefixes = Prefixes(*given) if given else None
    found = embedder(wanted, secret, prefixes=prefixes, usd_per_million=usd)
    return found if found.address is None else _Guarded(found, context)


class _Guarded(Embedder):
    """A model on another machine, usable once the company has agreed to its address."""

    is_asked = True

    def __init__(self, inner: Embedder, context: BindingContext) -> None:
        self._inner, self._redact = inner, context.redact
        self.name, self.prefixes, self.address = inner.name, inner.prefixes, inner.address
        self.is_agreed = inner.address in context.agreed
        self._refusal = (
            f"Nobody has agreed that texts of {context.binding_key} go to {inner.address}; "
            f"`memtui bindings embedding {context.binding_key} --allow {inner.address}` does."
        )

    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> Embeddings:
        if not self.is_agreed:
            raise Denied(self._refusal)
        found = self._inner.embed([self._redact(text) for text in texts], is_query=is_query)
        self.dimensions = self._inner.dimensions
        return found

    def close(self) -> None:
        self._inner.close()


def _of_length_one(rows: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class _Static(Embedder):
    """The mean of word vectors; takes a tenth of a millisecond per text."""

    name = STATIC
    dimensions = 256
    is_instant = True
    # With these, sixteen of forty questions about foreign subjects find nothing and the rest a
    # quarter as much, and more of the answerable questions find their answer (benchmarks.retrieval)
    least, least_best = 0.22, 0.25
    # As without a model. One that reads sentences finds more by itself (benchmarks.ranking).
    lift = 0.3

    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> Embeddings:  # noqa: ARG002
        import numpy as np

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _TEXTS_A_SUM):
            part = list(map(_encodable, texts[start : start + _TEXTS_A_SUM]))
            _sum_words(part, rows[start : start + len(part)])
        return Embeddings(_of_length_one(rows))


_TEXTS_A_SUM = 2_048


def _sum_words(texts: list[str], rows: Vectors) -> None:
    import numpy as np

    tokenizer, weights = _static_model()
    found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    counts = [len(one.ids) for one in found]
    ids = np.fromiter((word for one in found for word in one.ids), np.int64, sum(counts))
    ids = np.clip(ids, 0, len(weights) - 1)
    places = np.zeros(len(weights), np.int64)
    places[ids] = 1
    used = np.flatnonzero(places)
    # Only the weights in use become floats, each once, however often its word occurs.
    places[used] = np.arange(len(used))
    places = places[ids]
    words, end = weights[used].astype(np.float32), 0
    for row, count in zip(rows, counts, strict=True):
        start, end = end, end + count
        # A product with ones adds up rows several times faster than `sum`.
        np.dot(np.ones(count, np.float32), words[places[start:end]], out=row)


@cache
def _static_model() -> tuple[Any, Any]:
    """Return wordllama's tokenizer and weights; importing the package would take half a second."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    found = find_spec("wordllama")
    if found is None or found.origin is None:
        raise missing_extra(f"The embedding {STATIC}", "semantic")
    folder = Path(found.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = load_file(folder / "weights/l2_supercat_256.safetensors")["embedding.weight"]
    return tokenizer, weights


class _FastEmbed(Embedder):
    """A model of fastembed on this machine's CPU; a query never starts its download."""

    def __init__(self, model: str, prefixes: Prefixes) -> None:
        self.name, self.prefixes = f"fastembed:{model}", prefixes
        self._model, self._loaded = model, None

    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> Embeddings:
        import numpy as np

        model = self._loaded = self._loaded or self._load(may_download=not is_query)
        prefix = self.prefixes.query if is_query else self.prefixes.passage
        rows = np.array(list(model.embed([prefix + _encodable(one) for one in texts])), np.float32)
        self.dimensions = rows.shape[1]
        return Embeddings(_of_length_one(rows))

    def _load(self, *, may_download: bool) -> Any:
        from fastembed import TextEmbedding
        from huggingface_hub.utils import disable_progress_bars
        from loguru import logger

        logger.disable("fastembed")  # it would write on the screen
        disable_progress_bars()
        known = {one["model"].casefold() for one in TextEmbedding.list_supported_models()}
        if self._model.casefold() not in known:
            raise Invalid(
                f"fastembed knows no model {self._model}; its documentation lists those there are."
            )
        try:
            return TextEmbedding(self._model, local_files_only=not may_download)
        except Exception as error:
            raise Unavailable(
                f"fastembed could not load {self._model} ({error}); it is downloaded at first use."
            ) from error


_TEXTS_A_CALL, _CHARS_A_CALL = 64, 200_000
_MOST_BYTES = 64_000_000
_SECONDS, _QUERY_SECONDS = 60.0, 5.0
_SLOW_SECONDS, _QUICK_SECONDS = 20.0, 5.0
_TRIES, _PAUSE_SECONDS = 3, 0.5
_LOOK_SECONDS = 0.2


class _OpenAI(Embedder):
    """A server that speaks OpenAI's embeddings API."""

    is_asked = True

    def __init__(
        self,
        url: str,
        model: str,
        secret: str | None,
        prefixes: Prefixes,
        usd_per_million: Decimal | None,
    ) -> None:
        self.name = f"openai:{url}#{model}"
        check_address(url, what=f"The URL of {self.name}", is_private=True)
        parts = urlsplit(url)
        host = parts.hostname or ""
        if not is_loopback(host):
            self.address = f"{parts.scheme}://{parts.netloc}"
            if secret and parts.scheme == "http":
                raise Invalid(f"The key would go to {host} unencrypted; use https.")
        self.prefixes = prefixes
        self._url, self._host, self._model = url, host, model
        self._usd = Decimal(0) if usd_per_million is None and not self.address else usd_per_million
        self._is_closed = False
        self._most = _TEXTS_A_CALL
        """Upper bound of texts per call, adapted to the server's speed."""
        self._headers = {"authorization": f"Bearer {secret}"} if secret else {}

    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> Embeddings:
        import numpy as np

        prefix = self.prefixes.query if is_query else self.prefixes.passage
        wanted = [prefix + _encodable(text) for text in texts]
        vectors, usage = asyncio.run(self._until_closed(wanted, is_query=is_query))
        rows = np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
        return Embeddings(_of_length_one(rows), tuple(usage))

    def close(self) -> None:
        self._is_closed = True

    async def _until_closed(
        self, texts: Sequence[str], *, is_query: bool
    ) -> tuple[list[Vectors], list[Usage]]:
        """Ask the server; if the embedder is closed meanwhile, cancel the call."""
        asking = asyncio.ensure_future(self._ask(texts, is_query=is_query))
        while not asking.done():
            await asyncio.wait({asking}, timeout=_LOOK_SECONDS)
            if self._is_closed and not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
                raise Unavailable(f"Embedding at {self._host} was stopped.", sent=True)
        return asking.result()

    async def _ask(
        self, texts: Sequence[str], *, is_query: bool
    ) -> tuple[list[Vectors], list[Usage]]:
        api = JsonApi(
            f"The embedding server {self._host}",
            self._url,
            seconds=_QUERY_SECONDS if is_query else _SECONDS,
            most_bytes=_MOST_BYTES,
            headers=self._headers,
        )
        vectors, usage = [], []
        try:
            while texts:
                batch = _first(texts, self._most)
                started = time.perf_counter()
                try:
                    rows, tokens = await self._try(api, batch, tries=1 if is_query else _TRIES)
                finally:
                    self._adapt(time.perf_counter() - started, len(batch))
                taken = (time.perf_counter() - started) * 1000
                vectors.append(rows)
                usage.append(self._usage(tokens, taken))
                texts = texts[len(batch) :]
        finally:
            await api.close()
        return vectors, usage

    def _adapt(self, seconds: float, texts: int) -> None:
        """Send fewer texts per call to a slow server, and more to a quick one."""
        if seconds > _SLOW_SECONDS:
            self._most = max(1, texts // 2)
        elif texts == self._most and seconds < _QUICK_SECONDS:
            self._most = min(_TEXTS_A_CALL, 2 * texts)

    async def _try(
        self, api: JsonApi, texts: Sequence[str], *, tries: int
    ) -> tuple[Vectors, int | None]:
        body: Json = {"model": self._model, "input": list(texts)}

        def parse(reply: bytes) -> tuple[Vectors, int | None]:
            return self._read(reply, len(texts))

        for past in range(tries):
            try:
                return await api.ask("POST", "/embeddings", parse, body, changes=False)
            except Unavailable as error:
                if error.sent or past + 1 == tries:  # sent: it timed out, as a retry would
                    raise
                pause = _PAUSE_SECONDS * 2**past
            await asyncio.sleep(pause * random.uniform(1, 2))  # noqa: S311
        raise AssertionError

    def _read(self, reply: bytes, count: int) -> tuple[Vectors, int | None]:
        import numpy as np

        found = read_json(reply)
        try:
            data = sorted(found["data"], key=lambda one: one.get("index", 0))
            rows = np.array([one["embedding"] for one in data], np.float32)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Unreadable("it holds no embeddings") from error
        if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or not np.isfinite(rows).all():
            raise Unreadable(f"it holds no {count} embeddings of one length")
        if self.dimensions not in {None, rows.shape[1]}:
            raise Unreadable(f"its embeddings had {self.dimensions} dimensions before")
        self.dimensions = int(rows.shape[1])
        used = found.get("usage")
        tokens = (
            used.get("total_tokens", used.get("prompt_tokens")) if isinstance(used, dict) else 0
        )
        is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
        return rows, tokens if is_count else None

    def _usage(self, tokens: int | None, latency_ms: float) -> Usage:
        cost = None
        if self._usd is not None:
            cost = self._usd * (tokens or 0) / _MILLION if tokens or not self._usd else None
        elif tokens:
            call = ModelCall(self._model, None, datetime.now(UTC), tokens)
            priced = cost_of(call, url=self._url)
            cost = priced[1] if priced else None
        return Usage(
            provider=self._host,
            model=self._model,
            embedding_tokens=tokens or 0,
            cost_usd=None if cost is None else cost.quantize(Decimal("1e-12")),
            latency_ms=latency_ms,
        )


def _first(texts: Sequence[str], most: int) -> Sequence[str]:
    """Return the first texts that fit into one call: at most `most`, and a bound on characters."""
    chars = accumulate(len(text) for text in texts[:most])
    return texts[: max(1, sum(count <= _CHARS_A_CALL for count in chars))]
