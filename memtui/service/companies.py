"""Companies: those there are, and adding one."""

from __future__ import annotations

import asyncio

from memtui.contract import NotFound
from memtui.service.answers import Caller, CompanyView
from memtui.service.configuring import check_key, configured, write
from memtui.service.core import Core
from memtui.store import bindings as table
from memtui.store.tables import CompanyRow


async def companies(core: Core) -> list[CompanyView]:
    """Return every company, the oldest first."""

    def read() -> list[CompanyView]:
        with core.database.read() as database:
            return [_view(row) for row in table.companies(database)]

    return await asyncio.to_thread(read)


async def company(core: Core, company_id: str) -> CompanyView:
    """Return one company.

    Raises:
        NotFound: there is none of this id.
    """
    return _view(await find(core, company_id))


async def find(core: Core, company_id: str) -> CompanyRow:
    """Return the row of a company; raises `NotFound`."""

    def read() -> CompanyRow:
        with core.database.read() as database:
            row = table.company(database, company_id)
            if row is None:
                known = ", ".join(found.company_id for found in table.companies(database))
                raise NotFound(f"There is no company {company_id}; there are: {known or 'none'}.")
            return row

    return await asyncio.to_thread(read)


async def add_company(
    core: Core, caller: Caller, name: str, *, link_templates: dict[str, str], read_only: bool
) -> CompanyView:
    """Add the company that the caller names as its own.

    Raises:
        Invalid: the id is no slug.
        Conflict: there is one of this id.
    """
    row = new_company(
        core, caller.company_id, name, link_templates=link_templates, read_only=read_only
    )
    async with configured(core, caller, {"add_company": caller.company_id}) as entry:
        entry.lasting = "A company stays once it was added; only what is in it changes."
        await write(core, entry, lambda database: table.add_company(database, row))
    return _view(row)


def new_company(
    core: Core,
    company_id: str,
    name: str,
    *,
    link_templates: dict[str, str],
    read_only: bool,
) -> CompanyRow:
    """Return the row of a company that is to be added.

    Raises:
        Invalid: the id is no slug.
    """
    return CompanyRow(
        company_id=check_key(company_id, "company id"),
        name=name,
        read_only=read_only,
        link_templates=link_templates,
        created_at=core.clock(),
    )


def _view(row: CompanyRow) -> CompanyView:
    return CompanyView(
        company_id=row.company_id,
        name=row.name,
        read_only=row.read_only,
        link_templates=row.link_templates,
    )
