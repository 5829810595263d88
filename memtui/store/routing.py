"""Where an operation goes and what its caller is there: all in one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, literal, or_, select

from memtui.store.prepared import Prepared
from memtui.store.tables import BindingRow, CompanyRow, MemberRow, TargetRow

_COMPANIES = CompanyRow.__table__  # type: ignore[attr-defined]
_BINDINGS = BindingRow.__table__  # type: ignore[attr-defined]
_TARGETS = TargetRow.__table__  # type: ignore[attr-defined]
_MEMBERS = MemberRow.__table__  # type: ignore[attr-defined]

BY_KEY = "key"
_PRECEDENCE = (BY_KEY, "project", "agent", "company", None)


def _statement(chosen_by: Any, bindings: Any, on: ColumnElement[bool]) -> Prepared:
    """A row for each binding that may serve and each role of the person; one at least."""
    company, own = _COMPANIES.c.company_id, _MEMBERS.c.company_id == _COMPANIES.c.company_id
    is_persons = and_(own, _MEMBERS.c.principal == bindparam("person"))
    return Prepared(
        select(
            _COMPANIES.c.read_only,
            exists().where(own).correlate(_COMPANIES).label("closed"),
            chosen_by,
            *_BINDINGS.c,
            *_MEMBERS.c,
        )
        .select_from(_COMPANIES.outerjoin(bindings, on).outerjoin(_MEMBERS, is_persons))
        .where(company == bindparam("company"))
    )


_BY_KEY = _statement(
    literal(BY_KEY),
    _BINDINGS,
    and_(
        _BINDINGS.c.company_id == _COMPANIES.c.company_id,
        _BINDINGS.c.key == bindparam("key"),
    ),
)
_BY_TARGET = _statement(
    _TARGETS.c.target_type,
    _TARGETS.join(_BINDINGS, _BINDINGS.c.binding_id == _TARGETS.c.binding_id),
    and_(
        _TARGETS.c.company_id == _COMPANIES.c.company_id,
        or_(
            *(
                and_(_TARGETS.c.target_type == kind, _TARGETS.c.target_id == bindparam(kind))
                for kind in ("project", "agent", "company")
            )
        ),
    ),
)
_MEMBER_FROM = 3 + len(_BINDINGS.c)


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
        rows = _BY_TARGET.rows(connection, {**asked, "project": project_id, "agent": agent_id})
    else:
        rows = _BY_KEY.rows(connection, {**asked, "key": key})
    if not rows:
        return None
    read_only, closed, chosen_by, *first = min(rows, key=lambda row: _PRECEDENCE.index(row[2]))
    binding = dict(zip(_BINDINGS.c.keys(), first, strict=False))
    roles = [row[_MEMBER_FROM:] for row in rows if row[2] == chosen_by]
    return Route(
        read_only=read_only,
        open=not closed,
        held=tuple(
            MemberRow(**dict(zip(_MEMBERS.c.keys(), role, strict=True)))
            for role in roles
            if role[0] is not None
        ),
        # It is only read, and being made fit for a session would take as long as the statement.
        binding=BindingRow.model_construct(**binding) if binding["binding_id"] else None,
        chosen_by=chosen_by,
    )
