"""The memories of Hermes Agent: `MEMORY.md` and `USER.md` in `$HERMES_HOME/memories`.

Hermes keeps a list of short texts in each and reads both when a session starts; a session that
runs sees a change only after that. Its writers lock `<file>.lock`, and memtui does as well. Hermes
refuses to change a file that it would not write the same way itself, so memtui refuses texts that
would make it one.

Where Hermes asks for approval, a write waits as `pending/memory/<id>.json` in its home.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from memtui.contract import Invalid, MemtuiError, Model, OperationType
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesFile, FileEntry
from memtui.provider_kit.files.proposals import ProposingAdapter, WaitingFile
from memtui.provider_kit.files.reading import FileReader
from memtui.provider_kit.files.shared import content_of
from memtui.provider_kit.flock import flock

MEMORY, USER = "MEMORY.md", "USER.md"
FACTS = "memory_store.db"
"""The file in Hermes's home of which `hermes-facts` shows the facts."""
_LOCK_SECONDS = 10.0
_PENDING = "pending/memory"
_MARK = "\n§\n"
_TYPES = {"add": OperationType.WRITE, "remove": OperationType.FORGET}
_BETWEEN = re.compile(r"\r?\n§\r?\n")


class HermesConfig(FilesConfig):
    """Hermes's memories: the folder `memories` of its home, or of one of its profiles."""

    memory_chars: int = Field(default=2_200, ge=1)
    """The most characters of `MEMORY.md`; `memory.memory_char_limit` in Hermes's config."""
    user_chars: int = Field(default=1_375, ge=1)
    """The most characters of `USER.md`; `memory.user_char_limit` in Hermes's config."""


class HermesAdapter(ProposingAdapter[HermesConfig]):
    """Shows Hermes's memories; those of the kind `user` are in `USER.md`."""

    key = "hermes"
    config_model = HermesConfig
    inside = "memories/MEMORY.md"
    separator = _MARK

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:  # noqa: ARG002
        """Return the agent's notes, and what it knows of its user."""
        folder, config = self.config.path, self.config
        return (
            EntriesFile(folder / MEMORY, most_chars=config.memory_chars),
            EntriesFile(folder / USER, kind="user", most_chars=config.user_chars),
        )

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry]:  # noqa: ARG002
        """Yield the texts between the lines `§`."""
        return entries_of(content)

    def as_written(self, text: str, before: str = "", was: str = "") -> str:  # noqa: ARG002
        """Return the text. Raises `Invalid` if Hermes would read another one."""
        if not text.strip() or text != text.strip():
            raise Invalid("Hermes takes the blanks around a memory away; remove them.")
        if "\r" in text:
            raise Invalid("Hermes changes the line ends of this text; use newlines alone.")
        if _BETWEEN.search(f"\n{text}\n"):
            raise Invalid("A line § separates Hermes's memories; write them one by one.")
        return text

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold the lock of Hermes's writers."""
        busy = f"Another program is changing {path}; try again."
        lock = path.with_name(f"{path.name}.lock")
        with flock(lock, busy, seconds=_LOCK_SECONDS, mode=0o644):
            yield

    def waiting_paths(self) -> Iterable[Path]:
        """Return the writes that Hermes has staged."""
        return self._pending.glob("*.json")

    def is_held(self, path: Path) -> bool:
        """Whether a file is a staged write, or has memories."""
        is_staged = path.parent == self._pending and path.suffix == ".json"
        return is_staged or path in {one.path for one in self.entry_files(FileReader())}

    @property
    def _pending(self) -> Path:
        return self.config.path.parent / _PENDING

    def waiting(self, path: Path, content: bytes, since: datetime) -> WaitingFile:
        """Return a staged write, with the file as Hermes would write it."""
        try:
            staged = _Staged.model_validate_json(content)
        except ValidationError as error:
            raise Invalid("It is no staged write of Hermes that could be read.") from error
        asked, refused = staged.payload, ""
        if staged.id != path.stem:
            refused = f"It names itself {staged.id}, so Hermes would remove another file."
        file = self.entry_files(FileReader())[asked.target == "user"]
        written: dict[Path, bytes] = {}
        try:
            written[file.path] = _applied(asked, content_of(file.path) or b"", file)
        except MemtuiError as error:
            refused = refused or str(error)
        return WaitingFile(
            path,
            content,
            f"hermes ({staged.origin})",
            "\n".join(one.said for one in asked.changes),
            datetime.fromtimestamp(staged.created_at, UTC) if staged.created_at else since,
            _TYPES.get(asked.action, OperationType.CORRECT),
            written,
            refused,
        )


class _Read(Model):
    model_config = ConfigDict(extra="ignore")


class _Change(_Read):
    """A change of one entry, found by a part of its text."""

    action: str
    content: str | None = None
    old_text: str | None = None

    @property
    def said(self) -> str:
        """A one-line description of the change."""
        old, new = (self.old_text or "").strip(), (self.content or "").strip()
        return {"add": new, "remove": f"- {old}"}.get(self.action, f"{old} → {new}")


class _Payload(_Change):
    target: str = "memory"
    operations: list[_Change] = []

    @property
    def changes(self) -> list[_Change]:
        """The changes, of which either all are made or none."""
        return self.operations if self.action == "batch" else [self]


class _Staged(_Read):
    id: str
    payload: _Payload
    origin: str = "foreground"
    created_at: float = Field(default=0, ge=0, le=1e11)


def _applied(asked: _Payload, content: bytes, file: EntriesFile) -> bytes:
    """Return a file's content once Hermes has made a staged change.

    Raises:
        Invalid: Hermes would not make it.
    """
    name = file.path.name
    try:
        raw = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is not UTF-8, so Hermes cannot read it.") from error
    parsed = [one.strip() for one in raw.split(_MARK) if one.strip()]
    longest, most = max(map(len, parsed), default=0), file.most_chars or 0
    if asked.action != "add" and (raw.strip() != _MARK.join(parsed) or longest > most):
        raise Invalid(f"Hermes would not have written {name} as it is, so it refuses to change it.")
    entries = list(dict.fromkeys(parsed))
    if not asked.changes:
        raise Invalid("It asks for no change.")
    before = list(entries)
    for one in asked.changes:
        _make(one, entries, name)
    if entries == before and asked.action == "add":
        return content  # it is there already, so Hermes writes nothing
    text = _MARK.join(entries)
    if len(text) > most and asked.action != "remove":
        raise Invalid(f"{name} would have {len(text):,} characters, and {most:,} are its limit.")
    return text.encode()


def _make(change: _Change, entries: list[str], name: str) -> None:
    """Make one change of a file's entries."""
    action = change.action
    new, old = (change.content or "").strip(), (change.old_text or "").strip()
    if action not in {"add", "replace", "remove"}:
        raise Invalid(f"Hermes knows no change {action}.")
    if (not new and action != "remove") or (not old and action != "add"):
        raise Invalid(f"The {action} lacks a text.")
    if action == "add":
        entries += [new] if new not in entries else []
        return
    found = [place for place, text in enumerate(entries) if old in text]
    if len({entries[place] for place in found}) != 1:
        how = "Several entries have" if found else "No entry has"
        raise Invalid(f"{how} the text “{old}” that it would {action}; {name} has changed.")
    entries[found[0] : found[0] + 1] = [new] if action == "replace" else []


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
