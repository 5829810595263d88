"""How many facts say what another says already, for the hint beside the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from memtui.screens.facts.rows import FactRow, Place

if TYPE_CHECKING:
    from memtui.screens.state import ServiceSession

_MOST = 2_000
"""Past so many facts only the review looks, which a person asks for."""


async def count_same(
    session: ServiceSession, places: Sequence[Place], rows: Sequence[FactRow], model: str
) -> Mapping[str, int]:
    """Return how many facts of each place repeat another, by the place's word."""
    if not rows or len(rows) > _MOST:
        return {}
    from memtui.pruning.plan import Reason
    from memtui.service.context import PruneRequest

    twice = (Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE)
    found = {}
    for place in places:
        request = PruneRequest(scope=place.scope, model=model, binding_key=place.binding_key)
        plan = (await session.service.prune_plan(session.caller, request)).plan
        found[place.word] = len(
            {one.record.handle for one in plan.candidates if one.reason in twice}
        )
    return found
