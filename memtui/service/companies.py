"""Companies: those there are, adding one, importing another system's log as one, and removing that.

Nothing but removing such a company removes an operation for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from memtui.contract import (
    EVERYTHING,
    Conflict,
    Denied,
    Filter,
    Invalid,
    Json,
    Model,
    NotFound,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
)
from memtui.service.answers import LINK_PLACE, CompanyView
from memtui.service.core import (
    Core,
    Group,
    check_key,
    find_company,
    in_thread,
    to_its_end,
)
from memtui.service.recorder import RunningOperation
from memtui.service.redaction import may_hold_secret, redact, redact_json
from memtui.service.visibility import Caller
from memtui.store import appending, bindings
from memtui.store.compiled import CompanyRow
from memtui.store.database import Connection, Database
from memtui.store.digest import CONTROL
from memtui.store.operation import TITLES, Operation, OperationDraft

IMPORTED = "imported"
"""The member of an operation's request that says where it was imported from."""

_BATCH = 2_000
_NAMES = (
    "binding_key",
    "provider_key",
    "principal",
    "door",
    "error_kind",
    "undoes",
    *TITLES,
)
_texts = attrgetter(
    "operation_id",
    "request",
    "error_message",
    *_NAMES,
    *(f"scope.{name}" for name in Scope.model_fields if name != "company_id"),
)
_TEXTS = {"operation_id", "request", "error_message", "scope", "source", *_NAMES}
_LONGEST_NAME = 200
_LONGEST_LINK = 2_000
_LINK_SCHEMES = frozenset({"http", "https", "file"})
LINK_PLACES = tuple(name for name in SourceRef.model_fields if name != "kind")
"""What may stand in braces in a link template: the parts of a source reference."""
OLDEST = 100
"""Operations that are looked at to tell an imported log."""


class ForeignOperation(NamedTuple):
    """An operation of another system, under the id that it had there if that can be kept."""

    draft: OperationDraft
    own_id: str
    """The same at every import, and its id if another operation here has the one of the draft."""


class ImportCount(Model):
    """What became of the operations that were given."""

    company_id: str
    created: bool
    """Whether the company is new."""
    added: int
    known: int
    """Those that an earlier import has added."""


async def refuse_lived_in(core: Core, company_id: str, rule: str) -> None:
    """Raise `Conflict`, with the rule, if the company is more than an imported log."""
    if not await asyncio.to_thread(_takes_imports, core, company_id):
        raise Conflict(f"The company {company_id} has memories or operations of its own; {rule}.")


def _takes_imports(core: Core, company_id: str) -> bool:
    """Whether it was made by an import, or nothing has happened in it but its configuration."""
    with core.database.read() as connection:
        if bindings.bindings(connection, company_id):
            return False
    page = core.log(company_id).page(EVERYTHING, limit=OLDEST, after=0)
    return was_imported(page.operations)


def was_imported(oldest: Sequence[Operation]) -> bool:
    """Whether a log that begins with these operations, newest first, is nothing but imported."""
    for operation in reversed(oldest):
        if IMPORTED in operation.request:
            return True
        if operation.operation_type not in {OperationType.CONFIGURE, *CONTROL}:
            return False
    return True


def _is_known(one: ForeignOperation, begun: Mapping[str, datetime]) -> bool:
    """Whether it is there, under either id; the other system may use one for several of its own."""
    return one.own_id in begun or begun.get(one.draft.operation_id) == one.draft.started_at


def _named(taken: set[str], fresh: Sequence[ForeignOperation]) -> list[OperationDraft]:
    """Give each operation the other system's id, where that can be kept and nobody has it."""
    named: list[OperationDraft] = []
    for draft, own_id in fresh:
        free = draft.operation_id not in taken
        named.append(draft if free else draft.model_copy(update={"operation_id": own_id}))
        taken.add(draft.operation_id)
    return named


def _clean(draft: OperationDraft, own_id: str) -> OperationDraft:
    """Take the secrets out of whatever text another system has logged."""
    parts = (draft.source and vars(draft.source), [usage.details for usage in draft.usage])
    if not may_hold_secret(repr((_texts(draft), parts))):
        return draft
    texts = draft.model_dump(mode="json", include=_TEXTS, exclude={"scope": {"company_id"}})
    clean, labels = redact_json(texts)
    details = [redact_json(usage.details) for usage in draft.usage]
    if not labels and not any(found for _, found in details):
        return draft
    if clean["operation_id"] != draft.operation_id:
        clean["operation_id"] = own_id
    clean["scope"]["company_id"] = draft.scope.company_id
    clean["usage"] = [
        usage.model_copy(update={"details": kept})
        for usage, (kept, _) in zip(draft.usage, details, strict=True)
    ]
    return OperationDraft.model_validate({**dict(draft), **clean})


class CompanyContent(Model):
    """What goes, or went, with a company."""

    company_id: str
    name: str
    operations: int
    """Those that are sealed too."""
    sealed: int


