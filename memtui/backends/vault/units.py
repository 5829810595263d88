"""Read one markdown file of the vault, whatever it holds, as entries and problems."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.contract import Problem

from . import book, notes
from .entries import Entry
from .files import Folder
from .layout import FACTS, HISTORY, history_path, place_of


@dataclass(frozen=True, slots=True)
class Unit:
    """What one file holds; a facts file and its history are one unit."""

    signature: str
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()


def signatures(found: dict[str, str]) -> dict[str, str]:
    """Return the signature of each unit from those of its files."""
    units: dict[str, str] = {}
    for path, signature in found.items():
        if not path.endswith(HISTORY):
            is_facts = path.endswith(FACTS) and place_of(path).is_facts
            beside = found.get(history_path(path), "") if is_facts else ""
            units[path] = f"{signature}|{beside}" if is_facts else signature
        elif (facts_path := unit_path(path)) and facts_path not in found:
            units[facts_path] = f"|{signature}"
    return units


def unit_path(path: str) -> str | None:
    """Return the path of the unit that a file belongs to; None if it belongs to none."""
    if not path.endswith(HISTORY):
        return path
    facts_path = path.removesuffix(HISTORY) + FACTS
    return facts_path if place_of(facts_path).is_facts else None


def load(folder: Folder, path: str) -> Unit | None:
    """Read a unit; None where there is none. What cannot be read is in its problems."""
    return _load_facts(folder, path) if place_of(path).is_facts else _load_note(folder, path)


def _load_note(folder: Folder, path: str) -> Unit | None:
    file = folder.read(path)
    if file is None:
        return None
    if isinstance(file, Problem):
        return Unit(folder.signature(path), problems=(file,))
    note = notes.read(path, file)
    if isinstance(note, Problem):
        return Unit(file.signature, problems=(_at(folder, path, note),))
    problems = (file.problem,) if file.problem else ()
    return Unit(file.signature, entries=(note[1],) if note[1] else (), problems=problems)


def _at(folder: Folder, path: str, problem: Problem) -> Problem:
    return problem.model_copy(update={"location": folder.location(path)})


def _load_facts(folder: Folder, path: str) -> Unit | None:
    loaded = book.load(folder, path)
    if isinstance(loaded, Problem):
        signature = f"{folder.signature(path)}|{folder.signature(history_path(path))}"
        return Unit(signature, problems=(loaded,))
    if loaded.file is None and loaded.history is None:
        return None
    signature = "|".join(file.signature if file else "" for file in (loaded.file, loaded.history))
    problems = [file.problem for file in (loaded.file, loaded.history) if file and file.problem]
    if loaded.content.problem:
        problems.append(_at(folder, path, loaded.content.problem))
    problems += [
        Problem(message=message, location=folder.location(history_path(path), line))
        for line, message in loaded.ledger.problems
    ]
    return Unit(signature, tuple(book.entries(loaded)), tuple(problems))
