"""Open adapters: one per binding, open until the binding changes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel

from memtui.config import Paths, make_private
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Denied,
    Health,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
    Unsupported,
    place_of_path,
)
from memtui.scratch import Scratch
from memtui.service.operations.filling import Filling
from memtui.service.operations.redaction import redact
from memtui.service.providers import Providers, open_foreign, unexpected
from memtui.store.database import Database
from memtui.store.rows import BindingRow
from memtui.threads import silent_at_most

if TYPE_CHECKING:
    from memtui.pruning.candidates import Repeats

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAGE = 1_000
FAILURES_TO_OPEN = 3
OPEN_SECONDS = 60.0
_ATTEMPTS = 3
_CLOSE_TIMEOUT_MS = 3_000
"""How long closing waits for a provider."""
_DERIVE_TIMEOUT_MS = 600_000
_SETTING_UP = ("provider_key", "config", "agreed")
"""The fields of a binding that its adapter depends on: if one changes, it is opened again."""
_RECORDS_A_TIMEOUT = 200
"""A bulk call gets one more timeout for each so many records."""


@dataclass(eq=False)
class Breaker:
    """Refuses calls for a minute after three failures in a row, then allows one try a minute.

    Only `Unavailable` counts as a failure: a conflict or a denial is an answer.
    """

    _timer: Callable[[], float]
    _failures: int = 0
    _opened_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused now."""
        return self._opened_at is not None and self._timer() - self._opened_at < OPEN_SECONDS

    def failed(self) -> None:
        """Count a failure, and open the breaker at the third."""
        self._failures += 1
        if self._failures >= FAILURES_TO_OPEN:
            self._opened_at = self._timer()

    async def guarded(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        provider: str,
        timeout_ms: int,
        idempotent: bool,
        records: int = 1,
    ) -> T:
        """Make one call to a provider; retry an idempotent one within the same timeout.

        `records`, how many it handles, extends the timeout, which begins anew when the provider
        says that it goes on.

        Raises:
            Unavailable: it timed out, raised an unexpected exception, or the breaker is open.
            MemtuiError: the error that the adapter raised.
        """
        if self._opened_at is not None:
            self._refuse_while_open(provider, self._opened_at)
        seconds = timeout_ms * (1 + records // _RECORDS_A_TIMEOUT) / 1000
        started = self._timer()
        earlier: list[Unavailable] = []
        try:
            async with silent_at_most(seconds):
                while True:
                    try:
                        answer = await call()
                        break
                    except Unavailable as error:
                        # No retry library: only the error tells whether the call was sent.
                        earlier.append(error)
                        if error.sent or not idempotent or len(earlier) == _ATTEMPTS:
                            raise
                    # Jitter, so that clients do not retry in step.
                    await asyncio.sleep(uniform(0.05, 0.3))  # noqa: S311 - no secret
        except MemtuiError as error:
            if isinstance(error, Unavailable):
                self.failed()
            else:
                self._failures, self._opened_at = 0, None
            raise
        except TimeoutError as error:
            self.failed()
            if earlier:  # the earlier error is more specific than a time-out
                raise earlier[-1] from error
            raise Unavailable(
                f"{provider} did not answer within {seconds:g} s; "
                "raise provider_timeout_ms if it needs longer.",
                sent=True,
            ) from error
        except Exception as error:
            self.failed()
            raise unexpected(provider, error) from error
        self._failures, self._opened_at = 0, None
        _log.debug("%s answered after %.1f ms", provider, (self._timer() - started) * 1000)
        return answer

    def _refuse_while_open(self, provider: str, opened_at: float) -> None:
        """Refuse the call while the breaker is open; after that, this call is the try."""
        left = OPEN_SECONDS - (self._timer() - opened_at)
        if left > 0:
            raise Unavailable(
                f"{provider} failed {self._failures} times in a row; "
                f"it is tried again in {max(1, round(left))} s."
            )
        self._opened_at = self._timer()


class FoundList(NamedTuple):
    """The records of a list that needed a read of the whole scope."""

    records: Sequence[Record]
    last: BrowsePage
    """The last page that was read from the provider."""


@dataclass(frozen=True)
class Connection:
    """A binding's open adapter, with timeout, retry and breaker."""

    binding: BindingRow
    adapter: Adapter
    who: str
    """The provider's name in error messages."""
    breaker: Breaker
    timeout_ms: int
    lock_file: Path
    """Locked by the process that is adding a fact."""
    found: dict[Hashable, FoundList] = field(default_factory=dict)
    """Cache of the list read last, by request; cleared by every mutation."""
    _adding: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def unfilled(self) -> Connection:
        """This connection, with records as the provider returns them."""
        return replace(self, adapter=getattr(self.adapter, "unfilled", self.adapter))

    @cached_property
    def repeats(self) -> Repeats:
        """Cache of the records that repeat another: each page of a list needs it."""
        from memtui.pruning.candidates import Repeats

        return Repeats()

    @asynccontextmanager
    async def adding_facts(self) -> AsyncIterator[None]:
        """Lock out other writers of facts in this home, from the count of facts to the write.

        Raises:
            Unavailable: another process keeps the lock too long, or the file cannot be locked.
        """
        from filelock import AsyncFileLock, Timeout

        async with self._adding:
            lock = AsyncFileLock(
                self.lock_file, timeout=self.timeout_ms / 1000, mode=0o600, poll_interval=0.005
            )
            try:
                await lock.acquire()
            except Timeout as error:
                raise Unavailable(
                    f"Another program has been adding facts to {self.binding.key} for too long; "
                    "try again."
                ) from error
            except OSError as error:
                raise Unavailable(f"Cannot use {self.lock_file}: {error.strerror}.") from error
            try:
                yield
            finally:
                await lock.release()

    async def read(self, call: Callable[[], Awaitable[T]], *, records: int = 1) -> T:
        """Make an idempotent call; `records`, how many it handles, extends the timeout."""
        return await self.breaker.guarded(
            call, provider=self.who, timeout_ms=self.timeout_ms, idempotent=True,
            records=records,
        )  # fmt: skip

    async def mutate(self, call: Callable[[], Awaitable[T]], *, records: int = 1) -> T:
        """Make a call that changes records and must not be retried."""
        self.found.clear()
        return await self.breaker.guarded(
            call, provider=self.who, timeout_ms=self.timeout_ms, idempotent=False,
            records=records,
        )  # fmt: skip

    async def derive(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that creates derived data only; its failures do not count for the breaker."""
        return await Breaker(time.monotonic).guarded(
            call,
            provider=self.who,
            timeout_ms=max(self.timeout_ms, _DERIVE_TIMEOUT_MS),
            idempotent=False,
        )

    def handle_of(self, asked: RecordHandle | str) -> RecordHandle:
        """Return the handle of a record, given as handle or id; raises `Invalid` if empty."""
        if isinstance(asked, RecordHandle):
            return asked
        if not asked:
            raise Invalid("A record is named by its id; give one.")
        return RecordHandle(provider_key=self.adapter.key, provider_record_id=asked)

    def require(self, capability: str) -> None:
        """Raise `Unsupported` where the provider lacks a capability."""
        if not getattr(self.adapter.capabilities, capability):
            raise Unsupported(
                f"The provider {self.binding.provider_key} of binding {self.binding.key} "
                f"has no {capability.replace('_', ' ')}."
            )

    def lacks(self, handle: RecordHandle) -> NotFound:
        """Return the error for a record that does not exist."""
        return NotFound(
            f"There is no record {handle.provider_record_id} in {self.binding.key} "
            "for this scope; `memtui browse` lists those there are, and `memtui facts get` finds "
            "a fact by its key."
        )

    async def snapshots(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return a snapshot of each record: the adapter's, else one made from `get`.

        Raises:
            Unavailable: the provider is down, or its answer is for other records.
        """
        if not handles:
            return []
        adapter = self.adapter
        if adapter.capabilities.restore:
            seen = await self.read(lambda: adapter.snapshot(handles, scope), records=len(handles))
            if [snapshot.handle for snapshot in seen] != list(handles):
                raise Unavailable(
                    f"{self.binding.key} returned other records than those that were requested.",
                    sent=True,
                )
            return seen
        return [
            Snapshot(handle=one, record=await self.read(partial(adapter.get, one, scope)))
            for one in handles
        ]

    async def pages(
        self, request: BrowseRequest, *, whole: bool = False
    ) -> AsyncIterator[BrowsePage]:
        """Yield all pages of a list, a thousand records each.

        `whole`: read the first page again until the provider has finished its search.
        """
        request = request.model_copy(update={"binding_key": self.binding.key, "limit": _PAGE})
        while True:
            page = await self.read(partial(self.adapter.browse, request))
            while whole and page.unfinished and request.cursor is None:
                page = await self.read(partial(self.adapter.browse, request))
            yield page
            if page.next_cursor is None:
                return
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def close(self) -> None:
        """Close the adapter; log an error or a time-out, and go on."""
        try:
            async with asyncio.timeout(min(self.timeout_ms, _CLOSE_TIMEOUT_MS) / 1000):
                await self.adapter.close()
        except Exception:  # noqa: BLE001 — a provider's bug must not keep the others from closing
            _log.exception("The provider of %s failed to close", self.binding.key)


@dataclass(eq=False)
class Connections:
    """Opens a binding's adapter once, and again when its config or mode has changed."""

    database: Database
    providers: Providers
    paths: Paths
    timeout_ms: int
    clock: Callable[[], datetime]
    timer: Callable[[], float]
    _open: dict[str, tuple[bool, Connection]] = field(default_factory=dict)
    """Whether it was opened read-only, and the connection, by binding."""
    _breakers: dict[str, Breaker] = field(default_factory=dict)
    _is_closed: bool = False
    _locks: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )

    def opened(self, binding: BindingRow, *, read_only: bool) -> Connection | None:
        """Return the connection of a binding, if it is open in this mode with this config."""
        mode, known = self._open.get(binding.binding_id, (None, None))
        if known is None or mode is not (read_only or binding.read_only):
            return None
        is_same = all(getattr(known.binding, one) == getattr(binding, one) for one in _SETTING_UP)
        return known if is_same else None

    async def to(self, binding: BindingRow, *, read_only: bool) -> Connection:
        """Open the connection of a binding.

        Raises:
            Invalid: the provider is not installed, or the config does not fit it.
            Unavailable: the provider cannot be opened.
        """
        async with self._locks[binding.binding_id]:
            # Another caller may have opened it while this one waited for the lock.
            if (known := self.opened(binding, read_only=read_only)) is not None:
                return known
            await self._drop(binding.binding_id)
            mode = read_only or binding.read_only
            connection = await self._connect(
                binding, read_only=mode, data_dir=self._folder(binding),
                breaker=self.breaker(binding.binding_id),
            )  # fmt: skip
            if self._is_closed:
                await connection.close()
                raise Unavailable(f"{binding.key} was opened too late; memtui is closing.")
            self._open[binding.binding_id] = mode, connection
            return connection

    async def drop(self, binding_id: str) -> None:
        """Close a binding's adapter, if it is open."""
        async with self._locks[binding_id]:
            await self._drop(binding_id)

    async def close(self) -> None:
        """Close all adapters at once, so that one that hangs delays no other."""
        self._is_closed = True
        await asyncio.gather(*(self._drop(binding_id) for binding_id in list(self._open)))

    def breaker(self, binding_id: str) -> Breaker:
        """Return the breaker of a binding; it stays when the adapter is opened again."""
        return self._breakers.setdefault(binding_id, Breaker(self.timer))

    async def check_config(self, provider_key: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a binding's config, validated and completed by the provider.

        Raises:
            Invalid: the provider is not installed, or a key or value does not fit.
            Unavailable: its package takes too long to load.
        """
        check = partial(self.providers.check_config, provider_key, config)
        return await self.providers.within(provider_key, check)

    async def places(self, binding: BindingRow, *, load: bool) -> frozenset[tuple[str, ...]]:
        """Return where a binding's records are stored (`Adapter.places`), with its folder.

        Only the folder is known where the provider fails, or is of another package that is not
        loaded yet and `load` is False.
        """
        key = binding.provider_key

        def find() -> frozenset[tuple[str, ...]]:
            if not load and self.providers.is_foreign(key) and not self.providers.loaded(key):
                return frozenset()
            config = self.providers.check_config(key, binding.config)
            checked, folder = replace(binding, config=config), self._folder(binding)
            context = self._context(checked, folder, lookup_secret, read_only=True)
            return frozenset(map(tuple, self.providers.load(key).places(context)))

        try:
            named = await self.providers.within(key, find)
        except MemtuiError:
            named = frozenset()
        except Exception:  # noqa: BLE001 - third-party code may fail in any way
            _log.exception("The provider of %s does not say where its records lie", binding.key)
            named = frozenset()
        return named | {place_of_path(self._folder(binding))}

    async def to_agree(self, provider_key: str, config: Json, agreed: str) -> str | None:
        """Return the command that a binding starts and nobody has agreed to yet; None: none.

        `agreed` is the binding's. Raises `Invalid` for a config that does not fit.
        """
        checked = await self.check_config(provider_key, config)

        def find() -> tuple[str | None, bool]:
            command = self.providers.load(provider_key).starts(checked)
            return command, command is None or agreed_start(command) in agreed.split()

        try:
            command, is_agreed = await self.providers.within(provider_key, find)
        except MemtuiError:
            raise
        except Exception as error:  # third-party code may fail in any way
            raise unexpected(f"The provider {provider_key}", error) from error
        return None if is_agreed else command

    async def refuse_start(self, binding: BindingRow) -> None:
        """Raise `Denied` for a binding that starts a command that nobody has agreed to."""
        command = await self.to_agree(binding.provider_key, binding.config, binding.agreed)
        if command is not None:
            raise Denied(
                f"{binding.key} would start a program, and nobody has agreed to that: {command}. "
                "Save the binding's settings again to be asked."
            )

    async def trial(self, binding: BindingRow, *, read_only: bool) -> Health:
        """Open a second adapter of a binding; return its health with the first records.

        A binding without a folder gets a temporary one. Failures do not count for the breaker.

        Raises:
            Invalid: the config does not fit.
            Unavailable: the provider cannot be opened.
        """
        own = self._folder(binding)
        with closing(Scratch()) as scratch:
            connection = await self._connect(
                binding, read_only=read_only, breaker=Breaker(self.timer),
                data_dir=own if own.is_dir() else scratch.path,
            )  # fmt: skip
            try:
                found = await connection.read(connection.adapter.health)
                if found.status != "down":
                    found = await _looked_at(connection, found)
            finally:
                await connection.close()
        # The message names the folder that the binding will have, not the temporary one.
        return found.model_copy(
            update={"message": found.message.replace(str(scratch.path), str(own))}
        )

    def _folder(self, binding: BindingRow) -> Path:
        return self.paths.binding_dir(binding.binding_id)

    def _context(
        self,
        binding: BindingRow,
        data_dir: Path,
        secret: Callable[[str], str | None],
        *,
        read_only: bool,
    ) -> BindingContext:
        return BindingContext(
            company_id=binding.company_id,
            binding_key=binding.key,
            config=binding.config,
            read_only=read_only,
            data_dir=data_dir,
            secret=secret,
            now=self.clock,
            redact=lambda text: redact(text)[0],
            agreed=frozenset(binding.agreed.split()),
        )

    async def _connect(
        self, binding: BindingRow, *, read_only: bool, data_dir: Path, breaker: Breaker
    ) -> Connection:
        key = binding.provider_key
        config = await self.check_config(key, binding.config)
        provider = self.providers.load(key)  # loaded by now
        await self.refuse_start(binding)
        is_foreign, who = self.providers.is_foreign(key), binding.key
        if is_foreign:
            who += f" (the provider {key} of the package {self.providers.package(key)})"

        async def open_adapter() -> Adapter:
            try:
                await asyncio.to_thread(make_private, data_dir)
            except OSError as error:
                if not read_only:
                    raise Unavailable(f"Cannot use {data_dir}: {error.strerror}.") from error
            secret = await asyncio.to_thread(_secrets_of, provider.config_model, config)
            checked = replace(binding, config=config)
            context = self._context(checked, data_dir, secret, read_only=read_only)
            if is_foreign:
                return await open_foreign(provider, context, package=self.providers.package(key))
            return await provider.open(context)

        adapter = await breaker.guarded(
            open_adapter,
            provider=who,
            timeout_ms=self.timeout_ms if is_foreign else max(self.timeout_ms, _OPEN_TIMEOUT_MS),
            idempotent=True,
        )
        if adapter.lacks:
            adapter = cast("Adapter", Filling(adapter, binding, self.database))
        return Connection(binding, adapter, who, breaker, self.timeout_ms, data_dir / _ADDING)

    async def _drop(self, binding_id: str) -> None:
        known = self._open.pop(binding_id, None)
        if known is not None:
            await known[1].close()


async def _looked_at(connection: Connection, health: Health) -> Health:
    """Return the health with the first records, and their number where that is exact."""
    adapter, key = connection.adapter, connection.binding.key
    scope = Scope(company_id=connection.binding.company_id)
    number: int | None = None
    found: Sequence[Record] = ()
    try:
        if adapter.capabilities.browse:
            listed = BrowseRequest(scope=scope, binding_key=key, limit=_FIRST)
            page = await connection.read(partial(adapter.browse, listed))
            number, found = None if page.at_least else page.total, page.records
        else:
            asked = QueryRequest(scope=scope, binding_key=key, query="memory", top_k=_FIRST)
            found = (await connection.read(partial(adapter.query, asked))).snippets
    except MemtuiError as error:
        return health.model_copy(update={"status": "degraded", "message": str(error)})
    first = tuple(one.shown[:_FIRST_CHARS] for one in found)
    records = number if health.records is None else health.records
    return health.model_copy(update={"records": records, "first": first})


_FIRST, _FIRST_CHARS = 3, 200


def is_start(word: str) -> bool:
    """Whether a word of a binding's `agreed` is the yes to a command, and no address."""
    return word.startswith(_START)


def agreed_start(command: str) -> str:
    """Return the word in a binding's `agreed` for the yes to a command."""
    return f"{_START}{sha256(command.encode('utf-8', 'surrogatepass')).hexdigest()}"


_START = "starts:"
_ADDING = "adding-facts.lock"

_OPEN_TIMEOUT_MS = 120_000
"""Opening may build an index of a large folder."""


def _secrets_of(
    config_model: type[BaseModel], config: Mapping[str, Any]
) -> Callable[[str], str | None]:
    """Read the secrets that a config names in keys ending in `_secret` or `_secrets`. Blocking.

    They are read in advance, so that the adapter need not wait for a keyring.
    """
    named = {
        str(name): lookup_secret(str(name))
        for key, given in config_model.model_validate(dict(config))
        if key.endswith(("_secret", "_secrets")) and given
        for name in (given.values() if isinstance(given, dict) else [given])
    }
    return lambda name: named[name] if name in named else lookup_secret(name)


def lookup_secret(name: str) -> str | None:
    """Return a provider's secret: the environment variable of that name, else the keyring's.

    Blocking: a keyring may ask its user to unlock it.
    """
    if value := os.environ.get(name):
        return value
    import keyring
    from keyring.errors import KeyringError

    try:
        return keyring.get_password("memtui", name)
    except KeyringError:
        return None
