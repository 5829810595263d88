"""`companies`: whose memory this is. One never sees another's."""

from __future__ import annotations

from typing import Annotated

import typer

from memtui.doors.cli.options import pairs
from memtui.doors.cli.session import DOOR, Session, build
from memtui.doors.cli.tables import Column, table

_COLUMNS = (Column("id"), Column("name"), Column("access"))


async def list_companies(session: Session) -> None:
    """List the companies of this home."""
    companies = await session.service.companies()
    session.out.answer(
        {"companies": companies},
        lambda: table(
            _COLUMNS,
            [
                [company.company_id, company.name, "read-only" if company.read_only else ""]
                for company in companies
            ],
        ),
    )


async def add_company(
    session: Session,
    company_id: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, which scopes name it by.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Its name for people; the id where it is left out.")
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=URL", help="How a source opens; {issue_id} … stand for its parts."
        ),
    ] = None,
    *,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every change in it.")
    ] = False,
) -> None:
    """Add a company."""
    from memtui.service import Caller

    caller = build(Caller, company_id=company_id, principal=session.caller.principal, door=DOOR)
    company = await session.service.add_company(
        caller, name or company_id, link_templates=pairs(link, "--link"), read_only=read_only
    )
    session.out.answer(company, lambda: [company.company_id])
