"""Import another system's log as the log of a separate company."""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from memtui.contract import (
    EVERYTHING,
    Conflict,
    Denied,
    Invalid,
    Model,
    NotFound,
    OperationType,
    Scope,
)
from memtui.service.operations.redaction import redact_json, suspicious
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, ServiceRuntime, check_key, find_company
from memtui.service.visibility import Caller
from memtui.store import appending, bindings
from memtui.store.database import DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.digest import CONTROL
from memtui.store.operation import TITLES, Operation, OperationDraft
from memtui.store.rows import CompanyRow

IMPORTED = "imported"
"""The field of an operation's request that names the origin of an import."""

_BATCH = 2_000
_NAMES = (
    "binding_key", "provider_key", "principal", "channel", "error_kind", "undoes", *TITLES,
)  # fmt: skip
_texts = attrgetter(
    "operation_id",
    "request",
    "error_message",
    *_NAMES,
    *(f"scope.{name}" for name in Scope.model_fields if name != "company_id"),
)
_TEXTS = {"operation_id", "request", "error_message", "scope", "source", *_NAMES}
OLDEST = 100
"""How many of the oldest operations are read to recognise an imported log."""


REFERENCES = ("undoes", "part_of")
"""The fields of an operation that name another one by its id."""


class ForeignOperation(NamedTuple):
    """An operation of another system, with its id there if that can be kept."""

    draft: OperationDraft
    own_id: str
    """A fallback id, equal at every import, if the draft's id is taken by another operation."""
    others: Mapping[str, str] = {}
    """The fallback ids of the operations that the draft refers to."""


class ImportCount(Model):
    """How many operations an import added, and how many were there already."""

    company_id: str
    created: bool
    """Whether the company is new."""
    added: int
    known: int
    """Operations that an earlier import added."""


async def refuse_lived_in(runtime: ServiceRuntime, company_id: str, rule: str) -> None:
    """Raise `Conflict`, with the rule, if the company is more than an imported log."""
    if not await asyncio.to_thread(_takes_imports, runtime, company_id):
        raise Conflict(f"The company {company_id} has memories or operations of its own; {rule}.")


def _takes_imports(runtime: ServiceRuntime, company_id: str) -> bool:
    """Whether a company was made by an import, or its log has configuration only."""
    with runtime.database.read() as connection:
        if bindings.bindings(connection, company_id):
            return False
    page = runtime.log(company_id).page(EVERYTHING, limit=OLDEST, after=0)
    return was_imported(page.operations)


def was_imported(oldest: Sequence[Operation]) -> bool:
    """Whether a log whose oldest operations these are, newest first, is an imported one."""
    for operation in reversed(oldest):
        if IMPORTED in operation.request:
            return True
        if operation.operation_type not in {OperationType.CONFIGURE, *CONTROL}:
            return False
    return True


def _is_known(one: ForeignOperation, begun: Mapping[str, datetime]) -> bool:
    """Whether the operation exists under either id.

    Their times are compared, as the other system may use one id for several operations.
    """
    return one.own_id in begun or begun.get(one.draft.operation_id) == one.draft.started_at


def _named(
    taken: set[str], elsewhere: Container[str], fresh: Sequence[ForeignOperation]
) -> list[OperationDraft]:
    """Return the drafts to append; one whose id is taken gets its `own_id`.

    So do references to operations whose ids are taken `elsewhere`, in other companies.
    """
    named: list[OperationDraft] = []
    for draft, own_id, others in fresh:
        changes = {
            field: others[name]
            for field in REFERENCES
            if (name := getattr(draft, field)) in others and name in elsewhere
        }
        if draft.operation_id in taken:
            changes["operation_id"] = own_id
        named.append(draft.model_copy(update=changes) if changes else draft)
        taken.add(draft.operation_id)
    return named


def _clean(draft: OperationDraft, own_id: str) -> OperationDraft:
    """Redact the secrets in all texts that the other system logged."""
    parts = (draft.source and vars(draft.source), [usage.details for usage in draft.usage])
    if suspicious(repr((_texts(draft), parts))) is None:
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


