"""The memories of Hermes Agent: `MEMORY.md` and `USER.md` in `$HERMES_HOME/memories`.

Hermes keeps a list of short texts in each and reads both when a session starts; a session that
runs sees a change only after that. Its writers lock `<file>.lock`, and memtui does as well. Hermes
refuses to change a file that it would not write the same way itself, so memtui refuses texts that
would make it one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from memtui.contract import Invalid
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesAdapter, EntriesFile, FileEntry

MEMORY, USER = "MEMORY.md", "USER.md"
FACTS = "memory_store.db"
"""The file in Hermes's home of which `hermes-facts` shows the facts."""
_BETWEEN = re.compile(r"\r?\n§\r?\n")


class HermesConfig(FilesConfig):
    """Hermes's memories: the folder `memories` of its home, or of one of its profiles."""

    memory_chars: int = Field(default=2_200, ge=1)
    """The most characters of `MEMORY.md`; `memory.memory_char_limit` in Hermes's config."""
    user_chars: int = Field(default=1_375, ge=1)
    """The most characters of `USER.md`; `memory.user_char_limit` in Hermes's config."""


class HermesAdapter(EntriesAdapter[HermesConfig]):
    """Shows Hermes's memories; those of the kind `user` are in `USER.md`."""

    key = "hermes"
    config_model = HermesConfig
    holds = "folder"
    separator = "\n§\n"

    def entry_files(self) -> Sequence[EntriesFile]:
        """Return the agent's notes, and what it knows of its user."""
        folder, config = self.config.path, self.config
        return (
            EntriesFile(folder / MEMORY, most_chars=config.memory_chars),
            EntriesFile(folder / USER, kind="user", most_chars=config.user_chars),
        )

    def entries(self, content: str) -> Iterator[FileEntry]:
        """Yield the texts between the lines `§`."""
        return entries_of(content)

    def as_written(self, text: str) -> str:
        """Return the text. Raises `Invalid` if Hermes would read another one."""
        if not text.strip() or text != text.strip():
            raise Invalid("Hermes takes the blanks around a memory away; remove them.")
        if "\r" in text:
            raise Invalid("Hermes changes the line ends of this text; use newlines alone.")
        if _BETWEEN.search(f"\n{text}\n"):
            raise Invalid("A line § separates Hermes's memories; write them one by one.")
        return text

    def lock_of(self, path: Path) -> Path:
        """Return the file that Hermes locks."""
        return path.with_name(f"{path.name}.lock")


def entries_of(content: str) -> Iterator[FileEntry]:
    """Yield the texts between the lines `§`, without the space around them."""
    start = 0
    ends = [*(one.span() for one in _BETWEEN.finditer(content)), (len(content), len(content))]
    for end, after in ends:
        text = content[start:end].strip()
        if text:
            at = content.index(text, start)
            yield FileEntry(at, at + len(text), text.replace("\r\n", "\n"))
        start = after
