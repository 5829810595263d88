"""The demo's stand-in for a hosted memory provider.

It sends nothing anywhere and bills nothing: records are in a JSON file of the `data_dir`, and
usage, prices and outages are simulated, so that the demo can show the costs and failures of a
hosted provider. Otherwise it is a complete provider.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import ValidationError

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
    Model,
    NotFound,
    Profile,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    Unavailable,
    Usage,
    UtcDatetime,
    WriteMode,
    WriteReply,
    WriteRequest,
    owner_of,
    owner_scopes,
)
from memtui.paths import replacing
from memtui.provider_kit import check_revision
from memtui.provider_kit.matching import has_metadata, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.search import TextIndex

T = TypeVar("T")

KEY = "demo-hosted"

_CHARACTERS_PER_TOKEN = 4
_QUERY_CHARACTERS = 10_000
"""Most characters of a query that the search reads."""
_LOCK_SECONDS = 10
_TOPICS = 3
_LEADING = 5
_EVER = datetime.min.replace(tzinfo=UTC)
_AS_WRITTEN = (
    "scope", "source", "title", "kind", "topic", "tags", "created_by", "expires_at", "pinned",
    "metadata",
)  # fmt: skip


class Trouble(StrEnum):
    """`DOWN`: calls are refused. `SLOW`: done, but the reply is lost. `LAG`: forgets are late."""

    DOWN = "down"
    SLOW = "slow"
    LAG = "lag"


class Outage(Model):
    """A span in which the provider misbehaves; `end` is exclusive."""

    kind: Trouble
    start: UtcDatetime
    end: UtcDatetime


class HostedConfig(Model):
    """A file that stands in for a hosted provider in the demo.

    Its prices are made up, in US dollars.
    """

    outages: tuple[Outage, ...] = ()
    write_usd: Decimal = Decimal("0.002")
    """Fee of a write or a correction."""
    search_usd: Decimal = Decimal("0.0004")
    embedding_usd_per_million: Decimal = Decimal("0.02")
    """Price of a million tokens; likewise `input` and `output` of a summary."""
    input_usd_per_million: Decimal = Decimal("0.15")
    output_usd_per_million: Decimal = Decimal("0.60")

    def query_usage(
        self, text: str, intent: QueryIntent, found: Sequence[str]
    ) -> tuple[Usage, ...]:
        """Bill a search; reranking for an answer has no price, as with some real providers."""
        usage = self.embedding(text, self.search_usd)
        if intent is not QueryIntent.ANSWER or not found:
            return (usage,)
        ranked = text + "".join(found)
        latency = _latency(ranked, 60, 240)
        return (usage, _usage("demo-rerank-beta", latency, input_tokens=_tokens(ranked)))

    def embedding(self, text: str, fee: Decimal) -> Usage:
        """Bill an embedding."""
        tokens = _tokens(text)
        cost = fee + tokens * self.embedding_usd_per_million / 1_000_000
        latency = _latency(text, 40, 180)
        return _usage("demo-embed-1", latency, embedding_tokens=tokens, cost_usd=cost)

    def summary(self, text: str) -> Usage:
        """Bill a summary."""
        read, written = _tokens(text) + 120, _tokens(text[:200])
        cost = read * self.input_usd_per_million + written * self.output_usd_per_million
        return _usage(
            "demo-mini-2",
            _latency(text, 300, 900),
            input_tokens=read,
            output_tokens=written,
            cost_usd=cost / 1_000_000,
        )


class HostedRecord(Model):
    """A record, and the moment from which it is no longer returned (None: it stays)."""

    record: Record
    gone_at: UtcDatetime | None = None


class Contents(Model):
    """The whole file: the number of changes, and the records."""

    stored: int = 0
    records: tuple[HostedRecord, ...] = ()


class HostedStore:
    """Reads the file when it changed, and replaces it entirely under a lock.

    Several processes may use one file. Blocking; called from a worker thread, one at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "records.json"
        self._seen: tuple[int, int, int] | None = None
        self._contents = Contents()

    def read(self) -> Contents:
        """Return the contents. Raises `Unavailable` if the file cannot be read."""
        try:
            state = self._path.stat()
            seen = (state.st_ino, state.st_mtime_ns, state.st_size)
            if seen != self._seen:
                self._contents = Contents.model_validate_json(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._contents = None, Contents()
        except OSError as error:
            raise Unavailable(f"Cannot read {self._path}: {error.strerror}.") from error
        except ValidationError as error:
            raise Unavailable(
                f"{self._path} is not what the demo wrote; memtui demo --reset makes a new one."
            ) from error
        return self._contents

    def change(self, edit: Callable[[Contents], tuple[Contents, T]]) -> T:
        """Replace the contents by the first result of `edit`, and return the second.

        Raises:
            Unavailable: the file cannot be written, or another process locks it for too long.
        """
        from filelock import FileLock, Timeout

        try:
            lock = self._path.with_suffix(".lock")
            with FileLock(lock, timeout=_LOCK_SECONDS, mode=0o600):
                contents, answer = edit(self.read())
                if contents is not self._contents:
                    with replacing(self._path) as fresh:
                        fresh.write_text(contents.model_dump_json(exclude_defaults=True), "utf-8")
                return answer
        except Timeout as error:
            raise Unavailable(f"Another process keeps {self._path} locked; try again.") from error
        except OSError as error:
            raise Unavailable(f"Cannot write {self._path}: {error.strerror}.") from error


class HostedAdapter(Adapter):
    """Stores records in a file and simulates a remote provider. For the demo only."""

    key: ClassVar[str] = KEY
    config_model: ClassVar[type[HostedConfig]] = HostedConfig
    capabilities = Capabilities(
        profile=True, browse=True, correction=True, expiry=True, pin=True, full_text=True,
        provider_managed_extraction=True,
    )  # fmt: skip

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
        handle = await self._change(lambda contents: self._stored(contents, request))
        usage = [self._config.embedding(request.content, self._config.write_usd)]
        if request.mode is WriteMode.SUMMARIZE:
            usage.append(self._config.summary(request.content))
        return WriteReply(records=(handle,), usage=tuple(usage))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search by words."""
        snippets = await self._take_turn(lambda: self._search(request))
        usage = self._config.query_usage(
            request.query, request.intent, [snippet.text for snippet in snippets]
        )
        return ContextBundle(snippets=tuple(snippets), usage=usage)

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether a scope sees an owner's records."""
        return sees(scope, owner)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record."""
        records = await self._take_turn(self._returned)
        found = (one for one in records if one.handle == handle and sees(scope, one.scope))
        return next(found, None)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records; during a lag they are still returned until it ends."""
        return ForgetReply(
            missing=await self._change(lambda contents: self._removed(contents, request))
        )

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page."""
        records = await self._take_turn(self._returned)
        asked, fits = request.scope, matcher(request.filter)
        return page([one for one in records if sees(asked, one.scope) and fits(one)], request)

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record in place and bill its embedding."""
        record = await self._change(lambda contents: self._corrected(contents, request))
        usage = self._config.embedding(record.text, self._config.write_usd)
        return CorrectReply(handle=request.handle, usage=(usage,))

    async def profile(self, scope: Scope) -> Profile:
        """Summarise the records of a scope's owners, and bill the tokens a model would need."""
        owners = {owner_of(one) for one in owner_scopes(scope)}
        is_everybodys = owner_of(scope)[0] == "company_id"
        records = [
            record
            for record in await self._take_turn(self._returned)
            if is_everybodys or owner_of(record.scope) in owners
        ]
        if not records:
            return Profile(summary="")
        usage = self._config.summary("\n".join(record.text for record in records))
        return Profile(summary=_summed_up(records), usage=(usage,))

    async def health(self) -> Health:
        """Return whether one of the config's outages is in effect."""
        if self._trouble(Trouble.DOWN):
            return Health(status="down", message="It refuses calls, as its config says.")
        late = self._trouble(Trouble.SLOW) or self._trouble(Trouble.LAG)
        async with self._turn:
            count = len(await asyncio.to_thread(self._returned))
        return Health(
            status="degraded" if late else "ok",
            message="It responds late."
            if late
            else "A stand-in on this machine; nothing is billed.",
            records=count,
        )

    async def _change(self, edit: Callable[[Contents], tuple[Contents, T]]) -> T:
        if self._context.read_only:
            raise Denied(f"The binding {self._context.binding_key} is read-only.")
        return await self._take_turn(lambda: self._store.change(edit))

    async def _take_turn(self, work: Callable[[], T]) -> T:
        """Do blocking work unless the provider is down; while it is slow, lose the result."""
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
            (o for o in self._config.outages if o.kind is kind and o.start <= now < o.end), None
        )

    def _returned(self) -> list[Record]:
        now = self._context.now()
        return [one.record for one in self._store.read().records if _is_returned(one, now)]

    def _search(self, request: QueryRequest) -> Sequence[Snippet]:
        contents = self._store.read()
        if contents is not self._indexed:
            self._index.fill([one.record for one in contents.records])
            self._indexed = contents
        known = {record.handle for record in self._returned()}
        found = (
            Snippet(**dict(record), score=round(score, 6))
            for record, score in self._index.scored(request.query[:_QUERY_CHARACTERS])
            if record.handle in known
            and sees(request.scope, record.scope)
            and request.topic in {None, record.topic}
            and has_metadata(record, request.metadata_filter)
        )
        return list(islice(found, request.top_k))

    def _stored(self, contents: Contents, request: WriteRequest) -> tuple[Contents, RecordHandle]:
        """Add the record of a write; an upsert of a known id replaces that one."""
        number, now = contents.stored + 1, self._context.now()
        ids = {one.record.handle.provider_record_id for one in contents.records}
        said = f"{number}\n{request.content}".encode("utf-8", "replace")
        name = f"mem_{hashlib.sha256(said).hexdigest()[:16]}"
        if request.mode is WriteMode.UPSERT and request.record_id in ids:
            name = request.record_id
        handle = RecordHandle(provider_key=self.key, provider_record_id=name)
        summarized = request.mode is WriteMode.SUMMARIZE
        made = request.content.split(". ", 1)[0][:200] if summarized else None
        record = Record(
            handle=handle,
            text=request.content,
            summary=request.summary or made,  # given when an undo restores a record with one
            created_at=request.created_at or now,
            updated_at=now,
            revision=f"r{number}",
            **{name: getattr(request, name) for name in _AS_WRITTEN},
        )
        kept = tuple(one for one in contents.records if one.record.handle != handle)
        return Contents(stored=number, records=(*kept, HostedRecord(record=record))), handle

    def _removed(
        self, contents: Contents, request: ForgetRequest
    ) -> tuple[Contents, tuple[RecordHandle, ...]]:
        """Remove records, at once or when the lag ends; return the missing handles."""
        now, lag = self._context.now(), self._trouble(Trouble.LAG)
        present = {
            one.record.handle: one.record
            for one in contents.records
            if (one.gone_at is None or one.gone_at > now) and sees(request.scope, one.record.scope)
        }
        going = [handle for handle in request.handles if handle in present]
        for handle in going:
            seen = request.revisions.get(handle.provider_record_id)
            check_revision(present[handle], seen)
        records = tuple(
            HostedRecord(record=one.record, gone_at=lag and lag.end)
            if one.record.handle in going
            else one
            for one in contents.records
            if lag or one.record.handle not in going
        )
        missing = tuple(handle for handle in request.handles if handle not in present)
        return contents.model_copy(update={"records": records}), missing

    def _corrected(self, contents: Contents, request: CorrectRequest) -> tuple[Contents, Record]:
        """Change one record and return it."""
        mine = [one for one in contents.records if one.record.handle == request.handle]
        if not mine or mine[0].gone_at is not None or not sees(request.scope, mine[0].record.scope):
            raise NotFound(f"There is no record {request.handle.provider_record_id} here.")
        record = mine[0].record
        check_revision(record, request.revision, request.text)
        number = contents.stored + 1
        given = request.changes("text", "pinned", "topic", "tags", "expires_at")
        update = {**given, "updated_at": self._context.now(), "revision": f"r{number}"}
        changed = record.model_copy(update=update)
        records = tuple(
            HostedRecord(record=changed) if one is mine[0] else one for one in contents.records
        )
        return Contents(stored=number, records=records), changed


