"""Where instruction files stand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from memtui.backends.files.adapter import FilesAdapter
from memtui.backends.files.config import FilesConfig
from memtui.backends.files.entries import Parsed
from memtui.backends.files.reading import FileReader
from memtui.backends.instructions.walk import LOADED, NOT_LOADED, Walk, bounds

PROJECT_FILES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
PROJECT_RULES = ".claude/rules"
USER_FILES = ("CLAUDE.md",)
USER_RULES = "rules"
OTHERS = "AGENTS.md"
"""What other agents read; Claude Code reads it only where it is imported."""
_RULES_DEPTH = 5


class InstructionsConfig(FilesConfig):
    """The binding's settings; `path` is a project's folder, or the `.claude` folder of a person."""

    layout: Literal["project", "user"] = "project"
    """`user`: `path` itself holds CLAUDE.md and rules, as `~/.claude` does."""


class InstructionsAdapter(FilesAdapter[InstructionsConfig]):
    """Shows what coding agents are told, a record a section."""

    key = "instructions"
    config_model = InstructionsConfig
    holds = "folder"

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, Parsed]]:
        """Read the instruction files in the order in which they are loaded, imports after each.

        What is not loaded comes last: a file that is both is what a session sees.
        """
        folder = self.config.path
        user = self.config.layout == "user"
        walk = Walk(reader, folder, bounds(folder, user=user))
        for name in USER_FILES if user else PROJECT_FILES:
            _start(walk, folder / name, LOADED)
        rules = folder / (USER_RULES if user else PROJECT_RULES)
        for path in reader.files(rules, ".md", depth=_RULES_DEPTH):
            walk.start(path, "rule", LOADED)
        _start(walk, folder / OTHERS, NOT_LOADED)
        return walk.found


def _start(walk: Walk, path: Path, loading: str) -> None:
    if walk.reader.look(path) is not None or path.is_symlink():
        walk.start(path, "instruction", loading)
