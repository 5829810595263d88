"""A company's settings: bindings and their targets, members, tokens, and routing."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from memtui.contract import Conflict, NotFound
from memtui.store import limits, statements
from memtui.store.database import DatabaseConnection
from memtui.store.operation import Place, text_place
from memtui.store.rows import (
    BindingRow,
    CompanyRow,
    MemberRow,
    SpendingLimitRow,
    TargetRow,
    TokenRow,
)
from memtui.store.settings import PENDING
from memtui.store.statements import Taken

EXPLICIT_KEY = "because you chose it"
"""The binding reason where the caller named the binding."""

_PRECEDENCE = ("key", "project", "agent", "company", None)
_BINDING, _MEMBER = (tuple(kind.__slots__) for kind in (BindingRow, MemberRow))
_CHOSEN_BY = 4
_MEMBER_FROM = _CHOSEN_BY + 1 + len(_BINDING)


@dataclass(frozen=True, slots=True)
class Route:
    """How one operation is routed: its binding, and the rules of its company."""

    binding: BindingRow
    reason: str
    """Why it is this binding."""
    company_read_only: bool
    memberships: tuple[MemberRow, ...] | None
    """Roles of the person who calls or is acted for; None: the company has no members."""
    acting_limits: tuple[SpendingLimitRow, ...]
    """The company's spending limits that do more than warn."""
    held: frozenset[Place]
    """The company's records that are held for review."""


def route(
    connection: DatabaseConnection,
    company_id: str,
    *,
    key: str | None,
    project_id: str | None,
    agent_id: str | None,
    person: str | None,
) -> Route:
    """Return the route to the binding with a key, or to that of the project, agent or company.

    Raises:
        NotFound: there is no such company or key, or nothing serves the scope.
    """
    asked = {"company": company_id, "person": person}
    if key is None:
        rows = statements.ROUTE_BY_TARGET.rows(
            connection, **asked, project=project_id, agent=agent_id
        )
    else:
        rows = statements.ROUTE_BY_KEY.rows(connection, **asked, key=key)
    if not rows:
        raise NotFound(f"There is no company {company_id}.")
    read_only, closed, limited, holds, chosen_by, *first = min(
        rows, key=lambda row: _PRECEDENCE.index(row[_CHOSEN_BY])
    )
    if not first[0]:
        raise NotFound(
            f"No binding serves {company_id}; add one on screen 1 or with "
            "`memtui bindings add KEY PROVIDER`, and let it serve with "
            "`memtui bindings target set KEY company`."
            if key is None
            else f"There is no binding {key} in {company_id}; "
            "`memtui bindings list` shows those there are."
        )
    reasons = {
        "project": f"for the project {project_id}",
        "agent": f"for the agent {agent_id}",
        "key": EXPLICIT_KEY,
    }
    roles = [
        row[_MEMBER_FROM:] for row in rows if row[_CHOSEN_BY] == chosen_by and row[_MEMBER_FROM]
    ]
    members = tuple(MemberRow(**dict(zip(_MEMBER, role, strict=True))) for role in roles)
    return Route(
        binding=BindingRow(**dict(zip(_BINDING, first, strict=False))),
        reason=reasons.get(chosen_by, "company default"),
        company_read_only=read_only,
        memberships=members if closed else None,
        acting_limits=limits.acting(connection, company_id) if limited else (),
        held=held(connection, company_id) if holds else frozenset(),
    )


def held(connection: DatabaseConnection, company_id: str) -> frozenset[Place]:
    """Return a company's records that are held for review, under each id that they have had.

    Besides, for each the place of its text (`text_place`).
    """
    rows = statements.HELD.rows(connection, company_id=company_id)
    found = {
        (key, handle["provider_record_id"])
        for key, request, _ in rows
        for handle in request["handles"]
    }
    for key in {key for key, _ in found}:
        links = statements.LINKS_OF.rows(connection, company_id=company_id, binding_key=key)
        found |= {(key, new) for old, new in links if (key, old) in found}
        found |= {(key, old) for old, new in links if (key, new) in found}
    texts = ((key, one["text"]) for key, _, base in rows for one in base)
    return frozenset(found | {text_place(*one) for one in texts if one[1].strip()})


def requested(
    connection: DatabaseConnection, company_id: str, places: Iterable[Place]
) -> frozenset[str]:
    """Return the operations by which agents asked for what a person then let into records."""
    changes = (
        before.get("changed") or {}
        for key, record_id in places
        for (before,) in statements.DECIDED_FOR.rows(
            connection, company_id=company_id, binding_key=key, record_id=record_id
        )
    )
    return frozenset(one["key"]["pending_id"] for one in changes if one.get("setting") == PENDING)


def companies(connection: DatabaseConnection) -> list[CompanyRow]:
    """Return every company, the oldest first."""
    return statements.COMPANIES.found(connection, CompanyRow)


def company(connection: DatabaseConnection, company_id: str) -> CompanyRow | None:
    """Return one company."""
    found = statements.COMPANY.found(connection, CompanyRow, company_id=company_id)
    return found[0] if found else None


def is_used(connection: DatabaseConnection) -> bool:
    """Whether there is a company, or the log of a removed one."""
    [(used,)] = statements.IS_USED.rows(connection)
    return bool(used)


def is_logged_by_one_door(connection: DatabaseConnection, company_id: str, channel: str) -> bool:
    """Whether the whole log of a company came through one channel and is not sealed."""
    rows = statements.LOGGED_BY_ONE_DOOR.rows(connection, company_id=company_id, channel=channel)
    return any(bool(only) for (only,) in rows)


