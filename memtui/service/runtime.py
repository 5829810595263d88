"""Shared by all service modules: routing, authorisation, and the recording of operations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from memtui.config import Paths, Settings
from memtui.contract import (
    Adapter,
    Denied,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    OperationType,
    Problem,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceRef,
    Unavailable,
    owner_scope,
)
from memtui.service.connections import Connection, Connections
from memtui.service.providers import Providers
from memtui.service.recorder import FanOut, Recorder, RunningOperation
from memtui.service.visibility import (
    Caller,
    Membership,
    Permission,
    action_of,
    is_org,
    may_read,
    memberships_of,
    person_of,
    refusal,
    visibility_of,
)
from memtui.store import appending, bindings, settings
from memtui.store.bindings import Route, route
from memtui.store.database import Database, DatabaseConnection
from memtui.store.details import CommonDetails, DetailsT
from memtui.store.journal import Journal
from memtui.store.rows import BindingRow, CompanyRow, MemberRow
from memtui.store.settings import COMMON, SettingChange
from memtui.store.visibility import Visibility, until, without
from memtui.wording import unknown

if TYPE_CHECKING:
    from memtui.analytics.company_log import CompanyLog
    from memtui.analytics.sealed import Archive

P = ParamSpec("P")
T = TypeVar("T")
ModuleT = TypeVar("ModuleT", bound="ServiceModule")

SETUP_CHANNEL = "setup"
"""The channel of the settings that memtui creates by itself in a new home."""

_LISTED_PROBLEMS = 20
_SEARCHING = frozenset({OperationType.QUERY, OperationType.EXPLAIN, OperationType.CONTEXT})
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(eq=False)
class ServiceRuntime:
    """The parts that every operation needs."""

    database: Database
    providers: Providers
    connections: Connections
    recorder: Recorder
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    paths: Paths
    settings: Settings
    _changes: set[asyncio.Task[Any]] = field(default_factory=set)

    @cached_property
    def _sealed(self) -> Archive:
        from memtui.analytics.engine import DuckDb
        from memtui.analytics.sealed import Archive

        return Archive(self.paths.archive, DuckDb())

    def log(self, company_id: str, visibility: Visibility | None = None) -> CompanyLog:
        """Return a company's log with its sealed part, as a visibility shows it; None: all."""
        from memtui.analytics.company_log import CompanyLog

        return CompanyLog(self.database, self._sealed, company_id, visibility)

    def log_of(self, caller: Caller) -> CompanyLog:
        """Return the part of its company's log that a caller may see, up to `as_of`. Blocking.

        Raises:
            Denied: the company has members, and the caller is none of them.
        """
        return self.log(caller.company_id, until(self.visibility(caller), caller.as_of))

    @cached_property
    def _modules(self) -> dict[type[ServiceModule], ServiceModule]:
        return {}

    def module(self, kind: type[ModuleT]) -> ModuleT:
        """Return the service module of a class; there is one of each."""
        known = self._modules.get(kind)
        # Threads ask too: the first one to store its module wins.
        return cast("ModuleT", known or self._modules.setdefault(kind, kind(self)))

    async def ask(
        self,
        read: Callable[Concatenate[DatabaseConnection, P], T],
        *asked: P.args,
        **named: P.kwargs,
    ) -> T:
        """Read the control plane's database, in a thread."""

        def look() -> T:
            with self.database.read() as database:
                return read(database, *asked, **named)

        return await asyncio.to_thread(look)

    async def ask_journal(
        self,
        company_id: str,
        read: Callable[Concatenate[Journal, P], T],
        *asked: P.args,
        **named: P.kwargs,
    ) -> T:
        """Read a company's undo journal, in a thread."""
        return await self.ask(lambda database: read(Journal(database, company_id), *asked, **named))

    async def to_its_end(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change to its end even where its caller is cancelled."""
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: asyncio warns of exceptions that nobody retrieves

    async def close(self) -> None:
        """Wait for the changes that still run, then close adapters, log and modules."""
        while self._changes:
            await asyncio.wait(self._changes)
        await self.connections.close()
        await self.recorder.close()
        if "_sealed" in vars(self):
            await asyncio.to_thread(self._sealed.close)
        for module in list(self._modules.values()):
            await module.close()

    # Routing and authorising

    async def resolve(self, caller: Caller, scope: Scope, binding_key: str | None) -> Route:
        """Return the binding that serves a scope, with the reason.

        An explicit key wins, then the project's target, the agent's, the company's default.

        Raises:
            Denied: the scope is in another company, or outside the project of the caller's token;
                or the binding is disabled.
            Invalid: an id of the scope is too long or not printable.
            NotFound: no such company or key, or nothing serves the scope.
        """
        if scope.company_id != caller.company_id:
            raise Denied(
                "The scope names another company than yours; use a scope of your own company."
            )
        if caller.project_id is not None and scope.project_id not in {None, caller.project_id}:
            raise Denied(f"Your token is for the project {caller.project_id}; name no other.")
        for name, value in scope:
            if value is not None and not _is_id(value):
                raise Invalid(
                    f"The {name} of the scope must be 1 to 200 printable characters; give another."
                )
        found = await self.ask(
            route,
            scope.company_id,
            key=binding_key,
            project_id=scope.project_id,
            agent_id=scope.agent_id,
            person=person_of(caller),
        )
        if not found.binding.enabled:
            key = found.binding.key
            raise Denied(
                f"The binding {key} is disabled; `memtui bindings enable {key}` turns it on."
            )
        return found

    async def authorise(self, caller: Caller, action: Permission, scopes: Iterable[Scope]) -> None:
        """Check that the caller's roles allow an action in each of these scopes.

        To change records, pass the owner scope of each record: a request's scope can cover records
        of several owners.

        Raises:
            Denied: the caller's roles do not allow the action in one of the scopes.
        """
        memberships = memberships_of(await self.ask(_roles, caller), caller)
        if memberships is None:
            return
        for scope in dict.fromkeys(scopes):
            if (why := refusal(memberships, action, scope)) is not None:
                raise Denied(why)

    def visibility(self, caller: Caller) -> Visibility | None:
        """Return a caller's visibility; None: everything is visible. Blocking.

        Raises:
            Denied: the company has members, and the caller is none of them.
        """
        visibility = visibility_of(self.memberships(caller), caller)
        if not caller.asks_for_model:
            return visibility
        with self.database.read() as database:
            held = bindings.held(database, caller.company_id)
            requested = bindings.requested(database, caller.company_id, held)
        return without(visibility, held, requested)

    def memberships(self, caller: Caller) -> Sequence[Membership] | None:
        """Return a caller's memberships; None: it may see and do everything. Blocking.

        Raises:
            Denied: the company has members, and the caller is none of them.
        """
        with self.database.read() as database:
            rows = _roles(database, caller)
        return memberships_of(rows, caller)

    async def may_change(self, caller: Caller, scopes: Iterable[Scope]) -> None:
        """Raise `Denied` where the caller may not change records of one of these scopes."""
        await self.authorise(caller, Permission.DELETE, map(owner_scope, scopes))

    async def may_mutate(self, entry: RunningOperation, scopes: Collection[Scope]) -> None:
        """Raise `Denied` where an operation may not change records of one of these scopes.

        Beside roles it checks the spending limits of the records' projects and agents, which the
        operation's own scope need not name.
        """
        await self.may_change(entry.caller, scopes)
        if entry.unchecked_limits:
            await self._refuse_passed(entry, scopes)

    async def may_dismiss(self, caller: Caller, scopes: Iterable[Scope] = ()) -> None:
        """Raise `Denied` where the caller may not say what is no risk among records of scopes."""
        await self.refuse_changes(caller.company_id)
        if not caller.by_person:
            raise Denied("What is no risk is for a person to say, not for an agent.")
        await self.may_change(caller, scopes)

    async def admit(self, entry: RunningOperation, binding_key: str | None) -> Route:
        """Route an operation to its binding, and check that the caller may run it there.

        Raises:
            Denied: the caller may not, or memtui, the company or the binding is read-only, or a
                spending limit is passed; or the source is in another company. Else as `resolve`.
        """
        if entry.source is not None and entry.source.company_id != entry.caller.company_id:
            raise Denied(
                "The source names another company than yours; use a source of your own company."
            )
        routed = await self.resolve(entry.caller, entry.scope, binding_key)
        memberships = memberships_of(routed.memberships, entry.caller)
        if memberships is not None:
            entry.visibility = visibility_of(memberships, entry.caller)
            action = action_of(entry.operation_type, by_ai=entry.caller.by_ai)
            # Not refused: records that are not visible are left out of the answer.
            left_out = entry.seen_only and action is Permission.VIEW and is_org(entry.scope)
            if not left_out and (why := refusal(memberships, action, entry.scope)) is not None:
                raise Denied(why)
        if routed.held and entry.is_for_model:
            entry.visibility = without(entry.visibility, routed.held)
        binding = entry.binding = routed.binding
        entry.binding_reason = routed.reason
        if entry.operation_type.mutates:
            self.refuse_read_only(entry.caller.company_id if routed.company_read_only else None)
            if binding.read_only:
                raise Denied(
                    f"The binding {binding.key} is read-only; "
                    f"`memtui bindings read-only {binding.key} off` opens it for changes."
                )
        entry.unchecked_limits = routed.acting_limits
        if routed.acting_limits:
            await self._refuse_passed(entry, [entry.scope])
        return routed

    async def _refuse_passed(self, entry: RunningOperation, scopes: Iterable[Scope]) -> None:
        """Raise `Denied` where a passed limit refuses the operation in one of these scopes."""
        from memtui.service.spending import refuse_passed, take_limits

        if own := take_limits(entry, scopes):
            await self.ask(refuse_passed, entry, own, self.clock(), self.settings.zone_name)

    async def connect(
        self,
        entry: RunningOperation,
        binding_key: str | None,
        *,
        needs: str | None = None,
    ) -> Connection:
        """Admit an operation, and open its binding.

        `needs` names the required capability.

        Raises:
            Denied: see `admit`; also where the provider cannot write.
            Unsupported: the provider lacks the capability.
        """
        routed = await self.admit(entry, binding_key)
        connection = await self.open(
            routed.binding, company_read_only=routed.company_read_only, as_of=entry.caller.as_of
        )
        if entry.operation_type.mutates and not connection.adapter.capabilities.writable:
            raise Denied(
                f"The provider of {routed.binding.key} only reads; choose another binding."
            )
        if needs is not None:
            connection.require(needs)
        return connection

    @asynccontextmanager
    async def connected(
        self,
        operation_type: OperationType,
        caller: Caller,
        scope: Scope,
        asked: CommonDetails,
        binding_key: str | None,
        *,
        needs: str | None = None,
        source: SourceRef | None = None,
        fan_out: FanOut | None = None,
        all_problems: bool = False,
    ) -> AsyncIterator[tuple[RunningOperation, Connection]]:
        """Record an operation on a binding; one that reads also notes the unreadable items.

        `all_problems`: note every unreadable item; fail where that cannot be determined.
        """
        if fan_out is not None:
            asked = {**asked, "together": fan_out.together}
        async with (
            self.recorder.recorded(operation_type, caller, scope, asked, source) as entry,
            nullcontext() if fan_out is None else self._within(entry, binding_key, fan_out),
        ):
            entry.fan_out = fan_out
            entry.seen_only = fan_out is not None and fan_out.seen_only
            connection = await self.connect(entry, binding_key, needs=needs)
            yield entry, connection
            if operation_type.mutates:
                return
            found = await self.unreadable(entry, connection, surely=all_problems)
            if found:
                entry.request["problems"] = len(found)
                entry.problems = tuple(found if all_problems else first_of_many(found, connection))

    @asynccontextmanager
    async def _within(
        self, entry: RunningOperation, binding_key: str | None, fan_out: FanOut
    ) -> AsyncIterator[None]:
        """Give up after the time-out of a fan-out, and count that as a failure of the binding."""
        limit = entry.limit = asyncio.timeout(fan_out.within_ms / 1000)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            if entry.binding is not None:
                self.connections.breaker(entry.binding.binding_id).failed()
            raise Unavailable(
                f"{binding_key} did not answer within {fan_out.within_ms / 1000:g} s; "
                "raise all_bindings_timeout_ms if it needs longer.",
                sent=True,
            ) from error

    async def find(
        self, entry: RunningOperation, connection: Connection, asked: RecordHandle | str
    ) -> Record:
        """Return a record as the provider stores it now.

        Raises:
            NotFound: there is none, neither under this id nor under the id an undo gave it.
            Unavailable: the file of this name cannot be read.
        """
        handle = connection.handle_of(asked)
        read = connection.adapter.get
        record = await connection.read(partial(read, handle, entry.scope))
        if record is None:
            new = (await self.moved(connection, [handle])).get(handle)
            if new is not None:
                record = await connection.read(partial(read, new, entry.scope))
        if record is not None:
            return record
        name = handle.provider_record_id
        for one in await self.unreadable(entry, connection):
            if one.location is not None and f"/{one.location.path}".endswith(f"/{name}"):
                raise Unavailable(f"The record {name} cannot be read. {one.sentence()}")
        raise connection.lacks(handle)

    async def unreadable(
        self, entry: RunningOperation, connection: Connection, *, surely: bool = False
    ) -> list[Problem]:
        """Return the items an operation could not read, if its caller may see them.

        `surely`: fail where that cannot be determined, instead of returning a problem that says so.
        """
        try:
            found = await connection.read(partial(connection.adapter.problems, entry.scope))
        except MemtuiError as error:
            if surely:
                raise
            return [
                Problem(message=f"memtui could not tell whether everything could be read: {error}")
            ]
        searches = entry.operation_type in _SEARCHING
        return [
            one
            for one in found
            if may_read(one.scope, entry.scope, entry.visibility)
            and (searches or not one.search_only)
        ]

    async def moved(
        self, connection: Connection, handles: Sequence[RecordHandle]
    ) -> dict[RecordHandle, RecordHandle]:
        """Return the new handles of the records that were restored under another id."""
        key = connection.binding.key

        def follow(journal: Journal) -> dict[RecordHandle, RecordHandle]:
            return {
                old: old.model_copy(update={"provider_record_id": new_id})
                for old in handles
                if (new_id := journal.follow_link(key, old.provider_record_id))
            }

        return await self.ask_journal(connection.binding.company_id, follow)

    async def found(
        self, connection: Connection, handles: Sequence[RecordHandle], scope: Scope
    ) -> dict[RecordHandle, Snapshot]:
        """Return each record as it is now, under its new id where it was restored under one."""
        found = dict(zip(handles, await connection.snapshots(handles, scope), strict=True))
        gone = [handle for handle, snapshot in found.items() if snapshot.record is None]
        new = await self.moved(connection, gone) if gone else {}
        moved = await connection.snapshots(list(dict.fromkeys(new.values())), scope)
        at = {snapshot.handle: snapshot for snapshot in moved}
        return found | {handle: at[moved_to] for handle, moved_to in new.items()}

    def then(self, connection: Connection, moment: datetime) -> Connection:
        """Return a connection that reads the records as they were at a moment."""
        from memtui.service.history.as_of import BindingThen

        ask = partial(self.ask_journal, connection.binding.company_id)
        then = BindingThen(connection, ask, moment)
        return replace(connection, adapter=cast("Adapter", then))

    async def open(
        self, binding: BindingRow, *, company_read_only: bool, as_of: datetime | None = None
    ) -> Connection:
        """Return the connection of a binding; read-only where memtui or the company is.

        It reads the records as they were at `as_of`. The opening continues after its caller is
        cancelled, so that the next call can use it.
        """
        read_only = self.settings.read_only or company_read_only
        connection = self.connections.opened(binding, read_only=read_only)
        if connection is None:
            opening = asyncio.ensure_future(self._open(binding, read_only=read_only))
            # Its exception counts as retrieved even if the caller is gone.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            connection = await asyncio.shield(opening)
        return connection if as_of is None else self.then(connection, as_of)

    async def _open(self, binding: BindingRow, *, read_only: bool) -> Connection:
        connection = await self.connections.to(binding, read_only=read_only)
        just_opened = connection.binding is binding
        able = dict(connection.adapter.capabilities)
        # A closed adapter reports fewer capabilities than its binding has: they are not stored.
        if just_opened and able != binding.capabilities and not read_only:
            await asyncio.to_thread(self._keep_capabilities, binding.binding_id, able)
        return connection

    def _keep_capabilities(self, binding_id: str, able: Json) -> None:
        """Store the capabilities: a new config or version of a provider may change them."""
        with self.database.write() as connection:
            bindings.update_binding(connection, binding_id, {"capabilities": able})

    async def reopen(self, binding: BindingRow) -> None:
        """Close a binding whose settings were changed.

        A binding that has become writable is opened at once, to store that capability: while
        read-only it did not report it. If opening fails, the next operation reports why.
        """
        await self.connections.drop(binding.binding_id)
        now = await self.ask(bindings.binding, binding.company_id, binding.key)
        if now is None or now.read_only or not now.enabled or now.capabilities.get("writable"):
            return
        company = await self.ask(find_company, binding.company_id)
        with suppress(MemtuiError):
            await self.open(now, company_read_only=company.read_only)

    def refuse_read_only(self, closed: str | None = None) -> None:
        """Raise `Denied` where memtui runs read-only, or for the read-only company `closed`."""
        if self.settings.read_only:
            raise Denied("memtui runs read-only; start it without --read-only to change anything.")
        if closed is not None:
            raise Denied(
                f"The company {closed} is read-only; `memtui companies read-only {closed} off` "
                "opens it, after a repair only a new owner."
            )

    async def refuse_changes(self, company_id: str) -> None:
        """Raise `Denied` where memtui runs read-only, or the company is read-only."""
        row = await self.ask(bindings.company, company_id)
        self.refuse_read_only(company_id if row is not None and row.read_only else None)

    # Changing the settings of the control plane; each change is an operation

    @asynccontextmanager
    async def configured(
        self,
        caller: Caller,
        asked: CommonDetails,
        *,
        binding_key: str | None = None,
        in_read_only: bool = False,
        kinds: Collection[str] = COMMON,
        scope: Scope | None = None,
    ) -> AsyncIterator[RunningOperation]:
        """Record a change of the settings, and refuse callers who may not make it.

        Args:
            caller: Who changes the settings of its company.
            asked: The request, as logged.
            binding_key: The binding that is configured.
            in_read_only: The change is also allowed in a read-only company.
            kinds: The kinds of settings that it changes.
            scope: The owner of the settings; None: the whole company.
        """
        scope = scope or Scope(company_id=caller.company_id)
        async with self.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked) as entry:
            own = _namespaces_of(binding_key, kinds)
            await self.refuse_configuring(caller, in_read_only=in_read_only, namespaces_of=own)
            if binding_key is not None:
                entry.binding = await self.ask(find_binding, caller.company_id, binding_key)
            yield entry

    async def change(
        self,
        caller: Caller,
        asked: CommonDetails,
        change: Callable[[DatabaseConnection], T],
        *,
        binding_key: str | None = None,
        irreversible: str | None = None,
        kinds: Collection[str] = COMMON,
        scope: Scope | None = None,
    ) -> T:
        """Change the settings in the database, and record that.

        Runs to its end. `irreversible`: why it cannot be undone; None: it can.
        """

        async def run() -> T:
            async with self.configured(
                caller, asked, binding_key=binding_key, kinds=kinds, scope=scope
            ) as entry:
                entry.irreversible = irreversible
                return await self.configure(entry, change, kinds)

        return await self.to_its_end(run())

    async def refuse_configuring(
        self, caller: Caller, *, in_read_only: bool = False, namespaces_of: str | None = None
    ) -> None:
        """Raise `Denied` where something is read-only or the caller may not configure."""
        self.refuse_read_only()
        await self.may_configure(caller, namespaces_of=namespaces_of)
        if not in_read_only:
            await self.refuse_changes(caller.company_id)

    async def may_configure(self, caller: Caller, *, namespaces_of: str | None = None) -> None:
        """Raise `Denied` where the caller may not change the settings of its company.

        `namespaces_of`: the binding, if only its namespaces change; None: other settings do too.
        """
        await self.authorise(caller, Permission.CONFIGURE, [Scope(company_id=caller.company_id)])
        await self.ask(_refuse_unreviewed_settings, caller, namespaces_of)

    async def configure(
        self,
        entry: RunningOperation,
        change: Callable[[DatabaseConnection], T],
        kinds: Collection[str] = COMMON,
        *,
        agreed: bool = False,
    ) -> T:
        """Change the company's settings and log the operation, in one transaction.

        Each setting of these kinds is journaled before and after, so that the change can be undone;
        not where memtui sets up a new home, since that is nobody's change.

        `agreed`: a second person has agreed to the change.

        Raises:
            AwaitsSecond: nothing was changed; the change waits until a second person agrees.
        """
        from memtui.service.review.proposals import needs_second, propose, refuse_alone

        company_id = entry.caller.company_id
        own = _namespaces_of(entry.binding.key if entry.binding else None, kinds)

        def run() -> T:
            with self.database.write() as database:
                # No other change of settings may come between reading them and logging this one.
                appending.hold(database, company_id)
                _refuse_unreviewed_settings(database, entry.caller, own)
                company = bindings.company(database, company_id)
                before = settings.read(database, company_id, kinds)
                result = change(database)
                found = settings.changes(before, settings.read(database, company_id, kinds))
                if not agreed and needs_second(company, found):
                    raise _Proposed(found)
                refuse_alone(database, company_id)
                _refuse_agents_limits(entry.caller, found)
                _refuse_agents_yes(entry.caller, found)
                if entry.caller.channel == SETUP_CHANNEL:
                    entry.irreversible = None
                elif entry.irreversible is None:
                    entry.settings = found
                self.recorder.append_within(database, entry)
            entry.logged = True
            return result

        try:
            return await asyncio.to_thread(run)
        except _Proposed as proposed:
            changes = proposed.changes
        raise await asyncio.to_thread(propose, self.database, self.recorder, entry, changes)


class _Proposed(Exception):
    """Ends the transaction of a change that a second person has to agree to."""

    def __init__(self, changes: Sequence[SettingChange]) -> None:
        super().__init__()
        self.changes = changes


class ServiceModule:
    """A part of the service: the methods of one subject, on the shared runtime."""

    def __init__(self, runtime: ServiceRuntime) -> None:
        self._runtime = runtime

    async def close(self) -> None:
        """Release what the module keeps open; most keep nothing."""


def grouped(asked: DetailsT, together: str | None) -> DetailsT:
    """Return details with the id of the group of changes that one undo takes back, if any."""
    return asked if together is None else cast("DetailsT", {**asked, "together": together})


def to_its_end(
    method: Callable[Concatenate[ModuleT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ModuleT, P], Coroutine[Any, Any, T]]:
    """Let a method that changes something run to its end even where its caller is cancelled."""

    @wraps(method)
    async def changing(self: ModuleT, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._runtime.to_its_end(method(self, *args, **named))

    return changing


def find_company(database: DatabaseConnection, company_id: str) -> CompanyRow:
    """Return the row of a company; raises `NotFound`."""
    if (row := bindings.company(database, company_id)) is not None:
        return row
    known = [row.company_id for row in bindings.companies(database)]
    raise NotFound(unknown("company", company_id, known))


def find_binding(database: DatabaseConnection, company_id: str, key: str) -> BindingRow:
    """Return the row of a binding; raises `NotFound`."""
    if (row := bindings.binding(database, company_id, key)) is not None:
        return row
    known = [row.key for row in bindings.bindings(database, company_id)]
    raise NotFound(unknown("binding", key, known))


def check_key(key: str, what: str) -> str:
    """Return the key of a company or binding; raises `Invalid` where it is not a slug."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            f"{key!r} is not a {what}; take 1 to 63 lower-case letters, digits, dots, dashes "
            "or underscores."
        )
    return key


