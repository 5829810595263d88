"""What a memory service is, in the plainest Python: the specification that the real one is held to.

It keeps records in dictionaries, a copy of all of them for each moment at which something changed,
and a list of what was done. It knows no provider, database, thread or cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from memtui.contract import Record, Scope, SourceRef, WriteRequest, owner_of, owner_scope

Key = tuple[str, str]
"""A binding's key, and a record's id there: two bindings may hold equal ids."""
State = dict[Key, Record]
Place = tuple[str, ...]
"""A setting: `("limit", "project", "web", "day")`, `("binding", "one")`, `("pending", ID)`."""
Settings = dict[Place, tuple[Any, Any]]
"""Settings before and after a change; None: there is none."""

FIELDS = (
    "text", "title", "summary", "kind", "topic", "tags", "pinned", "expires_at", "created_at",
    "created_by", "source", "metadata", "scope", "valid_from", "valid_to",
)  # fmt: skip
"""What is compared of a record: all but its revision, its place and the time of its last change."""
MANAGERS = ("owner", "admin")
GATED = ("binding", "member", "company")
"""The settings of which a second person has to say yes to a change."""
_REFUSED = {
    "warn": set[str](), "no-search": {"query"}, "read-only": {"write", "correct"},
    "refuse": {"query", "write", "correct", "context"},
}  # fmt: skip
"""What each action of a passed limit refuses."""
_OF_AGENTS = {"browse", "get", "history"}
"""What `refuse` also refuses, where an agent asks."""


def told(record: Record | None) -> dict[str, object] | None:
    """Return what a record says, but for its line in an index, which others move."""
    if record is None:
        return None
    metadata = {name: one for name, one in record.metadata.items() if name != "index_line"}
    return {name: getattr(record, name) for name in FIELDS} | {"metadata": metadata}


@dataclass
class Member:
    """A person's role in the whole company (`project` None) or in one project."""

    person: str
    role: str
    project: str | None = None

    @property
    def subject(self) -> str:
        return self.person.removeprefix("user:")


@dataclass
class Who:
    """Somebody who calls."""

    principal: str
    acts_for: str | None = None

    @property
    def person(self) -> str | None:
        return self.acts_for if self.is_agent else self.principal

    @property
    def is_agent(self) -> bool:
        return self.principal.startswith("agent:")

    @property
    def agent(self) -> str | None:
        return self.principal.removeprefix("agent:") if self.is_agent else None


