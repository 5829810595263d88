"""The steps of the demo as plain values: who does what, and when.

Times are durations before the end of the demo, so a plan does not depend on the present time.
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
"""The hour of the day, in the plan's calendar, at which the demo ends."""
_END_WEEKDAY = 2
_QUIET_DAYS = frozenset({5, 6})
_HOURS = (1, 1, 1, 1, 1, 1, 2, 6, 12, 16, 17, 14, 9, 12, 16, 16, 13, 8, 4, 3, 2, 2, 1, 1)
"""How busy each hour of a day is, relative to the others."""


def seeded(seed: int) -> Random:
    """Return a random generator with the same numbers on every machine."""
    return Random(seed)  # noqa: S311 — it makes up a story, no secret


def moments(count: int, random: Random, *, nights: bool = True) -> list[timedelta]:
    """Return `count` times as durations before the end, longest first; denser towards the end."""
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
    """Return the duration before the end of `hour` on the day `day` days before the last one."""
    return max(timedelta(days=day, hours=_END_HOUR - hour), timedelta(minutes=10))


def later(ago: timedelta, seconds: int) -> timedelta:
    """Return a moment some seconds later, or half way to the end if that is nearer."""
    return max(ago - timedelta(seconds=seconds), ago / 2)


def is_quiet(day: int) -> bool:
    """Whether little happens on the day `day` days before the last one."""
    return (_END_WEEKDAY - day) % 7 in _QUIET_DAYS


def is_night(ago: timedelta) -> bool:
    """Whether the time is at night, when only some agents work."""
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
    """Start of its validity, as a duration before the end; None: when it is written."""
    mode: WriteMode = WriteMode.APPEND
    binding_key: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Query; `as_of` is a duration before the end."""

    text: str
    top_k: int = 5
    intent: QueryIntent = QueryIntent.ANSWER
    as_of: timedelta | None = None
    binding_key: str | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """Request the stages of a query."""

    text: str


@dataclass(frozen=True, slots=True)
class Open:
    """Get a record; a name that was never written is used as an id."""

    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Browse a page."""

    sort: str = "-updated_at"
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Hydrate:
    """Assemble a model's context before a run, with the results for its task."""

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
    """Two principals correct one record after both have read it; `late` is the second one."""

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
    """Request the history of a record."""

    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync a binding, which reads its files again."""

    key: str


Read = Ask | Explain | Open | Look | Hydrate | HistoryStep
Change = Write | Edit | Drop | TakeBack
Action = Read | Change | Race | AddBinding | SwitchBinding | Sync


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One action of a principal, `ago` before the end of the demo."""

    ago: timedelta
    principal: str
    channel: str
    scope: Scope
    action: Action
    may_fail: bool = False
    """Whether an error is part of the story; other errors end the build."""


DEFAULT, HOSTED = "default", "research-kb"
"""The bindings to the company's vault and to the hosted stand-in."""
HOSTED_PROJECT, HOSTED_AGENT = "docs-site", "scout"
"""The project and the agent that the stand-in serves; everything else goes to the vault."""


def is_hosted(scope: Scope) -> bool:
    """Whether operations of this scope go to the hosted stand-in."""
    return scope.project_id == HOSTED_PROJECT or scope.agent_id == HOSTED_AGENT


Shelf = tuple[str | None, bool]
"""A project, and whether the hosted stand-in serves it; its records are found together."""


def shelf(scope: Scope) -> Shelf:
    """Return the shelf of a scope's records."""
    return scope.project_id, is_hosted(scope)


Shelves = Mapping[Shelf, Sequence[tuple[timedelta, str]]]
"""Times and names of the records written to each shelf, oldest first."""


@dataclass(frozen=True, slots=True)
class PlannedOutage:
    """An outage of the hosted stand-in; times are durations before the end."""

    kind: Trouble
    start: timedelta
    end: timedelta
