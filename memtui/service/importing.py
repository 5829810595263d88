"""Operations that another system logged, appended to the log of a company of their own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from memtui.contract import (
    Conflict,
    Denied,
    Filter,
    Invalid,
    Json,
    Model,
    NotFound,
    OperationType,
    Scope,
    SourceRef,
)
from memtui.service.answers import Caller
from memtui.service.companies import company, new_company
from memtui.service.configuring import configured, write
from memtui.service.core import Core
from memtui.service.recorder import Entry
from memtui.service.redaction import redact, redact_json
from memtui.store import bindings, log
from memtui.store.operation import OperationDraft

IMPORTED = "imported"
"""The member of an operation's request that says where it was imported from."""

_Owners = Mapping[str, tuple[str, datetime]]
"""Whose each operation is, and when it began, by id."""

_BATCH = 2_000
_NAMES = ("binding_key", "provider_key", "binding_reason", "principal", "door", "error_kind")
_SCOPE = tuple(name for name in Scope.model_fields if name != "company_id")
_OLDEST = 100
"""Operations that are looked at to tell an imported log."""


class ForeignOperation(NamedTuple):
    """An operation of another system. Its `operation_id` is the same at every import."""

    draft: OperationDraft
    kept_id: str | None = None
    """The other system's own id, to be kept if no operation here has it."""


class ImportCount(Model):
    """What became of the operations that were given."""

    company_id: str
    created: bool
    """Whether the company is new."""
    added: int
    known: int
    """Those that an earlier import has added."""


