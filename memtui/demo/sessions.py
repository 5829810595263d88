"""The steps of people who look after the memories: read, correct, prune."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from memtui.contract import QueryIntent, Scope
from memtui.demo.calendar import moments
from memtui.demo.content import Content, Person
from memtui.demo.plan import (
    Action,
    Ask,
    Drop,
    Edit,
    Look,
    Open,
    Shelf,
    Shelves,
    Step,
    Trace,
    shelf,
)

SESSIONS = 130
_PRUNED_AFTER = timedelta(days=12)


class Sessions:
    """Plans the sessions.

    `written` are all records, `old_runs` those of them that people prune: closing notes of runs.
    """

    def __init__(
        self,
        content: Content,
        written: Shelves,
        old_runs: Shelves,
        random: Random,
    ) -> None:
        self._content = content
        self._written = written
        self._old_runs = {place: list(names) for place, names in old_runs.items()}
        self._random = random
        self._pinned: set[str] = set()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of every session."""
        for ago in moments(SESSIONS, self._random, nights=False):
            person = self._random.choice(self._content.company.person)
            yield from self._session(person, ago)

    def _session(self, person: Person, ago: timedelta) -> Iterator[Step]:
        random = self._random
        project = random.choice(person.projects)
        scope = Scope(company_id=self._content.company.id, project_id=project)
        door = "cli" if random.random() < 0.3 else "tui"
        for action in self._actions(scope, ago):
            yield Step(ago, f"user:{person.id}", door, scope, action)
            ago = max(ago - timedelta(seconds=random.randrange(6, 90)), ago / 2)

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
            yield Trace(random.choice(known))
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