def sees(scope: Scope, owner: Scope) -> bool:
    """Whether a scope sees an owner's records; in a project, other agents' records are too."""
    fields = ["project_id", "subject_id"]
    if owner.project_id is None:
        fields.append("agent_id")
    pairs = [(getattr(scope, field), getattr(owner, field)) for field in fields]
    return all(asked is None or value is None or asked == value for asked, value in pairs)


def _summed_up(records: Sequence[Record]) -> str:
    """Return the records' common topics, and the texts of the pinned and the newest ones."""
    topics = Counter(record.topic for record in records if record.topic)
    about = ", ".join(topic for topic, _ in topics.most_common(_TOPICS))
    leading = sorted(records, key=lambda one: (one.pinned, one.updated_at or _EVER), reverse=True)
    total = "1 memory" if len(records) == 1 else f"{len(records)} memories"
    lines = [total + (f", most about {about}." if about else ".")]
    lines += [(one.summary or one.text.split("\n", 1)[0])[:200] for one in leading[:_LEADING]]
    return "\n".join(lines)


def _is_returned(one: HostedRecord, now: datetime) -> bool:
    expires = one.record.expires_at
    return (one.gone_at is None or now < one.gone_at) and (expires is None or now < expires)


def _usage(model: str, latency_ms: float, **consumed: int | Decimal) -> Usage:
    return Usage.model_validate(
        {"provider": KEY, "model": model, "latency_ms": latency_ms, **consumed}
    )


def _tokens(text: str) -> int:
    return max(1, round(len(text) / _CHARACTERS_PER_TOKEN))


def _latency(text: str, least: int, spread: int) -> float:
    """Return a simulated latency in milliseconds, the same for the same text."""
    return float(least + zlib.crc32(text.encode("utf-8", "replace")) % spread)
