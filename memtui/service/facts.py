"""The rules of facts (seed 004 §6.2, §10): one line, short, and few enough to read them all."""

from __future__ import annotations

from memtui.contract import (
    BrowseRequest,
    Invalid,
    Model,
    WriteMode,
    WriteRequest,
    own_filter,
    owned,
    owner_of,
    owner_scope,
)
from memtui.service.connections import Connection

FACT = "fact"
_LIMITED = ("subject_id", "project_id")
_PAGE = 1_000


class FactLimits(Model):
    """How long a fact may be, and how many a user or project may have; 0 sets no limit."""

    max_chars: int = 200
    max_count: int = 50


def check_text(text: str, limits: FactLimits) -> None:
    """Refuse a text that is no fact.

    Raises:
        Invalid: it has a line break, or is too long.
    """
    if len(text.splitlines()) > 1:
        raise Invalid("A fact is one line; take the line breaks out, or write a note instead.")
    if limits.max_chars and len(text) > limits.max_chars:
        raise Invalid(
            f"A fact has at most {limits.max_chars} characters and this one has {len(text)}; "
            "shorten it, or write a note instead."
        )


async def check_room(connection: Connection, request: WriteRequest, limits: FactLimits) -> None:
    """Refuse a fact more than its scope may hold; one that replaces another needs no room.

    Raises:
        Invalid: the scope is full.
    """
    if not limits.max_count or not connection.adapter.capabilities.browse:
        return
    scope = owner_scope(request.scope)
    if owner_of(scope)[0] not in _LIMITED:
        return
    asked = BrowseRequest(
        scope=scope,
        binding_key=connection.binding.key,
        filter=own_filter(scope, kind=FACT),
        limit=_PAGE,
    )
    page = await connection.read(lambda: connection.adapter.browse(asked))
    records = owned(page.records, scope)
    held = max(len(records), (page.total or 0) if page.next_cursor else 0)
    if held < limits.max_count:
        return
    key = request.content.partition(":")[0]
    replaced = {str(record.metadata.get("key")) for record in records}
    replaced |= {record.handle.provider_record_id for record in records}
    if request.mode is WriteMode.UPSERT and not replaced.isdisjoint({key, request.record_id}):
        return
    raise Invalid(
        f"This scope holds {held:,} facts and may hold "
        f"{limits.max_count}; prune some with `memtui facts prune`, or raise fact_max_count."
    )
