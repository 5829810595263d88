"""The steps that a demo is made of: who does what, when, as plain values.

Times are spans back from the end of the demo, so a plan is the same whenever it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from memtui.contract import QueryIntent, Scope, SourceRef, WriteMode
from memtui.demo.hosted_config import Trouble


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
    topic: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    expires_after_end: timedelta | None = None
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
    """Hand a model its context before a run."""


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
class Trace:
    """Ask for the history of a record."""

    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Let a binding read its files again."""

    key: str


Action = (
    AddBinding
    | SwitchBinding
    | Write
    | Ask
    | Explain
    | Open
    | Look
    | Hydrate
    | Edit
    | Race
    | Drop
    | TakeBack
    | Trace
    | Sync
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that somebody does, `ago` before the end of the demo."""

    ago: timedelta
    principal: str
    door: str
    scope: Scope
    action: Action
    may_fail: bool = False
    """Whether an error is part of the story; any other ends the build."""


HOSTED = "research-kb"
"""The binding to the hosted stand-in."""
HOSTED_PROJECT, HOSTED_AGENT = "docs-site", "scout"
"""What it serves; everything else goes to the company's default, the vault."""


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
