"""What the service's parts share: the database, the connections, the recorder, and routing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memtui.contract import Capabilities, Denied, Invalid, Json, NotFound, Scope, Unsupported
from memtui.service.answers import Caller
from memtui.service.connections import Connection, Connections
from memtui.service.facts import FactLimits
from memtui.service.permissions import (
    Action,
    action_of,
    held_by,
    person_of,
    refusal,
    sight_of,
)
from memtui.service.providers import Providers
from memtui.service.recorder import Entry, Recorder
from memtui.service.whole_log import WholeLog
from memtui.store import bindings, members
from memtui.store.database import Database
from memtui.store.routing import BY_KEY, Route, route
from memtui.store.sight import Sight
from memtui.store.tables import BindingRow, MemberRow


@dataclass(frozen=True, slots=True)
class Routed:
    """The binding that an operation goes to, and under which rules of its company."""

    binding: BindingRow
    reason: str
    company_read_only: bool
    held: Sequence[MemberRow] | None
    """The roles of whom the caller is or acts for; None: the company has no members."""


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that every operation needs."""

    database: Database
    log: WholeLog
    providers: Providers
    connections: Connections
    recorder: Recorder
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    read_only: bool
    fact_limits: FactLimits

    async def resolve(self, caller: Caller, scope: Scope, binding_key: str | None) -> Routed:
        """Return the binding that serves a scope and why it does.

        An explicit key wins, then the project's target, the agent's, the company's default.

        Raises:
            Denied: the scope is another company's, or the binding is disabled.
            NotFound: no such company or key, or nothing serves the scope.
        """
        if scope.company_id != caller.company_id:
            raise Denied("The scope names another company than yours; memories never cross it.")
        _check_ids(scope)
        found = await asyncio.to_thread(self._route, caller, scope, binding_key)
        if found is None:
            raise NotFound(f"There is no company {scope.company_id}.")
        binding = found.binding
        if binding is None:
            raise NotFound(_nothing_serves(scope, binding_key))
        if not binding.enabled:
            raise Denied(
                f"The binding {binding.key} is disabled; `memtui bindings enable {binding.key}` "
                "turns it on."
            )
        return Routed(
            binding=binding,
            reason=_reason(found, scope),
            company_read_only=found.read_only,
            held=None if found.open else found.held,
        )

    def _route(self, caller: Caller, scope: Scope, binding_key: str | None) -> Route | None:
        with self.database.read() as connection:
            return route(
                connection,
                scope.company_id,
                key=binding_key,
                project_id=scope.project_id,
                agent_id=scope.agent_id,
                person=person_of(caller),
            )

    async def authorise(self, entry: Entry, action: Action | None = None) -> None:
        """Hold an operation that goes to no binding against the roles of its company.

        `action` is what it comes to; None: what its type says.

        Raises:
            Denied: the caller's role does not allow it.
        """
        rows = await asyncio.to_thread(self._roles, entry.caller)
        _hold(entry, rows, action)

    def sight(self, caller: Caller) -> Sight | None:
        """Return what a caller may see of its company; None: it has no members. Blocking.

        Raises:
            Denied: it has members, and the caller is none.
        """
        rows = self._roles(caller)
        return None if rows is None else sight_of(held_by(rows, caller), caller)

    def _roles(self, caller: Caller) -> list[MemberRow] | None:
        with self.database.read() as connection:
            return members.roles_of(connection, caller.company_id, person_of(caller))

    async def connect(
        self,
        entry: Entry,
        binding_key: str | None,
        *,
        needs: str | None = None,
    ) -> Connection:
        """Route an operation to its binding and check that it may be done there.

        `needs` names the capability that it takes.

        Raises:
            Denied: something on the way is read-only.
            Unsupported: the provider lacks the capability.
        """
        if entry.source is not None and entry.source.company_id != entry.caller.company_id:
            raise Denied("The source names another company than yours; memories never cross it.")
        routed = await self.resolve(entry.caller, entry.scope, binding_key)
        _hold(entry, routed.held)
        binding = routed.binding
        entry.binding, entry.binding_reason = binding, routed.reason
        if entry.operation_type.mutates:
            self._refuse_read_only(entry.caller.company_id, routed)
        connection = await self.open(binding, company_read_only=routed.company_read_only)
        if entry.operation_type.mutates and not connection.adapter.capabilities.writable:
            raise Denied(f"The provider of {binding.key} only reads; choose another binding.")
        _require(binding, connection.adapter.capabilities, needs)
        return connection

    async def open(self, binding: BindingRow, *, company_read_only: bool) -> Connection:
        """Return the connection of a binding, which may only read where anything above it does."""
        connection = await self.connections.to(
            binding, read_only=self.read_only or company_read_only
        )
        just_opened = connection.binding is binding
        able = dict(connection.adapter.capabilities)
        if just_opened and able != binding.capabilities and not self.read_only:
            await asyncio.to_thread(self._keep_capabilities, binding.binding_id, able)
        return connection

    def _keep_capabilities(self, binding_id: str, able: Json) -> None:
        """A new config or a new version of a provider can do other things than the old one."""
        with self.database.write() as connection:
            bindings.update_binding(connection, binding_id, {"capabilities": able})

    def _refuse_read_only(self, company_id: str, routed: Routed) -> None:
        key = routed.binding.key
        if self.read_only:
            raise Denied("memtui runs read-only; start it without --read-only to change anything.")
        if routed.company_read_only:
            raise company_read_only(company_id)
        if routed.binding.read_only:
            raise Denied(
                f"The binding {key} is read-only; "
                f"`memtui bindings read-only {key} off` opens it for changes."
            )


def company_read_only(company_id: str) -> Denied:
    """Return the error for a change in a read-only company."""
    return Denied(
        f"The company {company_id} is read-only; "
        f"`memtui companies read-only {company_id} off` opens it, after a repair only a new owner."
    )


def _hold(entry: Entry, rows: Sequence[MemberRow] | None, action: Action | None = None) -> None:
    """Hold an operation against the roles of its company (seed 004 §6.5); None: it has none."""
    if rows is None:
        return
    held = held_by(rows, entry.caller)
    entry.sight = sight_of(held, entry.caller)
    action = action or action_of(entry.operation_type, by_ai=entry.caller.by_ai)
    if (why := refusal(held, action, entry.scope)) is not None:
        raise Denied(why)


def _reason(found: Route, scope: Scope) -> str:
    if found.chosen_by == "project":
        return f"project target {scope.project_id}"
    if found.chosen_by == "agent":
        return f"agent target {scope.agent_id}"
    return "explicit key" if found.chosen_by == BY_KEY else "company default"


def _nothing_serves(scope: Scope, binding_key: str | None) -> str:
    if binding_key is None:
        return (
            f"No binding serves {scope.company_id}; "
            "set one with `memtui bindings target set KEY company`."
        )
    return (
        f"There is no binding {binding_key} in {scope.company_id}; "
        "`memtui bindings list` shows those there are."
    )


def _require(binding: BindingRow, capabilities: Capabilities, needs: str | None) -> None:
    if needs is not None and not getattr(capabilities, needs):
        word = needs.replace("_", " ")
        raise Unsupported(
            f"The provider {binding.provider_key} of binding {binding.key} has no {word}."
        )


def _check_ids(scope: Scope) -> None:
    for name, value in scope:
        if value is None:
            continue
        if not value or len(value) > 200 or not value.isprintable():
            raise Invalid(
                f"The {name} of the scope must be 1 to 200 printable characters; give another."
            )
