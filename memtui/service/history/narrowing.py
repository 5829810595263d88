"""Filters of the operation log, made ready for it."""

from __future__ import annotations

from memtui.contract import Filter
from memtui.service.runtime import ServiceRuntime
from memtui.service.visibility import Caller
from memtui.store.operation import LogFilter

_APART = {"binding_key", "status", "text", "fuzzy"}
"""Fields by which each binding's operation is a match of its own."""


def operations_asked(
    runtime: ServiceRuntime, caller: Caller, chosen: Filter | None, *, folded: bool = False
) -> Filter:
    """Return a filter of operations up to `as_of`, with the risks in it looked up. Blocking.

    `folded`: a question over several bindings is one operation, unless the filter asks for
    something that their operations have one by one: a binding, a status, a word, an amount, a risk.

    Raises:
        Invalid: it names risks, and the caller looks at the past.
    """
    asked = caller.by_then(chosen)
    if not any(one.uses for one in (asked, *asked.alternatives)):
        is_apart = any(map(_is_apart, (asked, *asked.alternatives)))
        return LogFilter(**dict(asked), folded=True) if folded and not is_apart else asked
    from memtui.service.review.known_risks import KnownRisks  # few filters name risks

    return runtime.module(KnownRisks).of_operations(caller, asked)


def _is_apart(chosen: Filter) -> bool:
    named = {test.field for test in chosen.field_tests()}
    return bool(chosen.comparisons or chosen.text or chosen.fuzzy or named & _APART)
