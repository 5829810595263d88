"""`MemoryService`: the one entry to all memories and to the operation log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

from memtui.config import Paths, Settings
from memtui.contract import (
    Adapter,
    Conflict,
    MemtuiError,
    OperationType,
    RecordHandle,
    Scope,
    Unsupported,
    owner_scopes,
)
from memtui.service.answers import MutationAnswer, Resolution, Together, UndoCandidate
from memtui.service.connections import Connections
from memtui.service.home.files import making, may_be_half_made, open_database
from memtui.service.operations.memories import Operations
from memtui.service.providers import Providers, unexpected
from memtui.service.recorder import Recorder, new_operation_id
from memtui.service.runtime import SETUP_CHANNEL, ServiceRuntime
from memtui.service.visibility import (
    Caller,
    abilities,
    action_of,
    caller_of,
    memberships_of,
    refusal,
)
from memtui.store import bindings
from memtui.store.database import DatabaseConnection
from memtui.threads import use_loose_threads

if TYPE_CHECKING:
    from memtui.service.context.contexts import ContextAnswer, ContextRequest, Contexts
    from memtui.service.context.embedding import BindingEmbeddings
    from memtui.service.context.impact import Impacts
    from memtui.service.context.pruning import Pruning
    from memtui.service.history.analysis import Analysis
    from memtui.service.history.log import LoggedOperations
    from memtui.service.history.metrics import Metrics
    from memtui.service.history.past import Past
    from memtui.service.history.patterns import Patterns
    from memtui.service.history.runs import Runs
    from memtui.service.history.traces import Traces
    from memtui.service.home.agents import Agents
    from memtui.service.home.bindings import Bindings
    from memtui.service.home.companies import Companies
    from memtui.service.home.imports import Imports
    from memtui.service.home.members import Members, Tokens
    from memtui.service.home.purge import Purging
    from memtui.service.home.stored_secrets import Secrets
    from memtui.service.operations.everywhere import Everywhere
    from memtui.service.operations.facts import Facts
    from memtui.service.operations.feedback import Feedback
    from memtui.service.operations.in_sync import SyncedRecords
    from memtui.service.operations.namespaces import Namespaces, PluginLedger
    from memtui.service.operations.passed import PassedCalls
    from memtui.service.operations.tags import Tags
    from memtui.service.operations.undo import Undo
    from memtui.service.review.known_risks import KnownRisks
    from memtui.service.review.limits import Limits
    from memtui.service.review.queue import Review
    from memtui.service.review.risks import Risks
    from memtui.store.journal import OutcomeCheck

T = TypeVar("T")

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
    make: bool = True,
) -> MemoryService:
    """Open the control plane under `paths`; log open mutations of dead processes as unknown.

    If there is no company yet, it creates the company `local` with a vault under the key `default`,
    unless `first_company` is False. Without `make` it creates no home. `clock` gives UTC
    now, `timer` monotonic seconds; `providers` adds adapter classes to the installed ones.

    Raises:
        Invalid: a folder or setting cannot be used.
        NotFound: the home is empty, and `make` is False.
        Unavailable: the database cannot be reached, is damaged, or is missing from its home.
    """
    use_loose_threads()
    logging.getLogger("memtui").setLevel(settings.log_level.upper())
    makes = make and not settings.read_only
    half_made = makes and await asyncio.to_thread(may_be_half_made, paths, settings)
    async with making(paths) if half_made else nullcontext():
        database = await asyncio.to_thread(open_database, paths, settings, make=make)
        recorder = Recorder(database, paths.data, clock, timer, new_id)
        registry = Providers(
            providers, timeout_ms=settings.provider_timeout_ms, is_demo=paths.is_demo
        )
        runtime = ServiceRuntime(
            database=database,
            providers=registry,
            connections=Connections(
                database, registry, paths, settings.provider_timeout_ms, clock, timer
            ),
            recorder=recorder,
            clock=clock,
            new_id=new_id,
            paths=paths,
            settings=settings,
        )
        service = MemoryService(runtime)
        try:
            await asyncio.to_thread(recorder.recover)
            if not database.read_only and await asyncio.to_thread(paths.archive.is_dir):
                await service.analysis.recover()
            if first_company and half_made:
                await _make_first_company(service, settings)
            elif first_company and makes and not await runtime.ask(bindings.companies):
                async with making(paths):
                    await _make_first_company(service, settings)
        except BaseException:
            await service.close()
            raise
    return service


async def _make_first_company(service: MemoryService, settings: Settings) -> None:
    """Create the missing parts, unless anybody else has created or changed anything."""
    caller = caller_of(settings, FIRST_COMPANY, SETUP_CHANNEL)
    made, untouched = await service.runtime.ask(_setting_up)
    if made and not untouched:
        return
    steps = (
        lambda: service.companies.add(caller, "Local"),
        lambda: service.bindings.add(caller, FIRST_BINDING, FIRST_PROVIDER, {}),
        lambda: service.bindings.set_target(caller, "company", FIRST_COMPANY, FIRST_BINDING),
    )
    with suppress(Conflict):  # another machine on the same PostgreSQL was faster
        for step in steps[made:]:
            await step()


def _setting_up(connection: DatabaseConnection) -> tuple[int, bool]:
    """Return how many parts of the first company exist, and whether nobody else made changes."""
    companies = [one.company_id for one in bindings.companies(connection)]
    # In the order in which `_make_first_company` creates them.
    parts = (
        companies,
        bindings.bindings(connection, FIRST_COMPANY),
        bindings.targets(connection, FIRST_COMPANY),
    )
    untouched = companies == [FIRST_COMPANY] and bindings.is_logged_by_one_door(
        connection, FIRST_COMPANY, SETUP_CHANNEL
    )
    return sum(map(bool, parts)), untouched


class _Lazy(Generic[T]):
    """A service module, imported and created on first access."""

    def __init__(self, module: str, kind: str) -> None:
        self._module = f"memtui.service.{module}"
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, service: MemoryService, owner: object = None) -> T:
        made: T = service.runtime.module(getattr(import_module(self._module), self._kind))
        vars(service)[self._name] = made  # from now on found before this descriptor
        return made


class MemoryService(Operations):
    """Resolves, authorises, redacts, calls the provider and records the operation.

    Every method that touches a provider's memories logs an operation, also where it fails. A
    mutation runs to its end even if its caller is cancelled. All raise only the contract's errors.

    In a company with members, a member gets only the log and records that are visible to them: the
    rule is `memtui.store.visibility.Visibility`. Every method denies a caller who is not a member.

    The operations on memories are methods of this class; everything else is in groups, which are
    imported on first access.
    """

    agents: _Lazy[Agents] = _Lazy("home.agents", "Agents")
    """Agents that are connected now."""
    analysis: _Lazy[Analysis] = _Lazy("history.analysis", "Analysis")
    """Analysis of the whole operation log, sealed operations included."""
    bindings: _Lazy[Bindings] = _Lazy("home.bindings", "Bindings")
    companies: _Lazy[Companies] = _Lazy("home.companies", "Companies")
    feedback: _Lazy[Feedback] = _Lazy("operations.feedback", "Feedback")
    """Whether results helped."""
    facts: _Lazy[Facts] = _Lazy("operations.facts", "Facts")
    """Facts by their key, the nearest scope's first."""
    everywhere: _Lazy[Everywhere] = _Lazy("operations.everywhere", "Everywhere")
    """Queries and lists over all bindings at once."""
    embedding: _Lazy[BindingEmbeddings] = _Lazy("context.embedding", "BindingEmbeddings")
    """Search by meaning: building embeddings, and consent to send texts for them."""
    impact: _Lazy[Impacts] = _Lazy("context.impact", "Impacts")
    """The effects of forgetting records."""
    imports: _Lazy[Imports] = _Lazy("home.imports", "Imports")
    """The logs of other systems, imported as companies of their own."""
    limits: _Lazy[Limits] = _Lazy("review.limits", "Limits")
    """Spending limits, and the spending so far."""
    log: _Lazy[LoggedOperations] = _Lazy("history.log", "LoggedOperations")
    """The operation log, as a caller may see it."""
    members: _Lazy[Members] = _Lazy("home.members", "Members")
    metrics: _Lazy[Metrics] = _Lazy("history.metrics", "Metrics")
    namespaces: _Lazy[Namespaces] = _Lazy("operations.namespaces", "Namespaces")
    """Namespaces of providers."""
    passed: _Lazy[PassedCalls] = _Lazy("operations.passed", "PassedCalls")
    """Calls of other memory servers that memtui saw pass."""
    past: _Lazy[Past] = _Lazy("history.past", "Past")
    """Changes of a scope, differences of two moments, versions of a record."""
    patterns: _Lazy[Patterns] = _Lazy("history.patterns", "Patterns")
    """Patterns in the changes of facts."""
    pairs: _Lazy[SyncedRecords] = _Lazy("operations.in_sync", "SyncedRecords")
    """Counterparts of records in synced bindings."""
    plugin: _Lazy[PluginLedger] = _Lazy("operations.namespaces", "PluginLedger")
    """Namespaces and ids of bindings that are served as memory plugins."""
    pruning: _Lazy[Pruning] = _Lazy("context.pruning", "Pruning")
    """Plans for pruning, for one owner or for everything."""
    purging: _Lazy[Purging] = _Lazy("home.purge", "Purging")
    """Purges: planned, applied, and by age."""
    review: _Lazy[Review] = _Lazy("review.queue", "Review")
    """Pending writes of agents, decisions, and review rules."""
    known_risks: _Lazy[KnownRisks] = _Lazy("review.known_risks", "KnownRisks")
    """What is known of the risks of memories."""
    risks: _Lazy[Risks] = _Lazy("review.risks", "Risks")
    """Searches for risks of memories in the background, before a list shows them."""
    runs: _Lazy[Runs] = _Lazy("history.runs", "Runs")
    """Runs of agents, with their reads and changes replayed from the log."""
    traces: _Lazy[Traces] = _Lazy("history.traces", "Traces")
    """Traces of memories: who received them, and what the receivers wrote."""
    secrets: _Lazy[Secrets] = _Lazy("home.stored_secrets", "Secrets")
    """Search for secrets stored in clear text."""
    tags: _Lazy[Tags] = _Lazy("operations.tags", "Tags")
    """The tags of memories, over all bindings."""
    tokens: _Lazy[Tokens] = _Lazy("home.members", "Tokens")
    _undo: _Lazy[Undo] = _Lazy("operations.undo", "Undo")
    _contexts: _Lazy[Contexts] = _Lazy("context.contexts", "Contexts")

    def __init__(self, runtime: ServiceRuntime) -> None:
        self.runtime = runtime
        """Shared by the groups; not for other code."""
        self.paths, self.settings = runtime.paths, runtime.settings
        super().__init__(runtime)

    async def close(self) -> None:
        """Wait for the mutations that still run, then close the adapters and the database."""
        await self._runtime.close()
        await asyncio.to_thread(self._runtime.database.close)

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._runtime.settings.read_only

    @property
    def records(self) -> bool:
        """Whether operations can be recorded: not where the home is on read-only media."""
        return not self._runtime.database.read_only

    async def resolve(
        self, caller: Caller, scope: Scope, binding_key: str | None = None
    ) -> Resolution:
        """Return the binding that serves a scope, and why. Not an operation."""
        await asyncio.to_thread(self._runtime.visibility, caller)
        routed = await self._runtime.resolve(caller, scope, binding_key)
        return Resolution.like(routed.binding, binding_key=routed.binding.key, reason=routed.reason)

    async def allowed(
        self, caller: Caller, scope: Scope, binding_key: str | None = None
    ) -> frozenset[OperationType]:
        """Return the operations on memories that binding, roles, modes and `as_of` allow.

        Not an operation itself. In a scope of several owners, a mutation counts as allowed if it is
        for one of them.
        """
        routed = await self._runtime.resolve(caller, scope, binding_key)
        connection = await self._runtime.open(
            routed.binding, company_read_only=routed.company_read_only, as_of=caller.as_of
        )
        closed = self.read_only or routed.company_read_only or routed.binding.read_only
        able = abilities(connection.adapter.capabilities, closed=closed)
        memberships = memberships_of(routed.memberships, caller)
        if memberships is None:
            return able
        return frozenset(
            one
            for one in able
            if any(
                refusal(memberships, action_of(one, by_ai=caller.by_ai), part) is None
                for part in ([scope] if not one.mutates else owner_scopes(scope))
            )
        )

    async def undo(
        self, caller: Caller, operation_id: str | None = None, *, records: Collection[str] = ()
    ) -> MutationAnswer:
        """Undo an operation, or the change of some of its `records`; None: the newest undoable one.

        Undoing an undo redoes.
        """
        return await self._undo.undo(caller, operation_id, records=records)

    async def undo_together(
        self,
        caller: Caller,
        operation_id: str | None = None,
        *,
        records: Collection[str] = (),
        answers: list[MutationAnswer] | None = None,
    ) -> tuple[MutationAnswer, ...]:
        """Undo an operation and its group, also in other bindings; of some `records` or of all.

        `answers` receives each answer as it comes, also where another undo fails.

        Raises:
            MemtuiError: one of them cannot be undone; the others are undone nevertheless.
        """
        return await self._undo.undo_together(
            caller, operation_id, records=records, answers=answers
        )

    async def refuse_undo(self, caller: Caller, operation_ids: Sequence[str]) -> Together:
        """Raise if changes cannot be undone, else return the extent; logs nothing."""
        return await self._undo.refuse_undo(caller, operation_ids)

    async def undoable(self, caller: Caller, limit: int = 20) -> list[UndoCandidate]:
        """Return the newest changes that are not undone, irreversible ones included."""
        return await self._undo.undoable(caller, limit)

    async def undo_candidate(self, caller: Caller, operation_id: str) -> UndoCandidate:
        """Return an operation's changes, with the reason if it cannot be undone."""
        return await self._undo.candidate(caller, operation_id)

    async def ask_later(self, caller: Caller) -> tuple[str, ...]:
        """Ask for the outcome of writes that are stored later; return the ids that ended."""
        return await self._undo.ask_later(caller)

    async def check_outcome(self, caller: Caller, operation_id: str) -> OutcomeCheck:
        """Find out whether an operation of unknown outcome happened."""
        return await self._undo.check_outcome(caller, operation_id)

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble the context for a model.

        Raises:
            Invalid: the scope names neither a user, nor a project, nor an agent.
        """
        return await self._contexts.context(caller, request)

    async def watch(self, caller: Caller, key: str) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the records of a binding that change outside of memtui.

        In a company with members the handles are left out, since an id can reveal its record.

        Raises:
            Unavailable: the provider failed.
            Unsupported: the provider cannot be watched.
        """
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        scope = Scope(company_id=caller.company_id)
        routed = await self._runtime.resolve(caller, scope, key)
        connection = await self._runtime.open(
            routed.binding, company_read_only=routed.company_read_only
        )
        if not connection.adapter.capabilities.watch:
            raise Unsupported(f"The provider of {key} cannot be watched.")
        try:
            async for changed in connection.adapter.watch():
                if changed:
                    yield changed if visibility is None else ()
        except MemtuiError:
            raise
        except Exception as error:
            raise unexpected(key, error) from error
