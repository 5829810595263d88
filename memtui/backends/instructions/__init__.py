"""The instruction files of coding agents: `CLAUDE.md`, rules, `CLAUDE.local.md`, `AGENTS.md`.

A record is a section: the text under one heading. `@path` imports are followed four hops deep,
into text files of the same project or of the person's own `.claude` folder and nowhere else, so
that a repository from elsewhere cannot have private files read.

A record's topic says when Claude Code loads it, as its documentation has it
(https://code.claude.com/docs/en/memory, "How Claude remembers your project"): `loaded` at the start
of every session; `by-path`, a rule whose frontmatter names `paths`, once a file that they match is
read; `not-loaded`, an `AGENTS.md` that no `CLAUDE.md` imports. HTML comments that begin a line
outside of code are taken out before the model sees the text, and so they are here.
"""

from memtui.backends.instructions.adapter import InstructionsAdapter, InstructionsConfig

__all__ = ["InstructionsAdapter", "InstructionsConfig"]
