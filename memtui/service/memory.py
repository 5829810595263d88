"""`MemoryService`: the one door to every memory and to the log of what was done with it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter

from memtui.analytics.sealed import Archive
from memtui.config import Paths, Settings
from memtui.contract import Adapter, Conflict, MemtuiError, RecordHandle, Scope, Unsupported
from memtui.service.analysis import Analysis
from memtui.service.answers import Caller, Resolution, caller_of
from memtui.service.bindings import Bindings
from memtui.service.companies import Companies
from memtui.service.connections import Connections
from memtui.service.context import Contexts
from memtui.service.core import SETUP_DOOR, Core
from memtui.service.home import open_database
from memtui.service.limits import Limits
from memtui.service.log import Log, WholeLog
from memtui.service.members import Members, Tokens
from memtui.service.metrics import Metrics
from memtui.service.mutations import FactLimits, Mutations
from memtui.service.namespaces import Namespaces, PluginLedger
from memtui.service.providers import Providers, unexpected
from memtui.service.purge import Purging
from memtui.service.reads import Reads
from memtui.service.recorder import Recorder
from memtui.service.stored_secrets import Secrets
from memtui.service.undo import Undo
from memtui.threads import use_loose_threads

FIRST_COMPANY = "local"
FIRST_BINDING = "default"
FIRST_PROVIDER = "vault"


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return uuid.uuid4().hex


async def open_service(
    paths: Paths,
    settings: Settings,
    *,
    clock: Callable[[], datetime] = _utc_now,
    timer: Callable[[], float] = perf_counter,
    new_id: Callable[[], str] = _new_id,
    providers: Mapping[str, type[Adapter]] | None = None,
    first_company: bool = True,
) -> MemoryService:
    """Open the control plane under `paths`; log what a dead process left behind as unknown.

    Where there is no company yet, and unless `first_company` is False, it makes the company
    `local` with a vault under the key `default`. `clock` gives UTC now, `timer` monotonic seconds;
    `providers` adds adapter classes to the installed ones.

    Raises:
        Invalid: a folder or setting cannot be used.
        Unavailable: the database cannot be reached, is damaged, or is gone beside what it made.
    """
    use_loose_threads()
    database = await asyncio.to_thread(open_database, paths, settings)
    recorder = Recorder(database, paths.data / "sessions", clock=clock, timer=timer, new_id=new_id)
    registry = Providers(providers)
    core = Core(
        database=database,
        log=WholeLog(database, Archive(paths.archive)),
        providers=registry,
        connections=Connections(
            registry,
            paths,
            timeout_ms=settings.provider_timeout_ms,
            clock=clock,
            timer=timer,
        ),
        recorder=recorder,
        clock=clock,
        new_id=new_id,
        read_only=settings.read_only,
        fact_limits=FactLimits(
            max_chars=settings.fact_max_chars, max_count=settings.fact_max_count
        ),
    )
    service = MemoryService(core, paths, settings)
    try:
        await asyncio.to_thread(recorder.recover)
        await service.analysis.recover()
        if first_company and not settings.read_only and not await service.companies.all():
            with suppress(Conflict):  # another process that starts for the first time was faster
                await _make_first_company(service, settings)
    except BaseException:
        await service.close()
        raise
    return service


async def _make_first_company(service: MemoryService, settings: Settings) -> None:
    caller = caller_of(settings, FIRST_COMPANY, SETUP_DOOR)
    await service.companies.add(caller, "Local")
    await service.bindings.add(caller, FIRST_BINDING, FIRST_PROVIDER, {})
    await service.bindings.set_target(caller, "company", FIRST_COMPANY, FIRST_BINDING)


class MemoryService(Reads, Mutations, Undo, Contexts):
    """Resolves, authorises, redacts, calls the provider and records the operation.

    Every method that touches a provider's memories leaves an operation in the log, whatever comes
    of it. A mutation runs to its end even where its caller is cancelled. All raise only the
    contract's errors.

    Where a company has members, what one may see of its log and records is all that there is: the
    rule is `memtui.store.sight.Sight`. A caller who is no member gets `Denied` from every method.

    The operations on memories are its own methods; what is beside them stands in groups.
    """

    def __init__(self, core: Core, paths: Paths, settings: Settings) -> None:
        super().__init__(core)
        self.analysis = Analysis(core, paths.archive, settings)
        """What is asked of the whole operation log, sealed operations included."""
        self.bindings = Bindings(core)
        self.companies = Companies(core, self.analysis)
        self.limits = Limits(core, self.analysis)
        self.log = Log(core)
        self.members = Members(core)
        self.metrics = Metrics(core)
        self.namespaces = Namespaces(core, self)
        self.plugin = PluginLedger(core)
        """What serving a binding as a memory plugin keeps beside its provider."""
        self.purging = Purging(core, self.analysis, self, paths, settings.purge_after_days)
        """What a purge would erase, erasing it, and what may be erased by its age."""
        self.secrets = Secrets(core, self.analysis, self)
        self.tokens = Tokens(core)

    async def close(self) -> None:
        """Wait for the mutations that still run, then close the adapters and the database."""
        await self._core.close()
        await self.analysis.close()
        await asyncio.to_thread(self._core.database.close)

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._core.read_only

    @property
    def records(self) -> bool:
        """Whether operations can be recorded: not where a home that is only read lies read-only."""
        return not self._core.database.read_only

    async def resolve(
        self, caller: Caller, scope: Scope, binding_key: str | None = None
    ) -> Resolution:
        """Return the binding that serves a scope, and why. Not an operation."""
        await asyncio.to_thread(self._core.sight, caller)
        routed = await self._core.resolve(caller, scope, binding_key)
        return Resolution(
            binding_key=routed.binding.key,
            provider_key=routed.binding.provider_key,
            reason=routed.reason,
        )

    async def watch(self, caller: Caller, key: str) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the records of a binding that change outside of memtui.

        Where the company has members, only that something changed: an id may tell of a record.
        """
        sight = await asyncio.to_thread(self._core.sight, caller)
        scope = Scope(company_id=caller.company_id)
        routed = await self._core.resolve(caller, scope, key)
        connection = await self._core.open(
            routed.binding, company_read_only=routed.company_read_only
        )
        if not connection.adapter.capabilities.watch:
            raise Unsupported(f"The provider of {key} cannot be watched.")
        try:
            async for changed in connection.adapter.watch():
                if changed:
                    yield changed if sight is None else ()
        except MemtuiError:
            raise
        except Exception as error:
            raise unexpected(key, error) from error
