"""Companies: those there are, and adding one."""

from __future__ import annotations

import asyncio

from memtui.contract import Denied, NotFound
from memtui.service.answers import Caller, CompanyView
from memtui.service.configuring import check_key, configured, write
from memtui.service.core import Core
from memtui.store import bindings as table
from memtui.store.tables import CompanyRow


async def companies(core: Core, principal: str | None, acts_for: str | None) -> list[CompanyView]:
    """Return the companies that a principal may enter, the oldest first; None: all there are."""

    def read() -> list[CompanyView]:
        with core.database.read() as database:
            rows = table.companies(database)
        return [_view(row) for row in rows if principal is None or may_enter(row)]

    def may_enter(row: CompanyRow) -> bool:
        caller = Caller(
            company_id=row.company_id, principal=principal or "", acts_for=acts_for, door=""
        )
        try:
            core.sight(caller)
        except Denied:
            return False
        return True

    return await asyncio.to_thread(read)


async def company(core: Core, caller: Caller) -> CompanyView:
    """Return the caller's company.

    Raises:
        Denied: it has members, and the caller is none.
        NotFound: there is none of this id.
    """
    row = await find(core, caller.company_id)
    await asyncio.to_thread(core.sight, caller)
    return _view(row)


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


async def set_read_only(core: Core, caller: Caller, *, read_only: bool) -> CompanyView:
    """Refuse every change in the caller's company, or allow them again.

    Raises:
        Denied: the caller may not change the settings, or a repair left the company read-only
            until it has an owner.
        NotFound: there is no such company.
    """
    from memtui.service import membership

    asked = {"set_read_only": read_only}
    async with configured(core, caller, asked, in_read_only=True) as entry:
        await find(core, caller.company_id)
        known = await membership.members(core, caller)
        if not known and await membership.awaits_owner(core, caller.company_id):
            raise Denied("A repair closed this company; give it an owner with memtui members add.")
        await write(
            core,
            entry,
            lambda database: table.set_read_only(database, caller.company_id, read_only=read_only),
        )
    return _view(await find(core, caller.company_id))


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
