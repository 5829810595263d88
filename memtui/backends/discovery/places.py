"""Recognise a memory by the folder it would be in. Blocking; nothing here raises."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memtui.backends.claude_memory import INDEX
from memtui.backends.discovery.finding import Finding
from memtui.backends.files.reading import sign
from memtui.backends.instructions.adapter import (
    OTHERS,
    PROJECT_FILES,
    PROJECT_RULES,
    USER_FILES,
    USER_RULES,
)

ENTRY_LIMIT = 2_000
"""Entries of one folder that are looked at."""
_COUNT_BYTES = 4 * 1024 * 1024
_VAULT_PARTS = ("system", "orchestrator", "projects/*", "agent-types/*", "users/*")
_VAULT_MARKS = ("facts.md", "memory")
_TURN = re.compile(rb"^###[ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Listing:
    """The names in a folder, in order; `reason` says why they could not be read, if so."""

    names: tuple[str, ...] = ()
    capped: bool = False
    reason: str = ""


def is_folder(path: Path) -> bool:
    """Whether a folder stands at `path` and may be seen."""
    found = sign(path)
    return found is not None and stat.S_ISDIR(found.mode)


def is_file(path: Path) -> bool:
    """Whether a regular file stands at `path` and may be seen."""
    found = sign(path)
    return found is not None and found.is_file


def list_folder(folder: Path) -> Listing:
    """List a folder's visible names, at most `ENTRY_LIMIT` of them."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(names) == ENTRY_LIMIT:
                    return Listing(tuple(sorted(names)), capped=True)
                if not entry.name.startswith(".") and entry.name.isprintable():
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return Listing()
    except OSError as error:
        return Listing(reason=f"{folder} cannot be listed: {error.strerror}.")
    return Listing(tuple(sorted(names)))


def find_memsearch(folder: Path, why: str) -> Iterator[Finding]:
    """Look for memsearch's logs below `folder`."""
    path = folder / ".memsearch" / "memory"
    if not is_folder(path):
        return
    listing = list_folder(path)
    logs = [path / name for name in listing.names if name.lower().endswith(".md")]
    if not logs and not listing.reason:
        return
    yield Finding(
        provider="memsearch",
        key=folder.name or "root",
        title=f"memsearch logs of {folder}",
        path=str(path),
        config={} if listing.reason else {"path": str(path)},
        records=None if listing.reason or listing.capped else _count_turns(logs),
        why=why,
        problems=(listing.reason,) if listing.reason else (),
    )


def _count_turns(logs: list[Path]) -> int | None:
    """Count turn headings; None where that would mean reading more than 4 MiB."""
    total = left = 0
    for log in logs:
        found = sign(log)
        if found is None or not found.is_file:
            continue
        left += found.size
        if left > _COUNT_BYTES:
            return None
        try:
            total += len(_TURN.findall(log.read_bytes()))
        except OSError:
            return None
    return total


def find_project_instructions(folder: Path, claude: Path, why: str) -> Iterator[Finding]:
    """Look for a project's instruction files in `folder`; those in `claude` are the person's."""
    files = [folder / name for name in (*PROJECT_FILES, OTHERS) if is_file(folder / name)]
    files += _rules(folder / PROJECT_RULES)
    files = [path for path in files if not path.is_relative_to(claude)]
    yield from _instructions(folder, files, "project", f"Agent instructions of {folder}", why)


def find_user_instructions(claude: Path, why: str) -> Iterator[Finding]:
    """Look for a person's own instruction files in their Claude Code folder."""
    files = [claude / name for name in (*USER_FILES, OTHERS) if is_file(claude / name)]
    files += _rules(claude / USER_RULES)
    yield from _instructions(claude, files, "user", "Your own agent instructions", why)


def _rules(folder: Path) -> list[Path]:
    return [folder / name for name in list_folder(folder).names if name.lower().endswith(".md")]


def _instructions(
    folder: Path, files: list[Path], layout: str, title: str, why: str
) -> Iterator[Finding]:
    if not files:
        return
    yield Finding(
        provider="instructions",
        key="user" if layout == "user" else folder.name or "root",
        title=title,
        path=str(folder),
        config={"path": str(folder), "layout": layout},
        records=_count_headings(files),
        why=f"{why} It holds {', '.join(path.name for path in files[:4])}.",
    )


def _count_headings(files: list[Path]) -> int | None:
    total = 0
    for path in files:
        found = sign(path)
        if found is None or not found.is_file or found.size > _COUNT_BYTES:
            return None
        try:
            total += max(1, len(re.findall(rb"^#{1,6}[ \t]", path.read_bytes(), re.MULTILINE)))
        except OSError:
            return None
    return total


def find_claude_memories(claude: Path, projects: dict[str, str], why: str) -> Iterator[Finding]:
    """Look for auto memories; `projects` names the folder of a project by its slug."""
    root = claude / "projects"
    listing = list_folder(root)
    notes = [listing.reason] if listing.reason else []
    if listing.capped:
        notes.append(f"{root} holds more than {ENTRY_LIMIT} projects; the rest was not looked at.")
    if notes:
        yield Finding(
            provider="claude-memory",
            key="projects",
            title="Claude Code projects",
            path=str(root),
            why=why,
            problems=tuple(notes),
        )
    for slug in listing.names:
        path = root / slug / "memory"
        if not is_folder(path):
            continue
        held = list_folder(path)
        memories = [name for name in held.names if name.lower().endswith(".md")]
        if not memories and not held.reason:
            continue
        project = projects.get(slug)
        yield Finding(
            provider="claude-memory",
            key=Path(project).name if project else slug,
            title=f"Claude Code memory of {project or slug}",
            path=str(path),
            config={} if held.reason else {"path": str(path)},
            records=None if held.reason else len([name for name in memories if name != INDEX]) or 1,
            why=why,
            problems=(held.reason,) if held.reason else (),
        )


def find_vault(folder: Path, why: str) -> Iterator[Finding]:
    """Recognise a vault: a known part of it that holds `facts.md` or `memory/`."""
    marks = list(islice(_vault_marks(folder), 3))
    if marks:
        yield Finding(
            provider="vault",
            key=folder.name or "root",
            title=f"Vault {folder}",
            path=str(folder),
            config={"path": str(folder)},
            why=f"{why} It holds {', '.join(marks)}.",
        )


def _vault_marks(folder: Path) -> Iterator[str]:
    for part in _VAULT_PARTS:
        top, _, rest = part.partition("/")
        inner = list_folder(folder / top).names if rest else ("",)
        for name in inner:
            for mark in _VAULT_MARKS:
                place = folder / top / name / mark
                if is_file(place) if mark == "facts.md" else is_folder(place):
                    yield "/".join(filter(None, (top, name, mark)))
