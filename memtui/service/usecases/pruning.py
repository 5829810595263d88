"""Plan what to prune, by the limits of the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memtui.contract import Filter, Scope
from memtui.pruning.candidates import PruneRules
from memtui.service.context.pruning import PruneAnswer, PruneRequest

if TYPE_CHECKING:
    from memtui.config import Settings
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

_NO_LIMIT = 2**31


def rules_of(settings: Settings, **days: int) -> PruneRules:
    """Return the rules for pruning; `days` sets some of them, such as `stale_days`."""
    return PruneRules(max_characters=settings.fact_max_chars or _NO_LIMIT, **days)


async def plan_everything(
    service: MemoryService,
    caller: Caller,
    chosen: Filter | None = None,
    *,
    rules: PruneRules | None = None,
    so_far: Callable[[PruneAnswer], None] = lambda _answer: None,
) -> PruneAnswer:
    """Plan what to prune of all records that the caller sees, in all bindings.

    Args:
        service: The open service.
        caller: Who asks.
        chosen: A filter that the records to forget must pass; None: all may go.
        rules: The rules; None: those of the settings.
        so_far: Called with the plans so far, each time a binding answers.

    Raises:
        Denied: the caller sees nothing here.
        NotFound: there is no enabled binding, or none that the filter allows.
    """
    request = PruneRequest(
        scope=Scope(company_id=caller.company_id),
        kind=None,
        rules=rules or rules_of(service.settings),
        model=service.settings.context_model,
        filter=chosen or Filter(),
    )
    return await service.pruning.everything(caller, request, so_far=so_far)
