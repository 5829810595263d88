"""`MemoryService`: the one door to every memory and to the log of what was done with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING

from memtui.config import Paths, Settings
from memtui.contract import Adapter, Conflict, MemtuiError, RecordHandle, Scope, Unsupported
from memtui.service.answers import MutationAnswer, Resolution, UndoCandidate
from memtui.service.connections import Connections
from memtui.service.core import SETUP_DOOR, Core
from memtui.service.home import open_database
from memtui.service.mutations import FactLimits, Mutations
from memtui.service.providers import Providers, unexpected
from memtui.service.reads import Reads
from memtui.service.recorder import Recorder, new_operation_id
from memtui.service.visibility import Caller, caller_of
from memtui.store import bindings
from memtui.store.database import Database
from memtui.threads import use_loose_threads

if TYPE_CHECKING:
    from memtui.service.analysis import Analysis
    from memtui.service.bindings import Bindings
    from memtui.service.companies import Companies
    from memtui.service.context import (
        ContextAnswer,
        ContextRequest,
        Contexts,
        PruneAnswer,
        PruneRequest,
    )
    from memtui.service.limits import Limits
    from memtui.service.log import Log
    from memtui.service.members import Members, Tokens
    from memtui.service.metrics import Metrics
    from memtui.service.namespaces import Namespaces, PluginLedger
    from memtui.service.purge import Purging
    from memtui.service.stored_secrets import Secrets
    from memtui.service.undo import Undo
    from memtui.store.journal import Found

utc_now = partial(datetime.now, UTC)

FIRST_COMPANY = "local"
FIRST_BINDING = "default"
FIRST_PROVIDER = "vault"


async def open_service(
    paths: Paths,
    settings: Settings,
    *,
    clock: Callable[[], datetime] = utc_now,
    timer: Callable[[], float] = perf_counter,
    new_id: Callable[[], str] = new_operation_id,
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
        archive=paths.archive,
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
        if not database.read_only and await asyncio.to_thread(paths.archive.is_dir):
            await service.analysis.recover()
        if first_company and not settings.read_only and await asyncio.to_thread(_is_new, database):
            with suppress(Conflict):  # another process that starts for the first time was faster
                await _make_first_company(service, settings)
    except BaseException:
        await service.close()
        raise
    return service


def _is_new(database: Database) -> bool:
    with database.read() as connection:
        return not bindings.companies(connection)


async def _make_first_company(service: MemoryService, settings: Settings) -> None:
    caller = caller_of(settings, FIRST_COMPANY, SETUP_DOOR)
    await service.companies.add(caller, "Local")
    await service.bindings.add(caller, FIRST_BINDING, FIRST_PROVIDER, {})
    await service.bindings.set_target(caller, "company", FIRST_COMPANY, FIRST_BINDING)


class MemoryService(Reads, Mutations):
    """Resolves, authorises, redacts, calls the provider and records the operation.

    Every method that touches a provider's memories leaves an operation in the log, whatever comes
    of it. A mutation runs to its end even where its caller is cancelled. All raise only the
    contract's errors.

    Where a company has members, what one may see of its log and records is all that there is: the
    rule is `memtui.store.sight.Sight`. A caller who is no member gets `Denied` from every method.

    The operations on memories are its own methods; what is beside them stands in groups, which
    are imported when they are first asked for.
    """

    def __init__(self, core: Core, paths: Paths, settings: Settings) -> None:
        super().__init__(core)
        self._paths = paths
        self._settings = settings

    @cached_property
    def analysis(self) -> Analysis:
        """What is asked of the whole operation log, sealed operations included."""
        from memtui.service.analysis import Analysis

        return Analysis(self._core, self._settings)

    @cached_property
    def bindings(self) -> Bindings:
        """Which provider serves whom."""
        from memtui.service.bindings import Bindings

        return Bindings(self._core)

    @cached_property
    def companies(self) -> Companies:
        """Whose memories these are."""
        from memtui.service.companies import Companies

        return Companies(self._core, self)

    @cached_property
    def limits(self) -> Limits:
        """Spending limits, and what was spent of them."""
        from memtui.service.limits import Limits

        return Limits(self._core, self)

    @cached_property
    def log(self) -> Log:
        """The operation log, as a caller may see it."""
        from memtui.service.log import Log

        return Log(self._core)

    @cached_property
    def members(self) -> Members:
        """Who may see, add and delete what."""
        from memtui.service.members import Members

        return Members(self._core)

    @cached_property
    def metrics(self) -> Metrics:
        """How facts are used, and by whom."""
        from memtui.service.metrics import Metrics

        return Metrics(self._core)

    @cached_property
    def namespaces(self) -> Namespaces:
        """Partitions of a provider."""
        from memtui.service.namespaces import Namespaces

        return Namespaces(self._core, self)

    @cached_property
    def plugin(self) -> PluginLedger:
        """What serving a binding as a memory plugin keeps beside its provider."""
        from memtui.service.namespaces import PluginLedger

        return PluginLedger(self._core)

    @cached_property
    def purging(self) -> Purging:
        """What a purge would erase, erasing it, and what may be erased by its age."""
        from memtui.service.purge import Purging

        return Purging(
            self._core, self.analysis, self, self._paths, self._settings.purge_after_days
        )

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets that stand in the clear in what is stored."""
        from memtui.service.stored_secrets import Secrets

        return Secrets(self._core, self.analysis, self)

    @cached_property
    def tokens(self) -> Tokens:
        """What programs prove with who they are."""
        from memtui.service.members import Tokens

        return Tokens(self._core)

    @cached_property
    def _undo(self) -> Undo:
        from memtui.service.undo import Undo

        return Undo(self._core, self.log)

    @cached_property
    def _contexts(self) -> Contexts:
        from memtui.service.context import Contexts

        return Contexts(self._core, self.log)

    async def close(self) -> None:
        """Wait for the mutations that still run, then close the adapters and the database."""
        await self._core.close()
        if "analysis" in vars(self):
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

    async def undo(self, caller: Caller, operation_id: str | None = None) -> MutationAnswer:
        """Take back an operation, the newest that can be when None; taking back an undo redoes."""
        return await self._undo.undo(caller, operation_id)

    async def undoable(self, caller: Caller, limit: int = 20) -> list[UndoCandidate]:
        """Return the newest changes that were not taken back, the newest first."""
        return await self._undo.undoable(caller, limit)

    async def check_outcome(self, caller: Caller, operation_id: str) -> Found:
        """Find out whether an operation of unknown outcome happened."""
        return await self._undo.check_outcome(caller, operation_id)

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble what a model will see.

        Raises:
            Invalid: the scope names neither a user, nor a project, nor an agent.
        """
        return await self._contexts.context(caller, request)

    async def prune_plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Return what could be pruned of a scope's own records, each with its reasons."""
        return await self._contexts.prune_plan(caller, request)

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
