"""Companies: list them, add them, change their settings, and remove imported ones.

Removing such a company is the only way to remove an operation for good.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from memtui.contract import (
    EVERYTHING,
    Denied,
    Filter,
    Invalid,
    Model,
    NotFound,
    OperationType,
    SourceKind,
    SourceRef,
)
from memtui.service.answers import LINK_PLACE, CompanyView
from memtui.service.history.analysis import Analysis
from memtui.service.home.imports import OLDEST, refuse_lived_in, was_imported
from memtui.service.operations.redaction import redact
from memtui.service.runtime import (
    ServiceModule,
    ServiceRuntime,
    check_key,
    find_company,
    to_its_end,
)
from memtui.service.visibility import Caller
from memtui.store import bindings
from memtui.store.database import Database, DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.rows import CompanyRow
from memtui.threads import in_thread

_LONGEST_NAME = 200
_LONGEST_LINK = 2_000
_LINK_SCHEMES = frozenset({"http", "https", "file"})
LINK_PLACES = tuple(name for name in SourceRef.model_fields if name != "kind")
"""The placeholders of a link template: the fields of a source reference."""


class CompanyContent(Model):
    """The contents of a company that its removal deletes or deleted."""

    company_id: str
    name: str
    operations: int
    """Number of operations, the sealed ones included."""
    sealed: int


class Companies(ServiceModule):
    """The companies of one control plane."""

    @in_thread
    def all(self, principal: str | None = None, acts_for: str | None = None) -> list[CompanyView]:
        """Return the companies that a principal may enter, the oldest first; None: all.

        All are for a channel to find the requested one, not for display.
        """

        def may_enter(row: CompanyRow) -> bool:
            caller = Caller(
                company_id=row.company_id, principal=principal or "", acts_for=acts_for, channel=""
            )
            try:
                self._runtime.visibility(caller)
            except Denied:
                return False
            return True

        with self._runtime.database.read() as database:
            rows = bindings.companies(database)
        return [CompanyView.like(row) for row in rows if principal is None or may_enter(row)]

    @in_thread
    def get(self, caller: Caller) -> CompanyView:
        """Return the caller's company.

        Raises:
            Denied: the company has members, and the caller is not one.
            NotFound: no company has this id.
        """
        with self._runtime.database.read() as database:
            row = find_company(database, caller.company_id)
        self._runtime.visibility(caller)
        return CompanyView.like(row)

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
            Invalid: the id is not a slug, or the name or a link template does not fit.
            Conflict: a company with this id exists.
        """
        row = CompanyRow(
            company_id=check_key(caller.company_id, "company id"),
            name=_checked_name(name),
            read_only=read_only,
            link_templates=_changed_links({}, link_templates or {}),
            created_at=self._runtime.clock(),
        )
        await self._runtime.change(
            caller,
            SettingDetails(add_company=caller.company_id),
            lambda database: bindings.add_company(database, row),
            irreversible="An added company cannot be removed; only its content can be changed.",
        )
        return CompanyView.like(row)

    async def backed_up(self, caller: Caller, file: str) -> None:
        """Log that a backup of the home was made, since it contains all data of the company."""
        async with self._runtime.configured(caller, SettingDetails(backup=file), in_read_only=True):
            pass

    async def update(
        self,
        caller: Caller,
        *,
        name: str | None = None,
        link_templates: Mapping[str, str] | None = None,
        second_yes: bool | None = None,
    ) -> CompanyView:
        """Change the caller's company; arguments that are None change nothing.

        Args:
            caller: Who changes it.
            name: The display name.
            link_templates: By source kind; an empty one removes the kind's template, and kinds not
                named keep theirs.
            second_yes: Whether changes of bindings, targets and members wait until a second person
                agrees, as turning this off does too.

        Raises:
            Denied: the caller may not change the settings, or the company is read-only.
            Invalid: the name or a template does not fit, nothing is to be changed, or there is no
                second person.
            NotFound: there is no such company.
        """
        if name is None and not link_templates and second_yes is None:
            raise Invalid("Nothing to change; give a name, a link template or --second-yes.")
        company_id, links = caller.company_id, link_templates or {}
        new_name = None if name is None else _checked_name(name)
        asked = SettingDetails(update_company=company_id, name=new_name, links=sorted(links))
        if second_yes is not None:
            asked["second_yes"] = second_yes

        def change(database: DatabaseConnection) -> CompanyRow:
            row = find_company(database, company_id)
            changed = replace(
                row,
                name=row.name if new_name is None else new_name,
                link_templates=_changed_links(row.link_templates, links),
                second_yes=row.second_yes if second_yes is None else second_yes,
            )
            values = {
                "name": changed.name,
                "link_templates": changed.link_templates,
                "second_yes": changed.second_yes,
            }
            bindings.update_company(database, company_id, values)
            return changed

        return CompanyView.like(await self._runtime.change(caller, asked, change))

    @to_its_end
    async def set_read_only(self, caller: Caller, *, read_only: bool) -> CompanyView:
        """Refuse every change in the caller's company, or allow them again.

        Raises:
            Denied: the caller may not change the settings, or a repair left the company read-only
                until it has an owner.
            NotFound: there is no such company.
        """
        runtime, company_id = self._runtime, caller.company_id
        asked = SettingDetails(set_read_only=read_only)
        async with runtime.configured(caller, asked, in_read_only=True) as entry:
            if await asyncio.to_thread(awaits_owner, runtime, company_id):
                raise Denied(
                    "A repair closed this company; give it an owner with `memtui companies members "
                    "add`."
                )
            change = {"read_only": read_only}
            await runtime.configure(
                entry, lambda database: bindings.update_company(database, company_id, change)
            )
        return CompanyView.like(await runtime.ask(find_company, company_id))

    async def content(self, caller: Caller) -> CompanyContent:
        """Return the contents that removing the caller's company would delete.

        Raises:
            Conflict: the company has memories or operations of its own.
            Denied: it has members, and the caller is not one.
            NotFound: no company has this id, and no archive of one is left.
        """
        runtime, company_id = self._runtime, caller.company_id
        try:
            found = await self.get(caller)
        except NotFound:
            # A removal deletes rows before files; if it was killed in between, files are left.
            left = (await self._runtime.module(Analysis).segments(caller)).sealed_through
            oldest = await asyncio.to_thread(runtime.log(company_id).oldest_sealed, OLDEST)
            if not oldest or not was_imported(oldest):
                raise
            return CompanyContent(
                company_id=company_id, name=company_id, operations=left, sealed=left
            )
        await refuse_lived_in(runtime, company_id, "only one that an import made can be removed")
        page = await asyncio.to_thread(runtime.log(company_id).page, EVERYTHING, limit=1)
        sealed = (await self._runtime.module(Analysis).segments(caller)).sealed_through
        return CompanyContent(
            company_id=company_id, name=found.name, operations=page.total, sealed=sealed
        )

    @to_its_end
    async def remove(self, caller: Caller, company_id: str) -> CompanyContent:
        """Remove a company that an import made, with its log and archive. Irreversible.

        It is recorded as a configuration of the caller's own company.

        Raises:
            Denied: memtui is read-only, or the caller may not change one of the companies.
            Conflict: it has memories or operations of its own, or another process seals its log.
            Invalid: it is the caller's own company.
            NotFound: no company has this id.
            Unavailable: the object store with the copy cannot be reached; nothing was removed.
        """
        runtime = self._runtime
        if company_id == caller.company_id:
            raise Invalid(
                f"{company_id} is the company that you work in, where its removal would be "
                "recorded; say --company with another one."
            )
        async with runtime.configured(caller, SettingDetails(remove_company=company_id)) as entry:
            entry.irreversible = (
                "A company that was removed is gone; its log can be imported again."
            )
            there = caller.model_copy(update={"company_id": company_id})
            await runtime.may_configure(there)
            row = await runtime.ask(bindings.company, company_id)  # gone where a removal was killed
            if row is not None and row.second_yes:
                raise Denied(
                    f"A second person has to agree to changes of {company_id}; turn that off with "
                    f"`memtui companies configure {company_id} --second-yes off` first."
                )
            gone = await self.content(there)
            entry.request["operations"], entry.request["name"] = gone.operations, gone.name
            entry.result_count = gone.operations
            await self._runtime.module(Analysis).remove(
                company_id, partial(_remove_rows, runtime.database, company_id)
            )
        return gone


