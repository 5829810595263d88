"""The instruction files of coding agents: `CLAUDE.md`, rules, `CLAUDE.local.md`, `AGENTS.md`.

A record is a section: the text under one heading. `@path` imports are followed to five levels,
into text files of the same project or of the person's own `.claude` folder and nowhere else, so
that a repository from elsewhere cannot have private files read.
"""

from memtui.backends.instructions.adapter import InstructionsAdapter, InstructionsConfig

__all__ = ["InstructionsAdapter", "InstructionsConfig"]
