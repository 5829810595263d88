"""Callers, their permissions on memories (seed 004 §6.5), and their visibility (seed 001).

|              | user memory             | drive (project) memory |
|--------------|-------------------------|------------------------|
| view         | the user                | every member           |
| add (AI)     | during the user's chat  | during a member's chat |
| add (manual) | the user                | admin, owner           |
| delete       | the user                | admin, owner           |

An agent acts for a person: it has that person's permissions, and adds as AI. Memory without user
and project belongs to the company: only its admins and owners change it, and view the company as a
whole, which includes everybody's memories. Every member views an agent type's memory. A view of a
project and a user shows both, and needs both permissions. A company without members is open to
everyone who can open its database; in a company with members, a stranger sees nothing.

`visibility_of` returns the `memtui.store.visibility.Visibility` of a member: the visible part of
log and records. `readable` hides from agents what a person holds for review. Agents get a
company-wide ("org") memory with a prefix that marks it as memory; a write of one is audited by a
salted SHA-256, without its content.
"""

# Strings, as `from __future__ import annotations` makes, would be compiled for each model.
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self, TypeVar

from memtui.config import Settings
from memtui.contract import (
    EVERYTHING,
    Capabilities,
    Denied,
    Filter,
    Invalid,
    Model,
    OperationType,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    UtcDatetime,
)
from memtui.store.rows import MemberRow
from memtui.store.visibility import Visibility
from memtui.visible import visible

AGENT_PREFIX = "agent:"
USER_PREFIX = "user:"
"""Prefixes of the principals of agents and of people."""

MODEL_DOOR = "mcp"
"""The channel that only models use."""
PLUGIN_DOOR = "plugin"
"""The channel of a memory plugin's host, which asks for its agents, whoever they act for."""


def agent_of(principal: object) -> str | None:
    """Return the agent's name in a principal; None: the principal is no agent."""
    if not isinstance(principal, str) or not principal.startswith(AGENT_PREFIX):
        return None
    return principal.removeprefix(AGENT_PREFIX) or None


class Caller(Model):
    """Who calls, through which channel (`cli`, `tui`, `demo` …), for which company."""

    company_id: str
    principal: str
    """`user:ana`, `agent:coding` …"""
    channel: str
    acts_for: str | None = None
    """The person, as a principal, on whose behalf an agent acts."""
    run_id: str | None = None
    """The run that the caller belongs to; the default of `Scope.run_id` for its operations."""
    project_id: str | None = None
    """The only project that its token gives access to; None: any."""
    as_of: UtcDatetime | None = None
    """The moment in the past that it reads, and may not change; None: now."""
    purpose: str | None = None
    """Why memtui itself reads: `check`. The log neither lists nor counts its reads as a use of
    memories, and does not name their records. None: somebody uses what it reads."""

    def at(self, moment: datetime | None) -> Self:
        """Return this caller with another `as_of`; None: unchanged."""
        return self if moment is None else self.model_copy(update={"as_of": moment})

    def by_then(self, chosen: Filter | None) -> Filter:
        """Return a filter that also excludes operations that began after `as_of`."""
        asked = chosen or EVERYTHING
        if self.as_of is None:
            return asked
        # `until` is exclusive, and an operation that began at that moment counts.
        end = self.as_of + timedelta(microseconds=1)
        until = end if asked.until is None else min(end, asked.until)
        return asked.model_copy(update={"until": until})

    @property
    def agent_id(self) -> str | None:
        """The name of the agent that calls; None: the caller is no agent."""
        return agent_of(self.principal)

    @property
    def by_ai(self) -> bool:
        """Whether an AI calls: an agent, or anybody through MCP, which only models use."""
        return self.principal.startswith(AGENT_PREFIX) or self.channel == MODEL_DOOR

    @property
    def by_person(self) -> bool:
        """Whether a person calls: a `user:` principal, and not an AI."""
        return self.principal.startswith(USER_PREFIX) and not self.by_ai

    @property
    def asks_for_model(self) -> bool:
        """Whether its answers reach a model: no person calls, or a memory plugin's host asks."""
        return not self.by_person or self.channel == PLUGIN_DOOR

    def author(self, claimed: str | None) -> str:
        """Return the author of the records that this caller writes.

        Only a person may name somebody else. A name that an agent gives is added to its own:
        `agent:coding (says user:ana)`.
        """
        if claimed is None or claimed == self.principal:
            return self.principal
        if self.by_person or claimed.startswith(f"{self.principal} ("):
            return claimed
        return f"{self.principal} (says {claimed})"


