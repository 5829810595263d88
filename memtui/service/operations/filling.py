"""Fields that a provider cannot store: reported at the write, then filled in from the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from memtui.store import journal
from memtui.store.compiled import BindingRow

R = TypeVar("R", bound=Record)

_NAMED = (
    "source", "title", "kind", "topic", "tags", "summary", "metadata", "created_by", "created_at",
    "pinned", "expires_at",
)  # fmt: skip
_FILLED = frozenset({"source", "title", "topic", "tags", "summary", "metadata", "created_by"})
"""The fields that are filled in; by others a provider sorts, filters or expires records."""
_CORRECTED = ("topic", "tags", "summary", "pinned", "expires_at")
_NOTHING: tuple[Any, ...] = (None, False, "", (), {})


def asked_of(request: WriteRequest | CorrectRequest) -> dict[str, Any]:
    """Return the fields that a request sets, by name; of a correction, not author and source."""
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
    lost = {
        name
        for record in stored
        for name, value in asked.items()
        if _is_lost(adapter, name, value, getattr(record, name))
    }
    return tuple(name for name in _NAMED if name in lost)


def _is_lost(adapter: Adapter, name: str, value: Any, now: Any) -> bool:
    if name == "metadata":
        return not value.keys() <= now.keys()
    if now in _NOTHING:
        return True
    is_none_of_its_own = name == "kind" and adapter.only_facts
    return name in adapter.lacks and now != value and not is_none_of_its_own


def filled_in(adapter: Adapter, lost: Iterable[str]) -> tuple[str, ...]:
    """Return the lost fields that are filled in whenever the record is read."""
    return tuple(name for name in lost if name in adapter.lacks & _FILLED)


def filled(adapter: Adapter, record: R, known: Mapping[str, Any]) -> R:
    """Return a record with the known values of fields that its provider cannot store.

    An author replaces the provider's substitute, too.
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


def with_given(adapter: Adapter, seen: Snapshot, given: Mapping[str, Any] | None) -> Snapshot:
    """Return a snapshot with the given fields of its record that the provider cannot store."""
    if seen.record is None or not given:
        return seen
    return seen.model_copy(update={"record": filled(adapter, seen.record, given)})


class Filling:
    """An adapter that fills in fields its provider cannot store, as memtui last wrote them.

    Records are matched by id, even where somebody else changed them since.
    """

    def __init__(
        self, adapter: Adapter, binding: BindingRow, ask: Callable[..., Awaitable[Any]]
    ) -> None:
        """Fill in the records of `adapter`; `ask` reads the control plane's database."""
        self.unfilled = adapter
        self._binding = binding
        self._ask = ask

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that needs no filling, such as the provider's key."""
        return getattr(self.unfilled, name)

    async def _filled(self, records: Sequence[R]) -> tuple[R, ...]:
        if not (records and self.unfilled.lacks & _FILLED):
            return tuple(records)
        ids = [one.handle.provider_record_id for one in records]
        binding = self._binding
        place = binding.company_id, binding.key, binding.created_at
        known = await self._ask(journal.last_left, *place, ids)
        return tuple(
            filled(self.unfilled, one, fields_of(known.get(name)))
            for one, name in zip(records, ids, strict=True)
        )

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
