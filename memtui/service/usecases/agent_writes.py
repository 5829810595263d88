"""Sum up what agents wrote: how much, at what cost, and how much of it needs a person."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from memtui.contract import Filter, Model, OperationStatus, OperationType, UtcDatetime
from memtui.service.visibility import AGENT_PREFIX

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

_PAGE_ROWS = 500


class AgentWrites(Model):
    """The writes of agents in a time."""

    since: UtcDatetime
    write_count: int = 0
    """All of them, also those that were refused."""
    cost_usd: Decimal = Decimal(0)
    unpriced: bool = False
    """Whether a part has no price."""
    to_look_at: tuple[str, ...] = ()
    """Ids of the writes that wait for review, whose outcome is unknown, or whose record has a risk,
    newest first."""
    checked: str = ""
    """How many records were checked for risks, in words; empty: all of them, or in the past."""


async def agent_writes(
    service: MemoryService,
    caller: Caller,
    since: datetime,
    chosen: Filter | None = None,
) -> AgentWrites:
    """Return the sum of what agents wrote since a moment, as far as the caller may see it.

    Args:
        service: The open service.
        caller: Who asks.
        since: The moment, inclusive.
        chosen: A filter whose scope, binding and end are kept; None: all of the company.
    """
    asked = caller.by_then(chosen).model_copy(
        update={
            "since": since,
            "operation_type": OperationType.WRITE,
            "principal": AGENT_PREFIX,
        }
    )
    can_wait = caller.by_person and caller.as_of is None
    waiting = {one.pending_id for one in await service.review.waiting(caller)} if can_wait else ()
    view = await service.analysis.open_log(caller, asked)
    try:
        pages = [
            await asyncio.to_thread(view.window, start, _PAGE_ROWS)
            for start in range(0, view.count, _PAGE_ROWS)
        ]
    finally:
        await asyncio.to_thread(view.close)
    writes = [one for page in pages for one in page]
    places = defaultdict[str, set[str]](set)
    for key, name in (one.place_of(handle) for one in writes for handle in one.handles):
        places[key].add(name)
    marks = await service.risks.marks(caller, places)
    risky = {place for place, mark in marks.items() if mark.reasons}
    figures = await service.risks.figures(caller, asked.binding_key)
    is_present = caller.as_of is None and not figures.is_complete
    return AgentWrites(
        since=since,
        write_count=len(writes),
        cost_usd=sum((one.cost_usd or Decimal(0) for one in writes), Decimal(0)),
        unpriced=any(one.unpriced for one in writes),
        to_look_at=tuple(
            one.operation_id
            for one in writes
            if one.status is OperationStatus.UNKNOWN
            or one.request.get("pending") in waiting
            or any(one.place_of(handle) in risky for handle in one.handles)
        ),
        checked=figures.sentence if is_present else "",
    )
