"""Filters on the use of records: `read:never`, `stale:>30d`, `cost:>20`, `dup:yes`."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memtui.contract import Filter, Use, UseTest

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Used:
    """How one record is used."""

    last_read: datetime | None = None
    """When a query or context last returned it; None: never, according to the log."""
    tokens: int = 0
    """Tokens of its line in a prompt."""
    repeats: bool = False
    """Whether it repeats a record that stays."""
    risks: frozenset[str] | None = frozenset()
    """Its risks and states (`memtui.contract.RISKS`, `RISK_STATES`); None: it was not checked."""


def asks(chosen: Filter, use: Use) -> bool:
    """Whether a filter has a condition on a use."""
    return any(one.use is use for one in chosen.uses)


def is_used_as(chosen: Filter, used: Used, now: datetime) -> bool:
    """Whether the use of a record meets a filter's conditions."""
    return all(_holds(one, used, now) != one.excluded for one in chosen.uses)


def states_of(risks: Iterable[str], *, dismissed: bool) -> frozenset[str]:
    """Return the risks of a checked record with its states, for `Used.risks`."""
    there = frozenset(risks)
    return there | {"any" if there else "none"} | ({"dismissed"} if dismissed else set())


def _holds(test: UseTest, used: Used, now: datetime) -> bool:
    if test.use is Use.RISK:
        if used.risks is None:  # neither a risk nor its absence is known
            return test.excluded or "unchecked" in test.among
        return not used.risks.isdisjoint(test.among)
    if test.use is Use.DUP:
        return used.repeats
    if test.use is Use.COST:
        return _SIGNS[test.sign](used.tokens, test.value)
    if test.value is None or used.last_read is None:
        return test.value is None and used.last_read is None
    return _SIGNS[test.sign]((now - used.last_read).total_seconds(), test.value)