class Imports(ServiceModule):
    """The logs of other systems."""

    async def append(
        self,
        caller: Caller,
        company_id: str,
        operations: Iterable[ForeignOperation],
        *,
        name: str,
        asked: SettingDetails,
        dry_run: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> ImportCount:
        """Append the operations that the company's log does not have yet, in the given order.

        Each transaction has several thousand: a stopped import keeps those added, and the next one
        continues there. A company that does not exist is created read-only. The import is logged as
        a configuration of the caller's company; a dry run is not logged and writes nothing.

        Args:
            caller: Who imports.
            company_id: The company that gets the operations; never the caller's own.
            operations: Operations of this company, ordered by start; those with equal `own_id` are
                the same operation, with the same start.
            name: The name of the company, if it is new.
            asked: The logged request, such as the file.
            dry_run: Only count.
            report: Called with the number of operations processed.

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
        asked = {**asked, "import_into": company_id}
        async with self._runtime.configured(caller, asked) as entry:
            entry.irreversible = (
                f"`memtui companies remove {company_id}` removes what was imported."
            )
            exists = await self._check_target(caller, company_id)
            if not exists:
                row = CompanyRow(
                    company_id=check_key(company_id, "company id"),
                    name=name,
                    read_only=True,
                    link_templates={},
                    created_at=self._runtime.clock(),
                )

                def add() -> None:
                    with self._runtime.database.write() as database:
                        bindings.add_company(database, row)

                await asyncio.to_thread(add)
            done = await self._import(company_id, operations, entry, report, created=not exists)
            entry.request["added"], entry.request["known"] = done.added, done.known
        return done

    async def _check_target(self, caller: Caller, company_id: str) -> bool:
        """Return whether the company exists; `Conflict` if it is more than an imported log."""
        try:
            await self._runtime.ask(find_company, company_id)
        except NotFound:
            if await asyncio.to_thread(self._runtime.log(company_id).oldest_sealed, 1):
                raise Conflict(
                    f"Sealed operations of a company {company_id} that is gone are still here; "
                    f"`memtui companies remove {company_id}` removes those of an import."
                ) from None
            return False
        await self._runtime.may_configure(caller.model_copy(update={"company_id": company_id}))
        await refuse_lived_in(
            self._runtime, company_id, "import into another, a new one is made for the log"
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
        """Append the operations that the log lacks.

        `entry` gets the counts; None: only count, append nothing.
        """
        added = gone_through = 0
        waiting = iter(operations)
        seen: set[str] = set()
        while batch := await asyncio.to_thread(lambda: list(islice(waiting, _BATCH))):
            if any(one.draft.scope.company_id != company_id for one in batch):
                raise Denied("An operation names another company than the one that is imported.")
            if any(one.draft.operation_type in CONTROL for one in batch):
                raise Invalid(
                    "Operations that seal or erase a log belong to its proof and cannot be "
                    "imported; leave them out."
                )
            gone_through += len(batch)
            if entry is not None:
                added += len(await asyncio.to_thread(self._append_fresh, company_id, batch))
                entry.result_count = added
            else:
                unknown, *_ = await self._runtime.ask(self._unknown, company_id, batch)
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
        clean = [one._replace(draft=_clean(one.draft, one.own_id)) for one in batch]
        with self._runtime.database.write() as connection:
            appending.hold(connection, company_id)
            if bindings.company(connection, company_id) is None:
                raise NotFound(f"The company {company_id} was removed while it was imported into.")
            fresh, taken, elsewhere = self._unknown(connection, company_id, clean)
            appending.append_all(connection, _named(taken, elsewhere, fresh))
        return fresh

    def _unknown(
        self, connection: DatabaseConnection, company_id: str, batch: Sequence[ForeignOperation]
    ) -> tuple[list[ForeignOperation], set[str], Container[str]]:
        """Return the operations that are not logged, each once.

        And of their ids and those that they name: which are taken, and which by other companies.
        """
        from memtui.store import log

        ids = list(
            {name for one in batch for name in (one.own_id, one.draft.operation_id, *one.others)}
        )
        owners = log.owners(connection, ids)
        sealed = self._runtime.log(company_id).sealed_at(ids)
        begun = {one: at for one, (owner, at) in owners.items() if owner == company_id} | sealed
        fresh = {one.own_id: one for one in batch if not _is_known(one, begun)}
        return list(fresh.values()), {*owners, *sealed}, owners.keys() - begun.keys()
