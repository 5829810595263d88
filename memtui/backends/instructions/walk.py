"""Follow the imports of instruction files, no deeper and no further than a person meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from memtui.backends.files.entries import Flaw, Parsed
from memtui.backends.files.reading import FileReader, resolved, sign
from memtui.backends.instructions.sheet import Import, parse_sheet
from memtui.contract import Json

IMPORT_DEPTH = 4
LOADED, BY_PATH, NOT_LOADED = "loaded", "by-path", "not-loaded"
_IMPORT_BYTES = 1024 * 1024
_DOCUMENTS = frozenset((".md", ".mdc", ".markdown", ".txt", ".rst", ".adoc"))
_TEXT = _DOCUMENTS | {"", ".json", ".toml", ".yaml", ".yml"}
"""What a project may import of its own; elsewhere such files may well hold secrets."""
_OPEN_HIDDEN = frozenset((".claude", ".github", ".cursor", ".agents"))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file stands in the chain of imports."""

    kind: str
    loading: str
    """When it is loaded."""
    origin: str | None = None
    """The `file:line` that imports it; None for a file that is loaded by itself."""
    above: tuple[Path, ...] = ()


class _NotRead(Exception):
    """Why a file is left alone, as a sentence."""


@dataclass
class Walk:
    """One load of a folder's instruction files."""

    reader: FileReader
    folder: Path
    bounds: tuple[Path, ...]
    found: list[tuple[Path, Parsed]] = field(default_factory=list)
    visited: set[Path] = field(default_factory=set)

    def start(self, path: Path, kind: str, loading: str) -> None:
        """Read a file that stands by itself, and what it imports."""
        try:
            self._follow(path, _Place(kind, loading))
        except _NotRead as refusal:
            self.reader.report(str(refusal), path)

    def _follow(self, path: Path, place: _Place) -> None:
        real = self._permitted(path, place)
        if real in self.visited:
            return
        self.visited.add(real)
        name = self._name(path)
        sheet = self.reader.parse(path, partial(parse_sheet, name=name, kind=place.kind))
        if sheet is None:
            return
        if place.kind == "rule" and place.origin is None and sheet.has_paths:
            place = replace(place, loading=BY_PATH)
        extra: Json = {"file": name} | ({"imported_by": place.origin} if place.origin else {})
        modified = self.reader.modified(path)
        entries = tuple(
            replace(
                entry,
                topic=place.loading,
                updated_at=modified,
                metadata={**entry.metadata, **extra},
            )
            for entry in sheet.parsed.entries
        )
        at = len(self.found)
        flaws = [
            Flaw(f"@{wanted.target}: {refusal}", wanted.line)
            for wanted in sheet.imports
            for refusal in self._import(path, wanted, self._below(place, real, name, wanted))
        ]
        self.found.insert(at, (path, Parsed(entries, (*sheet.parsed.flaws, *flaws))))

    def _below(self, place: _Place, real: Path, name: str, wanted: Import) -> _Place:
        origin = f"{name}:{wanted.line}"
        return replace(place, origin=origin, above=(*place.above, real))

    def _import(self, path: Path, wanted: Import, place: _Place) -> Iterator[str]:
        """Follow one import and yield why not, if not; a mere mention of a name is no import."""
        try:
            target = path.parent / Path(wanted.target).expanduser()
        except (RuntimeError, ValueError):
            return
        found = self.reader.look(target)
        if found is None or not found.is_file:
            names_path = wanted.target.startswith(("~/", "./", "../", "/"))
            if names_path or target.suffix.lower() in _DOCUMENTS:
                yield "the imported file is not there."
            return
        try:
            self._follow(resolved(target) or target, place)
        except _NotRead as refusal:
            yield str(refusal)

    def _permitted(self, path: Path, place: _Place) -> Path:
        real = resolved(path)
        if real is None:
            raise _NotRead("The link leads nowhere.")
        if real in place.above:
            raise _NotRead("The import leads back to a file that it is imported from.")
        if len(place.above) > IMPORT_DEPTH:
            raise _NotRead(f"Imports nest deeper than {IMPORT_DEPTH}; this one is not followed.")
        bound = next((bound for bound in self.bounds if real.is_relative_to(bound)), None)
        if bound is None:
            raise _NotRead(
                "The file is outside of the project and of ~/.claude, so it is not read."
            )
        inside = real.relative_to(bound).parts
        if any(part.startswith(".") and part not in _OPEN_HIDDEN for part in inside):
            raise _NotRead("The file is hidden, so it is not read.")
        if place.origin is not None:
            _require_text(real, _TEXT if bound == self.bounds[0] else _DOCUMENTS)
        return real

    def _name(self, path: Path) -> str:
        for folder in (self.folder, resolved(self.folder)):
            if folder is not None and path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return str(path)


def _require_text(real: Path, suffixes: frozenset[str]) -> None:
    if real.suffix.lower() not in suffixes:
        raise _NotRead(f"A {real.suffix or 'plain'} file is not imported from there.")
    found = sign(real)
    if found is not None and found.size > _IMPORT_BYTES:
        raise _NotRead(f"The file has {found.size // 1024} KiB, too much to import.")


def bounds(folder: Path, *, user: bool) -> tuple[Path, ...]:
    """Return the folders, links followed, that instruction files and imports may stand in.

    A project's reach over its git root and the person's `.claude`; a person's own (`user`) over
    the whole home folder.
    """
    own = resolved(folder) or folder
    try:
        home = resolved(Path.home())
    except RuntimeError:
        home = None
    if user:
        return (own,) if home is None else (own, home)
    root = next((above for above in (own, *own.parents) if sign(above / ".git") is not None), own)
    if root == home:
        root = own
    return (root,) if home is None else (root, home / ".claude")
