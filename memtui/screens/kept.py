"""The app's files in the home: the session, and named views and statements.

Each is a JSON document that is read and written as a whole. All functions block.
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
    """Read a document; a missing file is an empty document.

    Raises:
        Invalid: it cannot be read; `problem` is the message.
    """
    try:
        # Python's JSON, as pydantic's refuses lone surrogates.
        return kind.model_validate(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, ValidationError) as error:
        raise Invalid(problem) from error


def save_document(path: Path, document: Model) -> None:
    """Write a document to a file of mode 0600 atomically.

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
    """The last screen, scope, filter and binding in one company."""

    screen: str = "records"
    scope: Scope | None = None
    filter_line: str = ""
    binding_key: str | None = None
    everywhere: bool = False


class SavedSession(Model):
    """The last company, the theme, and the last state in each company."""

    company: str = ""
    theme: str = ""
    companies: dict[str, SavedCompany] = {}
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""
    shares: dict[str, int] = {}
    """Percentage of the room for the list in each split, by its name and orientation."""
    toured: bool = False
    """Whether the tour was shown."""

    def of(self, company_id: str) -> SavedCompany:
        """Return the last state in a company."""
        return self.companies.get(company_id, SavedCompany())

    def with_filter(self, line: str) -> SavedSession:
        """Return the session with `line` at the end of its history."""
        if not line:
            return self
        kept = [one for one in self.filters if one != line]
        return self.model_copy(update={"filters": tuple([*kept, line][-_HISTORY:])})


def load_session(path: Path) -> SavedSession:
    """Read the session; a missing file is an empty session.

    Raises:
        Invalid: the file cannot be read as a session.
    """
    problem = f"The last session in {path} cannot be read, so memtui starts afresh."
    return load_document(path, SavedSession, problem)


_LONGEST_NAME = 60


class NamedItem(Model):
    """An item saved under a name."""

    NOUN: ClassVar[str]

    name: str


class SavedView(NamedItem):
    """A screen with its filter, order and columns."""

    NOUN = "view"

    screen: str = "operations"
    filter_line: str = ""
    column: str = ""
    """The column to sort by; empty: the screen's default."""
    descending: bool = True
    hidden: tuple[str, ...] | None = None
    """Hidden columns; None: the screen's default."""
    wider: dict[str, int] = {}
    """Cells added to a column's width, or removed from it."""


class SavedStatement(NamedItem):
    """An SQL statement."""

    NOUN = "statement"

    statement: str


N = TypeVar("N", bound=NamedItem)


class _Kept(Model, Generic[N]):
    kept: tuple[N, ...] = ()


def load_named(path: Path, kind: type[N]) -> tuple[N, ...]:
    """Read the saved items, sorted by name; a missing file has none. Blocking.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved {kind.NOUN}s in {path} cannot be read; fix the file or move it away."
    found = load_document(path, _Kept[kind], problem)  # type: ignore[valid-type]
    return tuple(sorted(found.kept, key=lambda one: one.name.casefold()))


def save_named(path: Path, one: N, *, instead_of: str = "") -> tuple[N, ...]:
    """Save an item, replacing those named like it or `instead_of`; return all. Blocking.

    Raises:
        Invalid: the file cannot be read or written.
    """
    kind, gone = type(one), {one.name, instead_of}
    return _save(path, kind, [*(x for x in load_named(path, kind) if x.name not in gone), one])


def rename_named(path: Path, one: N, name: str) -> tuple[N, ...]:
    """Rename an item; return all. Blocking.

    Raises:
        Invalid: the name is invalid or taken, or the file cannot be read or written.
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
    """Delete an item; return the others. Raises as `save_named`. Blocking."""
    return _save(path, kind, [one for one in load_named(path, kind) if one.name != name])


def checked_name(name: str) -> str:
    """Return a name with blanks trimmed and merged.

    Raises:
        Invalid: it is empty or too long.
    """
    kept = " ".join(name.split())
    if not 0 < len(kept) <= _LONGEST_NAME:
        raise Invalid(f"A name has 1 to {_LONGEST_NAME} characters.")
    return kept


def _save(path: Path, kind: type[N], named: list[N]) -> tuple[N, ...]:
    save_document(path, _Kept(kept=tuple(named)))
    return load_named(path, kind)
