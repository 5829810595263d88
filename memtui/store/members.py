"""Members and tokens of a company."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from memtui.contract import Conflict
from memtui.store.tables import MemberRow, TokenRow

_MEMBERS = MemberRow.__table__  # type: ignore[attr-defined]
_TOKENS = TokenRow.__table__  # type: ignore[attr-defined]


def members(connection: Connection, company_id: str) -> list[MemberRow]:
    """Return a company's members, by principal and project."""
    rows = connection.execute(
        select(_MEMBERS)
        .where(_MEMBERS.c.company_id == company_id)
        .order_by(_MEMBERS.c.principal, _MEMBERS.c.project_id)
    )
    return [MemberRow(**row._mapping) for row in rows]  # noqa: SLF001 — SQLAlchemy's public name


def roles_of(
    connection: Connection, company_id: str, principal: str | None
) -> list[MemberRow] | None:
    """Return a principal's roles in a company; None where it has no members at all."""
    own = _MEMBERS.c.company_id == company_id
    rows = connection.execute(select(_MEMBERS).where(own, _MEMBERS.c.principal == principal)).all()
    if (
        not rows
        and connection.execute(select(_MEMBERS.c.principal).where(own).limit(1)).first() is None
    ):
        return None
    return [MemberRow(**row._mapping) for row in rows]  # noqa: SLF001


def set_member(connection: Connection, row: MemberRow) -> None:
    """Give a principal a role, in place of the one it had there."""
    remove_member(connection, row.company_id, row.principal, row.project_id)
    connection.execute(insert(_MEMBERS), row.model_dump())


def remove_member(connection: Connection, company_id: str, principal: str, project_id: str) -> bool:
    """Take a role away; returns whether there was one."""
    removed = connection.execute(
        delete(_MEMBERS).where(
            _MEMBERS.c.company_id == company_id,
            _MEMBERS.c.principal == principal,
            _MEMBERS.c.project_id == project_id,
        )
    )
    return removed.rowcount > 0


def tokens(connection: Connection, company_id: str) -> list[TokenRow]:
    """Return a company's tokens, the oldest first."""
    rows = connection.execute(
        select(_TOKENS).where(_TOKENS.c.company_id == company_id).order_by(_TOKENS.c.created_at)
    )
    return [TokenRow(**row._mapping) for row in rows]  # noqa: SLF001


def add_token(connection: Connection, row: TokenRow) -> None:
    """Add a token.

    Raises:
        Conflict: the company has one of this label.
    """
    try:
        connection.execute(insert(_TOKENS), row.model_dump())
    except IntegrityError as error:
        raise Conflict(f"There is already a token {row.label}; choose another label.") from error


def remove_token(connection: Connection, company_id: str, label: str) -> bool:
    """Revoke a token; returns whether there was one."""
    removed = connection.execute(
        delete(_TOKENS).where(_TOKENS.c.company_id == company_id, _TOKENS.c.label == label)
    )
    return removed.rowcount > 0


def token(connection: Connection, digest: str) -> TokenRow | None:
    """Return the token of a digest."""
    row = connection.execute(select(_TOKENS).where(_TOKENS.c.digest == digest)).first()
    return None if row is None else TokenRow(**row._mapping)  # noqa: SLF001