def _checked_name(name: str) -> str:
    """Return a company's name. Raises `Invalid` if it cannot be shown on one line."""
    name = name.strip()
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise Invalid(f"A company's name is 1 to {_LONGEST_NAME} printable characters.")
    return name


def _changed_links(links: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return link templates with changes; an empty one is removed. Raises `Invalid`."""
    for kind, template in changes.items():
        if problem := link_problem(kind, template):
            raise Invalid(f"The link template of {kind} does not fit: {problem}")
    return {kind: one.strip() for kind, one in {**links, **changes}.items() if one.strip()}


def link_problem(kind: str, template: str) -> str:
    """Return the error in the link template of a source kind, as a sentence; empty: none."""
    unknown = sorted(set(LINK_PLACE.findall(template)) - set(LINK_PLACES))
    offered = ", ".join(f"{{{name}}}" for name in LINK_PLACES)
    scheme, has_scheme, _ = template.strip().partition("://")
    problems = {
        f"there is no such kind of source; the kinds are {', '.join(SourceKind)}.": (
            kind not in set(SourceKind)
        ),
        f"it is at most {_LONGEST_LINK:,} printable characters.": (
            not template.isprintable() or len(template) > _LONGEST_LINK
        ),
        f"{{{''.join(unknown[:1])}}} is not part of a source; use one of {offered}.": bool(unknown),
        "a brace is not closed or not opened; write a part of the source as {issue_id}.": (
            not {"{", "}"}.isdisjoint(LINK_PLACE.sub("", template))
        ),
        "it opens only as https://, http:// or file://, or as the path of a file.": (
            bool(has_scheme) and scheme not in _LINK_SCHEMES
        ),
        "it holds a secret; leave the secret out.": bool(redact(template)[1]),
    }
    return next((sentence for sentence, holds in problems.items() if holds), "")


def awaits_owner(runtime: ServiceRuntime, company_id: str) -> bool:
    """Whether a repair left a company read-only until it has an owner again. Blocking."""
    with runtime.database.read() as database:
        if not find_company(database, company_id).read_only:
            return False
        if bindings.members(database, company_id):
            return False
    repairs = Filter(operation_type=OperationType.REPAIR)
    return runtime.log(company_id).page(repairs, limit=1).total > 0


def _remove_rows(database: Database, company_id: str) -> None:
    """Delete the rows of a company from every table, in one transaction."""
    from sqlalchemy import delete
    from sqlmodel import SQLModel

    with database.write() as connection:
        if database.notes is not None:
            database.notes.forget(company_id)  # first: a missing note is safe, a stale one is wrong
        for table in SQLModel.metadata.sorted_tables:
            if "company_id" in table.c:
                connection.execute(delete(table).where(table.c.company_id == company_id))
