"""Views of the operation log that a person gave a name: filter, order and columns."""

from __future__ import annotations

from pathlib import Path

from memtui.contract import Invalid, Model
from memtui.screens.kept import load_document, save_document

_LONGEST_NAME = 60


class SavedView(Model):
    """What is shown of the log, and how."""

    name: str
    filter_line: str = ""
    column: str = "when"
    """The column that the operations are ordered by."""
    descending: bool = True
    hidden: tuple[str, ...] = ()
    """Columns that are not shown."""
    wider: dict[str, int] = {}
    """Cells that were added to the width of a column, or taken off it."""


class _Kept(Model):
    looks: tuple[SavedView, ...] = ()


def load_views(path: Path) -> tuple[SavedView, ...]:
    """Read the saved views, in the order of their names; there being none is no view. Blocking.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved views in {path} cannot be read; mend the file or move it away."
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
