"""Plans the everyday steps: agents' runs, and sessions of people who maintain the memories."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import NamedTuple

from memtui.contract import QueryIntent, Scope, SourceKind, SourceRef
from memtui.demo.content import Content, Issue, Person
from memtui.demo.plan import (
    Action,
    Ask,
    Drop,
    Edit,
    HistoryStep,
    Look,
    Open,
    PlannedStep,
    Shelf,
    Shelves,
    Write,
    is_night,
    later,
    moments,
    shelf,
)

RUNS, SESSIONS = 400, 130
_FIRST_RUN = 4012
_OPEN_DAYS = timedelta(days=12)
_LEARNED_AFTER = timedelta(days=2)
_PRUNED_AFTER = timedelta(days=12)


class PlannedRun(NamedTuple):
    """One run of an agent on an issue."""

    id: str
    issue: Issue
    agent: str
    ago: timedelta
    scope: Scope


class RunPlanner:
    """Plans the runs: recall before, searches during, a note after.

    `opened` has the opening time of each issue, `written` the records that a run may read.
    """

    def __init__(
        self, content: Content, opened: dict[str, timedelta], written: Shelves, random: Random
    ) -> None:
        self._content = content
        self._company = content.company
        self._opened = opened
        self._written = written
        self._random = random
        self._learned: set[str] = set()

    def steps(self) -> Iterator[PlannedStep]:
        """Yield the steps of every run."""
        for number, ago in enumerate(moments(RUNS, self._random), start=_FIRST_RUN):
            issue = self._issue_at(ago)
            agent = self._agent_for(issue.project, ago)
            run_id = f"run-{number}"
            scope = Scope(
                company_id=self._company.id,
                agent_id=agent,
                project_id=issue.project,
                issue_id=issue.id,
                run_id=run_id,
            )
            yield from self._run(PlannedRun(run_id, issue, agent, ago, scope))

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
            for agent in self._company.agent
            for name in agent.projects
            if name == project and (agent.nights or not is_night(ago))
        ]
        return self._random.choice(agents or ["orchestrator"])

    def _run(self, run: PlannedRun) -> Iterator[PlannedStep]:
        random, ago = self._random, run.ago
        recall = Ask(run.issue.title, top_k=8, intent=QueryIntent.AGENT_PREAMBLE)
        yield _of_run(run, ago, "hook", recall)
        for _ in range(random.randrange(2, 6)):
            ago = later(ago, random.randrange(8, 150))
            top_k = random.choice((3, 5, 5, 5, 10))
            yield _of_run(run, ago, "mcp", Ask(self._query_of(run.issue), top_k=top_k))
        ago = later(ago, random.randrange(5, 60))
        if random.random() < 0.35 and (name := self._known_name(run)):
            yield _of_run(run, ago, "mcp", Open(name))
        if random.random() < 0.08:
            yield _of_run(run, later(ago, 5), "mcp", Look(limit=20))
        yield from self._notes(run, later(ago, random.randrange(20, 200)))

    def _notes(self, run: PlannedRun, ago: timedelta) -> Iterator[PlannedStep]:
        age = self._opened[run.issue.id] - run.ago
        if run.issue.id not in self._learned and age > _LEARNED_AFTER:
            self._learned.add(run.issue.id)
            yield self._write(run, ago, "mcp", f"{run.issue.id}/learned", run.issue.learned)
        elif run.issue.id in self._learned and self._random.random() < 0.07:
            yield self._write(run, ago, "mcp", f"{run.id}/again", self._reworded(run.issue))
        if self._random.random() < 0.42:
            yield self._write(run, later(ago, 4), "hook", run.id, self._closing_note(run))

    def _write(
        self, run: PlannedRun, ago: timedelta, channel: str, name: str, text: str
    ) -> PlannedStep:
        topic, ids = run.issue.topic, {"run_id": run.id, "issue_id": run.issue.id}
        source = SourceRef(kind=SourceKind.RUN, company_id=self._company.id, **ids)
        tags = ("run-summary",) if channel == "hook" else (topic, "learned")
        return _of_run(run, ago, channel, Write(name, text, source, topic=topic, tags=tags))

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

    def _known_name(self, run: PlannedRun) -> str | None:
        written = self._written.get(shelf(run.scope), ())
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

    def _closing_note(self, run: PlannedRun) -> str:
        parts, random = self._content.runs, self._random
        done = sorted({random.randrange(len(parts.did)) for _ in range(2)})
        sentences = [
            random.choice(parts.started),
            *(f"{parts.did[number]}." for number in done),
            random.choice(parts.ended),
            random.choice(parts.noticed),
            parts.passed_on.get(run.id, ""),
        ]
        people = [person.id.capitalize() for person in self._company.person]
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


def _of_run(run: PlannedRun, ago: timedelta, channel: str, action: Action) -> PlannedStep:
    return PlannedStep(ago, f"agent:{run.agent}", channel, run.scope, action)


class SessionPlanner:
    """Plans the sessions: read, correct, prune.

    `written` are all records; `old_runs` are those that people prune, the closing notes of runs.
    """

    def __init__(
        self, content: Content, written: Shelves, old_runs: Shelves, random: Random
    ) -> None:
        self._content = content
        self._written = written
        self._old_runs = {place: list(names) for place, names in old_runs.items()}
        self._random = random
        self._pinned: set[str] = set()

    def steps(self) -> Iterator[PlannedStep]:
        """Yield the steps of every session."""
        for ago in moments(SESSIONS, self._random, nights=False):
            person = self._random.choice(self._content.company.person)
            yield from self._session(person, ago)

    def _session(self, person: Person, ago: timedelta) -> Iterator[PlannedStep]:
        random = self._random
        project = random.choice(person.projects)
        scope = Scope(company_id=self._content.company.id, project_id=project)
        channel = "cli" if random.random() < 0.3 else "tui"
        for action in self._actions(scope, ago):
            yield PlannedStep(ago, f"user:{person.id}", channel, scope, action)
            ago = later(ago, random.randrange(6, 90))

    def _actions(self, scope: Scope, ago: timedelta) -> Iterator[Action]:
        random, place = self._random, shelf(scope)
        yield Look(sort=random.choice(("-updated_at", "-created_at", "title")), limit=100)
        for _ in range(random.randrange(1, 4)):
            text = random.choice(self._content.queries.project[scope.project_id or ""])
            intent = QueryIntent.BROWSE if random.random() < 0.3 else QueryIntent.ANSWER
            yield Ask(text, top_k=10, intent=intent)
        known = [name for when, name in self._written.get(place, ()) if when > ago]
        if not known:
            return
        yield Open(random.choice(known))
        dice = random.random()
        if dice < 0.4:
            yield self._edit(random.choice(known))
        elif dice < 0.6:
            yield HistoryStep(random.choice(known))
        elif dice < 0.78 and (names := self._prunable(place, ago)):
            yield Drop(names)

    def _edit(self, name: str) -> Edit:
        random, edits = self._random, self._content.edits
        dice = random.random()
        if dice < 0.6 and not name.startswith("fact/"):
            return Edit(name, sentence=random.choice(edits.sentences))
        if dice < 0.85 or name in self._pinned:
            return Edit(name, tags=(random.choice(edits.tags),))
        self._pinned.add(name)
        return Edit(name, pinned=True)

    def _prunable(self, place: Shelf, ago: timedelta) -> tuple[str, ...]:
        old = [pair for pair in self._old_runs.get(place, ()) if pair[0] - ago > _PRUNED_AFTER]
        chosen = old[: self._random.randrange(1, 4)]
        for pair in chosen:
            self._old_runs[place].remove(pair)
        return tuple(name for _, name in chosen)