@dataclass
class Operation:
    """What was done, or refused."""

    type: str
    status: str
    who: Who
    at: datetime
    binding: str | None
    scope: Scope
    source: SourceRef | None = None
    ids: list[str] = field(default_factory=list)
    touched: set[Key] = field(default_factory=set)
    """The records that the log names with it, also where it changed none."""
    steps: dict[Key, tuple[Record | None, Record | None]] = field(default_factory=dict)
    undoes: Operation | None = None
    settings: Settings = field(default_factory=dict)
    """What it changed of the company's own settings, and of the queue for review."""
    erased: bool = False
    """Whether a purge took values out of it."""
    id: str = ""
    event: str = ""
    """That of a write which its provider stores later; `request` is what was asked for."""
    request: Any = None
    ended: datetime | None = None
    """When it was known what came of that."""

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what came of it."""
        return bool(self.event) and self.ended is None


@dataclass
class Waiting:
    """What an agent asked for, which waits for a person."""

    id: str
    binding: str
    type: str
    who: Who
    asked: dict[str, object]
    """What is compared: the same request waits once."""
    request: Any
    owners: list[Scope]
    base: dict[Key, Record]
    """What it would change, as it was when it was asked for."""
    times: int = 1
    is_hold: bool = False
    """Whether a person held what is stored, and so no agent gets it."""


@dataclass
class Proposal:
    """A change of settings that a second person has to say yes to."""

    settings: Settings
    undoes: Operation | None


@dataclass
class Spent:
    """The tokens of one operation."""

    at: datetime
    tokens: int
    binding: str
    scope: Scope
    who: Who


@dataclass
class Company:
    """All that one company has."""

    name: str
    members: list[Member] = field(default_factory=list)
    records: State = field(default_factory=dict)
    past: list[tuple[datetime, State]] = field(default_factory=list)
    log: list[Operation] = field(default_factory=list)
    queue: list[Waiting] = field(default_factory=list)
    settings: dict[Place, Any] = field(default_factory=dict)
    """Of a limit: the most tokens, and what is refused then. Of a binding: the word that agents'
    requests have to say to wait (None: none waits), and whether it takes in comments."""
    spending: list[Spent] = field(default_factory=list)
    since: datetime | None = None
    """From when on each change is known: not what a sync or a migration did before."""
    second_yes: bool = False
    """Whether a second person has to say yes to what changes bindings or members."""
    synced: Counter[tuple[object, ...]] | None = field(default_factory=Counter)
    """What two bindings both said when they were last in sync; None where that is not foretold."""
    purged: set[Key] = field(default_factory=set)
    links: dict[Key, Key] = field(default_factory=dict)
    """The id that a record has now, by those that it had."""

    def moved(self, old: Key, new: Key) -> None:
        """Note that a record has another id."""
        self.links = {key: new if to == old else to for key, to in self.links.items()} | {old: new}
        self.links.pop(new, None)

    def now(self, key: Key) -> Key:
        """Return where a record is that had an id."""
        return key if key in self.records else self.links.get(key, key)

    def of(self, binding: str) -> list[Record]:
        return [record for (key, _), record in self.records.items() if key == binding]

    def at(self, moment: datetime) -> State:
        """What there was at a moment: what was done at that very moment had been done."""
        states = [state for at, state in self.past if at <= moment]
        return states[-1] if states else {}

    def changed(self, at: datetime) -> None:
        self.past.append((at, dict(self.records)))

    def begin_anew(self, at: datetime) -> None:
        """Follow what is done from now on; what was done before is not foretold any more."""
        self.since = at
        self.past, self.log, self.links = [(at, dict(self.records))], [], {}

    def knows(self, moment: datetime) -> bool:
        """Whether it is known how all was at a moment."""
        return self.since is None or moment >= self.since

    def standing(self, request: WriteRequest, binding: str, now: datetime) -> list[Record]:
        """Return the facts of an owner that have the key of what is written, under its heading."""
        key, colon, _ = request.content.partition(": ")
        return [
            one
            for one in self.of(binding)
            if colon and one.kind == "fact" and one.text.startswith(f"{key}: ") and holds(one, now)
            and owner_of(one.scope) == owner_of(request.scope)
            and (request.topic is None or request.topic == (one.topic or ""))
        ]  # fmt: skip

    def purge(self, keys: set[Key]) -> None:
        """Leave nothing of records, in the past neither."""
        self.purged |= keys
        for _, state in self.past:
            for key in keys:
                state.pop(key, None)
        for done in self.log:
            done.erased = done.erased or not keys.isdisjoint(done.steps)
        self.queue = [one for one in self.queue if keys.isdisjoint(one.base)]

    def undone(self, done: Operation) -> bool:
        """Whether something has taken an operation back that was not taken back itself."""
        if not done.steps:
            return any(one.undoes is done and not self.undone(one) for one in self.log)
        return not self.left(done)

    def left(self, done: Operation) -> list[Key]:
        """The records that an operation changed and nothing has taken back since."""
        back = {key for one in self.log if one.undoes is done for key in self.left(one)}
        return [key for key in done.steps if key not in back]

    # Settings

    def state(self, place: Place) -> Any:
        """How a setting is; None: it is not there."""
        if place[0] == "pending":
            return next((replace(one) for one in self.queue if one.id == place[1]), None)
        return self.settings.get(place, (None, False) if place[0] == "binding" else None)

    def change(self, done: Operation, changes: Settings) -> None:
        """Change settings, as an operation did."""
        done.settings = changes
        for place, (_, after) in changes.items():
            if place[0] == "pending":
                self.queue = [one for one in self.queue if one.id != place[1]]
                self.queue += [replace(after)] if after else []
            else:
                self.settings[place] = after
        self.second_yes = self.settings.get(("company",), False)

    def limits(self) -> dict[Place, tuple[int, str]]:
        """The limits that there are."""
        return {place: one for place, one in self.settings.items() if place[0] == "limit" and one}

    def spent(self, limit: Place, now: datetime) -> int:
        """The tokens that a limit's target has spent in this day or month."""
        _, target, name, period = limit
        length = len("2026-03-28" if period == "day" else "2026-03")
        of: Callable[[Spent], set[str | None]] = {
            "company": lambda one: {""}, "binding": lambda one: {one.binding},
            "project": lambda one: {one.scope.project_id},
            "agent": lambda one: {one.who.agent, one.scope.agent_id},
        }[target]  # fmt: skip
        return sum(
            one.tokens
            for one in self.spending
            if name in of(one)
            and str(one.at.astimezone())[:length] == str(now.astimezone())[:length]
        )

    def stops(
        self, what: str, who: Who, scopes: Iterable[Scope], binding: str, now: datetime,
        *, asker: Who | None = None,
    ) -> bool:  # fmt: skip
        """Whether a passed limit refuses something in one of the scopes, asked for by an agent."""
        scopes = list(scopes)
        of_agents = _OF_AGENTS if who.is_agent else set()
        concerned: dict[str, set[str | None]] = {
            "company": {""}, "binding": {binding}, "project": {one.project_id for one in scopes},
            "agent": {who.agent, asker.agent if asker else None, *(one.agent_id for one in scopes)},
        }  # fmt: skip
        return any(
            what in _REFUSED[action] | (of_agents if action == "refuse" else set())
            and limit[2] in concerned[limit[1]]
            and self.spent(limit, now) > most
            for limit, (most, action) in self.limits().items()
        )

    # Who may do what (seed 004 §6.5), and what one sees (seed 001)

    def manages(self, who: Who) -> bool:
        """Whether somebody is an owner or admin of the whole company."""
        roles = self.roles(who)
        return not self.members or any(one.role in MANAGERS and not one.project for one in roles)

    def configures(self, who: Who) -> bool:
        """Whether somebody may change settings: no agent where agents' requests wait."""
        reviewed = any(
            place[0] == "binding" and one[0] is not None for place, one in self.settings.items()
        )
        return self.manages(who) and not (who.is_agent and reviewed)

    def decides(self, who: Who, one: Waiting) -> bool:
        """Whether somebody may decide on what waits."""
        if who.is_agent or one.type == "configure":
            return not who.is_agent and self.manages(who)
        action = "add" if one.type == "write" else "delete"
        return all(self.may(who, action, owner) for owner in one.owners)

    def knows_of(self, who: Who, one: Waiting) -> bool:
        """Whether somebody sees what waits."""
        if who.is_agent or one.type == "configure":
            return not who.is_agent and self.manages(who)
        return all(self.reads(who, owner) for owner in one.owners)

    def roles(self, who: Who) -> list[Member]:
        return [one for one in self.members if one.person == who.person]

    def may(self, who: Who, action: str, scope: Scope) -> bool:
        """Whether somebody may `view`, `add` or `delete` in a scope."""
        if not self.members:
            return True
        roles = self.roles(who)
        manages = self.manages(who)
        if not roles:
            return False
        if not (scope.project_id or scope.subject_id):
            if scope.agent_id and action == "view":
                return True
            adds = action == "add" and who.is_agent and any(not one.project for one in roles)
            return manages or adds
        if scope.project_id:
            here = [one for one in roles if one.project in (None, scope.project_id)]
            if not here:
                return False
            adds = action == "view" or (action == "add" and who.is_agent)
            if not adds and all(one.role not in MANAGERS for one in here):
                return False
        if scope.subject_id and (action == "view" or not scope.project_id):
            return any(one.subject == scope.subject_id for one in roles)
        return True

    def reads(self, who: Who, scope: Scope) -> bool:
        """Whether a record of a scope is there for somebody."""
        if not self.members:
            return True
        roles = self.roles(who)
        if scope.project_id:
            return any(one.project in (None, scope.project_id) for one in roles)
        return not scope.subject_id or any(one.subject == scope.subject_id for one in roles)

    def held_from(self, who: Who) -> set[Key]:
        """Return the records that are held from somebody, by each id that they had."""
        held = {key for one in self.queue if one.is_hold for key in one.base}
        held |= {new for old, new in self.links.items() if old in held}
        held |= {old for old, new in self.links.items() if new in held}
        return held if who.is_agent else set()

    def sees(self, who: Who, done: Operation) -> bool:
        """Whether an operation is in the log for somebody."""
        if not self.held_from(who).isdisjoint(done.touched):
            return False
        roles = self.roles(who)
        if not self.members or done.who.principal == who.person:
            return True
        scope = done.scope
        own = any(one.subject == scope.subject_id for one in roles)
        if not scope.project_id:
            return own if scope.subject_id else self.manages(who)
        member = any(one.project in (None, scope.project_id) for one in roles)
        return member and (not scope.subject_id or own or done.type == "write")


