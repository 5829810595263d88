"""Filters of the operation log, made ready for it."""

from __future__ import annotations

from memtui.contract import Filter
from memtui.service.runtime import ServiceRuntime
from memtui.service.visibility import Caller


def operations_asked(runtime: ServiceRuntime, caller: Caller, chosen: Filter | None) -> Filter:
    """Return a filter of operations up to `as_of`, with the risks in it looked up. Blocking.

    Raises:
        Invalid: it names risks, and the caller looks at the past.
    """
    asked = caller.by_then(chosen)
    if not any(one.uses for one in (asked, *asked.alternatives)):
        return asked
    from memtui.service.review.known_risks import KnownRisks  # few filters name risks

    return runtime.module(KnownRisks).of_operations(caller, asked)