async def import_operations(
    core: Core,
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

    Several thousand at a time are one transaction: what was added before it is stopped stays, and
    the next import goes on from there. A company that does not exist is created read-only. It is
    recorded as a configuration of the caller's own company; a dry run is not, and writes nothing.

    Args:
        core: The service's parts.
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
        Invalid: the company is the caller's own, or its id is no slug.
    """
    if company_id == caller.company_id:
        raise Invalid("A log is imported into a company of its own; name another than yours.")
    if dry_run:
        exists = await _check_target(core, caller, company_id)
        return await _append(
            core, company_id, operations, exists=exists, dry_run=True, report=report
        )
    asked = {"import_into": company_id, **asked}
    async with configured(core, caller, asked) as entry:
        exists = await _check_target(core, caller, company_id)
        if not exists:
            row = new_company(core, company_id, name, link_templates={}, read_only=True)
            await write(core, lambda database: bindings.add_company(database, row))

        def count(added: int) -> None:
            entry.result_count = added

        done = await _append(
            core,
            company_id,
            operations,
            exists=exists,
            dry_run=False,
            report=report,
            count=count,
        )
        entry.request = {**asked, "added": done.added, "known": done.known}
    return done


async def _check_target(core: Core, caller: Caller, company_id: str) -> bool:
    """Tell whether the company exists, and refuse one that is no imported log."""
    try:
        await company(core, company_id)
    except NotFound:
        return False
    there = caller.model_copy(update={"company_id": company_id})
    await core.authorise(
        Entry(
            operation_id="",
            operation_type=OperationType.CONFIGURE,
            caller=there,
            scope=Scope(company_id=company_id),
            started_at=core.clock(),
            started=0.0,
        )
    )
    if not await asyncio.to_thread(_takes_imports, core, company_id):
        raise Conflict(
            f"The company {company_id} has memories or operations of its own; import into another, "
            "a new one is made for the log."
        )
    return True


def _takes_imports(core: Core, company_id: str) -> bool:
    """Whether it was made by an import, or nothing has happened in it but its configuration."""
    with core.database.read() as connection:
        if bindings.bindings(connection, company_id):
            return False
    page = core.log.page(company_id, Filter(), limit=_OLDEST, before=None, after=0)
    for operation in reversed(page.operations):
        if IMPORTED in operation.request:
            return True
        if operation.operation_type is not OperationType.CONFIGURE:
            return False
    return True


async def _append(
    core: Core,
    company_id: str,
    operations: Iterable[ForeignOperation],
    *,
    exists: bool,
    dry_run: bool,
    report: Callable[[int], None] | None,
    count: Callable[[int], None] | None = None,
) -> ImportCount:
    added = gone_through = 0
    waiting = iter(operations)
    seen: set[str] = set()
    while batch := await asyncio.to_thread(_next, waiting):
        if any(one.draft.scope.company_id != company_id for one in batch):
            raise Denied("An operation names another company than the one that is imported.")
        work = _unknown if dry_run else _write
        new = await asyncio.to_thread(work, core, company_id, batch)
        if dry_run:
            new = [one for one in new if one.draft.operation_id not in seen]
            last = batch[-1].draft.started_at
            if batch[0].draft.started_at < last:
                seen.clear()
            seen.update(one.draft.operation_id for one in new if one.draft.started_at == last)
        added += len(new)
        gone_through += len(batch)
        if count is not None:
            count(added)
        if report is not None:
            report(gone_through)
    return ImportCount(
        company_id=company_id, created=not exists, added=added, known=gone_through - added
    )


def _next(waiting: Iterator[ForeignOperation]) -> list[ForeignOperation]:
    return list(itertools.islice(waiting, _BATCH))


def _write(
    core: Core, company_id: str, batch: Sequence[ForeignOperation]
) -> list[ForeignOperation]:
    """Append what the log does not have, and return it."""
    fresh = [one._replace(draft=_clean(one.draft)) for one in _unknown(core, company_id, batch)]
    if not fresh:
        return []
    with core.database.write() as connection:
        log.hold(connection, company_id)
        # Another import of the same log may have come between.
        owners = log.owners(connection, _ids(fresh))
        fresh = _fresh(core, owners, company_id, fresh)
        taken = owners.keys() | core.log.sealed(company_id, _ids(fresh)).keys()
        log.append_all(connection, _named(taken, fresh))
    return fresh


def _unknown(
    core: Core, company_id: str, batch: Sequence[ForeignOperation]
) -> list[ForeignOperation]:
    """Return what the log does not have now."""
    with core.database.read() as connection:
        owners = log.owners(connection, _ids(batch))
    return _fresh(core, owners, company_id, batch)


def _ids(batch: Sequence[ForeignOperation]) -> list[str]:
    ids = [one.draft.operation_id for one in batch]
    return ids + [one.kept_id for one in batch if one.kept_id is not None]


def _fresh(
    core: Core, owners: _Owners, company_id: str, batch: Sequence[ForeignOperation]
) -> list[ForeignOperation]:
    """Return what is neither in the database nor sealed, each operation once."""
    begun = {one: at for one, (owner, at) in owners.items() if owner == company_id}
    begun |= core.log.sealed(company_id, _ids(batch))
    fresh = {one.draft.operation_id: one for one in batch if not _is_known(one, begun)}
    return list(fresh.values())


def _is_known(one: ForeignOperation, begun: Mapping[str, datetime]) -> bool:
    """Whether it is there, under either id; the other system may use one for several of its own."""
    if one.draft.operation_id in begun:
        return True
    return one.kept_id is not None and begun.get(one.kept_id) == one.draft.started_at


def _named(taken: set[str], fresh: Sequence[ForeignOperation]) -> list[OperationDraft]:
    """Give each operation the other system's id, where that can be kept and nobody has it."""
    named: list[OperationDraft] = []
    for draft, kept_id in fresh:
        if kept_id is None or kept_id in taken:
            named.append(draft)
        else:
            named.append(draft.model_copy(update={"operation_id": kept_id}))
            taken.add(kept_id)
    return named


def _clean(draft: OperationDraft) -> OperationDraft:
    """Take the secrets out of whatever text another system has logged."""
    changes: dict[str, Any] = {}
    request, found = redact_json(draft.request)
    if found:
        changes["request"] = request
    if draft.error_message and (clean := redact(draft.error_message))[1]:
        changes["error_message"] = clean[0]
    changes |= _clean_names(draft, _NAMES)
    if names := _clean_names(draft.scope, _SCOPE):
        changes["scope"] = draft.scope.model_copy(update=names)
    if draft.source is not None:
        source, found = redact_json(draft.source.model_dump(mode="json"))
        if found:
            changes["source"] = SourceRef.model_validate(source)
    if any(redact_json(usage.details)[1] for usage in draft.usage):
        changes["usage"] = tuple(
            usage.model_copy(update={"details": redact_json(usage.details)[0]})
            for usage in draft.usage
        )
    return draft.model_copy(update=changes) if changes else draft


def _clean_names(part: Model, names: Sequence[str]) -> dict[str, str]:
    """Return those of the names that hold a secret, without it."""
    given = {name: value for name in names if (value := getattr(part, name))}
    return {name: clean for name, value in given.items() if (clean := _redacted(value)) != value}


@lru_cache(maxsize=4096)
def _redacted(name: str) -> str:
    return redact(name)[0]
