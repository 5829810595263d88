"""Base of a provider that calls a server over HTTP: the provider has formats and mappings alone.

`ServerProvider` has what all of these share: the config of address and token, time and size limits,
pages, lists that are sorted and filtered here, the scope and revision of each record that is
changed, and health. `memtui.provider_kit.servers` turns a server's refusals into the contract's
errors; the service tries a read again while `Unavailable.sent` is false.
"""

import asyncio
import hashlib
import json
from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    Model,
    NotFound,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Snippet,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    owner_of,
    place_of_url,
    sees,
)
from memtui.json_text import whole
from memtui.provider_kit import (
    abilities_in,
    check_revision,
    is_uuid,
    need_secret,
    read_config,
    require_kept,
    require_writable,
    together,
)
from memtui.provider_kit.kept import not_shown
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.servers import JsonApi, Unreadable, check_address, read_json, read_object

Item = TypeVar("Item")
"""A memory as the server sends it, parsed."""

_LEAST_HITS = 50
"""Hits requested at first; those that are not visible to the scope are removed afterwards."""
_KEPT_SECONDS = 60.0
_TRIES = 3


def _limits_last(schema: Json) -> None:
    fields = schema["properties"]
    for name in ("allow_http", "timeout_seconds", "max_body_mb", "max_listed"):
        if name in fields:
            fields[name] = fields.pop(name)


class ServerLimits(Model):
    """The address of a server and the limits of its calls.

    In a form the limits come after the settings of the provider's own.
    """

    model_config = ConfigDict(json_schema_extra=_limits_last)

    url: str
    """The server's address, `https://host` with the path before its API, if there is one."""
    allow_http: bool = False
    """Send the token unencrypted to another machine."""
    timeout_seconds: float = Field(default=20.0, gt=0)
    """How long one request may take, in seconds."""
    max_body_mb: float = Field(default=20.0, gt=0)
    """The largest reply that is read, in megabytes."""

    def client(self, who: str, headers: Mapping[str, str], socket: Path | None = None) -> JsonApi:
        """Return a client of the server; `who` begins the sentences of its errors."""
        return JsonApi(
            who,
            self.url,
            seconds=self.timeout_seconds,
            most_bytes=int(self.max_body_mb * 1_000_000),
            headers=headers,
            socket=socket,
        )


class ServerConfig(ServerLimits):
    """The settings of a server that wants one token, or none."""

    token_secret: str | None = None
    """The name of the secret that holds the token; unset: the server wants none."""
    max_listed: int = Field(default=5_000, ge=1, le=100_000)
    """How many memories a list reads."""


def read_token(context: BindingContext, name: str, what: str) -> str:
    """Return the secret `name`, which is sent in a header. Raises `Invalid`; `what` names it."""
    token = need_secret(context, name, what)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise Invalid(
            f"The secret {name} contains characters that no token can have; store the token again."
        )
    return token


def revision_of(*parts: object) -> str:
    """Return a digest of what makes a record, for servers without revisions of their own."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class ServerRows(Generic[Item]):
    """What a server returned. `more`: there may be others; `unreadable`: rows that were skipped."""

    items: Sequence[Item]
    more: bool = False
    unreadable: int = 0


Search = Callable[[str, int], Awaitable[ServerRows[Item]]]
"""A search: of a query, and the most hits."""


def read_rows(
    rows: object, parse: Callable[[Any], Item], *, more: bool = False
) -> ServerRows[Item]:
    """Return the rows of a reply that `parse` can read; it raises `ValueError` for others."""
    items: list[Item] = []
    unreadable = 0
    for row in rows if isinstance(rows, list) else []:
        try:
            items.append(parse(whole(row)))
        except ValueError:
            unreadable += 1
    return ServerRows(items, more, unreadable)


def read_one(parse: Callable[[Any], Item]) -> Callable[[bytes], Item]:
    """Return the function that parses a reply's one memory. It raises `Unreadable`."""

    def read(body: bytes) -> Item:
        try:
            return parse(whole(read_json(body)))
        except ValidationError as error:
            raise Unreadable(
                "it is not a memory, or memtui's part of its metadata is damaged"
            ) from error

    return read


