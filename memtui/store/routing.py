"""Where an operation goes and what its caller is there: all in one statement."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.store.compiled import ROUTE_BY_KEY, ROUTE_BY_TARGET, BindingRow, MemberRow
from memtui.store.connection import Connection

BY_KEY = "key"
_PRECEDENCE = (BY_KEY, "project", "agent", "company", None)
_BINDING, _MEMBER = (tuple(kind.__slots__) for kind in (BindingRow, MemberRow))
_MEMBER_FROM = 3 + len(_BINDING)


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of a company and of one operation in it."""

    read_only: bool
    """The company is."""
    open: bool
    """The company has no members, so that everybody may do everything."""
    held: tuple[MemberRow, ...]
    """The roles of the person who asks, or is acted for."""
    binding: BindingRow | None
    """None where nothing serves the scope, or no binding has the key."""
    chosen_by: str | None
    """`key`, or the type of the target that the binding serves."""


def route(
    connection: Connection,
    company_id: str,
    *,
    key: str | None,
    project_id: str | None,
    agent_id: str | None,
    person: str | None,
) -> Route | None:
    """Return the binding under a key, else of the project, the agent or the company.

    Returns None where there is no such company.
    """
    asked = {"company": company_id, "person": person}
    if key is None:
        rows = ROUTE_BY_TARGET.rows(connection, **asked, project=project_id, agent=agent_id)
    else:
        rows = ROUTE_BY_KEY.rows(connection, **asked, key=key)
    if not rows:
        return None
    read_only, closed, chosen_by, *first = min(rows, key=lambda row: _PRECEDENCE.index(row[2]))
    roles = [row[_MEMBER_FROM:] for row in rows if row[2] == chosen_by]
    return Route(
        read_only=read_only,
        open=not closed,
        held=tuple(
            MemberRow(**dict(zip(_MEMBER, role, strict=True)))
            for role in roles
            if role[0] is not None
        ),
        binding=BindingRow(**dict(zip(_BINDING, first, strict=False))) if first[0] else None,
        chosen_by=chosen_by,
    )
