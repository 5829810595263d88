"""Put notes back exactly as they were, never over something that another wrote."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memtui.contract import Conflict, Json, Problem

from . import notes
from .files import File, Folder, decoded, encoded, readable

Written = Callable[[str], str | None]
"""The digest of what memtui last put at a path: empty for a removal, None if it is not known."""


@dataclass(frozen=True, slots=True)
class NoteState:
    """A note's file as a snapshot holds it."""

    content: str
    modified_ns: int
    created: str | None
    mode: int | None = None

    @classmethod
    def take(cls, folder: Folder, path: str) -> NoteState | None:
        """Return the file at `path` as it is now; None where there is no readable note."""
        file = folder.read(path)
        return None if file is None or isinstance(file, Problem) else cls.of(path, file)

    @classmethod
    def of(cls, path: str, file: File) -> NoteState:
        """Return the state of a file that was read."""
        note = notes.read(path, file)
        entry = None if isinstance(note, Problem) else note[1]
        created = entry.created.isoformat() if entry and entry.created else None
        return cls(file.content, file.modified_ns, created, file.mode)

    @property
    def digest(self) -> str:
        """A digest of the file's content."""
        return digest(self.content)

    def to_json(self) -> Json:
        """Return the state as JSON values."""
        raw = base64.b64encode(encoded(self.content)).decode()
        return {
            "content": raw, "modified_ns": self.modified_ns, "created": self.created,
            "mode": self.mode,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Json) -> NoteState:
        """Read what `to_json` returned."""
        content = decoded(base64.b64decode(data["content"]))
        return cls(content, data["modified_ns"], data["created"], data["mode"])


def digest(content: str) -> str:
    """Return the digest by which memtui remembers what it wrote."""
    return hashlib.sha256(encoded(content)).hexdigest()[:16]


def check(
    folder: Folder,
    states: Mapping[str, NoteState | None],
    written: Written,
    conflict: Callable[..., Conflict],
) -> None:
    """Raise `Conflict` if any of the files is not what memtui itself left there."""
    for path, state in states.items():
        file = folder.read(path)
        if file is None:
            continue
        now = None if isinstance(file, Problem) else NoteState.of(path, file)
        if now is None or not _is_ours(now, state, written(path)):
            note = None if isinstance(file, Problem) else notes.read(path, file)
            raise conflict(
                f"{path} was changed since, or is another note by now; look before undoing.",
                note[1] if isinstance(note, tuple) else None,
                readable(state.content) if state else None,
            )


def _is_ours(now: NoteState, state: NoteState | None, written: str | None) -> bool:
    if state is not None and now.content == state.content:
        return True
    is_same = state is None or now.created == state.created
    if written is None:
        return is_same and state is not None and now.created is not None
    return is_same and written == now.digest


def restore(folder: Folder, states: Mapping[str, NoteState | None]) -> None:
    """Write each file back with the time it had, or remove it."""
    for path, state in states.items():
        if state is None:
            folder.remove(path)
        else:
            folder.replace(path, state.content, state.modified_ns, mode=state.mode)
