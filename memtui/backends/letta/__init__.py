"""The memory folder of a Letta agent: markdown files under git, one memory each.

Letta's prompt has the committed text of the core files: those in `system/` or, in the newer layout
that a `MEMORY.md` marks, those at the top. Its memory tool commits each change, and refuses to work
while anything is uncommitted; so does memtui commit each change, as one commit of its files alone.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from memtui.backends.letta.texts import (
    INDEX,
    REFERENCE,
    SYSTEM,
    MemoryLimits,
    composed,
    is_index,
    memory_files,
    one_line,
    parse_memory,
    with_text,
)
from memtui.contract import Invalid, Record, WriteRequest
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.reading import (
    FileReader,
    FileRefused,
    ParsedFile,
    ParsedRecord,
    first_line,
    is_file,
    read_whole,
    slug,
)
from memtui.provider_kit.files.shared import text_of
from memtui.provider_kit.files.whole import WholeFilesAdapter

_POLICY = ".git/letta-memory-layout-policy"
_LIMITS = ".memfs.config.json"


class LettaConfig(FilesConfig):
    """A Letta agent's memory: the folder `memory` of the agent."""


class LettaAdapter(WholeFilesAdapter[LettaConfig]):
    """Shows one record a file; those of the kind `system` are in every prompt of the agent."""

    key = "letta"
    config_model = LettaConfig
    inside = "memory/.git"

    _had_root_layout = False

    def _has_root_layout(self) -> bool:
        if not is_file(self.config.path / INDEX):
            return False
        with suppress(OSError, FileRefused):
            return read_whole(self.config.path / _POLICY)[0].strip() != b"legacy-only"
        return True

    def memories(self, reader: FileReader) -> Iterable[Path]:
        """Return the files but skills."""
        for name in (INDEX, _POLICY):
            reader.look(self.config.path / name)
        if self._has_root_layout() != self._had_root_layout:
            reader.memo.clear()  # every file is read otherwise now
            self._had_root_layout = not self._had_root_layout
        return memory_files(reader, self.config.path)

    def parse(self, content: str, name: str) -> ParsedFile:
        """Parse a file by the layout of the folder."""
        return parse_memory(content, name, is_root=self._has_root_layout())

    def _record(self, found: ParsedRecord, path: Path, record_id: str) -> Record:
        record = super()._record(found, path, record_id)
        is_protected = found.metadata["frontmatter"].get("read_only") == "true"
        return record.model_copy(update={"read_only": is_protected})

    def own_kinds(self) -> frozenset[str]:
        """Return the kind of core files, and that of the others."""
        return frozenset({SYSTEM, "note"})

    def composed(self, request: WriteRequest) -> tuple[str, str, bytes]:
        """Return a core file for the kind `system`, else one below `reference`."""
        is_core, is_root = request.kind == SYSTEM, self._has_root_layout()
        folder = "" if is_core and is_root else SYSTEM if is_core else REFERENCE
        if is_root and folder and not is_file(self.config.path / folder / INDEX):
            raise Invalid(
                f"Letta ignores a folder without a {INDEX}, and {self.config.path / folder} has "
                f"none; create it first, or write the memory with the kind {SYSTEM}."
            )
        title = one_line(request.title) or first_line(request.content)
        return folder, slug(title, "-"), composed(title, request.content, is_root=is_root)

    def with_text(self, record: Record, content: bytes, text: str) -> bytes:
        """Return a file with another text, and the frontmatter as it is."""
        name, is_root = self.file_of(record), self._has_root_layout()
        return with_text(content, record.text, text, name=name, is_root=is_root)

    def protected(self, record: Record) -> str | None:
        """Return why Letta keeps a file."""
        name = self.file_of(record)
        if record.read_only:
            return f"{self.config.path / name} is read_only, so Letta keeps it as it is."
        if is_index(name, is_root=self._has_root_layout()):
            return f"{self.config.path / name} is an index, which Letta needs."
        return None

    def check(self, name: str, content: bytes) -> None:
        """Raise `Invalid` for a file with which Letta would refuse every later commit."""
        is_root, given = self._has_root_layout(), self.files.content(_LIMITS)
        if not (is_root or given):
            return
        place, text = self.config.path / _LIMITS, text_of(content, self.config.path / name)
        try:
            limits = MemoryLimits.read(given, is_root=is_root)
        except (ValueError, TypeError, RecursionError) as error:
            raise Invalid(f"{place} is not as Letta writes it; fix it first.") from error
        core = 0
        if is_root and "/" not in name:
            others = {one.name for one in self.config.path.glob("*.md")} - {name}
            sizes = (
                len((self.files.content(one) or b"").decode("utf-8", "replace")) for one in others
            )
            core = sum(sizes) + len(text)
        for problem in limits.beyond(name, text, core):
            raise Invalid(f"Letta would refuse its next commit: {problem} ({place}); shorten it.")
