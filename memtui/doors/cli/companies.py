"""`companies`: whose memory this is. One never sees another's."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memtui.doors.cli.options import Switch, pairs
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, table

_COLUMNS = (Column("id"), Column("name"), Column("access"))


async def list_companies(session: Session) -> None:
    """List the companies of this home that you may enter."""
    own = session.caller.principal, session.caller.acts_for
    companies = await session.service.companies.all(*own)
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
    caller = session.caller.model_copy(update={"company_id": company_id})
    company = await session.service.companies.add(
        caller, name or company_id, link_templates=pairs(link, "--link"), read_only=read_only
    )
    session.out.answer(company, lambda: [company.company_id])


async def set_read_only(
    session: Session,
    company_id: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    switch: Switch,
) -> None:
    """Refuse every change in a company, or allow them again.

    What stays possible in a read-only one: to read it, to seal and fetch its archive, to import
    more of an imported log, and to remove it where an import made it.
    """
    caller = session.caller.model_copy(update={"company_id": company_id})
    company = await session.service.companies.set_read_only(caller, read_only=switch == "on")
    access = "read-only" if company.read_only else "open for changes"
    session.out.answer(company, lambda: [f"{company.company_id} is {access}"])


async def remove_company(
    session: Session,
    company_id: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    confirm: Annotated[
        str | None, typer.Option(metavar="ID", help="The id once more, instead of typing it.")
    ] = None,
) -> None:
    """Remove a company that an import made.

    Its operations go for good, those that are sealed and their copy in the object store too: no
    undo brings them back, but the log can be imported again. Your own company records it.
    """
    from memtui.widgets.format import counted

    await _confirm(session, company_id, confirm)
    gone = await session.service.companies.remove(session.caller, company_id)
    what = counted(gone.operations, "operation")
    session.out.answer(gone, lambda: [f"removed {company_id} with {what}; its log is gone"])


async def _confirm(session: Session, company_id: str, given: str | None) -> None:
    """Have the id typed.

    Raises:
        Invalid: another id was given, or nobody is there to type it.
        Conflict, NotFound: as `MemoryService.companies.content`.
    """
    from memtui.contract import Invalid
    from memtui.visible import visible
    from memtui.widgets.format import counted

    if given is None:
        there = await session.service.companies.content(
            session.caller.model_copy(update={"company_id": company_id})
        )
        if not sys.stdin.isatty():
            raise Invalid(
                f"Nobody can type the id here, so say it once more: "
                f"memtui companies remove {company_id} --confirm {company_id}"
            )
        question = (
            f"This removes {there.name} and {counted(there.operations, 'operation')} for good. "
            f"Type its id, {company_id}, to do it"
        )
        given = str(typer.prompt(visible(question), err=True))
    if given.strip() != company_id:
        raise Invalid(f"{given!r} is not {company_id!r}, so nothing was removed.")
