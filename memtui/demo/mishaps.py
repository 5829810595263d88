"""The steps in which something goes wrong: refusals, races, outages, and an undo or two."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from memtui.contract import Scope, SourceKind, SourceRef
from memtui.demo.calendar import at
from memtui.demo.hosted_config import Trouble
from memtui.demo.plan import (
    Action,
    Ask,
    Drop,
    Explain,
    Look,
    Open,
    PlannedOutage,
    Race,
    Step,
    Sync,
    TakeBack,
    Trace,
    Write,
)

OUTAGES = (
    PlannedOutage(Trouble.DOWN, at(41, 10.0), at(41, 10.3)),
    PlannedOutage(Trouble.SLOW, at(22, 13.0), at(22, 13.5)),
    PlannedOutage(Trouble.LAG, at(9, 9.0), at(9, 9.5)),
    PlannedOutage(Trouble.DOWN, at(2, 11.0), at(2, 11.2)),
)
"""When `research-kb` misbehaves."""

RUNBOOK = "First five minutes of an incident"
BALANCE = "Margit's reach went from"


class Mishaps:
    """Plans them; `names` finds a record of the content by the beginning of its title or text."""

    def __init__(self, company: str, names: dict[str, str]) -> None:
        self._company = company
        self._names = names

    def steps(self) -> Iterator[Step]:
        """Yield every step, in no order of time."""
        yield from self._refused()
        yield from self._raced()
        yield from self._regretted()
        yield from self._late_provider()
        yield from self._not_there()
        for week in range(0, 8, 2):
            yield self._step(at(7 * week + 1, 5.5), "agent:ops", "cli", Sync("default"))

    def _refused(self) -> Iterator[Step]:
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

    def _raced(self) -> Iterator[Step]:
        race = Race(
            name=self._named(BALANCE),
            first="Ana froze it until the tournament is over.",
            second="Range 128 confirmed in the build of today.",
            late="agent:coding",
        )
        yield self._step(at(6, 14.2), "user:ana", "tui", race, project="mech-fighters")

    def _regretted(self) -> Iterator[Step]:
        runbook = Drop((self._named(RUNBOOK),))
        yield self._step(at(19, 8.5), "user:bo", "tui", runbook, project="infra")
        yield self._step(at(19, 8.52), "user:bo", "tui", TakeBack())
        learned = Drop(("ISS-22/issue",))
        yield self._step(at(8, 9.1), "user:mei", "tui", learned, project="docs-site")
        yield self._step(at(8, 9.2), "user:mei", "tui", TakeBack())
        pair = Drop(("ISS-12/comment-1", "ISS-12/comment-2", "ISS-23/comment-1"))
        yield self._step(at(3, 10.2), "user:ana", "tui", pair, project="mech-fighters")
        yield self._step(at(3, 10.22), "user:ana", "tui", TakeBack())

    def _late_provider(self) -> Iterator[Step]:
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

    def _not_there(self) -> Iterator[Step]:
        for number, day in enumerate((55, 40, 27, 11, 1)):
            name = f"projects/infra/memory/2025-01-0{number + 1}-a-dream.md"
            yield self._step(at(day, 12.4), "agent:ops", "mcp", Open(name), project="infra")
        yield self._docs(at(33, 13.0), Explain("banned words"))
        yield self._step(
            at(7, 10.3), "user:ana", "tui", Explain("deploy branch"), project="mech-fighters"
        )
        fact = "fact/mech-fighters/deploy_branch"
        yield self._step(
            at(7, 10.35),
            "user:ana",
            "tui",
            Ask("deploy branch", as_of=timedelta(days=40)),
            project="mech-fighters",
        )
        yield self._step(at(7, 10.4), "user:ana", "tui", Trace(fact), project="mech-fighters")
        yield self._step(at(7, 10.5), "user:bo", "cli", Look(sort="colour"), project="infra")

    def _docs(self, ago: timedelta, action: Action) -> Step:
        return self._step(ago, "agent:docs", "mcp", action, project="docs-site", agent="docs")

    def _step(
        self,
        ago: timedelta,
        principal: str,
        door: str,
        action: Action,
        *,
        project: str | None = None,
        agent: str | None = None,
    ) -> Step:
        scope = Scope(company_id=self._company, project_id=project, agent_id=agent)
        return Step(ago, principal, door, scope, action, may_fail=True)

    def _note(self, name: str, text: str, binding_key: str | None = None) -> Write:
        source = SourceRef(
            kind=SourceKind.ACTIVITY, company_id=self._company, activity_id=f"act-{name}"
        )
        return Write(name=name, text=text, source=source, binding_key=binding_key)

    def _named(self, start: str) -> str:
        return self._names[start]
