"""The history file beside a facts file: one JSON line a version of a fact (seed 002 §6).

The facts file says what holds; the history file says since when, who wrote it and from where, and
what held before. Lines that cannot be read are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from memtui.contract import Invalid, Json, Model, UtcDatetime

from .entries import source_of


def _checked(fields: Json) -> Json:
    source_of(fields, "any")
    return fields


class Frame(Model):
    """What adding a fact put around its line, so that undoing it leaves no trace."""

    head: str = ""
    tail: str = ""
    new_file: bool = False


class Version(Model):
    """One value of a fact and the window in which it held."""

    fact: str
    """The fact's name within its file."""
    text: str
    topic: str | None = None
    valid_from: UtcDatetime | None = None
    """None: nobody knows since when."""
    valid_to: UtcDatetime | None = None
    """None: it still holds."""
    created_at: UtcDatetime | None = None
    """When the fact, not this version of it, came to be."""
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    source: Annotated[Json, AfterValidator(_checked)] | None = None
    """The source reference without its company."""
    pinned: bool = False
    expires_at: UtcDatetime | None = None
    tags: tuple[str, ...] = ()
    agent_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    subject_id: str | None = None
    metadata: Json = {}
    frame: Frame | None = None
    has_twin: bool = False
    """It was forgotten while another bullet had the same key or text, which keeps its own name."""

    def line(self) -> str:
        """Return the version as a line of the history file.

        Raises:
            Invalid: no file can hold it.
        """
        fields = self.model_dump(mode="json", exclude_defaults=True)
        line = f"{json.dumps(fields, ensure_ascii=False)}\n"
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise Invalid(
                "The fact's metadata holds a character that UTF-8 cannot carry; remove it."
            ) from error
        return line


@dataclass(slots=True)
class Ledger:
    """A history file being read or changed; `lines` joined are the file."""

    lines: list[str] = field(default_factory=list)
    versions: list[Version | None] = field(default_factory=list)
    """The version of each line; None where the line cannot be read."""
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Line, counted from 1, and what is wrong with it."""
    _index: dict[str, list[int]] | None = None
    """The places of each fact's lines; None after a line was taken out."""

    @classmethod
    def parse(cls, content: str) -> Ledger:
        """Read a history file, unreadable lines included."""
        ledger = cls()
        pieces = content.split("\n")
        lines = [f"{piece}\n" for piece in pieces[:-1]]
        for line in [*lines, pieces[-1]] if pieces[-1] else lines:
            ledger.lines.append(line)
            ledger.versions.append(ledger._read(line))
        return ledger

    def _read(self, line: str) -> Version | None:
        if not line.strip():
            return None
        try:
            return Version.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            message = f"The history line cannot be read: {where}: {first['msg']}."
            self.problems.append((len(self.lines), message))
            return None

    def joined(self) -> str:
        """Return the file."""
        return "".join(self.lines)

    def of(self, fact: str) -> list[Version]:
        """Return a fact's versions, oldest first."""
        found = (self.versions[place] for place in self._places(fact))
        return [version for version in found if version is not None]

    def lines_of(self, fact: str, *, without: Version | None = None) -> list[str]:
        """Return the exact lines of a fact, except that of one version."""
        places = self._places(fact)
        return [self.lines[i] for i in places if without is None or self.versions[i] is not without]

    def _places(self, fact: str) -> list[int]:
        if self._index is None:
            self._index = {}
            for place, version in enumerate(self.versions):
                if version is not None:
                    self._index.setdefault(version.fact, []).append(place)
        return self._index.get(fact, [])

    def append(self, version: Version) -> None:
        """Add a version as the last line."""
        self._append_line(version.line(), version)

    def _append_line(self, line: str, version: Version | None) -> None:
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += "\n"
        if self._index is not None and version is not None:
            self._index.setdefault(version.fact, []).append(len(self.lines))
        self.lines.append(line)
        self.versions.append(version)

    def put(self, old: Version, new: Version) -> None:
        """Put `new` on the line of `old`."""
        index = next(i for i in self._places(old.fact) if self.versions[i] is old)
        self.lines[index] = new.line()
        self.versions[index] = new

    def set_lines(self, fact: str, wanted: Sequence[str]) -> None:
        """Make `wanted` a fact's lines: in the places of its lines now, further ones at the end."""
        places = list(self._places(fact))
        for index, line in zip(places, wanted, strict=False):
            self.lines[index], self.versions[index] = line, self._read(line)
        for index in reversed(places[len(wanted) :]):
            del self.lines[index], self.versions[index]
            self._index = None
        for line in wanted[len(places) :]:
            self._append_line(line, self._read(line))
