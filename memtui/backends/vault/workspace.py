"""Workspaces: a project's own specs and docs, indexed in place and never written (seed 002 §7).

Files are selected by patterns as in a `.gitignore`. Files that git ignores are left out, as are
names that begin with a dot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from memtui.contract import Model
from memtui.provider_kit import LocalPath

from .layout import WORKSPACE, encode_name

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".txt", ".rst", ".adoc", ".org"})
_IGNORE = ".gitignore"
_MAX_IGNORE_BYTES = 1_000_000


class WorkspaceConfig(Model):
    """The folder of a project, and its files to read; a path alone uses the default patterns."""

    path: LocalPath
    """The project's folder."""
    patterns: tuple[str, ...] = (
        "/*.md",
        "/doc/**/*.md",
        "/docs/**/*.md",
        "/spec/**/*.md",
        "/specs/**/*.md",
        "/adr/**/*.md",
    )
    """As in a .gitignore: `/*.md` is a file of the folder itself, `!` excludes files."""

    @model_validator(mode="before")
    @classmethod
    def _of_path(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str | Path) else given


@dataclass(frozen=True)
class Workspace:
    """The included files of one project's folder."""

    project_id: str
    config: WorkspaceConfig
    vault: Path
    """The vault's folder, which is never entered: its files are notes."""
    exclude: frozenset[str]
    """Names of folders that are never entered."""

    @cached_property
    def root(self) -> Path:
        """The project's folder, links resolved."""
        return Path(os.path.realpath(self.config.path))

    @cached_property
    def prefix(self) -> str:
        """Prefix of its files' record ids; no path in the vault can begin with it."""
        return f"projects/{encode_name(self.project_id, 'project')}/{WORKSPACE}/"

    @cached_property
    def _wanted(self) -> GitIgnoreSpec:
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines(self.config.patterns)

    @cached_property
    def _tops(self) -> frozenset[str] | None:
        """The top-level folders that can contain included files; None: any folder."""
        tops = set()
        for pattern in self.config.patterns:
            first, slash, rest = pattern.removeprefix("/").partition("/")
            if pattern.startswith("!") or (pattern.startswith("/") and not slash):
                continue
            if not (slash and rest) or set("*?[\\") & set(first):
                return None
            tops.add(first)
        return frozenset(tops)

    def reads(self, inner: str) -> bool:
        """Whether a file at this path in the project's folder would be included."""
        ignored = _Ignored(self.root)
        folders = [f"{one.as_posix()}/" for one in list(PurePosixPath(inner).parents)[-2::-1]]
        entered = all(self._enters(one) and not ignored(one) for one in folders)
        return entered and self._wants(inner) and not ignored(inner)

    def _enters(self, folder: str) -> bool:
        """Whether a folder, with a slash at its end, can contain included files."""
        top, name = folder.partition("/")[0], folder.rstrip("/").rpartition("/")[2]
        return (
            not name.startswith(".")
            and name not in self.exclude
            and (self._tops is None or top in self._tops)
            and self.root / folder != self.vault
        )

    def _wants(self, inner: str) -> bool:
        name = PurePosixPath(inner)
        is_text = name.suffix.lower() in _SUFFIXES and not name.name.startswith(".")
        return is_text and self._wanted.match_file(inner)

    def folders(self) -> list[Path]:
        """Return the folders in which to watch for changes."""
        if self._tops is None:
            return [self.root] if self.root.is_dir() else []
        return [self.root / top for top in sorted(self._tops) if (self.root / top).is_dir()]

    def files(self) -> Iterator[os.DirEntry[str]]:
        """Yield the included files. Raises `OSError` if the project's folder is unreadable."""
        ignored = _Ignored(self.root)
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            try:
                entries = list(os.scandir(self.root / inner))
            except OSError:
                if not inner:
                    raise
                continue
            for entry in entries:
                path = inner + entry.name
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if self._enters(f"{path}/") and not ignored(f"{path}/"):
                        waiting.append(f"{path}/")
                elif self._wants(path) and not ignored(path):
                    yield entry


class _Ignored:
    """The files that git ignores in a folder: the innermost rule that matches decides."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        """The rules in each folder, by its path with a slash at its end."""
        self._above: list[tuple[str, GitIgnoreSpec]] = []
        """For each parent up to the repository: the root's path relative to it, and its rules."""
        top = next((one for one in (root, *root.parents) if (one / ".git").exists()), root)
        for folder in root.parents:
            if folder.is_relative_to(top) and (spec := _spec(folder / _IGNORE)):
                self._above.append((f"{root.relative_to(folder).as_posix()}/", spec))
        if spec := _spec(top / ".git" / "info" / "exclude"):
            name = "" if top == root else f"{root.relative_to(top).as_posix()}/"
            self._above.append((name, spec))

    def __call__(self, path: str) -> bool:
        """Whether a path is ignored; a folder's path ends with a slash.

        The caller has checked that no folder above it is ignored.
        """
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            inside = f"{folder}/" if folder else ""
            if inside not in self._specs:
                self._specs[inside] = _spec(self._root / inside / _IGNORE)
            spec = self._specs[inside]
            if spec and (said := spec.check_file(path.removeprefix(inside)).include) is not None:
                return said
        for name, spec in self._above:
            if (said := spec.check_file(name + path).include) is not None:
                return said
        return False


def _spec(path: Path) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return GitIgnoreSpec.from_lines(file.read(_MAX_IGNORE_BYTES).splitlines())
    except OSError:  # missing or unreadable: no rules, as in git
        return None