def read_page(rows: str, total: str = "total") -> Callable[[bytes], tuple[list[Any], int]]:
    """Return the function that parses a page with the number of all rows.

    `rows` and `total` are the names of both in the reply. It raises `Unreadable`.
    """

    def read(body: bytes) -> tuple[list[Any], int]:
        reply = read_object(body)
        found, number = reply.get(rows), reply.get(total)
        if not isinstance(found, list) or not isinstance(number, int):
            raise Unreadable(f"it has no {rows} or no {total}")
        return found, number

    return read


async def read_pages(
    read: Callable[[int], Awaitable[tuple[Sequence[Any], int]]],
    parse: Callable[[Any], Item],
    id_of: Callable[[Item], Hashable],
    most: int,
) -> ServerRows[Item]:
    """Return at most `most` items of a list that is read by offset, each once.

    `read` returns the rows from an offset on, and the number of all rows. If that number changes
    meanwhile, a row may have been missed: the list is read again, at most three times, and
    `ServerRows.more` is true if it still changed.
    """
    for _ in range(_TRIES):
        rows, total = await read(0)
        number = total
        while rows and len(rows) < min(total, most):
            following, total = await read(len(rows))
            if not following:
                break
            rows = [*rows, *following]
        if total == number:
            break
    found = read_rows(list(rows), parse)
    items = list({id_of(item): item for item in found.items}.values())
    is_short = len(items) + found.unreadable < total
    return ServerRows(items[:most], is_short or len(items) > most, found.unreadable)


