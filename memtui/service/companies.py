"""Companies: those there are, adding one, and removing one that an import made."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlmodel import SQLModel

from memtui.contract import Denied, Filter, Invalid, Model, NotFound, OperationType
from memtui.service.answers import Caller, CompanyView
from memtui.service.core import (
    Core,
    Group,
    check_key,
    find_company,
    in_thread,
    to_its_end,
)
from memtui.service.importing import OLDEST, refuse_lived_in, was_imported
from memtui.store import bindings as table
from memtui.store import members
from memtui.store.compiled import CompanyRow
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


class Companies(Group):
    """The companies of one control plane."""

    def __init__(self, core: Core, analysis: Analysis) -> None:
        super().__init__(core)
        self._analysis = analysis

    @in_thread
    def all(self, principal: str | None = None, acts_for: str | None = None) -> list[CompanyView]:
        """Return the companies that a principal may enter, the oldest first; None: all there are.

        All are for a door to find the one that was asked for, not to be shown.
        """

        def may_enter(row: CompanyRow) -> bool:
            caller = Caller(
                company_id=row.company_id, principal=principal or "", acts_for=acts_for, door=""
            )
            try:
                self._core.sight(caller)
            except Denied:
                return False
            return True

        with self._core.database.read() as database:
            rows = table.companies(database)
        return [_view(row) for row in rows if principal is None or may_enter(row)]

    @in_thread
    def get(self, caller: Caller) -> CompanyView:
        """Return the caller's company.

        Raises:
            Denied: it has members, and the caller is none.
            NotFound: there is none of this id.
        """
        row = find_company(self._core.database, caller.company_id)
        self._core.sight(caller)
        return _view(row)

    @to_its_end
    async def add(
        self,
        caller: Caller,
        name: str,
        *,
        link_templates: dict[str, str] | None = None,
        read_only: bool = False,
    ) -> CompanyView:
        """Add the company that `caller.company_id` names.

        Raises:
            Invalid: the id is no slug.
            Conflict: there is one of this id.
        """
        row = CompanyRow(
            company_id=check_key(caller.company_id, "company id"),
            name=name,
            read_only=read_only,
            link_templates=link_templates or {},
            created_at=self._core.clock(),
        )
        async with self._core.configured(caller, {"add_company": caller.company_id}) as entry:
            entry.lasting = "A company stays once it was added; only what is in it changes."
            await self._core.configure(entry, lambda database: table.add_company(database, row))
        return _view(row)

    @to_its_end
    async def set_read_only(self, caller: Caller, *, read_only: bool) -> CompanyView:
        """Refuse every change in the caller's company, or allow them again.

        Raises:
            Denied: the caller may not change the settings, or a repair left the company read-only
                until it has an owner.
            NotFound: there is no such company.
        """
        core, company_id = self._core, caller.company_id
        asked = {"set_read_only": read_only}
        async with core.configured(caller, asked, in_read_only=True) as entry:
            if await asyncio.to_thread(awaits_owner, core, company_id):
                raise Denied(
                    "A repair closed this company; give it an owner with memtui members add."
                )
            await core.configure(
                entry,
                lambda database: table.set_read_only(database, company_id, read_only=read_only),
            )
        return _view(await asyncio.to_thread(find_company, core.database, company_id))

    async def content(self, caller: Caller) -> CompanyContent:
        """Return what removing the caller's company would remove.

        Raises:
            Conflict: it has memories or operations of its own.
            Denied: it has members, and the caller is none.
            NotFound: there is none of this id, and nothing is left of one.
        """
        core, company_id = self._core, caller.company_id
        try:
            found = await self.get(caller)
        except NotFound:
            # Its rows go before its files: whoever was killed between the two asks again.
            left = (await self._analysis.segments(caller)).sealed_through
            oldest = await asyncio.to_thread(core.log.oldest_sealed, company_id, OLDEST)
            if not oldest or not was_imported(oldest):
                raise
            return CompanyContent(
                company_id=company_id, name=company_id, operations=left, sealed=left
            )
        await refuse_lived_in(core, company_id, "only one that an import made can be removed")
        page = await asyncio.to_thread(core.log.page, company_id, Filter(), limit=1)
        sealed = (await self._analysis.segments(caller)).sealed_through
        return CompanyContent(
            company_id=company_id, name=found.name, operations=page.total, sealed=sealed
        )

    @to_its_end
    async def remove(self, caller: Caller, company_id: str) -> CompanyContent:
        """Remove a company that an import made, with its log and archive. Nothing brings it back.

        It is recorded as a configuration of the caller's own company.

        Raises:
            Denied: memtui is read-only, or the caller may not change one of the companies.
            Conflict: it has memories or operations of its own, or another process seals its log.
            Invalid: it is the caller's own.
            NotFound: there is none of this id.
            Unavailable: the object store with the copy cannot be reached; nothing was removed.
        """
        core = self._core
        if company_id == caller.company_id:
            raise Invalid(
                f"{company_id} is the company that you work in, where its removal would be "
                "recorded; say --company with another one."
            )
        async with core.configured(caller, {"remove_company": company_id}) as entry:
            entry.lasting = "A company that was removed is gone; its log can be imported again."
            there = caller.model_copy(update={"company_id": company_id})
            await core.may_configure(there)
            gone = await self.content(there)
            entry.request = {**entry.request, "operations": gone.operations, "name": gone.name}
            entry.result_count = gone.operations
            await self._analysis.remove(
                company_id, partial(_remove_rows, core.database, company_id)
            )
        return gone


def awaits_owner(core: Core, company_id: str) -> bool:
    """Whether a repair left a company read-only until it has an owner again. Blocking."""
    if not find_company(core.database, company_id).read_only:
        return False
    with core.database.read() as database:
        if members.members(database, company_id):
            return False
    repairs = Filter(operation_type=OperationType.REPAIR)
    return core.log.page(company_id, repairs, limit=1).total > 0


def _view(row: CompanyRow) -> CompanyView:
    return CompanyView(
        company_id=row.company_id,
        name=row.name,
        read_only=row.read_only,
        link_templates=row.link_templates,
    )


def _remove_rows(database: Database, company_id: str) -> None:
    """Remove whatever any table has of a company, in one transaction."""
    with database.write() as connection:
        for table in SQLModel.metadata.sorted_tables:
            if "company_id" in table.c:
                connection.execute(delete(table).where(table.c.company_id == company_id))
