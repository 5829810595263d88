"""All steps of the demo in chronological order, the same on every call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import islice

from memtui.contract import Scope, SourceKind, SourceRef, WriteMode
from memtui.demo.content import Person, load
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
_RUNBOOK = "First five minutes of an incident"
_BALANCE = "Margit's reach went from"
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
    names = {
        start: f"note/{number}"
        for number, note in enumerate(content.notes)
        for start in (_RUNBOOK, _BALANCE)
        if (note.title or note.text).startswith(start)
    }
    steps += Mishaps(company, names).steps()
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


class Mishaps:
    """Plans the failures: refusals, races, outages, and some undos.

    `names` maps the beginning of a record's title or text to its name.
    """

    def __init__(self, company: str, names: dict[str, str]) -> None:
        self._company = company
        self._names = names

    def steps(self) -> Iterator[PlannedStep]:
        """Yield every step, in no particular order."""
        yield from self._refused()
        yield from self._raced_and_regretted()
        yield from self._late_provider()
        yield from self._not_there()
        for week in range(0, 8, 2):
            yield self._step(at(7 * week + 1, 5.5), "agent:ops", "cli", Sync("default"))

    def _refused(self) -> Iterator[PlannedStep]:
        for day, who in ((50, "agent:coding"), (28, "agent:orchestrator"), (4, "agent:coding")):
            text = "Handbook: agents may also approve their own expenses."
            note = self._note(f"refused/{day}", text, binding_key="handbook")
            yield self._step(at(day, 13.3), who, "mcp", note)
        for day in (44, 31):
            note = self._note(f"refused/{day}", "One more trial note.", binding_key="trial-kb")
            yield self._step(at(day, 10.6), "user:mei", "cli", note)
            ask = Ask("trial recall", binding_key="trial-kb")
            yield self._step(at(day, 10.7), "user:mei", "cli", ask)
        yield self._step(at(13, 9.9), "agent:docs", "hook", self._note("refused/empty", " \n"))

    def _raced_and_regretted(self) -> Iterator[PlannedStep]:
        race = Race(
            name=self._names[_BALANCE],
            first="Ana froze it until the tournament is over.",
            second="Range 128 confirmed in the build of today.",
            late="agent:coding",
        )
        yield self._step(at(6, 14.2), "user:ana", "tui", race, project="mech-fighters")
        pair = ("ISS-12/comment-1", "ISS-12/comment-2", "ISS-23/comment-1")
        for day, hour, soon, who, project, names in (
            (19, 8.5, 8.52, "user:bo", "infra", (self._names[_RUNBOOK],)),
            (8, 9.1, 9.2, "user:mei", "docs-site", ("ISS-22/issue",)),
            (3, 10.2, 10.22, "user:ana", "mech-fighters", pair),
        ):
            yield self._step(at(day, hour), who, "tui", Drop(names), project=project)
            yield self._step(at(day, soon), who, "tui", TakeBack())

    def _late_provider(self) -> Iterator[PlannedStep]:
        for hour in (10.05, 10.1, 10.2):
            yield self._docs(at(41, hour), Ask("search ranking"))
        for hour in (13.05, 13.1):
            yield self._docs(at(22, hour), Ask("stale translations"))
        text = "The new search index is built at 02:00 UTC, after the previews are reaped."
        yield self._docs(at(22, 13.2), self._note("unknown/index", text))
        yield self._docs(at(22, 13.3), Drop(("ISS-28/comment-1",)))
        yield self._docs(at(9, 9.2), Drop(("ISS-15/issue",)))
        for hour in (11.02, 11.1):
            yield self._docs(at(2, hour), Ask("voice and tone"))

    def _not_there(self) -> Iterator[PlannedStep]:
        for number, day in enumerate((55, 40, 27, 11, 1)):
            name = f"projects/infra/memory/2025-01-0{number + 1}-a-dream.md"
            yield self._step(at(day, 12.4), "agent:ops", "mcp", Open(name), project="infra")
        yield self._docs(at(33, 13.0), Explain("banned words"))
        branch, then = "deploy branch", timedelta(days=40)
        for hour, action in (
            (10.3, Explain(branch)),
            (10.35, Ask(branch, as_of=then)),
            (10.4, HistoryStep("fact/mech-fighters/deploy_branch")),
        ):
            yield self._step(at(7, hour), "user:ana", "tui", action, project="mech-fighters")
        yield self._step(at(7, 10.5), "user:bo", "cli", Look(sort="colour"), project="infra")

    def _docs(self, ago: timedelta, action: Action) -> PlannedStep:
        return self._step(ago, "agent:docs", "mcp", action, project="docs-site", agent="docs")

    def _step(
        self,
        ago: timedelta,
        principal: str,
        channel: str,
        action: Action,
        *,
        project: str | None = None,
        agent: str | None = None,
    ) -> PlannedStep:
        scope = Scope(company_id=self._company, project_id=project, agent_id=agent)
        return PlannedStep(ago, principal, channel, scope, action, may_fail=True)

    def _note(self, name: str, text: str, binding_key: str | None = None) -> Write:
        source = SourceRef(
            kind=SourceKind.ACTIVITY, company_id=self._company, activity_id=f"act-{name}"
        )
        return Write(name=name, text=text, source=source, binding_key=binding_key)
