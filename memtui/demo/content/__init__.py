"""What the demo's company is made of: hand-written TOML, and the models that read it."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from memtui.contract import Model, SourceKind


class DemoAgent(Model):
    """An agent, and the projects it works on; one named twice is worked on twice as often."""

    id: str
    projects: tuple[str, ...]
    nights: bool


class Person(Model):
    """A person, and the projects they look after."""

    id: str
    projects: tuple[str, ...]


class Company(Model):
    """The company and who works there."""

    id: str
    name: str
    link_templates: dict[str, str]
    projects: tuple[str, ...]
    agent: tuple[DemoAgent, ...]
    person: tuple[Person, ...]


class Comment(Model):
    """A comment on an issue, by a person or an agent."""

    by: str
    text: str


class DemoDocument(Model):
    """A document attached to an issue."""

    key: str
    text: str


class Issue(Model):
    """An issue with its thread; `learned` is the note of the run that closed it."""

    id: str
    project: str
    topic: str
    title: str
    body: str
    comments: tuple[Comment, ...]
    learned: str
    asks: tuple[str, ...]
    document: DemoDocument | None = None


class DemoFact(Model):
    """A fact by key, and its values as (days before the end, value), oldest first."""

    project: str
    topic: str
    key: str
    values: tuple[tuple[int, str], ...]
    issue: str | None = None
    since: int | None = None
    """Since when the first value held, in days before the end, if not since it was written."""


class About(Model):
    """What is known about a subject."""

    subject: str
    facts: tuple[str, ...]


class Guidance(Model):
    """How an agent is to behave."""

    agent: str
    text: str
    pinned: bool = False


class DemoNote(Model):
    """A note that belongs to no issue; `day` and `expires_in` are days before and after the end."""

    project: str
    kind: SourceKind
    by: str
    day: int
    text: str
    topic: str
    title: str | None = None
    summary: str | None = None
    ref: str | None = None
    pinned: bool = False
    expires_in: int | None = None


class Plain(Model):
    """A text alone."""

    text: str
    topic: str | None = None


class Poison(Model):
    """Hostile text; `redacted`: the service takes a secret out of it before it is stored."""

    name: str
    project: str
    day: int
    text: str
    repeat: int = 1
    redacted: bool = False

    @property
    def whole(self) -> str:
        """The text as it is written."""
        return (self.text * self.repeat).rstrip(" ") if self.repeat > 1 else self.text


class Leftover(Model):
    """A fact that a memory could do without, and the reason (`memtui.pruning.candidates`) for it.

    It is of the project, subject or agent that is named. On the day `forgotten` before the end
    somebody forgets it; `expires` days before the end it does; `asked` finds it once, a day later.
    """

    why: str
    by: str
    day: int
    text: str
    project: str | None = None
    subject: str | None = None
    agent: str | None = None
    topic: str | None = None
    ref: str | None = None
    """The address that it was read at."""
    forgotten: int | None = None
    expires: int | None = None
    asked: str | None = None


class Queries(Model):
    """Search texts by where they are asked; `nothing` finds nothing."""

    everywhere: tuple[str, ...]
    nothing: tuple[str, ...]
    project: dict[str, tuple[str, ...]]


class Edits(Model):
    """Sentences that people add to a memory when they look after it."""

    sentences: tuple[str, ...]
    tags: tuple[str, ...]


class RunParts(Model):
    """Sentences that a run's closing note is put together from."""

    started: tuple[str, ...]
    did: tuple[str, ...]
    ended: tuple[str, ...]
    noticed: tuple[str, ...]


class Content(Model):
    """All of it."""

    company: Company
    issues: tuple[Issue, ...]
    facts: tuple[DemoFact, ...]
    about: tuple[About, ...]
    everybody: tuple[Plain, ...]
    guidance: tuple[Guidance, ...]
    notes: tuple[DemoNote, ...]
    handbook: tuple[Plain, ...]
    trial: tuple[Plain, ...]
    poison: tuple[Poison, ...]
    leftovers: tuple[Leftover, ...]
    queries: Queries
    edits: Edits
    runs: RunParts


@cache
def load() -> Content:
    """Read the content that ships with memtui."""
    people, notes = _read("people"), _read("notes")
    return Content.model_validate(
        {
            "company": _read("company"),
            "issues": _read("issues")["issue"],
            "facts": _read("facts")["fact"],
            "about": people["about"],
            "everybody": people["everybody"],
            "guidance": people["guidance"],
            "notes": notes["note"],
            "handbook": notes["handbook"],
            "trial": notes["trial"],
            "poison": _read("poison")["poison"],
            "leftovers": _read("leftovers")["leftover"],
            "queries": _read("queries"),
            "edits": _read("edits"),
            "runs": _read("runs"),
        }
    )


def _read(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
