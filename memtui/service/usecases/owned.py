"""All records of one owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memtui.contract import BrowseRequest, Filter, Record, Scope, own_filter, owned

if TYPE_CHECKING:
    from memtui.service.answers import BrowseAnswer
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller


async def owned_records(
    service: MemoryService,
    caller: Caller,
    scope: Scope,
    *,
    kind: str | None,
    chosen: Filter | None = None,
    binding_key: str | None = None,
) -> tuple[list[Record], BrowseAnswer]:
    """Return the records of a scope's owner, the oldest first, and the answer of the last page.

    A scope of the company alone stands for all its records.

    Args:
        service: The open service.
        caller: Who asks.
        scope: A scope that names the owner.
        kind: The kind of record; None: all.
        chosen: A filter that the records must also pass; None: no filter.
        binding_key: Their binding; None: the binding that serves the scope.
    """
    own = own_filter(scope, kind=kind).model_dump(exclude_defaults=True)
    narrowed = (chosen or Filter()).model_copy(update=own)
    request = BrowseRequest(
        scope=scope, binding_key=binding_key, filter=narrowed, sort="created_at"
    )
    records: list[Record] = []
    async for page in service.pages(caller, request):
        records += owned(page.records, scope)
    return records, page