def caller_of(settings: Settings, company_id: str, channel: str) -> Caller:
    """Return the caller that the settings name.

    Raises:
        Invalid: `acts_for` names an agent instead of a person.
    """
    acts_for = settings.acts_for or None
    if acts_for is not None and acts_for.startswith(AGENT_PREFIX):
        raise Invalid(f"An agent acts for a person, and {acts_for} is none; name one: user:ana.")
    return Caller(
        company_id=company_id, principal=settings.principal, channel=channel, acts_for=acts_for
    )


class Role(StrEnum):
    """A member's role in a project, or in the whole company."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Permission(StrEnum):
    """The rows of the module's table, and `configure`; a correction counts as a deletion."""

    VIEW = "view"
    ADD_AI = "add (AI)"
    ADD_MANUAL = "add (manual)"
    DELETE = "delete"
    CONFIGURE = "configure"


class Membership(Model):
    """A person's role; `project_id` None is the whole company."""

    principal: str
    subject_id: str | None = None
    """The `subject_id` of this person's memories."""
    project_id: str | None = None
    role: Role


_MANAGERS = (Role.OWNER, Role.ADMIN)


def action_of(operation_type: OperationType, *, by_ai: bool) -> Permission:
    """Return the permission that an operation takes."""
    if operation_type is OperationType.WRITE:
        return Permission.ADD_AI if by_ai else Permission.ADD_MANUAL
    if operation_type is OperationType.CONFIGURE:
        return Permission.CONFIGURE
    return Permission.DELETE if operation_type.mutates else Permission.VIEW


def abilities(capabilities: Capabilities, *, closed: bool) -> frozenset[OperationType]:
    """Return the operations on memories that a provider supports; `closed`: without mutations."""
    able = {
        OperationType.QUERY: True,
        OperationType.GET: True,
        OperationType.BROWSE: capabilities.browse,
        OperationType.EXPLAIN: capabilities.explain,
        OperationType.PROFILE: capabilities.profile,
        OperationType.WRITE: capabilities.writable,
        OperationType.CORRECT: capabilities.writable and capabilities.correction,
        OperationType.FORGET: capabilities.writable,
    }
    return frozenset(one for one, can in able.items() if can and not (closed and one.mutates))


def person_of(caller: Caller) -> str | None:
    """Return the principal whose roles count: of an agent, the person it acts for, if any."""
    is_agent = caller.principal.startswith(AGENT_PREFIX)
    return caller.acts_for if is_agent else caller.principal


def memberships_of(rows: Sequence[MemberRow] | None, caller: Caller) -> list[Membership] | None:
    """Return the roles that count for a caller; None: it may see and do everything.

    Where its token is for one project, its company-wide role counts as a role in that project.

    Args:
        rows: The roles of the company's members; None: it has none, and is open to everybody.
        caller: Who calls.

    Raises:
        Denied: the company has members, but the caller has no role, like an agent that acts for
            nobody.
    """
    person = person_of(caller)
    if rows is None:
        return None if caller.project_id is None else [_owner_of_its_project(caller)]
    memberships = [membership(row) for row in rows if row.principal == person]
    if caller.project_id is not None and memberships:
        memberships = _in_project(memberships, caller.project_id)
    if memberships:
        return memberships
    if person is None:
        raise Denied(
            f"{caller.principal} acts for nobody, and this company has members; name the person "
            "whom it acts for with --acts-for, in MEMTUI_ACTS_FOR, or in its token."
        )
    who = "You are" if person == caller.principal else f"{person} is"
    raise Denied(
        f"{who} not a member here; ask an owner to add you with `memtui companies members add`."
    )