def check_target_id(target_type: str, target_id: str) -> str:
    """Return the id of a project, an agent or a user; raises `Invalid` where it cannot be one."""
    if not _is_id(target_id):
        raise Invalid(f"The id of the {target_type} must be 1 to 200 printable characters.")
    return target_id


def _roles(database: DatabaseConnection, caller: Caller) -> list[MemberRow] | None:
    return bindings.roles_of(database, caller.company_id, person_of(caller))


def refuse_unreviewed(entry: RunningOperation, does: str) -> None:
    """Raise `Denied` where an agent calls and its writes to the binding are reviewed.

    For operations that cannot be held for review. `does` completes the sentence: "copies nothing".
    """
    if not entry.caller.by_person and entry.binding is not None and entry.binding.review:
        raise Denied(
            f"What agents write to {entry.binding.key} is reviewed, so an agent {does} there; "
            "let a person do it."
        )


def refuse_agents(entry: RunningOperation, connection: Connection) -> None:
    """Raise `Denied` where only people change the records of a binding, and no person calls."""
    if connection.adapter.capabilities.people_only and not entry.caller.by_person:
        raise Denied(
            f"Only people change {connection.binding.key}. To let an agent's change wait for one: "
            f"`memtui review rule {connection.binding.key} hold all`."
        )


