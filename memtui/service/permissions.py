"""Who may do what to whose memory (seed 004 §6.5), as a pure decision.

|              | user memory             | drive (project) memory |
|--------------|-------------------------|------------------------|
| view         | the user                | every member           |
| add (AI)     | during the user's chat  | during a member's chat |
| add (manual) | the user                | admin, owner           |
| delete       | the user                | admin, owner           |

An agent acts for a person: what it may do is what the table gives that person, and it adds as AI.
Memory of neither a user nor a project is the company's, and a view of it holds everybody's: its
admins and owners see and change it. An agent type's is seen by every member. A view of a project
and a user shows both, and needs both rights. A company without members is open to everyone who can
open its database; in one that has some, a stranger sees nothing at all.

What of the log and of records a member sees is `memtui.store.sight.Sight`, which `sight_of` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from memtui.contract import Denied, Model, OperationType, Scope
from memtui.service.answers import Caller
from memtui.store.compiled import MemberRow
from memtui.store.sight import Sight


class Role(StrEnum):
    """What a member is in a project, or in the whole company."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Action(StrEnum):
    """The rows of the table; a correction counts as a deletion."""

    VIEW = "view"
    ADD_AI = "add (AI)"
    ADD_MANUAL = "add (manual)"
    DELETE = "delete"
    CONFIGURE = "configure"


class Membership(Model):
    """A person's role; `project_id` None is the whole company."""

    principal: str
    subject_id: str | None = None
    """The user whose memories are this person's own."""
    project_id: str | None = None
    role: Role


_MANAGERS = (Role.OWNER, Role.ADMIN)


def action_of(operation_type: OperationType, *, by_ai: bool) -> Action:
    """Return the row of the table that an operation falls under."""
    if operation_type is OperationType.WRITE:
        return Action.ADD_AI if by_ai else Action.ADD_MANUAL
    if operation_type is OperationType.CONFIGURE:
        return Action.CONFIGURE
    return Action.DELETE if operation_type.mutates else Action.VIEW


def person_of(caller: Caller) -> str | None:
    """Return whose roles count for a caller: an agent's are those of the person it acts for."""
    return caller.acts_for if caller.by_ai else caller.principal


def held_by(rows: Sequence[MemberRow], caller: Caller) -> list[Membership]:
    """Return the roles that count for a caller, of those of a company that has members.

    Raises:
        Denied: there are none; an agent that acts for nobody has none either.
    """
    person = person_of(caller)
    held = [membership(row) for row in rows if row.principal == person]
    if held:
        return held
    if person is None:
        raise Denied(
            f"{caller.principal} acts for nobody, and this company has members; name the person "
            "whom it acts for with --acts-for, in MEMTUI_ACTS_FOR, or in its token."
        )
    who = "You are" if person == caller.principal else f"{person} is"
    raise Denied(f"{who} no member here; ask an owner to add you with `memtui members add`.")


def sight_of(held: Sequence[Membership], caller: Caller) -> Sight:
    """Return what somebody with these roles, at least one, may see of the log and of records."""
    projects = {one.project_id for one in held if one.project_id}
    company = {one.role for one in held if not one.project_id}
    return Sight(
        person=person_of(caller) or "",
        subjects=frozenset(one.subject_id for one in held if one.subject_id),
        projects=None if company else frozenset(projects),
        manages=not company.isdisjoint(_MANAGERS),
    )


def membership(row: MemberRow) -> Membership:
    """Return a member as a value."""
    return Membership(
        principal=row.principal,
        subject_id=row.subject_id,
        project_id=row.project_id or None,
        role=Role(row.role),
    )


def refusal(held: Sequence[Membership], action: Action, scope: Scope) -> str | None:
    """Return why somebody with these memberships may not, or None where they may."""
    if action is Action.CONFIGURE or not (scope.subject_id or scope.project_id):
        # An agent type's own memories are every member's to read; what else a provider finds for
        # it is left out of the answer.
        is_agents = scope.agent_id is not None and action is Action.VIEW
        return None if is_agents and held else _company_refusal(held, action)
    why = _project_refusal(held, action, scope.project_id) if scope.project_id else None
    is_users = scope.subject_id and (action is Action.VIEW or not scope.project_id)
    if why is None and scope.subject_id and is_users:
        why = _user_refusal(held, action, scope.subject_id)
    return why


def _user_refusal(held: Sequence[Membership], action: Action, subject_id: str) -> str | None:
    if any(membership.subject_id == subject_id for membership in held):
        return None
    return f"Only {subject_id} may {_verb(action)} their own memories."


def _project_refusal(held: Sequence[Membership], action: Action, project_id: str) -> str | None:
    roles = {membership.role for membership in held if membership.project_id in (None, project_id)}
    if not roles:
        return f"You are no member of {project_id}."
    if action in (Action.VIEW, Action.ADD_AI) or roles.intersection(_MANAGERS):
        return None
    return f"Only an admin or owner of {project_id} may {_verb(action)} its memories."


def _company_refusal(held: Sequence[Membership], action: Action) -> str | None:
    roles = {membership.role for membership in held if membership.project_id is None}
    if roles.intersection(_MANAGERS):
        return None
    if roles and action is Action.ADD_AI:
        return None
    if action is Action.VIEW:
        return "Only an admin or owner sees everybody's memories; name a project or yourself."
    if roles or action is Action.CONFIGURE:
        return f"Only an admin or owner of the company may {_verb(action)} here."
    return f"You may not {_verb(action)} the company's memories; name a project or yourself."


def _verb(action: Action) -> str:
    return {
        Action.VIEW: "see",
        Action.ADD_AI: "add",
        Action.ADD_MANUAL: "add",
        Action.DELETE: "change or delete",
        Action.CONFIGURE: "change the settings",
    }[action]