class Companies(Group):
    """The companies of one control plane."""

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
            rows = bindings.companies(database)
        return [CompanyView.like(row) for row in rows if principal is None or may_enter(row)]

    @in_thread
    def get(self, caller: Caller) -> CompanyView:
        """Return the caller's company.

        Raises:
            Denied: it has members, and the caller is none.
            NotFound: there is none of this id.
        """
        with self._core.database.read() as database:
            row = find_company(database, caller.company_id)
        self._core.sight(caller)
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
            Conflict: there is one of this id.
        """
        row = CompanyRow(
            company_id=check_key(caller.company_id, "company id"),
            name=_checked_name(name),
            read_only=read_only,
            link_templates=_changed_links({}, link_templates or {}),
            created_at=self._core.clock(),
        )
        await self._core.change(
            caller,
            {"add_company": caller.company_id},
            lambda database: bindings.add_company(database, row),
            lasting="A company stays once it was added; only what is in it changes.",
        )
        return CompanyView.like(row)

    async def update(
        self,
        caller: Caller,
        *,
        name: str | None = None,
        link_templates: Mapping[str, str] | None = None,
    ) -> CompanyView:
        """Change the caller's company: its name for people, and how its sources open.

        `link_templates` has a template by source kind; an empty one takes the kind's away, and a
        kind that is not named keeps its own.

        Raises:
            Denied: the caller may not change the settings, or the company is read-only.
            Invalid: the name or a template does not fit, or nothing is to be changed.
            NotFound: there is no such company.
        """
        if name is None and not link_templates:
            raise Invalid("Nothing to change; give a name or a link template.")
        company_id, links = caller.company_id, link_templates or {}
        new_name = None if name is None else _checked_name(name)
        asked = {"update_company": company_id, "name": new_name, "links": sorted(links)}

        def change(database: Connection) -> CompanyRow:
            row = find_company(database, company_id)
            changed = replace(
                row,
                name=row.name if new_name is None else new_name,
                link_templates=_changed_links(row.link_templates, links),
            )
            values = {"name": changed.name, "link_templates": changed.link_templates}
            bindings.update_company(database, company_id, values)
            return changed

        return CompanyView.like(await self._core.change(caller, asked, change))

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
                lambda database: bindings.set_read_only(database, company_id, read_only=read_only),
            )
        return CompanyView.like(await core.ask(find_company, company_id))

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
            left = (await self._service.analysis.segments(caller)).sealed_through
            oldest = await asyncio.to_thread(core.log(company_id).oldest_sealed, OLDEST)
            if not oldest or not was_imported(oldest):
                raise
            return CompanyContent(
                company_id=company_id, name=company_id, operations=left, sealed=left
            )
        await refuse_lived_in(core, company_id, "only one that an import made can be removed")
        page = await asyncio.to_thread(core.log(company_id).page, EVERYTHING, limit=1)
        sealed = (await self._service.analysis.segments(caller)).sealed_through
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
            await self._service.analysis.remove(
                company_id, partial(_remove_rows, core.database, company_id)
            )
        return gone

    async def import_log(
        self,
        caller: Caller,
        company_id: str,
        operations: Iterable[ForeignOperation],
        *,
        name: str,
        asked: Json,
        dry_run: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> ImportCount:
        """Append the operations, in the order given, that the company's log does not have yet.

        Several thousand at a time are one transaction: what was added before it is stopped stays,
        and the next import goes on from there. A company that does not exist is created read-only.
        It is recorded as a configuration of the caller's own company; a dry run is not, and writes
        nothing.

        Args:
            caller: Who imports.
            company_id: Whose log the operations become; never the caller's own.
            operations: All of this company, by the moment they began at; those of one
                `operation_id` are one operation and of one moment.
            name: The name of a company that is new.
            asked: What the record of it says, such as the file.
            dry_run: Only count.
            report: Is told how many were gone through.

        Raises:
            Denied: memtui is read-only, or the caller may not change one of the companies.
            Conflict: the company has operations of its own.
            Invalid: the company is the caller's own, or its id is not a slug.
        """
        if company_id == caller.company_id:
            raise Invalid("A log is imported into a company of its own; name another than yours.")
        if dry_run:
            exists = await self._check_target(caller, company_id)
            return await self._import(company_id, operations, None, report, created=not exists)
        asked = {"import_into": company_id, **asked}
        async with self._core.configured(caller, asked) as entry:
            entry.lasting = f"`memtui companies remove {company_id}` removes what was imported."
            exists = await self._check_target(caller, company_id)
            if not exists:
                row = CompanyRow(
                    company_id=check_key(company_id, "company id"),
                    name=name,
                    read_only=True,
                    link_templates={},
                    created_at=self._core.clock(),
                )

                def add() -> None:
                    with self._core.database.write() as database:
                        bindings.add_company(database, row)

                await asyncio.to_thread(add)
            done = await self._import(company_id, operations, entry, report, created=not exists)
            entry.request = {**asked, "added": done.added, "known": done.known}
        return done

    async def _check_target(self, caller: Caller, company_id: str) -> bool:
        """Tell whether the company exists, and refuse one that is not an imported log."""
        try:
            await self._core.ask(find_company, company_id)
        except NotFound:
            if await asyncio.to_thread(self._core.log(company_id).oldest_sealed, 1):
                raise Conflict(
                    f"Sealed operations of a company {company_id} that is gone are still here; "
                    f"`memtui companies remove {company_id}` removes those of an import."
                ) from None
            return False
        await self._core.may_configure(caller.model_copy(update={"company_id": company_id}))
        await refuse_lived_in(
            self._core, company_id, "import into another, a new one is made for the log"
        )
        return True

    async def _import(
        self,
        company_id: str,
        operations: Iterable[ForeignOperation],
        entry: RunningOperation | None,
        report: Callable[[int], None] | None,
        *,
        created: bool,
    ) -> ImportCount:
        """Append what the log lacks.

        `entry` is told how far it came; where it is None nothing is appended, only counted.
        """
        added = gone_through = 0
        waiting = iter(operations)
        seen: set[str] = set()
        while batch := await asyncio.to_thread(lambda: list(islice(waiting, _BATCH))):
            if any(one.draft.scope.company_id != company_id for one in batch):
                raise Denied("An operation names another company than the one that is imported.")
            if any(one.draft.operation_type in CONTROL for one in batch):
                raise Invalid(
                    "Another log's sealing and erasing cannot be imported: they prove this."
                )
            gone_through += len(batch)
            if entry is not None:
                added += len(await asyncio.to_thread(self._append_fresh, company_id, batch))
                entry.result_count = added
            else:
                unknown, _ = await self._core.ask(self._unknown, company_id, batch)
                new = [one for one in unknown if one.own_id not in seen]
                added += len(new)
                last = batch[-1].draft.started_at
                if batch[0].draft.started_at < last:
                    seen.clear()
                seen.update(one.own_id for one in new if one.draft.started_at == last)
            if report is not None:
                report(gone_through)
        known = gone_through - added
        return ImportCount(company_id=company_id, created=created, added=added, known=known)

    def _append_fresh(
        self, company_id: str, batch: Sequence[ForeignOperation]
    ) -> list[ForeignOperation]:
        clean = [ForeignOperation(_clean(draft, own_id), own_id) for draft, own_id in batch]
        with self._core.database.write() as connection:
            appending.hold(connection, company_id)
            if bindings.company(connection, company_id) is None:
                raise NotFound(f"The company {company_id} was removed while it was imported into.")
            fresh, taken = self._unknown(connection, company_id, clean)
            appending.append_all(connection, _named(taken, fresh))
        return fresh

    def _unknown(
        self, connection: Connection, company_id: str, batch: Sequence[ForeignOperation]
    ) -> tuple[list[ForeignOperation], set[str]]:
        """Return what is neither hot nor sealed, each operation once, and the taken ids."""
        from memtui.store import log

        ids = list({name for one in batch for name in (one.own_id, one.draft.operation_id)})
        owners = log.owners(connection, ids)
        sealed = self._core.log(company_id).sealed_at(ids)
        begun = {one: at for one, (owner, at) in owners.items() if owner == company_id} | sealed
        fresh = {one.own_id: one for one in batch if not _is_known(one, begun)}
        return list(fresh.values()), {*owners, *sealed}


def _checked_name(name: str) -> str:
    """Return a company's name. Raises `Invalid` where it cannot be shown in a line."""
    name = name.strip()
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise Invalid(f"A company's name is 1 to {_LONGEST_NAME} printable characters.")
    return name


def _changed_links(links: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return link templates with changes; an empty one goes. Raises `Invalid`."""
    for kind, template in changes.items():
        if problem := link_problem(kind, template):
            raise Invalid(f"The link template of {kind} does not fit: {problem}")
    return {kind: one.strip() for kind, one in {**links, **changes}.items() if one.strip()}


def link_problem(kind: str, template: str) -> str:
    """Return what is wrong with the link template of a source kind, as a sentence, or nothing."""
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


def awaits_owner(core: Core, company_id: str) -> bool:
    """Whether a repair left a company read-only until it has an owner again. Blocking."""
    with core.database.read() as database:
        if not find_company(database, company_id).read_only:
            return False
        if bindings.members(database, company_id):
            return False
    repairs = Filter(operation_type=OperationType.REPAIR)
    return core.log(company_id).page(repairs, limit=1).total > 0


def _remove_rows(database: Database, company_id: str) -> None:
    """Remove whatever any table has of a company, in one transaction."""
    from sqlalchemy import delete
    from sqlmodel import SQLModel

    with database.write() as connection:
        for table in SQLModel.metadata.sorted_tables:
            if "company_id" in table.c:
                connection.execute(delete(table).where(table.c.company_id == company_id))