def _namespaces_of(binding_key: str | None, kinds: Collection[str]) -> str | None:
    """Return the binding, if only its namespaces change; None: other settings change too."""
    return binding_key if set(kinds) == {settings.NAMESPACE} else None


def _refuse_unreviewed_settings(
    database: DatabaseConnection, caller: Caller, namespaces_of: str | None
) -> None:
    """Raise `Denied` where an agent changes the settings of a company that reviews agents.

    Nor does one where records are held, which it could read through another binding of the same
    store. For a binding's namespaces (clients of a memory plugin create them unasked) only the
    review of that binding counts.
    """
    if caller.by_person:
        return
    rows = bindings.bindings(database, caller.company_id)
    about = (row for row in rows if namespaces_of in {None, row.key})
    if reviewed := next((row.key for row in about if row.review), None):
        raise Denied(
            f"What agents write to {reviewed} is reviewed, so an agent changes no settings here; "
            "let a person do it."
        )
    if namespaces_of is None and bindings.held(database, caller.company_id):
        raise Denied(
            "Records are held for review, so an agent changes no settings here; let a person do it."
        )


def _refuse_agents_limits(caller: Caller, changes: Iterable[SettingChange]) -> None:
    """Raise `Denied` where an agent changes a limit that does more than warn."""
    rows = (row for one in changes if one.setting == "limit"
            for row in (one.before, one.after) if row is not None)  # fmt: skip
    if not caller.by_person and any(row["action"] != "warn" for row in rows):
        raise Denied("An agent changes no limit that refuses operations; let a person do it.")


def _refuse_agents_yes(caller: Caller, changes: Iterable[SettingChange]) -> None:
    """Raise `Denied` where an agent lets a binding be asked what another is, as by undoing a no."""
    if not caller.by_person and any(
        one not in (change.before or {}).get("shadows", ())
        for change in changes
        for one in (change.after or {}).get("shadows", ())
    ):
        raise Denied("An agent lets no questions leave; let a person say yes.")


def first_of_many(found: Sequence[Problem], connection: Connection) -> Sequence[Problem]:
    """Return the first problems, and one more that counts the rest."""
    more = len(found) - _LISTED_PROBLEMS
    if more <= 0:
        return found
    where = f"`memtui bindings health {connection.binding.key}` lists more."
    rest = Problem(message=f"{more} more problems are not listed here; {where}")
    return [*found[:_LISTED_PROBLEMS], rest]


def _is_id(value: str) -> bool:
    return 0 < len(value) <= 200 and value.isprintable()
