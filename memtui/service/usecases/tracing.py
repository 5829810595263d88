"""Forget what came of a memory, or hold it for review, in all bindings as one change."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memtui.contract import Record, Scope

if TYPE_CHECKING:
    from memtui.service.history.traces import Certainty, MemoryTrace, TracedRecord
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller
    from memtui.store.operation import Place


@dataclass(slots=True)
class TracePlan:
    """The records that still say what a trace follows, as they are now."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    """By the key of their binding."""
    left: Counter[str] = field(default_factory=Counter)
    """How many others there are, by reason."""


async def plan(
    service: MemoryService, caller: Caller, trace: MemoryTrace, least: Certainty
) -> TracePlan:
    """Read what a trace began with and what came of it, at least as certainly as `least`.

    For `forget` of `usecases.forgetting`, which asks the roles of each binding and is one undo.
    """
    found, scope = TracePlan(), Scope(company_id=caller.company_id)
    wanted: dict[str, dict[Place, TracedRecord]] = defaultdict(dict)
    for one in trace.through(least):
        if one.is_there or one.place not in wanted[one.place[0]]:
            wanted[one.place[0]][one.place] = one
    for key, own in wanted.items():
        handles = [one.handle for one in own.values()]
        there = await service.runs.read(caller, key, scope, handles, "trace")
        for place, one in own.items():
            now = there[place]
            if now.record is None:
                found.left[now.why or "gone."] += 1
            elif one.is_in(now.record):
                found.records.setdefault(key, []).append(now.record)
            else:
                found.left["it says something else now."] += 1
    return found
