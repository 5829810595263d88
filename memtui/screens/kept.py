"""What the app keeps in files of the home: the session, and views and statements under names.

Each is a JSON document that is read and written whole. Blocking.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import ValidationError

from memtui.contract import Invalid, Model, NotFound, Scope
from memtui.json_text import json_text
from memtui.paths import replacing

M = TypeVar("M", bound=Model)


def load_document(path: Path, kind: type[M], problem: str) -> M:
    """Return what a file holds; there being none is an empty document.

    Raises:
        Invalid: it cannot be read, which is said as `problem`.
    """
    try:
        # By way of Python's JSON: pydantic's own refuses half a surrogate pair.
        return kind.model_validate(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, ValidationError) as error:
        raise Invalid(problem) from error


def save_document(path: Path, document: Model) -> None:
    """Write a file with mode 0600, all of it or nothing.

    Raises:
        Invalid: the file cannot be written.
    """
    try:
        with replacing(path) as fresh:
            text = json_text(document.model_dump(mode="json"), indent=1)
            fresh.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"The file {path} cannot be kept ({error.strerror}).") from error


_HISTORY = 50


class SavedCompany(Model):
    """Where a person was in one company."""

    screen: str = "records"
    scope: Scope | None = None
    filter_line: str = ""
    binding_key: str | None = None
    everywhere: bool = False


class SavedSession(Model):
    """The last company, the theme, and where one was in each company."""

    company: str = ""
    theme: str = ""
    companies: dict[str, SavedCompany] = {}
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""
    shares: dict[str, int] = {}
    """Percent of the room that a list has beside its details, or above them, by screen."""
    toured: bool = False
    """Whether the tour was shown."""

    def of(self, company_id: str) -> SavedCompany:
        """Return where one was in a company."""
        return self.companies.get(company_id, SavedCompany())

    def with_filter(self, line: str) -> SavedSession:
        """Return a session whose history ends with `line`."""
        if not line:
            return self
        kept = [one for one in self.filters if one != line]
        return self.model_copy(update={"filters": tuple([*kept, line][-_HISTORY:])})


def load_session(path: Path) -> SavedSession:
    """Read the session; there being none is an empty one.

    Raises:
        Invalid: the file cannot be read as a session.
    """
    problem = f"The last session in {path} cannot be read, so memtui starts afresh."
    return load_document(path, SavedSession, problem)


_LONGEST_NAME = 60


class NamedItem(Model):
    """What a person keeps under a name."""

    NOUN: ClassVar[str]

    name: str


class SavedView(NamedItem):
    """What a screen shows, and how."""

    NOUN = "view"

    screen: str = "operations"
    filter_line: str = ""
    column: str = ""
    """The column that the rows are ordered by; empty: as the screen orders them."""
    descending: bool = True
    hidden: tuple[str, ...] | None = None
    """Columns that are not shown; None: those that the screen hides."""
    wider: dict[str, int] = {}
    """Cells that were added to the width of a column, or taken off it."""


class SavedStatement(NamedItem):
    """A statement in SQL."""

    NOUN = "statement"

    statement: str


N = TypeVar("N", bound=NamedItem)


class _Kept(Model, Generic[N]):
    kept: tuple[N, ...] = ()


def load_named(path: Path, kind: type[N]) -> tuple[N, ...]:
    """Read what is kept under names, in their order; there being no file is nothing. Blocking.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved {kind.NOUN}s in {path} cannot be read; fix the file or move it away."
    found = load_document(path, _Kept[kind], problem)  # type: ignore[valid-type]
    return tuple(sorted(found.kept, key=lambda one: one.name.casefold()))


def save_named(path: Path, one: N, *, instead_of: str = "") -> tuple[N, ...]:
    """Keep something in place of what has its name, and of another; returns all. Blocking.

    Raises:
        Invalid: the file cannot be read or written.
    """
    kind, gone = type(one), {one.name, instead_of}
    return _save(path, kind, [*(x for x in load_named(path, kind) if x.name not in gone), one])


def rename_named(path: Path, one: N, name: str) -> tuple[N, ...]:
    """Give something another name, which is not taken; returns all. Blocking.

    Raises:
        Invalid: the name is none or is taken, or the file cannot be read or written.
        NotFound: it was deleted meanwhile.
    """
    kind, other = type(one), checked_name(name)
    names = {x.name for x in load_named(path, kind)}
    if one.name not in names:
        raise NotFound(f"The saved {kind.NOUN} {one.name} was deleted.")
    if other in names - {one.name}:
        raise Invalid(f"There is a {kind.NOUN} {other} already; give another name.")
    return save_named(path, one.model_copy(update={"name": other}), instead_of=one.name)


def delete_named(path: Path, kind: type[N], name: str) -> tuple[N, ...]:
    """Let go of something; returns the others. Raises as `save_named`. Blocking."""
    return _save(path, kind, [one for one in load_named(path, kind) if one.name != name])


def checked_name(name: str) -> str:
    """Return a name without the blanks around it.

    Raises:
        Invalid: it is none.
    """
    kept = " ".join(name.split())
    if not 0 < len(kept) <= _LONGEST_NAME:
        raise Invalid(f"A name has 1 to {_LONGEST_NAME} characters.")
    return kept


def _save(path: Path, kind: type[N], named: list[N]) -> tuple[N, ...]:
    save_document(path, _Kept(kept=tuple(named)))
    return load_named(path, kind)
