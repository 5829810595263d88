"""All steps of the demo in chronological order, the same on every call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import islice

from pydantic import TypeAdapter

from memtui.contract import Scope, SourceKind, SourceRef, WriteMode
from memtui.demo.content import Content, Person, load
from memtui.demo.hosted import Trouble
from memtui.demo.plan import (
    Action,
    Ask,
    Drop,
    Explain,
    HistoryStep,
    Hydrate,
    Look,
    Open,
    PlannedOutage,
    PlannedStep,
    Race,
    Shelf,
    Shelves,
    Sync,
    TakeBack,
    Write,
    at,
    is_hosted,
    seeded,
    shelf,
)
from memtui.demo.records import Records
from memtui.demo.work import RunPlanner, SessionPlanner

OUTAGES = (
    PlannedOutage(Trouble.DOWN, at(41, 10.0), at(41, 10.3)),
    PlannedOutage(Trouble.SLOW, at(22, 13.0), at(22, 13.5)),
    PlannedOutage(Trouble.LAG, at(9, 9.0), at(9, 9.5)),
    PlannedOutage(Trouble.DOWN, at(2, 11.0), at(2, 11.2)),
)
"""The outages of `research-kb`."""

_SEED = 31
_BEFORE_ASKING = timedelta(seconds=2)
_NEWEST_HYDRATED = 15
_BREAKER_OPEN = timedelta(minutes=2)
"""Time after an outage for which the circuit breaker still refuses calls."""


@cache
def timeline() -> tuple[PlannedStep, ...]:
    """Return every step, the oldest first."""
    content = load()
    company = content.company.id
    random = seeded(_SEED)
    records = Records(content, random)
    steps = list(records.steps())
    runs = list(RunPlanner(content, records.opened, _by_shelf(steps), random).steps())
    steps += runs
    closing = _by_shelf(step for step in runs if step.channel == "hook")
    steps += SessionPlanner(content, _by_shelf(steps), closing, random).steps()
    steps += _told(content)
    steps += records.leftovers()
    steps += _hydrations(runs, content.company.person)
    last = Scope(
        company_id=company, project_id="mech-fighters", agent_id="coding", issue_id="ISS-53"
    )
    ask = Ask("which branch do we deploy from")
    steps.append(PlannedStep(timedelta(0), "agent:coding", "mcp", last, ask))
    steps.sort(key=lambda step: step.ago, reverse=True)
    return tuple(map(_settled, steps))


def _hydrations(runs: Iterable[PlannedStep], people: Sequence[Person]) -> Iterator[PlannedStep]:
    """Yield the contexts of starting runs: for two people, one every other day and the newest.

    Each is for a person who works in the run's project.
    """
    begun = [
        one
        for one in runs
        if one.channel == "hook" and isinstance(one.action, Ask) and not is_hosted(one.scope)
    ]
    chosen = {one.scope.run_id: one for one in begun[-_NEWEST_HYDRATED:]}
    for project, hour in (("mech-fighters", 9.2), ("infra", 10.6)):
        own = [one for one in begun if one.scope.project_id == project]
        for day in range(1, 60, 2):
            within = (one for one in own if at(day, hour) >= one.ago > at(day - 2, hour))
            chosen |= {one.scope.run_id: one for one in islice(within, 1)}
    for first in chosen.values():
        person = next(one.id for one in people if first.scope.project_id in one.projects)
        scope = first.scope.model_copy(update={"subject_id": person})
        if isinstance(first.action, Ask):
            hydrate = Hydrate(first.action.text)
            yield replace(first, ago=first.ago + _BEFORE_ASKING, scope=scope, action=hydrate)


def _by_shelf(steps: Iterable[PlannedStep]) -> Shelves:
    written: dict[Shelf, list[tuple[timedelta, str]]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: step.ago, reverse=True):
        if isinstance(step.action, Write) and step.action.binding_key is None:
            written[shelf(step.scope)].append((step.ago, step.action.name))
    return written


def _settled(step: PlannedStep) -> PlannedStep:
    """Return the step adapted to the hosted stand-in, which summarises the writes of hooks."""
    if not is_hosted(step.scope):
        return step
    action = step.action
    if isinstance(action, Write) and step.channel == "hook":
        action = replace(action, mode=WriteMode.SUMMARIZE)
    in_trouble = any(one.start >= step.ago > one.end - _BREAKER_OPEN for one in OUTAGES)
    return replace(step, action=action, may_fail=step.may_fail or in_trouble)


_ACTIONS: dict[str, type[Action]] = {
    "ask": Ask, "drop": Drop, "explain": Explain, "history": HistoryStep, "look": Look,
    "open": Open, "race": Race, "sync": Sync, "undo": TakeBack, "write": Write,
}  # fmt: skip
"""The actions of the steps that the content tells one by one."""


def _told(content: Content) -> Iterator[PlannedStep]:
    """Yield the failures and the undos, in no particular order."""
    company = content.company.id
    for one in content.mishaps:
        kind, given = one.do
        if kind == "write":
            activity = f"act-{given['name']}"
            given = given | {
                "source": SourceRef(
                    kind=SourceKind.ACTIVITY, company_id=company, activity_id=activity
                )
            }
        action = TypeAdapter(_ACTIONS[kind]).validate_python(given)
        scope = Scope(company_id=company, project_id=one.project, agent_id=one.agent)
        yield PlannedStep(at(*one.at), one.who, one.channel, scope, action, may_fail=True)
