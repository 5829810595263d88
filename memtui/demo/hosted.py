"""The demo's stand-in for a hosted memory provider.

Nothing here leaves the machine and nothing is billed: records lie in a JSON file of the binding's
folder, and usage, prices and outages are made up, so that the demo can show what a hosted
provider's costs and failures look like. It is a complete provider all the same.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import ClassVar, Self, TypeVar

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Health,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    Unavailable,
    Usage,
    WriteMode,
    WriteReply,
    WriteRequest,
)
from memtui.demo.hosted_config import HostedConfig, Outage, Trouble
from memtui.demo.hosted_edits import corrected, removed, sees, stored
from memtui.demo.hosted_store import Contents, Held, HostedStore
from memtui.provider_kit import TextIndex, matcher, page

T = TypeVar("T")

_CHARACTERS_PER_TOKEN = 4
_MILLION = Decimal(1_000_000)
_QUERY_CHARACTERS = 10_000
"""What the search reads of a query."""


class HostedAdapter(Adapter):
    """Keeps records in a file and behaves as if they were far away. A demo provider only."""

    key: ClassVar[str] = "demo-hosted"
    config_model: ClassVar[type[HostedConfig]] = HostedConfig
    capabilities = Capabilities(browse=True, correction=True, expiry=True, pin=True, full_text=True)

    def __init__(self, context: BindingContext) -> None:
        self._context = context
        self._config = HostedConfig.model_validate(context.config)
        self._store = HostedStore(context.data_dir)
        self._index = TextIndex()
        self._indexed: Contents | None = None
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the file; it need not exist."""
        return cls(context)

    async def close(self) -> None:
        """Free the index."""
        self._index.close()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record under an id of the provider's own, and bill its embedding."""
        now = self._context.now()
        handle = await self._change(lambda held: stored(held, request, self.key, now))
        usage = [self._embedding(request.content, self._config.write_usd)]
        if request.mode is WriteMode.SUMMARIZE:
            usage.append(self._summary(request.content))
        return WriteReply(records=(handle,), usage=tuple(usage))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search by words; reranking for an answer is unpriced, as some providers leave it."""
        snippets = await self._take_turn(lambda: self._search(request))
        usage = [self._embedding(request.query, self._config.search_usd)]
        if request.intent is QueryIntent.ANSWER and snippets:
            usage.append(self._reranking(request.query, snippets))
        return ContextBundle(snippets=tuple(snippets), usage=tuple(usage))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record."""
        records = await self._take_turn(self._returned)
        return next((one for one in records if one.handle == handle and sees(scope, one)), None)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records; while the provider lags they are returned for a while longer."""
        now, lag = self._context.now(), self._trouble(Trouble.LAG)
        gone_at = lag.end if lag else None
        missing = await self._change(lambda held: removed(held, request, now=now, gone_at=gone_at))
        return ForgetReply(missing=missing)

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page."""
        records = await self._take_turn(self._returned)
        fits = matcher(request.filter)
        return page([one for one in records if sees(request.scope, one) and fits(one)], request)

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record in place and bill its embedding."""
        now = self._context.now()
        record = await self._change(lambda held: corrected(held, request, now))
        usage = self._embedding(record.text, self._config.write_usd)
        return CorrectReply(handle=request.handle, usage=(usage,))

    async def health(self) -> Health:
        """Say whether an outage of the config is going on."""
        if self._trouble(Trouble.DOWN):
            return Health(status="down", message="It refuses calls, as its config says.")
        late = self._trouble(Trouble.SLOW) or self._trouble(Trouble.LAG)
        async with self._turn:
            count = len(await asyncio.to_thread(self._returned))
        return Health(
            status="degraded" if late else "ok",
            message="It is late." if late else "A stand-in on this machine; nothing is billed.",
            records=count,
        )

    async def _change(self, edit: Callable[[Contents], tuple[Contents, T]]) -> T:
        if self._context.read_only:
            raise Denied(f"The binding {self._context.binding_key} is read-only.")
        return await self._take_turn(lambda: self._store.change(edit))

    async def _take_turn(self, work: Callable[[], T]) -> T:
        """Do blocking work, unless the provider is down; lose its answer while it is slow."""
        if self._trouble(Trouble.DOWN):
            raise Unavailable(
                f"{self._context.binding_key} refuses connections; try again in some minutes."
            )
        async with self._turn:
            answer = await asyncio.to_thread(work)
        if self._trouble(Trouble.SLOW):
            raise Unavailable(
                f"{self._context.binding_key} did not answer in time; "
                "check whether it was done before you try again.",
                sent=True,
            )
        return answer

    def _trouble(self, kind: Trouble) -> Outage | None:
        now = self._context.now()
        return next(
            (
                one
                for one in self._config.outages
                if one.kind is kind and one.start <= now < one.end
            ),
            None,
        )

    def _returned(self) -> list[Record]:
        now = self._context.now()
        return [held.record for held in self._store.read().held if _is_returned(held, now)]

    def _search(self, request: QueryRequest) -> Sequence[Snippet]:
        contents = self._store.read()
        if contents is not self._indexed:
            self._index.fill([held.record for held in contents.held])
            self._indexed = contents
        known = {record.handle for record in self._returned()}
        found = (
            Snippet(**dict(record), score=round(score, 6))
            for record, score in self._index.search(request.query[:_QUERY_CHARACTERS])
            if record.handle in known
            and sees(request.scope, record)
            and request.topic in {None, record.topic}
            and all(record.metadata.get(k) == v for k, v in request.metadata_filter.items())
        )
        return list(islice(found, request.top_k))

    def _embedding(self, text: str, fee: Decimal) -> Usage:
        tokens = _tokens(text)
        return Usage(
            provider=self.key,
            model="demo-embed-1",
            embedding_tokens=tokens,
            cost_usd=fee + tokens * self._config.embedding_usd_per_million / _MILLION,
            latency_ms=_latency(text, 40, 180),
        )

    def _summary(self, text: str) -> Usage:
        read, written = _tokens(text) + 120, _tokens(text[:200])
        cost = read * self._config.input_usd_per_million
        cost += written * self._config.output_usd_per_million
        return Usage(
            provider=self.key,
            model="demo-mini-2",
            input_tokens=read,
            output_tokens=written,
            cost_usd=cost / _MILLION,
            latency_ms=_latency(text, 300, 900),
        )

    def _reranking(self, query: str, snippets: Sequence[Snippet]) -> Usage:
        text = query + "".join(snippet.text for snippet in snippets)
        return Usage(
            provider=self.key,
            model="demo-rerank-beta",
            input_tokens=_tokens(text),
            cost_usd=None,
            latency_ms=_latency(text, 60, 240),
        )


def _is_returned(held: Held, now: datetime) -> bool:
    expires = held.record.expires_at
    return (held.gone_at is None or now < held.gone_at) and (expires is None or now < expires)


def _tokens(text: str) -> int:
    return max(1, round(len(text) / _CHARACTERS_PER_TOKEN))


def _latency(text: str, least: int, spread: int) -> float:
    """Make up a latency that is the same for the same text, in milliseconds."""
    return float(least + zlib.crc32(text.encode("utf-8", "replace")) % spread)
