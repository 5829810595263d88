"""Find out whether an interrupted mutation happened, by asking the provider."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from memtui.contract import (
    BrowseRequest,
    Filter,
    Invalid,
    OperationStatus,
    OperationType,
    RecordHandle,
    Snapshot,
)
from memtui.service import inspection
from memtui.service.answers import Caller
from memtui.service.connections import Connection
from memtui.service.core import Core
from memtui.service.mutations import take
from memtui.service.perimeter import CONTENT
from memtui.service.reads import ranked
from memtui.service.undo import reaching, state_of
from memtui.store import journal
from memtui.store.digest import is_value_of
from memtui.store.journal import Finding, Found
from memtui.store.operation import Operation

_SEARCHED_WORDS = 8


async def check(core: Core, caller: Caller, operation_id: str) -> Found:
    """Find out whether an operation of unknown outcome happened.

    What is found is logged as an operation of its own, and what happened can be undone from then
    on.

    Raises:
        Invalid: its outcome is known, by itself or by an earlier check.
    """
    asked = await asyncio.to_thread(inspection.operation, core, caller, operation_id)
    if asked.status is not OperationStatus.UNKNOWN:
        raise Invalid(f"The outcome of {asked.operation_id} is known: {asked.status}.")
    known = await asyncio.to_thread(inspection.found_of, core, caller, asked.operation_id)
    if known is not None and known.happened:
        raise Invalid(f"The outcome is known since the check {known.check_id}: {known.told}")
    request = {"checks": asked.operation_id}
    async with core.recorder.recorded(
        OperationType.CHECK, caller, asked.scope, request, asked.source
    ) as entry:
        connection = await core.connect(entry, asked.binding_key)
        before = await asyncio.to_thread(_before, core, asked)
        if before:
            handles = [snapshot.handle for snapshot in before]
            scope = reaching(asked.scope, [one.record for one in before if one.record])
            now = await take(connection, handles, scope)
            finding = _compare(asked, before, now)
        else:
            finding = await _look_for_written(core, connection, asked)
        entry.finding = finding
        entry.request = {**request, "happened": finding.happened, "found": finding.told}
        entry.handles = ranked([before.handle for before, _ in finding.steps])
        entry.result_count = len(finding.steps)
    return Found(check_id=entry.operation_id, happened=finding.happened, told=finding.told)


def _before(core: Core, asked: Operation) -> list[Snapshot]:
    with core.database.read() as database:
        steps = journal.steps(database, asked.scope.company_id, asked.operation_id)
    return [before for before, _ in steps]


def _compare(asked: Operation, before: Sequence[Snapshot], now: Sequence[Snapshot]) -> Finding:
    steps = list(zip(before, now, strict=True))
    changed = [(old, new) for old, new in steps if state_of(old.record) != state_of(new.record)]
    if not changed:
        told = f"It did not happen: {_records(len(before))} as before the {asked.operation_type}."
        return Finding(asked, happened=False, told=told, steps=steps)
    if len(changed) == len(before):
        told = f"It happened: {_records(len(changed))} no longer as before the "
        return Finding(asked, happened=True, told=f"{told}{asked.operation_type}.", steps=changed)
    told = f"It happened in part: {len(changed)} of {_records(len(before))} no longer as before."
    return Finding(asked, happened=True, told=told, steps=changed)


async def _look_for_written(core: Core, connection: Connection, asked: Operation) -> Finding:
    content = str(asked.request.get("content") or "")
    known = content or CONTENT in asked.salts
    if not known or not connection.adapter.capabilities.browse:
        told = "The provider does not show it, so memtui cannot tell whether it happened."
        return Finding(asked, happened=None, told=told, steps=())
    words = " ".join(content.split()[:_SEARCHED_WORDS]) or None
    cursor: str | None = None
    while True:
        request = BrowseRequest(
            scope=asked.scope,
            binding_key=connection.binding.key,
            filter=Filter(text=words),
            cursor=cursor,
            limit=1000,
        )
        page = await connection.read(partial(connection.adapter.browse, request))
        for record in page.records:
            same = (
                record.text.startswith(content)
                if content
                else is_value_of(asked, CONTENT, record.text)
            )
            if same and await _is_new(core, asked, record.handle):
                told = "It happened: a record holds the text."
                [now] = await take(connection, [record.handle], asked.scope)
                step = Snapshot(handle=record.handle, record=None), now
                return Finding(asked, happened=True, told=told, steps=[step])
        cursor = page.next_cursor
        if cursor is None:
            break
    if page.at_least:
        told = "The provider shows only a part of its records, and none there holds the text."
        return Finding(asked, happened=None, told=told, steps=())
    return Finding(
        asked, happened=False, told="It did not happen: no record holds the text.", steps=()
    )


async def _is_new(core: Core, asked: Operation, handle: RecordHandle) -> bool:
    """Tell whether no other operation has written or changed the record."""
    found = await asyncio.to_thread(
        core.log.mutations_of_record,
        asked.scope.company_id,
        asked.binding_key or "",
        handle.provider_record_id,
        None,
    )
    return not found


def _records(count: int) -> str:
    return "1 record is" if count == 1 else f"{count:,} records are"