def add_company(connection: DatabaseConnection, row: CompanyRow) -> None:
    """Add a company.

    Raises:
        Conflict: there is a company with this id.
    """
    try:
        statements.ADD_COMPANY.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(
            f"There is already a company {row.company_id}; choose another id."
        ) from error


def update_company(connection: DatabaseConnection, company_id: str, values: dict[str, Any]) -> None:
    """Change columns of a company."""
    statement = statements.update("memory_companies", values, "company_id")
    statement.run(connection, company_id=company_id, **values)


def bindings(connection: DatabaseConnection, company_id: str) -> list[BindingRow]:
    """Return a company's bindings, the oldest first."""
    return statements.BINDINGS.found(connection, BindingRow, company_id=company_id)


def binding(connection: DatabaseConnection, company_id: str, key: str) -> BindingRow | None:
    """Return the binding with this key."""
    found = statements.BINDING.found(connection, BindingRow, company_id=company_id, key=key)
    return found[0] if found else None


def hold_bindings(connection: DatabaseConnection) -> None:
    """Lock the bindings of all companies against changes until the write transaction ends."""
    if connection.dialect == "postgresql":  # SQLite has one writer at a time
        connection.exec_driver_sql("LOCK TABLE memory_bindings IN SHARE ROW EXCLUSIVE MODE")


def add_binding(connection: DatabaseConnection, row: BindingRow) -> None:
    """Add a binding.

    Raises:
        Conflict: the company has a binding with this key.
    """
    try:
        statements.ADD_BINDING.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(f"There is already a binding {row.key}; choose another key.") from error


def update_binding(connection: DatabaseConnection, binding_id: str, values: dict[str, Any]) -> None:
    """Change columns of a binding."""
    statement = statements.update("memory_bindings", values, "binding_id")
    statement.run(connection, binding_id=binding_id, **values)


def remove_binding(connection: DatabaseConnection, binding_id: str) -> None:
    """Remove a binding and its targets; the provider's memories are not touched."""
    statements.REMOVE_TARGETS.run(connection, binding_id=binding_id)
    statements.REMOVE_BINDING.run(connection, binding_id=binding_id)


def forget_namesake(connection: DatabaseConnection, company_id: str, binding_id: str) -> None:
    """Delete the data of a memory plugin, and the risks, of a removed binding of the same key.

    They are kept until now, so that undoing the removal restores them. Nor does a yes to asking
    the removed binding hold for the new one.
    """
    from memtui.store import plugins, risks  # plugins import SQLAlchemy, which few commands need

    key = binding_id.removeprefix(f"{company_id}/")
    risks.forget_binding(connection, company_id, key)
    plugins.forget_binding(connection, (company_id, binding_id))
    for row in bindings(connection, company_id):
        kept = [one for one in row.shadows if one["shadow_key"] != key]
        if len(kept) < len(row.shadows):
            update_binding(connection, row.binding_id, {"shadows": kept})


def targets(connection: DatabaseConnection, company_id: str) -> list[TargetRow]:
    """Return the targets of the company's bindings."""
    return statements.TARGETS.found(connection, TargetRow, company_id=company_id)


def set_target(connection: DatabaseConnection, row: TargetRow) -> None:
    """Let a binding serve a target, in place of another binding."""
    clear_target(connection, row.company_id, row.target_type, row.target_id)
    statements.ADD_TARGET.run(connection, **asdict(row))


def clear_target(
    connection: DatabaseConnection, company_id: str, target_type: str, target_id: str
) -> bool:
    """Remove a target; returns whether there was one."""
    place = {"company_id": company_id, "target_type": target_type, "target_id": target_id}
    return statements.REMOVE_TARGET.run(connection, **place) > 0


def members(connection: DatabaseConnection, company_id: str) -> list[MemberRow]:
    """Return a company's members, by principal and project."""
    return statements.MEMBERS.found(connection, MemberRow, company_id=company_id)


def roles_of(
    connection: DatabaseConnection, company_id: str, principal: str | None
) -> list[MemberRow] | None:
    """Return a principal's roles in a company; None where it has no members at all."""
    own = {"company_id": company_id}
    roles = statements.ROLES.found(connection, MemberRow, **own, principal=principal)
    if not roles and not statements.ANY_MEMBER.rows(connection, **own):
        return None
    return roles


def set_member(connection: DatabaseConnection, row: MemberRow) -> None:
    """Give a principal a role in a project or the company, in place of its former role."""
    remove_member(connection, row.company_id, row.principal, row.project_id)
    statements.ADD_MEMBER.run(connection, **asdict(row))


def remove_member(
    connection: DatabaseConnection, company_id: str, principal: str, project_id: str
) -> bool:
    """Remove a role; returns whether there was one."""
    place = {"company_id": company_id, "principal": principal, "project_id": project_id}
    return statements.REMOVE_MEMBER.run(connection, **place) > 0


def tokens(connection: DatabaseConnection, company_id: str) -> list[TokenRow]:
    """Return a company's tokens, the oldest first."""
    return statements.TOKENS.found(connection, TokenRow, company_id=company_id)


def add_token(connection: DatabaseConnection, row: TokenRow) -> None:
    """Add a token.

    Raises:
        Conflict: the company has a token with this label.
    """
    try:
        statements.ADD_TOKEN.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(f"There is already a token {row.label}; choose another label.") from error


def remove_token(connection: DatabaseConnection, company_id: str, label: str) -> bool:
    """Revoke a token; returns whether there was one."""
    return statements.REMOVE_TOKEN.run(connection, company_id=company_id, label=label) > 0


def token(connection: DatabaseConnection, digest: str) -> TokenRow | None:
    """Return the token with this digest."""
    found = statements.TOKEN.found(connection, TokenRow, digest=digest)
    return found[0] if found else None
