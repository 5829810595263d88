"""What the service's parts share: the database, the connections, the recorder, and routing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from memtui.contract import Capabilities, Denied, Invalid, NotFound, Scope, Unsupported
from memtui.service.answers import Caller
from memtui.service.connections import Connection, Connections
from memtui.service.facts import FactLimits
from memtui.service.permissions import action_of, held_by, refusal
from memtui.service.providers import Providers
from memtui.service.recorder import Entry, Recorder
from memtui.store import bindings, members
from memtui.store.database import Database
from memtui.store.tables import BindingRow, CompanyRow, MemberRow


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that every operation needs."""

    database: Database
    providers: Providers
    connections: Connections
    recorder: Recorder
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    read_only: bool
    fact_limits: FactLimits

    async def resolve(
        self, caller: Caller, scope: Scope, binding_key: str | None
    ) -> tuple[CompanyRow, BindingRow, str]:
        """Return the company, the binding that serves a scope and why it does.

        An explicit key wins, then the project's target, the agent's, the company's default.

        Raises:
            Denied: the scope is another company's, or the binding is disabled.
            NotFound: no such company or key, or nothing serves the scope.
        """
        if scope.company_id != caller.company_id:
            raise Denied("The scope names another company than yours; memories never cross it.")
        _check_ids(scope)
        return await asyncio.to_thread(self._resolve, scope, binding_key)

    def _resolve(self, scope: Scope, binding_key: str | None) -> tuple[CompanyRow, BindingRow, str]:
        with self.database.read() as connection:
            company = bindings.company(connection, scope.company_id)
            if company is None:
                raise NotFound(f"There is no company {scope.company_id}.")
            if binding_key is not None:
                chosen = bindings.binding(connection, scope.company_id, binding_key)
                if chosen is None:
                    raise NotFound(
                        f"There is no binding {binding_key} in {scope.company_id}; "
                        "`memtui bindings list` shows those there are."
                    )
                return company, _enabled(chosen), "explicit key"
            serving = bindings.serving(
                connection,
                scope.company_id,
                project_id=scope.project_id,
                agent_id=scope.agent_id,
            )
        for kind, reason in (
            ("project", f"project target {scope.project_id}"),
            ("agent", f"agent target {scope.agent_id}"),
            ("company", "company default"),
        ):
            if kind in serving:
                return company, _enabled(serving[kind]), reason
        raise NotFound(
            f"No binding serves {scope.company_id}; "
            "set one with `memtui bindings target set KEY company`."
        )

    async def authorise(self, entry: Entry) -> None:
        """Hold an operation against the roles of its company (seed 004 §6.5).

        Raises:
            Denied: the caller's role does not allow it.
        """
        caller = entry.caller
        rows = await asyncio.to_thread(self._members, caller.company_id)
        if not rows:
            return
        held = held_by(rows, caller)
        action = action_of(entry.operation_type, by_ai=caller.by_ai)
        if (why := refusal(held, action, entry.scope)) is not None:
            raise Denied(why)

    def _members(self, company_id: str) -> list[MemberRow]:
        with self.database.read() as connection:
            return members.members(connection, company_id)

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
        company, binding, reason = await self.resolve(entry.caller, entry.scope, binding_key)
        await self.authorise(entry)
        entry.binding, entry.binding_reason = binding, reason
        if entry.operation_type.mutates:
            self._refuse_read_only(company, binding)
        connection = await self.open(company, binding)
        if entry.operation_type.mutates and not connection.adapter.capabilities.writable:
            raise Denied(f"The provider of {binding.key} only reads; choose another binding.")
        _require(binding, connection.adapter.capabilities, needs)
        return connection

    async def open(self, company: CompanyRow, binding: BindingRow) -> Connection:
        """Return the connection of a company's binding, which may only read where either does."""
        return await self.connections.to(binding, read_only=self.read_only or company.read_only)

    def _refuse_read_only(self, company: CompanyRow, binding: BindingRow) -> None:
        if self.read_only:
            raise Denied("memtui runs read-only; start it without --read-only to change anything.")
        if company.read_only:
            raise Denied(f"The company {company.company_id} is read-only.")
        if binding.read_only:
            raise Denied(
                f"The binding {binding.key} is read-only; "
                f"`memtui bindings read-only {binding.key} off` opens it for changes."
            )


def _enabled(binding: BindingRow) -> BindingRow:
    if not binding.enabled:
        raise Denied(
            f"The binding {binding.key} is disabled; `memtui bindings enable {binding.key}` "
            "turns it on."
        )
    return binding


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
