"""Statements that were given a name, in a file of the home. Blocking."""

from __future__ import annotations

from pathlib import Path

from memtui.contract import Invalid, Model, NotFound
from memtui.screens.kept import load_document, save_document


class Queries(Model):
    """Statements by name."""

    queries: dict[str, str] = {}


def read_queries(path: Path) -> dict[str, str]:
    """Return the statements by name, in order of it; no file is none.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved statements in {path} cannot be read; mend the file or move it away."
    found = load_document(path, Queries, problem)
    return dict(sorted(found.queries.items(), key=lambda pair: pair[0].casefold()))


def save_query(path: Path, name: str, statement: str) -> None:
    """Keep a statement under a name, in place of the one that has it.

    Raises:
        Invalid: the name is empty, or the file cannot be read or written.
    """
    _write(path, {**read_queries(path), checked_name(name): statement})


def rename_query(path: Path, name: str, other: str) -> None:
    """Give a statement another name, which is not taken; raises as `save_query`."""
    queries, other = read_queries(path), checked_name(other)
    if name not in queries:
        raise NotFound(f"There is no saved statement {name!r} any more.")
    if other in queries and other != name:
        raise Invalid(f"{other!r} is taken; give another name or delete that one.")
    _write(path, {other if key == name else key: text for key, text in queries.items()})


def delete_query(path: Path, name: str) -> None:
    """Let go of a statement; raises as `save_query`."""
    _write(path, {key: text for key, text in read_queries(path).items() if key != name})


def checked_name(name: str) -> str:
    """Return a name without the blanks around it; raises `Invalid` for one that is none."""
    kept = " ".join(name.split())
    if not kept or len(kept) > 100:
        raise Invalid("A name has 1 to 100 characters.")
    return kept


def _write(path: Path, queries: dict[str, str]) -> None:
    save_document(path, Queries(queries=queries))
