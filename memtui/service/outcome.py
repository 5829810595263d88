"""Find out whether an interrupted mutation happened, by asking the provider."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memtui.contract import (
    BrowseRequest,
    Filter,
    Invalid,
    OperationStatus,
    OperationType,
    Snapshot,
)
from memtui.service import inspection
from memtui.service.answers import Caller
from memtui.service.connections import Connection
from memtui.service.core import Core
from memtui.service.mutations import take
from memtui.store import journal
from memtui.store.operation import Operation


async def check(core: Core, caller: Caller, operation_id: str) -> str:
    """Return one sentence that says whether an operation of unknown outcome happened.

    Raises:
        Invalid: its outcome is known.
    """
    asked = await asyncio.to_thread(inspection.operation, core, caller, operation_id)
    if asked.status is not OperationStatus.UNKNOWN:
        raise Invalid(f"The outcome of {asked.operation_id} is known: {asked.status}.")
    request = {"checks": asked.operation_id}
    async with core.recorder.recorded(
        OperationType.GET, caller, asked.scope, request, asked.source
    ) as entry:
        connection = await core.connect(entry, asked.binding_key)
        before = await asyncio.to_thread(_before, core, asked)
        if before:
            handles = [snapshot.handle for snapshot in before]
            now = await take(connection, handles, asked.scope)
            return _compare(asked, before, now)
        return await _look_for_written(connection, asked)


def _before(core: Core, asked: Operation) -> list[Snapshot]:
    with core.database.read() as database:
        steps = journal.steps(database, asked.scope.company_id, asked.operation_id)
    return [before for before, _ in steps]


def _compare(asked: Operation, before: Sequence[Snapshot], now: Sequence[Snapshot]) -> str:
    changed = sum(
        (old.record and old.record.revision) != (new.record and new.record.revision)
        for old, new in zip(before, now, strict=True)
    )
    if changed == 0:
        return f"It did not happen: {_records(len(before))} as before the {asked.operation_type}."
    if changed == len(before):
        return f"It happened: {_records(changed)} no longer as before the {asked.operation_type}."
    return f"It happened in part: {changed} of {_records(len(before))} no longer as before."


async def _look_for_written(connection: Connection, asked: Operation) -> str:
    if not connection.adapter.capabilities.browse:
        return "The provider cannot be browsed, so memtui cannot tell whether it happened."
    content = str(asked.request.get("content", ""))
    request = BrowseRequest(
        scope=asked.scope,
        binding_key=asked.binding_key,
        filter=Filter(text=" ".join(content.split()[:8]) or None),
    )
    page = await connection.read(lambda: connection.adapter.browse(request))
    for record in page.records:
        if record.text.startswith(content):
            return f"It happened: the text is stored as {record.handle.provider_record_id}."
    return "It did not happen: no record holds the text."


def _records(count: int) -> str:
    return "1 record is" if count == 1 else f"{count:,} records are"
