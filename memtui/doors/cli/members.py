"""`members`: who may see, add and delete what."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from memtui.doors.cli.complete import complete_name
from memtui.doors.cli.session import Session, build
from memtui.doors.cli.tables import Column, table

RoleName = Literal["owner", "admin", "member"]
Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="The person, as in the operation log: user:ana.")
]
Project = Annotated[
    str | None,
    typer.Option(
        help="In this project only; left out: in the whole company.",
        autocompletion=complete_name("project"),
    ),
]
_COLUMNS = (Column("principal"), Column("role"), Column("project"), Column("user"))


async def list_members(session: Session) -> None:
    """List the company's members and their roles.

    As long as there is none, everybody who can open the database may do everything.
    """
    members = await session.service.members.all(session.caller)
    session.out.answer(
        {"members": members},
        lambda: table(
            _COLUMNS,
            [[m.principal, m.role, m.project_id or "all", m.subject_id or ""] for m in members],
        ),
    )
    if not members and not session.out.as_json:
        session.out.say("There are no members, so everybody may do everything.")


async def add_member(
    session: Session,
    principal: Principal,
    role: Annotated[RoleName, typer.Option(help="What the person may do.")] = "member",
    *,
    project: Project = None,
    subject: Annotated[
        str | None,
        typer.Option(help="The user whose memories are this person's own; else ana for user:ana."),
    ] = None,
) -> None:
    """Give a person a role.

    It takes the place of the one that the person has there. The first member must be an owner of
    the whole company; from then on roles count.
    """
    from memtui.service import Membership

    member = build(
        Membership, principal=principal, role=role, project_id=project, subject_id=subject
    )
    given = await session.service.members.set(session.caller, member)
    session.out.answer(given, lambda: [principal])


async def remove_member(session: Session, principal: Principal, *, project: Project = None) -> None:
    """Take a person's role away."""
    await session.service.members.remove(session.caller, principal, project)
    session.out.answer({"removed": principal, "project_id": project}, lambda: [principal])
