"""The content of the demo's company: hand-written TOML, and the models that read it."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from memtui.contract import Json, Model, SourceKind


class DemoAgent(Model):
    """An agent and its projects; it works twice as often on a project that is listed twice."""

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
    """Start of the first value's validity, in days before the end, if not when it is written."""


class About(Model):
    """The facts about a subject."""

    subject: str
    facts: tuple[str, ...]


class Guidance(Model):
    """An instruction for an agent."""

    agent: str
    text: str
    pinned: bool = False


class DemoNote(Model):
    """A note without an issue; `day` and `expires_in` are days before and after the end."""

    project: str
    kind: SourceKind
    by: str
    day: int
    text: str
    topic: str
    name: str | None = None
    """A name for other steps; unset: its number."""
    title: str | None = None
    summary: str | None = None
    ref: str | None = None
    pinned: bool = False
    expires_in: int | None = None


class Plain(Model):
    """A text with an optional topic."""

    text: str
    topic: str | None = None


class Poison(Model):
    """Hostile text; `redacted`: the service redacts a secret in it before storing."""

    name: str
    project: str
    day: int
    text: str
    repeat: int = 1
    redacted: bool = False

    @property
    def whole(self) -> str:
        """The text with its repetitions."""
        return (self.text * self.repeat).rstrip(" ") if self.repeat > 1 else self.text


class Leftover(Model):
    """A superfluous fact, and the reason to prune it (`memtui.pruning.candidates`).

    It belongs to the named project, subject or agent. It is forgotten `forgotten` days before the
    end, and expires `expires` days before the end; the query `asked` finds it once, a day later.
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
    """The address of its source."""
    forgotten: int | None = None
    expires: int | None = None
    asked: str | None = None


class ToldStep(Model):
    """One failure or undo of the demo: when, by whom, and what is done with which values."""

    at: tuple[float, float]
    """The day before the end, and the hour."""
    who: str
    channel: str
    do: tuple[str, Json]
    project: str | None = None
    agent: str | None = None


class Queries(Model):
    """Queries, by the project where they are asked; those in `nothing` have no results."""

    everywhere: tuple[str, ...]
    nothing: tuple[str, ...]
    project: dict[str, tuple[str, ...]]


class Edits(Model):
    """Sentences and tags that people add to records."""

    sentences: tuple[str, ...]
    tags: tuple[str, ...]


class RunParts(Model):
    """Sentences of which a run's closing note is composed."""

    started: tuple[str, ...]
    did: tuple[str, ...]
    ended: tuple[str, ...]
    noticed: tuple[str, ...]
    passed_on: dict[str, str]
    """By run, what it repeats of a poisoned fact that it was given."""


class Content(Model):
    """The whole content."""

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
    mishaps: tuple[ToldStep, ...]
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
            "mishaps": _read("mishaps")["step"],
            "queries": _read("queries"),
            "edits": _read("edits"),
            "runs": _read("runs"),
        }
    )


def _read(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