def own_subject(memberships: Iterable[Membership], caller: Caller) -> str:
    """Return the `subject_id` of the caller's memories: a role's, else from its principal."""
    named = (one.subject_id for one in memberships if one.subject_id)
    return next(named, (person_of(caller) or caller.principal).removeprefix(USER_PREFIX))


def _owner_of_its_project(caller: Caller) -> Membership:
    return Membership(
        principal=person_of(caller) or caller.principal,
        subject_id=own_subject((), caller),
        project_id=caller.project_id,
        role=Role.OWNER,
    )


def _in_project(memberships: Sequence[Membership], project_id: str) -> list[Membership]:
    """Return company-wide roles, and those in the project, all as roles in the project.

    Raises:
        Denied: there is no such role.
    """
    kept = [one for one in memberships if one.project_id in {None, project_id}]
    if not kept:
        raise Denied(
            f"{memberships[0].principal} is not a member of {project_id}, which the token is for; "
            "ask an admin to add them."
        )
    return [one.model_copy(update={"project_id": project_id}) for one in kept]


def visibility_of(memberships: Sequence[Membership] | None, caller: Caller) -> Visibility | None:
    """Return the visibility that roles give, of log and records; None: everything.

    A caller with a token for one project sees that project, also operations of others; of other
    projects it does not even see its own operations.
    """
    if memberships is None:
        return None
    projects = {one.project_id for one in memberships if one.project_id}
    company = {one.role for one in memberships if not one.project_id}
    return Visibility(
        person=(person_of(caller) or "") if caller.project_id is None else "",
        subjects=frozenset(one.subject_id for one in memberships if one.subject_id),
        projects=None if company else frozenset(projects),
        manages=not company.isdisjoint(_MANAGERS),
    )


def membership(row: MemberRow) -> Membership:
    """Return the membership in a database row, where an empty project is the whole company."""
    return Membership.like(row, project_id=row.project_id or None)


def refusal(memberships: Sequence[Membership], action: Permission, scope: Scope) -> str | None:
    """Return why these memberships do not allow an action in a scope; None: they do."""
    if action is Permission.CONFIGURE or not (scope.subject_id or scope.project_id):
        # Every member may read the memories of an agent type; other records that the provider
        # finds are left out of the answer.
        is_agents = scope.agent_id is not None and action is Permission.VIEW
        return None if is_agents and memberships else _company_refusal(memberships, action)
    why = _project_refusal(memberships, action, scope.project_id) if scope.project_id else None
    # A change in a project concerns its memory only; a view shows that of the user too.
    is_users = scope.subject_id and (action is Permission.VIEW or not scope.project_id)
    if why is None and scope.subject_id and is_users:
        why = _user_refusal(memberships, action, scope.subject_id)
    return why


def _user_refusal(
    memberships: Sequence[Membership], action: Permission, subject_id: str
) -> str | None:
    if any(membership.subject_id == subject_id for membership in memberships):
        return None
    return f"Only {subject_id} may {_verb(action)} their own memories."


def _project_refusal(
    memberships: Sequence[Membership], action: Permission, project_id: str
) -> str | None:
    roles = {
        membership.role for membership in memberships if membership.project_id in (None, project_id)
    }
    if not roles:
        return f"You are not a member of {project_id}; ask an admin to add you."
    if action in (Permission.VIEW, Permission.ADD_AI) or roles.intersection(_MANAGERS):
        return None
    return f"Only an admin or owner of {project_id} may {_verb(action)} its memories."