class ServerProvider(Adapter, Generic[Item]):
    """Reads and changes the memories of a server, which has no conditional writes of its own.

    A subclass has `key`, `config_model`, `capabilities`, `who` and the methods from `record_of` to
    `change`. Lists read everything, up to the binding's `max_listed`; later pages come from the
    first page's list. Another program may change a memory between the check of its revision and
    the change. Usage is unpriced.
    """

    who: ClassVar[str]
    """Begins the sentences of its errors, such as "The notes' server"."""
    why_read_only: ClassVar[str] = "The server does not change this memory."
    """The sentence for a record that is `read_only`."""
    most_hits: ClassVar[int] = 100
    """The most hits that one search of the server returns."""
    has_uuids: ClassVar[bool] = False
    """Whether each id is a UUID."""
    partition: ClassVar[str] = ""
    """The setting that names a part of the server which shares nothing with the others."""
    config_model: ClassVar[type[ServerLimits]]
    api: JsonApi

    def __init__(self, context: BindingContext, config: Any) -> None:
        self.context = context
        self.capabilities = abilities_in(context, self.abilities(config))
        self.api = self.connect(context, config)
        self._max_listed = config.max_listed
        self._changing = asyncio.Lock()
        self._listed: tuple[float, ServerRows[Item]] | None = None
        self._unread_hits = 0

    @classmethod
    def config_of(cls, context: BindingContext) -> Any:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config: Any = read_config(cls.config_model, context)
        is_private = config.allow_http or config.token_secret is None
        check_address(config.url, what=f"The url of {cls.key}", is_private=is_private)
        return config

    @classmethod
    def token(cls, context: BindingContext, config: ServerConfig) -> str | None:
        """Return the token; None: none is configured. Raises `Invalid`."""
        name = config.token_secret
        return None if name is None else read_token(context, name, f"the token of {cls.key}")

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the server, with its `partition`."""
        config, name = cls.config_of(context), cls.partition
        return [(*place_of_url(config.url), *([name, getattr(config, name)] if name else []))]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Check the config; the first call connects to the server. Raises `Invalid`."""
        return cls(context, cls.config_of(context))

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()

    # What a provider has

    @classmethod
    def abilities(cls, config: Any) -> Capabilities:
        """Return the abilities of a writable binding; override it where the config decides."""
        del config
        return cls.capabilities

    def connect(self, context: BindingContext, config: Any) -> Any:
        """Return the server's client: a `JsonApi`, or one with its `changes` and `close`."""
        return config.client(self.who, self.headers(self.token(context, config)))

    @classmethod
    def headers(cls, token: str | None) -> Mapping[str, str]:
        """Return the headers of each request."""
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    @abstractmethod
    def record_of(self, item: Item) -> Record:
        """Return a memory as a record, with a revision."""

    def score_of(self, item: Item) -> float | None:
        """Return the `score` of a hit, if it has one; higher is better."""
        score: float | None = getattr(item, "score", None)
        return score

    def may_be_id(self, record_id: str) -> bool:
        """Whether the server can have a memory of this id; if not, it is not asked."""
        return is_uuid(record_id) if self.has_uuids else bool(record_id)

    @abstractmethod
    async def list_items(self, most: int) -> ServerRows[Item]:
        """Return at most `most` memories (see `read_pages`)."""

    @abstractmethod
    async def search(self, query: str, most: int) -> ServerRows[Item]:
        """Return at most `most` hits, best first."""

    @abstractmethod
    async def fetch(self, record_id: str) -> Item | None:
        """Return one memory; None or `NotFound` where there is none."""

    @abstractmethod
    async def store(self, request: WriteRequest) -> Sequence[str]:
        """Store a memory and return its id, or those of the memories that were made of it."""

    @abstractmethod
    async def remove(self, item: Item) -> bool:
        """Delete a memory; False or `NotFound` if there is none."""

    async def change(self, item: Item, request: CorrectRequest) -> str:
        """Change a memory and return its id, which may be a new one; capability `correction`."""
        raise NotImplementedError

    async def put_back(self, snapshot: Snapshot) -> None:
        """Restore one record, or remove it; capability `restore`. Raises `Conflict`."""
        raise NotImplementedError

    async def check(self) -> Health:
        """Return whether the server answers; override it where a call is cheaper than a list."""
        await self.list_items(1)
        return Health()

    # What the base does with it

    def handle_of(self, record_id: str) -> RecordHandle:
        """Return the handle of an id."""
        return RecordHandle(provider_key=self.key, provider_record_id=record_id)

    @asynccontextmanager
    async def calling(
        self, *, changes: bool = False, alone: bool = True
    ) -> AsyncIterator[Callable[..., Json]]:
        """Yield a function that returns the call's usage; a change discards the cached list.

        Changes that are `alone` run one after the other. Where the server no longer answers after
        a part of a change was made, the outcome is unknown (`Unavailable.sent`).

        Raises:
            Unsupported: the binding is read-only, and this is a change.
        """
        started = perf_counter()

        def usage(**details: str) -> Json:
            latency_ms = (perf_counter() - started) * 1000
            return {"usage": (Usage(provider=self.key, latency_ms=latency_ms, details=details),)}

        if not changes:
            yield usage
            return
        require_writable(self.context, "These memories are")
        async with self._changing if alone else nullcontext():
            before = self.api.changes
            try:
                yield usage
            except Unavailable as error:
                if error.sent or self.api.changes == before:
                    raise
                raise Unavailable(str(error), sent=True) from error
            finally:
                self._listed = None

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a text."""
        async with self.calling(changes=True) as usage:
            require_kept(self.capabilities, request)
            ids = await self.store(request)
            return WriteReply(records=tuple(map(self.handle_of, ids)), **usage())

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search with the server's own search."""
        async with self.calling() as usage:
            found, is_all = await self.hits(request)
            return ContextBundle(
                snippets=tuple(
                    Snippet(**dict(self.record_of(one)), score=self.score_of(one))
                    for one in found[: request.top_k]
                ),
                capped=len(found) > request.top_k or not is_all,
                **usage(),
            )

    async def hits(
        self,
        request: QueryRequest,
        search: Search[Item] | None = None,
    ) -> tuple[list[Item], bool]:
        """Return the hits that a query may return, best first, and whether these are all.

        It requests more until enough of the hits are visible. `search` replaces the method of that
        name, for example by one whose hits have more fields.
        """
        if not request.query.strip():
            return [], True
        asked, may_be = max(_LEAST_HITS, 2 * request.top_k), eligible(request)
        while True:
            asked = min(asked, self.most_hits)
            rows = await (search or self.search)(request.query, asked)
            self._unread_hits = rows.unreadable
            found = [item for item, record in self._visible(rows, request) if may_be(record)]
            if len(found) > request.top_k or not rows.more or asked == self.most_hits:
                return found, not rows.more
            asked *= 4

    def _visible(
        self,
        rows: ServerRows[Item],
        request: QueryRequest | BrowseRequest,
        *,
        expired: bool = False,
    ) -> Iterator[tuple[Item, Record]]:
        """Yield the memories visible to a request's scope, and of its owners if it has any."""
        owners = frozenset(map(owner_of, request.owners))
        for item in rows.items:
            record = self.record_of(item)
            is_owned = not owners or owner_of(record.scope) in owners
            if is_owned and self.is_seen(record, request.scope, expired=expired):
                yield item, record

    def is_seen(self, record: Record, scope: Scope, *, expired: bool = False) -> bool:
        """Whether a scope sees a record; one that has expired only with `expired`."""
        ends = record.expires_at
        is_past = ends is not None and ends <= self.context.now()
        return sees(scope, record.scope) and (expired or not is_past)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one memory."""
        found = await self.find(handle, scope)
        return None if found is None else self.record_of(found)

    async def find(self, handle: RecordHandle, scope: Scope) -> Item | None:
        """Return the memory of a handle; None if none is visible to the scope."""
        if not self.may_be_id(handle.provider_record_id):
            return None
        try:
            found = await self.fetch(handle.provider_record_id)
        except NotFound:
            return None
        return found if found and self.is_seen(self.record_of(found), scope) else None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete memories, one request each, after checking all of them."""
        async with self.calling(changes=True) as usage:
            handles = request.handles
            there = await together(partial(self.find, handle, request.scope) for handle in handles)
            for handle, item in zip(handles, there, strict=True):
                if item is not None:
                    revision = request.revisions.get(handle.provider_record_id)
                    check_revision(self.record_of(item), revision)
            derived = [
                handle.provider_record_id
                for handle, item in zip(handles, there, strict=True)
                if item is not None and self.record_of(item).read_only
            ]
            gone = 0

            async def delete(item: Item | None) -> bool:
                nonlocal gone
                try:
                    if item is not None and self.record_of(item).read_only:
                        return True
                    is_done = item is not None and await self.remove(item)
                except NotFound:
                    return False
                gone += is_done
                return is_done

            try:
                done = await together(partial(delete, item) for item in there)
            except MemtuiError as error:
                if not gone:
                    raise
                raise Unavailable(
                    f"{gone} of {len(handles)} memories were forgotten, then it failed: {error}",
                    sent=True,
                ) from error
            missing = [one for one, was_there in zip(handles, done, strict=True) if not was_there]
            refused = dict.fromkeys(derived, self.why_read_only)
            return ForgetReply(missing=tuple(missing), refused=refused, **usage())

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a memory."""
        async with self.calling(changes=True) as usage:
            if not self.capabilities.correction:
                raise Unsupported(f"The provider {self.key} cannot correct a record in place.")
            require_kept(self.capabilities, request)
            item = await self.find(request.handle, request.scope)
            if item is None:
                raise NotFound(
                    f"There is no memory {request.handle.provider_record_id} in this scope; list "
                    "them again."
                )
            record = self.record_of(item)
            if record.read_only:
                raise Denied(self.why_read_only)
            check_revision(record, request.revision, request.text)
            if request.text is not None and not request.text.strip():
                raise Invalid("A memory needs some text; forget it instead of emptying it.")
            return CorrectReply(handle=self.handle_of(await self.change(item, request)), **usage())

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record as `get` shows it."""
        found = await together(partial(self.get, handle, scope) for handle in handles)
        return [Snapshot(handle=one, record=r) for one, r in zip(handles, found, strict=True)]

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put records back one by one."""
        if not self.capabilities.restore:
            return await super().restore(snapshots, scope)
        async with self.calling(changes=True) as usage:
            for done, one in enumerate(snapshots):
                try:
                    await self.put_back(one)
                except MemtuiError as error:
                    if not done:
                        raise
                    raise Unavailable(
                        f"{done} of {len(snapshots)} memories were put back, then it failed: "
                        f"{error}",
                        sent=True,
                    ) from error
            there = tuple(one.handle for one in snapshots if one.record is not None)
            return WriteReply(records=there, **usage())

    async def remove_replaced(self, old: Item, new_id: str) -> None:
        """Delete a memory whose new text is stored as another; if it stays, delete that one.

        For servers that cannot change a text: an interruption leaves one of the two, or says both.

        Raises:
            Conflict: somebody else deleted it meanwhile.
        """
        old_id = self.record_of(old).handle.provider_record_id
        try:
            await self.remove(old)
        except MemtuiError as error:
            try:
                if not isinstance(error, NotFound) and not await self.is_there(old_id):
                    return
                if (new := await self.fetch(new_id)) is not None:
                    await self.remove(new)
            except MemtuiError as second:
                # The new text stays: it may be the only one left.
                raise Unavailable(
                    f"The new text is stored as {new_id}, and the old one may still be there as "
                    f"{old_id}: {error}",
                    sent=True,
                ) from second
            if isinstance(error, NotFound):
                raise Conflict(
                    "The memory was deleted while you changed it; write it again if it is still "
                    "true."
                ) from error
            raise

    async def is_there(self, record_id: str) -> bool:
        """Whether the server has a memory of this id, whatever its scope."""
        try:
            return await self.fetch(record_id) is not None
        except NotFound:
            return False

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page of the memories that were read."""
        async with self.calling() as usage:
            rows = await self.rows(fresh=request.cursor is None)
            found = await asyncio.to_thread(self._page, rows, request)
            unread = self._unread(rows)
            return found.model_copy(update={"at_least": bool(unread), "unread": unread, **usage()})

    def _page(self, rows: ServerRows[Item], request: BrowseRequest) -> BrowsePage:
        fits = matcher(request.filter)
        visible = self._visible(rows, request, expired=request.expired)
        return page([record for _, record in visible if fits(record)], request)

    async def rows(self, *, fresh: bool) -> ServerRows[Item]:
        """Return all memories, from the cached list unless `fresh` or the list is too old."""
        self._unread_hits = 0
        if self._listed and not fresh and monotonic() - self._listed[0] < _KEPT_SECONDS:
            return self._listed[1]
        rows = await self.list_items(self._max_listed)
        self._listed = monotonic(), rows
        return rows

    def _unread(self, rows: ServerRows[Item]) -> tuple[str, ...]:
        """Return sentences on the memories that a list lacks."""
        said: list[str] = []
        if rows.more:
            is_full = len(rows.items) >= self._max_listed
            hint = "raise the binding's max_listed to read further." if is_full else self.cut_hint
            said.append(f"{len(rows.items):,} memories were read; {hint}")
        if rows.unreadable:
            said.append(not_shown(rows.unreadable))
        return tuple(said)

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return how many hits of the latest search could not be read; a list says it itself."""
        del scope
        number = self._unread_hits
        return [Problem(message=not_shown(number))] if number else []

    cut_hint: ClassVar[str] = "the list changed meanwhile; read it again."
    """Ends the sentence about a list that is shorter than `max_listed` and not whole."""

    async def health(self) -> Health:
        """Return whether the server answers."""
        try:
            return await self.check()
        except MemtuiError as error:
            return Health(status="down", message=str(error))
