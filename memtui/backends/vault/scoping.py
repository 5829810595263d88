"""Which records a scope sees, and how much they count: the nearest most (seed 002 §3)."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.contract import Scope

from .entries import Entry
from .layout import Area, Place

_AGENT, _ORCHESTRATOR, _SYSTEM = 0.7, 0.5, 0.4


@dataclass(frozen=True, slots=True)
class Rule:
    """Records whose columns have these values count `weight`."""

    weight: float
    conditions: tuple[tuple[str, str], ...] = ()


def rules(scope: Scope) -> tuple[Rule, ...]:
    """Return what `scope` sees, heaviest first. Issue and run say who asks; they do not narrow."""
    found: list[Rule] = []
    if scope.project_id is not None:
        found.append(Rule(1.0, (("area", Area.PROJECT), ("project_id", scope.project_id))))
    if scope.subject_id is not None:
        whose = ("subject_id", scope.subject_id)
        within = (("area", str(Area.USER)),) if scope.project_id is not None else ()
        found.append(Rule(1.0, (*within, whose)))
    if scope.agent_id is not None:
        whose = ("agent_id", scope.agent_id)
        within = (("area", str(Area.AGENT)),) if scope.project_id is not None else ()
        found.append(Rule(_AGENT, (*within, whose)))
    if scope.project_id is not None or scope.agent_id is not None:
        found.append(Rule(_ORCHESTRATOR, (("area", Area.ORCHESTRATOR),)))
        found.append(Rule(_SYSTEM, (("area", Area.SYSTEM),)))
        found.append(Rule(_SYSTEM, (("area", Area.COMPANY),)))
    return tuple(found) or (Rule(1.0),)


def sees(scope: Scope, entry: Entry | Place) -> bool:
    """Whether a record, or all that a path holds, is in `scope`."""
    return any(
        all(str(getattr(entry, column)) == value for column, value in rule.conditions)
        for rule in rules(scope)
    )


def weight_sql(scope: Scope) -> tuple[str, list[str]]:
    """Return the weight of a row of `records` in SQL (0: not seen), and its values."""
    cases, values = [], []
    for rule in rules(scope):
        test = " AND ".join(f"{column} = ?" for column, _ in rule.conditions) or "1"
        cases.append(f"WHEN {test} THEN {rule.weight}")
        values += [str(value) for _, value in rule.conditions]
    return f"CASE {' '.join(cases)} ELSE 0 END", values
