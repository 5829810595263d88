"""Everything that happens in the demo, in order of time; the same whenever it is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache

from memtui.contract import Scope, WriteMode
from memtui.demo.bindings import bindings
from memtui.demo.calendar import at
from memtui.demo.chance import seeded
from memtui.demo.content import load
from memtui.demo.mishaps import BALANCE, OUTAGES, RUNBOOK, Mishaps
from memtui.demo.plan import (
    Ask,
    Hydrate,
    Shelf,
    Shelves,
    Step,
    Write,
    is_hosted,
    shelf,
)
from memtui.demo.records import Records
from memtui.demo.runs import Runs
from memtui.demo.sessions import Sessions

_SEED = 31
_BREAKER_OPEN = timedelta(minutes=2)
"""A breaker that opened in an outage refuses calls for a little longer."""


@cache
def timeline() -> tuple[Step, ...]:
    """Return every step, the oldest first."""
    content = load()
    random = seeded(_SEED)
    records = Records(content, random)
    steps = list(bindings(content))
    steps.extend(records.steps())
    runs = list(Runs(content, records.opened, _by_shelf(steps), random).steps())
    closing = _by_shelf([step for step in runs if step.door == "hook"])
    steps.extend(runs)
    steps.extend(Sessions(content, _by_shelf(steps), closing, random).steps())
    names = {
        start: f"note/{number}"
        for number, note in enumerate(content.notes)
        for start in (RUNBOOK, BALANCE)
        if (note.title or note.text).startswith(start)
    }
    steps.extend(Mishaps(content.company.id, names).steps())
    steps.extend(_hydrations(content.company.id))
    steps.append(_last(content.company.id))
    steps.sort(key=lambda step: step.ago, reverse=True)
    return tuple(_settled(step) for step in steps)


def _settled(step: Step) -> Step:
    """Return the step as the hosted stand-in takes it: it condenses what hooks hand in."""
    if not is_hosted(step.scope):
        return step
    action = step.action
    if isinstance(action, Write) and step.door == "hook":
        action = replace(action, mode=WriteMode.SUMMARIZE)
    return replace(step, action=action, may_fail=step.may_fail or _in_trouble(step))


def _hydrations(company: str) -> Iterator[Step]:
    """Two people who work with an agent: what it is told before a run, every other day."""
    for day in range(1, 60, 2):
        for hour, person, project in ((9.2, "ana", "mech-fighters"), (10.6, "bo", "infra")):
            scope = Scope(company_id=company, project_id=project, subject_id=person)
            yield Step(at(day, hour), "agent:coding", "hook", scope, Hydrate())


def _last(company: str) -> Step:
    scope = Scope(
        company_id=company, project_id="mech-fighters", agent_id="coding", issue_id="ISS-53"
    )
    return Step(timedelta(0), "agent:coding", "mcp", scope, Ask("which branch do we deploy from"))


def _by_shelf(steps: list[Step]) -> Shelves:
    written: dict[Shelf, list[tuple[timedelta, str]]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: step.ago, reverse=True):
        if isinstance(step.action, Write) and step.action.binding_key is None:
            written[shelf(step.scope)].append((step.ago, step.action.name))
    return written


def _in_trouble(step: Step) -> bool:
    return any(outage.start >= step.ago > outage.end - _BREAKER_OPEN for outage in OUTAGES)