def _company_refusal(memberships: Sequence[Membership], action: Permission) -> str | None:
    roles = {membership.role for membership in memberships if membership.project_id is None}
    if roles.intersection(_MANAGERS):
        return None
    if roles and action is Permission.ADD_AI:
        return None
    if action is Permission.VIEW:
        return "Only an admin or owner sees everybody's memories; name a project or yourself."
    if roles or action is Permission.CONFIGURE:
        return f"Only an admin or owner of the company may {_verb(action)} here."
    return f"You may not {_verb(action)} the company's memories; name a project or yourself."


def _verb(action: Permission) -> str:
    return {
        Permission.VIEW: "see",
        Permission.ADD_AI: "add",
        Permission.ADD_MANUAL: "add",
        Permission.DELETE: "change or delete",
        Permission.CONFIGURE: "change the settings",
    }[action]


R = TypeVar("R", bound=Record)
VersionT = TypeVar("VersionT", bound=RecordVersion)


_PREFIX = re.compile(r"(?:\[MEMORY id=[^\]\n]* scope=ORG ns=[^\]\n]*\]: )+")
_UNSAFE = re.compile(r"[\s\[\]]")


def is_org(scope: Scope) -> bool:
    """Whether a scope is company-wide: no project, agent or user."""
    return not (scope.project_id or scope.agent_id or scope.subject_id)


def readable(
    records: Sequence[R], asked: Scope, visibility: Visibility | None, binding_key: str
) -> tuple[R, ...]:
    """Return the records that may be seen; never those of another company.

    Args:
        records: The records that the provider returned.
        asked: The scope that was asked for.
        visibility: None: everybody reads everything: no members, and for an agent nothing is held.
        binding_key: The binding of the records.
    """
    found = tuple(one for one in records if may_read(one.scope, asked, visibility))
    if visibility is None:
        return found
    places = ((one, (binding_key, one.handle.provider_record_id)) for one in found)
    return tuple(one for one, place in places if not visibility.hides(place, one.text))


def may_read(scope: Scope | None, asked: Scope, visibility: Visibility | None) -> bool:
    """Whether items in `scope` may be seen; if `scope` is None, everybody may see them."""
    if scope is None:
        return True
    return scope.company_id == asked.company_id and (visibility is None or visibility.reads(scope))


def for_caller(caller: Caller, records: Sequence[R]) -> tuple[R, ...]:
    """Return records as a caller gets them: an agent gets company-wide ones with the prefix."""
    return as_agents_read(records) if caller.by_ai else tuple(records)


def as_agents_read(records: Sequence[R]) -> tuple[R, ...]:
    """Return records as any agent gets them: company-wide ones with the prefix (seed 001)."""
    return tuple(_as_agents_read(one) if is_org(one.scope) else one for one in records)


def versions_for(
    caller: Caller, versions: Sequence[VersionT], handle: RecordHandle, scope: Scope
) -> tuple[VersionT, ...]:
    """Return versions of a record as a caller gets them; `scope`: the record's owner."""
    if not (caller.by_ai and is_org(scope)):
        return tuple(versions)
    return tuple(
        one.model_copy(update={"text": _prefixed(one.text, handle, scope)}) for one in versions
    )


def _as_agents_read(record: R) -> R:
    texts = {"text": record.text, "summary": record.summary}
    update = {
        name: _prefixed(text, record.handle, record.scope) for name, text in texts.items() if text
    }
    return record.model_copy(update=update)


def _prefixed(text: str, handle: RecordHandle, scope: Scope) -> str:
    identity = handle.provider_record_id
    namespace, _, name = identity.rpartition("/")
    if not namespace.startswith("org:"):
        namespace, name = f"org:{scope.company_id}", identity
    safe_id, safe_namespace = (_UNSAFE.sub("_", visible(part)) for part in (name, namespace))
    return f"[MEMORY id={safe_id} scope=ORG ns={safe_namespace}]: {without_prefix(text)}"


def without_prefix(text: str) -> str:
    """Return a text without the prefix, which an agent may write back with the text."""
    return _PREFIX.sub("", text, count=1) if text.startswith("[MEMORY ") else text