def holds(record: Record, moment: datetime) -> bool:
    """Whether a record is there at a moment: one that expires at it is not."""
    return (record.expires_at is None or moment < record.expires_at) and (
        record.valid_to is None or moment < record.valid_to
    )


Sees = Callable[[Scope, Scope], bool]
_OWNERS = ("agent_id", "project_id", "subject_id")


def shared(asked: Scope, owner: Scope) -> bool:
    """The usual rule: no owner that both name differs."""
    pairs = [(getattr(asked, name), getattr(owner, name)) for name in _OWNERS]
    return not any(a and b and a != b for a, b in pairs)


def in_folders(asked: Scope, owner: Scope) -> bool:
    """The vault's rule: a project's folder, then a user's, then an agent's, then all the rest."""
    if not any(getattr(asked, name) for name in _OWNERS):
        return True
    project, user, agent = owner.project_id, owner.subject_id, owner.agent_id
    is_users, is_agents = not project, not (project or user)
    if asked.project_id:
        if project == asked.project_id:
            return True
        if asked.subject_id and is_users and user == asked.subject_id:
            return True
        if asked.agent_id and is_agents and agent == asked.agent_id:
            return True
    elif (asked.subject_id and user == asked.subject_id) or (
        asked.agent_id and agent == asked.agent_id
    ):
        return True
    return bool(asked.project_id or asked.agent_id) and not (project or user or agent)


def by_namespace(asked: Scope, owner: Scope) -> bool:
    """The plugin's rule: a record is kept with its owner alone, and a user sees the company's."""
    own = owner_scope(owner)
    return in_folders(asked, own) or not (own.project_id or own.subject_id or own.agent_id)


def exactly(asked: Scope, owner: Scope) -> bool:
    """The vault's rule for lists: each owner that is asked for is the record's."""
    return all(getattr(asked, n) in (None, getattr(owner, n)) for n in _OWNERS)


def in_tables(asked: Scope, owner: Scope) -> bool:
    """The rule of facts: a project's drive and a user's own, or everybody's."""
    if not (asked.project_id or asked.subject_id):
        return True
    if owner.project_id:
        return owner.project_id == asked.project_id
    return owner.subject_id == asked.subject_id
