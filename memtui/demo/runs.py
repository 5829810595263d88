"""The steps of the agents' runs: recall before, searches during, a note after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from memtui.contract import QueryIntent, Scope, SourceKind, SourceRef
from memtui.demo.calendar import is_night, moments
from memtui.demo.content import Content, Issue
from memtui.demo.plan import Ask, Look, Open, Shelves, Step, Write, shelf

RUNS = 400
_FIRST_RUN = 4012
_OPEN_DAYS = timedelta(days=12)
_LEARNED_AFTER = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent on an issue."""

    id: str
    issue: Issue
    agent: str
    ago: timedelta


class Runs:
    """Plans the runs; `written` are the records that a run may look at."""

    def __init__(
        self,
        content: Content,
        opened: dict[str, timedelta],
        written: Shelves,
        random: Random,
    ) -> None:
        self._content = content
        self._opened = opened
        self._written = written
        self._random = random
        self._learned: set[str] = set()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of every run."""
        for number, ago in enumerate(moments(RUNS, self._random)):
            issue = self._issue_at(ago)
            run = Run(
                id=f"run-{_FIRST_RUN + number}",
                issue=issue,
                agent=self._agent_for(issue.project, ago),
                ago=ago,
            )
            yield from self._run(run)

    def _issue_at(self, ago: timedelta) -> Issue:
        known = [issue for issue in self._content.issues if self._opened[issue.id] > ago]
        waiting = [
            issue
            for issue in known
            if issue.id not in self._learned and self._opened[issue.id] - ago > _LEARNED_AFTER
        ]
        if waiting and self._random.random() < 0.4:
            return waiting[0]
        young = [issue for issue in known if self._opened[issue.id] - ago < _OPEN_DAYS]
        return self._random.choice(young or known or [self._content.issues[0]])

    def _agent_for(self, project: str, ago: timedelta) -> str:
        agents = [
            agent.id
            for agent in self._content.company.agent
            for name in agent.projects
            if name == project and (agent.nights or not is_night(ago))
        ]
        return self._random.choice(agents or ["orchestrator"])

    def _run(self, run: Run) -> Iterator[Step]:
        random, ago = self._random, run.ago
        yield self._step(
            run, ago, "hook", Ask(run.issue.title, top_k=8, intent=QueryIntent.AGENT_PREAMBLE)
        )
        for _ in range(random.randrange(2, 6)):
            ago = _after(ago, random.randrange(8, 150))
            top_k = random.choice((3, 5, 5, 5, 10))
            yield self._step(run, ago, "mcp", Ask(self._query_of(run.issue), top_k=top_k))
        ago = _after(ago, random.randrange(5, 60))
        if random.random() < 0.35 and (name := self._known_name(run)):
            yield self._step(run, ago, "mcp", Open(name))
        if random.random() < 0.08:
            yield self._step(run, _after(ago, 5), "mcp", Look(limit=20))
        yield from self._notes(run, _after(ago, random.randrange(20, 200)))

    def _notes(self, run: Run, ago: timedelta) -> Iterator[Step]:
        age = self._opened[run.issue.id] - run.ago
        if run.issue.id not in self._learned and age > _LEARNED_AFTER:
            self._learned.add(run.issue.id)
            yield self._write(run, ago, "mcp", f"{run.issue.id}/learned", run.issue.learned)
        elif run.issue.id in self._learned and self._random.random() < 0.07:
            yield self._write(run, ago, "mcp", f"{run.id}/again", self._reworded(run.issue))
        if self._random.random() < 0.42:
            yield self._write(run, _after(ago, 4), "hook", run.id, self._closing_note(run))

    def _write(self, run: Run, ago: timedelta, door: str, name: str, text: str) -> Step:
        tags = ("run-summary",) if door == "hook" else (run.issue.topic, "learned")
        source = SourceRef(
            kind=SourceKind.RUN,
            company_id=self._content.company.id,
            run_id=run.id,
            issue_id=run.issue.id,
        )
        write = Write(name=name, text=text, source=source, topic=run.issue.topic, tags=tags)
        return self._step(run, ago, door, write)

    def _step(self, run: Run, ago: timedelta, door: str, action: Ask | Open | Look | Write) -> Step:
        return Step(ago, f"agent:{run.agent}", door, self._scope(run), action)

    def _scope(self, run: Run) -> Scope:
        return Scope(
            company_id=self._content.company.id,
            agent_id=run.agent,
            project_id=run.issue.project,
            issue_id=run.issue.id,
            run_id=run.id,
        )

    def _query_of(self, issue: Issue) -> str:
        queries, random = self._content.queries, self._random
        dice = random.random()
        if dice < 0.55:
            return random.choice(issue.asks)
        if dice < 0.82:
            return random.choice(queries.project[issue.project])
        if dice < 0.89:
            return random.choice(queries.everywhere)
        if dice < 0.94:
            return random.choice(queries.nothing)
        others = [one for one in self._content.issues if one.project == issue.project]
        return random.choice(random.choice(others).asks)

    def _known_name(self, run: Run) -> str | None:
        written = self._written.get(shelf(self._scope(run)), ())
        names = [name for ago, name in written if ago > run.ago]
        return self._random.choice(names) if names else None

    def _reworded(self, issue: Issue) -> str:
        text = issue.learned.rstrip(".")
        variants = (
            f"Remember: {text[0].lower()}{text[1:]}",
            text.replace(". ", "; ").replace(" is ", " = ", 1),
            f"{text} ({issue.id}).",
            issue.learned,
        )
        return self._random.choice(variants)

    def _closing_note(self, run: Run) -> str:
        parts, random = self._content.runs, self._random
        done = sorted({random.randrange(len(parts.did)) for _ in range(2)})
        sentences = [
            random.choice(parts.started),
            *(f"{parts.did[number]}." for number in done),
            random.choice(parts.ended),
            random.choice(parts.noticed),
        ]
        people = [person.id.capitalize() for person in self._content.company.person]
        return " ".join(
            sentence.format(
                issue=run.issue.id,
                title=run.issue.title,
                topic=run.issue.topic,
                person=random.choice(people),
                n=random.randrange(2, 40),
            )
            for sentence in sentences
            if sentence
        )


def _after(ago: timedelta, seconds: int) -> timedelta:
    """Return a moment some seconds later, and never the end itself."""
    return max(ago - timedelta(seconds=seconds), ago / 2)
