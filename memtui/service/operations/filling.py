"""Fields that a provider cannot store: reported at the write, then filled in from the log."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from memtui.contract import (
    Adapter,
    BrowsePage,
    BrowseRequest,
    ContextBundle,
    CorrectRequest,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    WriteRequest,
)
from memtui.store.database import Database
from memtui.store.journal import Journal
from memtui.store.rows import BindingRow

R = TypeVar("R", bound=Record)

_NAMED = (
    "source", "title", "kind", "topic", "tags", "summary", "metadata", "created_by", "created_at",
    "pinned", "expires_at",
)  # fmt: skip
_FILLED = frozenset({"source", "title", "topic", "tags", "summary", "metadata", "created_by"})
"""The fields that are filled in. Providers sort, filter or expire by the others."""
_CORRECTED = ("topic", "tags", "summary", "pinned", "expires_at")
_NOTHING: tuple[Any, ...] = (None, False, "", (), {})


def asked_of(request: WriteRequest | CorrectRequest) -> dict[str, Any]:
    """Return the fields that a request sets, by name; a correction's without author and source."""
    names = _NAMED if isinstance(request, WriteRequest) else _CORRECTED
    asked = {name: getattr(request, name) for name in names}
    return {name: value for name, value in asked.items() if value not in _NOTHING}


def fields_of(record: Record | None) -> dict[str, Any]:
    """Return the fields of a record that can be filled in, by name."""
    return {name: getattr(record, name) for name in _FILLED} if record else {}


def not_kept(
    adapter: Adapter, asked: Mapping[str, Any], stored: Iterable[Record]
) -> tuple[str, ...]:
    """Return the names of requested fields that the record, as read back, lacks."""
    lost = set()
    for record in stored:
        for name, value in asked.items():
            now = getattr(record, name)
            if name == "metadata":
                is_lost = not value.keys() <= now.keys()
            else:
                has_own_kind = name == "kind" and adapter.only_facts
                differs = name in adapter.lacks and now != value and not has_own_kind
                is_lost = differs or now in _NOTHING
            if is_lost:
                lost.add(name)
    return tuple(name for name in _NAMED if name in lost)


def filled_in(adapter: Adapter, lost: Iterable[str]) -> tuple[str, ...]:
    """Return the lost fields that are filled in whenever the record is read."""
    return tuple(name for name in lost if name in adapter.lacks & _FILLED)


def filled(adapter: Adapter, record: R, known: Mapping[str, Any]) -> R:
    """Return a record with the known values of fields that its provider cannot store.

    The known author also replaces a substitute that the provider stored.
    """
    update = {}
    for name in adapter.lacks & _FILLED:
        value, now = known.get(name), getattr(record, name)
        if name == "metadata":
            value = {**(value or {}), **now}
        elif now not in _NOTHING and name != "created_by":
            continue
        if value not in _NOTHING and value != now:
            update[name] = value
    return record.model_copy(update=update) if update else record


class Filling:
    """An adapter that fills in fields its provider cannot store, as memtui last wrote them.

    Records are matched by id, even if they were changed outside memtui since.
    """

    def __init__(self, adapter: Adapter, binding: BindingRow, database: Database) -> None:
        """Fill in the records of `adapter` from the journal in the control plane's `database`."""
        self.unfilled = adapter
        self._binding = binding
        self._database = database

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that needs no filling, such as the provider's key."""
        return getattr(self.unfilled, name)

    async def _filled(self, records: Sequence[R]) -> tuple[R, ...]:
        if not (records and self.unfilled.lacks & _FILLED):
            return tuple(records)
        ids = [one.handle.provider_record_id for one in records]
        known = await asyncio.to_thread(self._known, ids)
        return tuple(
            filled(self.unfilled, one, fields_of(known.get(name)))
            for one, name in zip(records, ids, strict=True)
        )

    def _known(self, ids: Sequence[str]) -> Mapping[str, Record]:
        binding = self._binding
        with self._database.read() as database:
            journal = Journal(database, binding.company_id)
            return journal.last_left(binding.key, binding.created_at, ids)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record."""
        record = await self.unfilled.get(handle, scope)
        return (await self._filled([record]))[0] if record else None

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Find relevant records."""
        found = await self.unfilled.query(request)
        return found.model_copy(update={"snippets": await self._filled(found.snippets)})

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page."""
        page = await self.unfilled.browse(request)
        return page.model_copy(update={"records": await self._filled(page.records)})

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return snapshots of records; the data for a restore stays as the provider made it."""
        seen = await self.unfilled.snapshot(handles, scope)
        there = await self._filled([one.record for one in seen if one.record])
        by_handle = {one.handle: one for one in there}
        return [
            one.model_copy(update={"record": one.record and by_handle[one.record.handle]})
            for one in seen
        ]
