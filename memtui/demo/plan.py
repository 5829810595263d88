"""The steps that a demo is made of: who does what, when, as plain values.

Times are spans back from the end of the demo, so a plan is the same whenever it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from memtui.contract import QueryIntent, Scope, SourceRef, WriteMode
from memtui.demo.hosted import Trouble

DAYS = 60
_END_HOUR = 16
"""The hour of the day, in the plan's own calendar, at which the demo ends."""
_END_WEEKDAY = 2
_QUIET_DAYS = frozenset({5, 6})
_HOURS = (1, 1, 1, 1, 1, 1, 2, 6, 12, 16, 17, 14, 9, 12, 16, 16, 13, 8, 4, 3, 2, 2, 1, 1)
"""How busy each hour of a day is, relative to the others."""


def seeded(seed: int) -> Random:
    """Return a generator that gives the same numbers on every machine."""
    return Random(seed)  # noqa: S311 — it makes up a story, no secret


def moments(count: int, random: Random, *, nights: bool = True) -> list[timedelta]:
    """Return `count` spans back from the end, the longest first; busier towards the end."""
    slots = [
        (day, hour)
        for day in range(DAYS)
        for hour in range(24)
        if _ago(day, hour) > timedelta(0) and (nights or _HOURS[hour] > 2)
    ]
    weights = [
        _HOURS[hour] * (0.2 if is_quiet(day) else 1.0) * (1.3 - day / 100) for day, hour in slots
    ]
    chosen = random.choices(slots, weights, k=count)
    spans = [_ago(day, hour) - timedelta(seconds=random.randrange(3600)) for day, hour in chosen]
    return sorted((max(span, timedelta(minutes=4)) for span in spans), reverse=True)


def at(day: float, hour: float) -> timedelta:
    """Return the span from `hour` of the day `day` days before the last one to the end."""
    return max(timedelta(days=day, hours=_END_HOUR - hour), timedelta(minutes=10))


def later(ago: timedelta, seconds: int) -> timedelta:
    """Return a moment some seconds later, or half way to the end if that is nearer."""
    return max(ago - timedelta(seconds=seconds), ago / 2)


def is_quiet(day: int) -> bool:
    """Whether little happens on the day `day` days before the last one."""
    return (_END_WEEKDAY - day) % 7 in _QUIET_DAYS


def is_night(ago: timedelta) -> bool:
    """Whether only those work who work at night."""
    hour = (_END_HOUR - ago.total_seconds() / 3600) % 24
    return not 6 <= hour < 20


def _ago(day: int, hour: int) -> timedelta:
    return timedelta(days=day, hours=_END_HOUR - hour)


@dataclass(frozen=True, slots=True)
class AddBinding:
    """Set up a binding; it serves the targets, each a pair of type and id."""

    key: str
    provider: str
    targets: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchBinding:
    """Turn a binding off, or make it read-only."""

    key: str
    enabled: bool | None = None
    read_only: bool | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Store a record; later steps know it by `name`."""

    name: str
    text: str
    source: SourceRef
    kind: str = "note"
    title: str | None = None
    summary: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    expires_after_end: timedelta | None = None
    since: timedelta | None = None
    """Since when it held, as a span back from the end; None: since it was written."""
    mode: WriteMode = WriteMode.APPEND
    binding_key: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Query; `as_of` is a span back from the end."""

    text: str
    top_k: int = 5
    intent: QueryIntent = QueryIntent.ANSWER
    as_of: timedelta | None = None
    binding_key: str | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """Ask how a query is answered."""

    text: str


@dataclass(frozen=True, slots=True)
class Open:
    """Get a record; a name that was never written is asked for as an id."""

    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Browse a page."""

    sort: str = "-updated_at"
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Hydrate:
    """Hand a model its context before a run, with what is found for its task."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Read a record and correct it: add a sentence, or set tags or the pin."""

    name: str
    sentence: str | None = None
    tags: tuple[str, ...] | None = None
    pinned: bool | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """Two correct one record after both have read it; the second is `late`."""

    name: str
    first: str
    second: str
    late: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget records."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Undo the last mutation."""


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """Ask for the history of a record."""

    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Let a binding read its files again."""

    key: str


Read = Ask | Explain | Open | Look | Hydrate | HistoryStep
Change = Write | Edit | Drop | TakeBack
Action = Read | Change | Race | AddBinding | SwitchBinding | Sync


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One thing that somebody does, `ago` before the end of the demo."""

    ago: timedelta
    principal: str
    channel: str
    scope: Scope
    action: Action
    may_fail: bool = False
    """Whether an error is part of the story; any other ends the build."""


DEFAULT, HOSTED = "default", "research-kb"
"""The bindings to the company's vault and to the hosted stand-in."""
HOSTED_PROJECT, HOSTED_AGENT = "docs-site", "scout"
"""What the stand-in serves; everything else goes to the vault."""


def is_hosted(scope: Scope) -> bool:
    """Whether operations of this scope go to the hosted stand-in."""
    return scope.project_id == HOSTED_PROJECT or scope.agent_id == HOSTED_AGENT


Shelf = tuple[str | None, bool]
"""A project and whether the hosted stand-in serves it: records that are found together."""


def shelf(scope: Scope) -> Shelf:
    """Return where the records of a scope are found."""
    return scope.project_id, is_hosted(scope)


Shelves = Mapping[Shelf, Sequence[tuple[timedelta, str]]]
"""When and under which names the records of each shelf are written, oldest first."""


@dataclass(frozen=True, slots=True)
class PlannedOutage:
    """When the hosted stand-in misbehaves, as spans back from the end."""

    kind: Trouble
    start: timedelta
    end: timedelta
