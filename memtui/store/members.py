"""Members and tokens of a company."""

from __future__ import annotations

from dataclasses import asdict

from memtui.contract import Conflict
from memtui.store import compiled
from memtui.store.compiled import MemberRow, TokenRow
from memtui.store.connection import Connection, Taken


def members(connection: Connection, company_id: str) -> list[MemberRow]:
    """Return a company's members, by principal and project."""
    return compiled.MEMBERS.found(connection, MemberRow, company_id=company_id)


def roles_of(
    connection: Connection, company_id: str, principal: str | None
) -> list[MemberRow] | None:
    """Return a principal's roles in a company; None where it has no members at all."""
    own = {"company_id": company_id}
    roles = compiled.ROLES.found(connection, MemberRow, **own, principal=principal)
    if not roles and not compiled.ANY_MEMBER.rows(connection, **own):
        return None
    return roles


def set_member(connection: Connection, row: MemberRow) -> None:
    """Give a principal a role, in place of the one it had there."""
    remove_member(connection, row.company_id, row.principal, row.project_id)
    compiled.ADD_MEMBER.run(connection, **asdict(row))


def remove_member(connection: Connection, company_id: str, principal: str, project_id: str) -> bool:
    """Take a role away; returns whether there was one."""
    place = {"company_id": company_id, "principal": principal, "project_id": project_id}
    return compiled.REMOVE_MEMBER.run(connection, **place) > 0


def tokens(connection: Connection, company_id: str) -> list[TokenRow]:
    """Return a company's tokens, the oldest first."""
    return compiled.TOKENS.found(connection, TokenRow, company_id=company_id)


def add_token(connection: Connection, row: TokenRow) -> None:
    """Add a token.

    Raises:
        Conflict: the company has one of this label.
    """
    try:
        compiled.ADD_TOKEN.run(connection, **asdict(row))
    except Taken as error:
        raise Conflict(f"There is already a token {row.label}; choose another label.") from error


def remove_token(connection: Connection, company_id: str, label: str) -> bool:
    """Revoke a token; returns whether there was one."""
    return compiled.REMOVE_TOKEN.run(connection, company_id=company_id, label=label) > 0


def token(connection: Connection, digest: str) -> TokenRow | None:
    """Return the token of a digest."""
    found = compiled.TOKEN.found(connection, TokenRow, digest=digest)
    return found[0] if found else None
