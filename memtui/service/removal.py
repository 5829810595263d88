"""Removing a company that an import made. Nothing else removes an operation for good."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlmodel import SQLModel

from memtui.contract import Filter, Invalid, Model, NotFound
from memtui.service.answers import Caller
from memtui.service.companies import company
from memtui.service.configuring import configured
from memtui.service.core import Core
from memtui.service.importing import OLDEST, may_configure, refuse_lived_in, was_imported
from memtui.store.database import Database

if TYPE_CHECKING:
    from memtui.service.analysis import Analysis


class CompanyContent(Model):
    """What goes, or went, with a company."""

    company_id: str
    name: str
    operations: int
    """Those that are sealed too."""
    sealed: int


async def content(core: Core, analysis: Analysis, caller: Caller) -> CompanyContent:
    """Return what removing the caller's company would remove.

    Raises:
        Conflict: it has memories or operations of its own.
        Denied: it has members, and the caller is none.
        NotFound: there is none of this id, and nothing is left of one.
    """
    company_id = caller.company_id
    try:
        found = await company(core, caller)
    except NotFound:
        # Its rows go before its files: whoever was killed between the two asks again.
        left = (await analysis.segments(caller)).sealed_through
        oldest = await asyncio.to_thread(core.log.oldest_sealed, company_id, OLDEST)
        if not oldest or not was_imported(oldest):
            raise
        return CompanyContent(company_id=company_id, name=company_id, operations=left, sealed=left)
    await refuse_lived_in(core, company_id, "only one that an import made can be removed")
    page = await asyncio.to_thread(
        lambda: core.log.page(company_id, Filter(), limit=1, before=None, after=None, sight=None)
    )
    sealed = (await analysis.segments(caller)).sealed_through
    return CompanyContent(
        company_id=company_id, name=found.name, operations=page.total, sealed=sealed
    )


async def remove(core: Core, analysis: Analysis, caller: Caller, company_id: str) -> CompanyContent:
    """Remove a company with its log, its archive and the archive's copy. Nothing brings it back.

    It is recorded as a configuration of the caller's own company.

    Raises:
        Denied: memtui is read-only, or the caller may not change one of the companies.
        Conflict: it has memories or operations of its own, or another process seals its log.
        Invalid: it is the caller's own.
        NotFound: there is none of this id.
        Unavailable: the object store with the copy cannot be reached; nothing was removed.
    """
    if company_id == caller.company_id:
        raise Invalid(
            f"{company_id} is the company that you work in, where its removal would be recorded; "
            "say --company with another one."
        )
    async with configured(core, caller, {"remove_company": company_id}) as entry:
        entry.lasting = "A company that was removed is gone; its log can be imported again."
        there = caller.model_copy(update={"company_id": company_id})
        await may_configure(core, there)
        gone = await content(core, analysis, there)
        entry.request = {**entry.request, "operations": gone.operations, "name": gone.name}
        entry.result_count = gone.operations
        await analysis.remove(company_id, partial(_remove_rows, core.database, company_id))
    return gone


def _remove_rows(database: Database, company_id: str) -> None:
    """Remove whatever any table has of a company, in one transaction."""
    with database.write() as connection:
        for table in SQLModel.metadata.sorted_tables:
            if "company_id" in table.c:
                connection.execute(delete(table).where(table.c.company_id == company_id))
