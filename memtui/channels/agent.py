"""Who calls on an agent's behalf, over MCP and from hooks, and whose memories it means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from memtui.contract import Denied, Invalid, MemtuiError, NotFound, Scope, SourceKind, SourceRef
from memtui.service import Caller, MemoryService, Resolution
from memtui.service.visibility import AGENT_PREFIX

Owner = Literal["user", "drive", "agent"]
"""Whose memories: the user's, the project's, or the agent type's own."""

_OWNER_FIELDS: Mapping[Owner, str] = {
    "user": "subject_id",
    "drive": "project_id",
    "agent": "agent_id",
}


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent that calls, with its scope; both are fixed, whatever the agent sends."""

    service: MemoryService
    caller: Caller
    scope: Scope
    """The company, and as far as they are set the agent, the project and the user."""
    binding_key: str | None = None
    """None: the binding that serves the scope."""
    may_destroy: bool = False
    """Whether tools that change or remove what is stored are offered."""
    asks_all: bool = False
    """Whether it may search all bindings, and read the results."""
    answer_characters: int = 8_000
    """How many characters a tool's answer may have, as a text and as JSON."""

    @property
    def source(self) -> SourceRef:
        """What a write of this agent comes from: its run."""
        return SourceRef(
            kind=SourceKind.RUN, company_id=self.scope.company_id, run_id=self.caller.run_id
        )

    def owned_by(self, owner: Owner) -> Scope:
        """Return the scope of what belongs to the user, the project (the drive) or the agent.

        Raises:
            Invalid: this server is set to no project, or the caller is not an agent.
        """
        field = _OWNER_FIELDS[owner]
        name = getattr(self.scope, field)
        if name is None:
            raise Invalid(
                f"There is no {owner} here: this memory server was started without one. Take "
                "another scope."
            )
        return Scope.model_validate({"company_id": self.scope.company_id, field: name})

    def in_run(self, run_id: str | None) -> Agent:
        """Return it in another run; None: in its own."""
        if run_id is None:
            return self
        return replace(self, caller=self.caller.model_copy(update={"run_id": run_id}))

    async def resolve(self) -> Resolution:
        """Return the binding that serves it.

        Raises:
            Denied: it is disabled, or the caller is not a member.
            NotFound: there is none.
        """
        return await self.service.resolve(self.caller, self.scope, self.binding_key)

    async def reached(self) -> tuple[str, ...]:
        """Return the bindings that serve scope, user, project and agent, in this order.

        A memory of only one of these may be in another binding than the scope's. Empty if no
        binding serves the scope; an operation's error then says why.
        """
        try:
            found = {(await self.resolve()).binding_key: None}
        except MemtuiError:
            return ()
        for field in _OWNER_FIELDS.values() if self.binding_key is None else ():
            name = getattr(self.scope, field)
            if name is None:
                continue
            owner = Scope.model_validate({"company_id": self.scope.company_id, field: name})
            with suppress(Denied, NotFound):  # nothing is kept where nothing serves or it is off
                found[(await self.service.resolve(self.caller, owner)).binding_key] = None
        return tuple(found)


async def agent_of(
    service: MemoryService,
    own: Caller,
    channel: str,
    *,
    name: str | None,
    project_id: str | None = None,
    run_id: str | None = None,
    binding_key: str | None = None,
    may_destroy: bool = False,
    asks_all: bool = False,
) -> Agent:
    """Return the agent of that name, which acts for whoever started it; None: that one itself.

    Raises:
        Invalid: a name or an id is empty.
    """
    caller = own.model_copy(update={"channel": channel, "run_id": run_id})
    if name is not None:
        acts_for = own.acts_for if own.by_ai else own.principal
        named = {"principal": f"{AGENT_PREFIX}{name}", "acts_for": acts_for}
        caller = caller.model_copy(update=named)
    scope = Scope(
        company_id=own.company_id,
        agent_id=name,
        project_id=project_id,
        subject_id=await service.members.own_subject(caller),
    )
    return Agent(service, caller, scope, binding_key, may_destroy, asks_all)
