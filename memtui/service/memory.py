"""`MemoryService`: the one door to every memory and to the log of what was done with it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from memtui.analytics.sealed import Archive
from memtui.config import Paths, Settings
from memtui.contract import (
    Adapter,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Json,
    MemtuiError,
    Namespace,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    SyncReply,
    Unsupported,
    WriteRequest,
)
from memtui.service import (
    bindings,
    companies,
    hydration,
    importing,
    inspection,
    limits,
    membership,
    metrics,
    mutations,
    namespaces,
    outcome,
    pruning,
    reads,
    removal,
    undo,
)
from memtui.service.analysis import Analysis
from memtui.service.answers import (
    BindingHealth,
    BindingView,
    BrowseAnswer,
    Caller,
    Change,
    CompanyView,
    Erasure,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    MutationAnswer,
    Provenance,
    QueryAnswer,
    Resolution,
    RetrievalCount,
    UndoCandidate,
    caller_of,
)
from memtui.service.configuring import SETUP_DOOR
from memtui.service.connections import Connections
from memtui.service.core import Core
from memtui.service.facts import FactLimits
from memtui.service.home import open_database
from memtui.service.hydration import ContextAnswer, ContextRequest
from memtui.service.importing import ForeignOperation, ImportCount
from memtui.service.limits import (
    NEAR,
    LimitMeasure,
    LimitPeriod,
    LimitTarget,
    SpendingLimit,
    SpendingStatus,
)
from memtui.service.membership import NewToken, TokenView
from memtui.service.metrics import FactMetrics
from memtui.service.namespaces import NamespaceDeleted
from memtui.service.permissions import Membership
from memtui.service.plugin_ledger import PluginLedger
from memtui.service.providers import Providers
from memtui.service.pruning import PruneAnswer, PruneRequest
from memtui.service.purge import PurgeAnswer, PurgeRequest, Purging
from memtui.service.recorder import Recorder
from memtui.service.removal import CompanyContent
from memtui.service.resilience import unexpected
from memtui.service.spending import Spending
from memtui.service.stored_secrets import StoredSecret, stored_secrets
from memtui.service.whole_log import WholeLog
from memtui.store.journal import Found
from memtui.store.operation import Operation, OperationPage
from memtui.threads import use_loose_threads

T = TypeVar("T")

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
    archive = Archive(paths.archive)
    core = Core(
        database=database,
        log=WholeLog(database, archive),
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
    analysis = Analysis(
        core,
        paths.archive,
        archive_url=settings.archive_url,
        hot_days=settings.hot_days,
        score_threshold=settings.score_threshold,
        score_thresholds=settings.score_thresholds,
    )
    service = MemoryService(
        core, analysis, Purging(core, analysis, paths, settings.purge_after_days)
    )
    try:
        await asyncio.to_thread(recorder.recover)
        await analysis.recover()
        if first_company and not settings.read_only and not await service.companies():
            with suppress(Conflict):  # another process that starts for the first time was faster
                await _make_first_company(service, settings)
    except BaseException:
        await service.close()
        raise
    return service


async def _make_first_company(service: MemoryService, settings: Settings) -> None:
    caller = caller_of(settings, FIRST_COMPANY, SETUP_DOOR)
    await service.add_company(caller, "Local")
    await service.add_binding(caller, FIRST_BINDING, FIRST_PROVIDER, {})
    await service.set_target(caller, "company", FIRST_COMPANY, FIRST_BINDING)


class MemoryService:
    """Resolves, authorises, redacts, calls the provider and records the operation.

    Every method that touches a provider's memories leaves an operation in the log, whatever comes
    of it. A mutation runs to its end even where its caller is cancelled. All raise only the
    contract's errors.

    Where a company has members, what one may see of its log and records is all that there is: the
    rule is `memtui.store.sight.Sight`. A caller who is no member gets `Denied` from every method.
    """

    def __init__(self, core: Core, analysis: Analysis, purging: Purging) -> None:
        self._core = core
        self.analysis = analysis
        """What is asked of the whole operation log, sealed operations included."""
        self._spending = Spending(core, analysis)
        self.plugin = PluginLedger(core)
        """What serving a binding as a memory plugin keeps beside its provider."""
        self.purging = purging
        """What a purge would erase, and what may be erased by its age."""
        self._mutating: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Wait for the mutations that still run, then close the adapters and the database."""
        while self._mutating:
            await asyncio.wait(self._mutating)
        await self._core.connections.close()
        await self._core.recorder.close()
        await self.analysis.close()
        await asyncio.to_thread(self._core.log.close)
        await asyncio.to_thread(self._core.database.close)

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._core.read_only

    @property
    def records(self) -> bool:
        """Whether operations can be recorded: not where a home that is only read lies read-only."""
        return not self._core.database.read_only

    def providers(self) -> list[str]:
        """Return the installed providers' names."""
        return self._core.providers.names()

    async def provider_problems(self) -> list[str]:
        """Say which installed providers of other packages are not used, and why."""
        return await self._core.connections.provider_problems()

    async def companies(
        self, principal: str | None = None, acts_for: str | None = None
    ) -> list[CompanyView]:
        """Return the companies that a principal may enter, the oldest first; None: all there are.

        All are for a door to find the one that was asked for, not to be shown.
        """
        return await companies.companies(self._core, principal, acts_for)

    async def company(self, caller: Caller) -> CompanyView:
        """Return the caller's company; raises `NotFound`."""
        return await companies.company(self._core, caller)

    async def add_company(
        self,
        caller: Caller,
        name: str,
        *,
        link_templates: dict[str, str] | None = None,
        read_only: bool = False,
    ) -> CompanyView:
        """Add the company that `caller.company_id` names."""
        return await self._to_its_end(
            companies.add_company(
                self._core, caller, name, link_templates=link_templates or {}, read_only=read_only
            )
        )

    async def set_company_read_only(self, caller: Caller, *, read_only: bool) -> CompanyView:
        """Refuse every change in the caller's company, or allow them again."""
        return await self._to_its_end(
            companies.set_read_only(self._core, caller, read_only=read_only)
        )

    async def company_content(self, caller: Caller) -> CompanyContent:
        """Return what removing the caller's company would remove; raises `Conflict`, `NotFound`."""
        return await removal.content(self._core, self.analysis, caller)

    async def remove_company(self, caller: Caller, company_id: str) -> CompanyContent:
        """Remove a company that an import made, for good; the caller's own records it."""
        return await self._to_its_end(removal.remove(self._core, self.analysis, caller, company_id))

    def stored_secrets(
        self, caller: Caller, folders: tuple[Path, ...] = ()
    ) -> AsyncIterator[StoredSecret]:
        """Yield where the company stores secrets, in files in these folders too."""
        return stored_secrets(self._core, self.analysis, caller, folders)

    async def bindings(self, caller: Caller) -> list[BindingView]:
        """Return the company's bindings, the oldest first."""
        return await bindings.bindings(self._core, caller)

    async def add_binding(
        self,
        caller: Caller,
        key: str,
        provider_key: str,
        config: Json,
        *,
        read_only: bool = False,
        enabled: bool = True,
    ) -> BindingView:
        """Add a binding to a provider; raises `Invalid`, `Unavailable`, `Conflict`."""
        return await self._to_its_end(
            bindings.add_binding(
                self._core,
                caller,
                key,
                provider_key,
                config,
                read_only=read_only,
                enabled=enabled,
            )
        )

    async def update_binding(
        self,
        caller: Caller,
        key: str,
        *,
        enabled: bool | None = None,
        read_only: bool | None = None,
        config: Json | None = None,
    ) -> BindingView:
        """Change a binding; what is None stays."""
        return await self._to_its_end(
            bindings.update_binding(
                self._core, caller, key, enabled=enabled, read_only=read_only, config=config
            )
        )

    async def remove_binding(self, caller: Caller, key: str) -> None:
        """Remove a binding; the memories stay where they are."""
        await self._to_its_end(bindings.remove_binding(self._core, caller, key))

    async def set_target(self, caller: Caller, target_type: str, target_id: str, key: str) -> None:
        """Let a binding serve the `company`, a `project` or an `agent`."""
        await self._to_its_end(bindings.set_target(self._core, caller, target_type, target_id, key))

    async def clear_target(self, caller: Caller, target_type: str, target_id: str) -> None:
        """Let a project or an agent fall back to the next rule."""
        await self._to_its_end(bindings.clear_target(self._core, caller, target_type, target_id))

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

    async def health(self, caller: Caller, key: str) -> BindingHealth:
        """Ask a binding's provider how it is. Not an operation."""
        return await bindings.health(self._core, caller, key)

    async def query(self, caller: Caller, request: QueryRequest) -> QueryAnswer:
        """Find what is relevant to a text."""
        return await reads.query(self._core, caller, request)

    async def explain(self, caller: Caller, request: QueryRequest) -> ExplainAnswer:
        """Trace how a query is answered."""
        return await reads.explain(self._core, caller, request)

    async def get(
        self,
        caller: Caller,
        record: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> GetAnswer:
        """Return one record by handle or id; raises `NotFound`."""
        return await reads.get(self._core, caller, record, scope, binding_key)

    async def browse(self, caller: Caller, request: BrowseRequest) -> BrowseAnswer:
        """Return one page of what is stored."""
        return await reads.browse(self._core, caller, request)

    async def history(
        self,
        caller: Caller,
        record: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> HistoryAnswer:
        """Return how a record came to be what it is."""
        return await reads.history(self._core, caller, record, scope, binding_key)

    async def namespaces(
        self, caller: Caller, binding_key: str | None = None
    ) -> tuple[Namespace, ...]:
        """List the partitions of a provider."""
        return await namespaces.known(self._core, caller, binding_key)

    async def put_namespace(
        self,
        caller: Caller,
        binding_key: str,
        name: str,
        *,
        expires_at: datetime | None = None,
    ) -> Namespace:
        """Make a namespace, or set the expiry of one; None takes the expiry away."""
        return await self._to_its_end(
            namespaces.put(self._core, caller, binding_key, name, expires_at)
        )

    async def delete_namespace(
        self, caller: Caller, binding_key: str, name: str, *, unseen: bool = False
    ) -> NamespaceDeleted:
        """Forget what a namespace holds, which can be undone, and remove it.

        `unseen`: also where it holds more than can be listed, which then cannot be undone.
        """
        return await self._to_its_end(
            namespaces.delete(self._core, caller, binding_key, name, unseen=unseen)
        )

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble what a model will see before a run, with its tokens and its price."""
        return await hydration.context(self._core, caller, request)

    async def prune_plan(self, caller: Caller, request: PruneRequest) -> PruneAnswer:
        """Plan what to prune from a scope; forgetting the marked records applies it."""
        return await pruning.plan(self._core, caller, request)

    async def fact_metrics(
        self,
        caller: Caller,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        scope: Scope | None = None,
    ) -> FactMetrics:
        """Measure how facts are used, by default over the last 30 days. Not an operation.

        `scope` narrows to one project, user or agent.
        """
        return await asyncio.to_thread(
            metrics.fact_metrics, self._core, caller, since, until, scope=scope
        )

    async def members(self, caller: Caller) -> list[Membership]:
        """Return the company's members; none means that everybody may see and do everything."""
        return await membership.members(self._core, caller)

    async def own_subject(self, caller: Caller) -> str:
        """Return whose memories are the caller's own, or of the person whom an agent acts for."""
        return await membership.own_subject(self._core, caller)

    async def set_member(self, caller: Caller, member: Membership) -> Membership:
        """Give a principal a role; the first member must be an owner of the company."""
        return await self._to_its_end(membership.set_member(self._core, caller, member))

    async def remove_member(
        self, caller: Caller, principal: str, project_id: str | None = None
    ) -> None:
        """Take a role away."""
        await self._to_its_end(membership.remove_member(self._core, caller, principal, project_id))

    async def tokens(self, caller: Caller) -> list[TokenView]:
        """Return the bearer tokens, without the secrets; a plain member's are their own."""
        return await membership.tokens(self._core, caller)

    async def add_token(
        self, caller: Caller, label: str, principal: str, *, acts_for: str | None = None
    ) -> NewToken:
        """Make a bearer token for a principal; it can be read only now."""
        return await self._to_its_end(
            membership.add_token(self._core, caller, label, principal, acts_for)
        )

    async def remove_token(self, caller: Caller, label: str) -> None:
        """Revoke a bearer token."""
        await self._to_its_end(membership.remove_token(self._core, caller, label))

    async def authenticate(self, token: str, door: str) -> Caller:
        """Return the caller that a bearer token stands for; raises `Denied`."""
        return await membership.authenticate(self._core, token, door)

    async def import_operations(
        self,
        caller: Caller,
        company_id: str,
        operations: Iterable[ForeignOperation],
        *,
        name: str,
        asked: Json,
        dry_run: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> ImportCount:
        """Append another system's operations to a company of their own (`importing`)."""
        return await importing.import_operations(
            self._core,
            caller,
            company_id,
            operations,
            name=name,
            asked=asked,
            dry_run=dry_run,
            report=report,
        )

    async def spending_limits(self, caller: Caller) -> list[SpendingLimit]:
        """Return the spending limits; a plain member's are those of their projects."""
        return await limits.spending_limits(self._core, caller)

    async def set_spending_limit(self, caller: Caller, limit: SpendingLimit) -> SpendingLimit:
        """Set a limit, in place of the one of the same target, measure and period."""
        return await self._to_its_end(limits.set_spending_limit(self._core, caller, limit))

    async def remove_spending_limits(
        self,
        caller: Caller,
        target_type: LimitTarget,
        target_id: str,
        *,
        measure: LimitMeasure | None = None,
        period: LimitPeriod | None = None,
    ) -> list[SpendingLimit]:
        """Remove a target's limits, of every measure and period where these are None."""
        return await self._to_its_end(
            limits.remove_spending_limits(
                self._core, caller, target_type, target_id, measure=measure, period=period
            )
        )

    async def check_spending(
        self,
        caller: Caller,
        *,
        at: date | None = None,
        zone: tzinfo | None = None,
        near: Decimal = NEAR,
    ) -> list[SpendingStatus]:
        """Return each such limit with what was spent in its period of a day. Not an operation.

        All that was spent counts, whoever may see the operations.

        `at` None is today, `zone` None the system's; `near` is the share that counts as near.
        """
        return await limits.check_spending(
            self._core, self._spending, caller, at=at, zone=zone, near=near
        )

    async def write(self, caller: Caller, request: WriteRequest) -> MutationAnswer:
        """Store a record, its secrets taken out."""
        return await self._to_its_end(mutations.write(self._core, caller, request))

    async def correct(self, caller: Caller, request: CorrectRequest) -> MutationAnswer:
        """Change a record; raises `Conflict` if it changed since its revision was read."""
        return await self._to_its_end(mutations.correct(self._core, caller, request))

    async def forget(self, caller: Caller, request: ForgetRequest) -> MutationAnswer:
        """Remove records; those that are still found afterwards are named as ghosts."""
        return await self._to_its_end(mutations.forget(self._core, caller, request))

    async def sync(self, caller: Caller, binding_key: str | None = None) -> SyncReply:
        """Let a provider read its outside source again, or rebuild what it derives."""
        return await self._to_its_end(mutations.sync(self._core, caller, binding_key))

    async def purge(self, caller: Caller, request: PurgeRequest) -> PurgeAnswer:
        """Erase memtui's own copies of what is gone, for good, and look for what is left."""
        return await self._to_its_end(self.purging.apply(caller, request))

    async def purge_due(self, caller: Caller) -> PurgeAnswer | None:
        """Purge by age where that is set, allowed and due today; None: it is not."""
        return await self._to_its_end(self.purging.due(caller))

    async def undo(self, caller: Caller, operation_id: str | None = None) -> MutationAnswer:
        """Take a mutation back, the newest when None; taking back an undo redoes it."""
        return await self._to_its_end(undo.undo(self._core, caller, operation_id))

    async def undoable(self, caller: Caller, limit: int = 20) -> list[UndoCandidate]:
        """Return the newest mutations that can be taken back."""
        return await asyncio.to_thread(undo.candidates, self._core, caller, limit)

    async def operations(
        self,
        caller: Caller,
        chosen: Filter | None = None,
        *,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> OperationPage:
        """Return a page of the log, newest first; `after` gives the oldest ones above a `seq`."""
        return await asyncio.to_thread(
            inspection.operations,
            self._core,
            caller,
            chosen or Filter(),
            limit=limit,
            before=before,
            after=after,
        )

    async def operation(self, caller: Caller, operation_id: str) -> Operation:
        """Return an operation by its id, the beginning of it, or its `seq`."""
        return await asyncio.to_thread(inspection.operation, self._core, caller, operation_id)

    async def changes_of(self, caller: Caller, operation_id: str) -> tuple[Change, ...]:
        """Return each record before and after an operation."""
        return await asyncio.to_thread(inspection.changes_of, self._core, caller, operation_id)

    async def erasures(self, caller: Caller, found: Operation) -> tuple[Erasure, ...]:
        """Return the purges that took values out of an operation, the oldest first."""
        return await asyncio.to_thread(inspection.erasures, self._core, caller, found)

    async def provenance(
        self, caller: Caller, binding_key: str, handle: RecordHandle
    ) -> Provenance:
        """Return who wrote and changed a record, and which queries returned it."""
        return await asyncio.to_thread(
            inspection.provenance, self._core, caller, binding_key, handle
        )

    async def retrieval_stats(
        self, caller: Caller, binding_key: str, record_ids: Sequence[str]
    ) -> dict[str, RetrievalCount]:
        """Return how often each record was returned; those never returned are absent."""
        return await asyncio.to_thread(
            inspection.retrieval_stats, self._core, caller, binding_key, record_ids
        )

    async def check_outcome(self, caller: Caller, operation_id: str) -> Found:
        """Find out whether an operation of unknown outcome happened, and log what was found."""
        return await self._to_its_end(outcome.check(self._core, caller, operation_id))

    async def found_outcome(self, caller: Caller, operation_id: str) -> Found | None:
        """Return what a check found of an operation of unknown outcome; None: nothing yet."""
        return await asyncio.to_thread(inspection.found_of, self._core, caller, operation_id)

    async def in_flight(self, caller: Caller) -> int:
        """Return how many of the company's mutations run right now."""
        return await asyncio.to_thread(inspection.in_flight, self._core, caller)

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

    def link(self, source: SourceRef, company: CompanyView) -> str | None:
        """Return the URL or path that a source opens at, None where there is none."""
        return inspection.link(source, company)

    async def _to_its_end(self, mutation: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(mutation)
        self._mutating.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._mutating.discard(task)
        if not task.cancelled():
            task.exception()
