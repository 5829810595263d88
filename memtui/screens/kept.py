"""What the app keeps in files of the home: the session, and the saved views.

Each is a JSON document that is read and written whole. Blocking.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from memtui.contract import Invalid, Model, Scope
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


class SavedView(Model):
    """What a screen shows, and how."""

    name: str
    screen: str = "operations"
    filter_line: str = ""
    column: str = ""
    """The column that the rows are ordered by; empty: as the screen orders them."""
    descending: bool = True
    hidden: tuple[str, ...] | None = None
    """Columns that are not shown; None: those that the screen hides."""
    wider: dict[str, int] = {}
    """Cells that were added to the width of a column, or taken off it."""


class _Kept(Model):
    looks: tuple[SavedView, ...] = ()


def load_views(path: Path) -> tuple[SavedView, ...]:
    """Read the saved views, in the order of their names; there being none is not a view. Blocking.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved views in {path} cannot be read; fix the file or move it away."
    found = load_document(path, _Kept, problem)
    return tuple(sorted(found.looks, key=lambda view: view.name.casefold()))


def save_view(path: Path, view: SavedView, *, instead_of: str = "") -> tuple[SavedView, ...]:
    """Keep a view in place of the one of its name, and of another; returns all. Blocking.

    Raises:
        Invalid: the file cannot be read or written.
    """
    gone = {view.name, instead_of}
    return _save(path, [*(one for one in load_views(path) if one.name not in gone), view])


def delete_view(path: Path, name: str) -> tuple[SavedView, ...]:
    """Let go of a view; returns the others. Raises as `save_view`. Blocking."""
    return _save(path, [one for one in load_views(path) if one.name != name])


def checked_name(name: str) -> str:
    """Return a name without the blanks around it.

    Raises:
        Invalid: it is none.
    """
    kept = " ".join(name.split())
    if not 0 < len(kept) <= _LONGEST_NAME:
        raise Invalid(f"A view's name has 1 to {_LONGEST_NAME} characters.")
    return kept


def _save(path: Path, views: list[SavedView]) -> tuple[SavedView, ...]:
    save_document(path, _Kept(looks=tuple(views)))
    return load_views(path)
