"""Write, correct and forget notes: one markdown file each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import datetime

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Invalid,
    Json,
    Problem,
    WriteMode,
    WriteRequest,
)

from . import frontmatter, notes
from .entries import Entry
from .files import File, Folder, nanoseconds
from .frontmatter import Document
from .layout import place_of

_NUMBERED = 9


class NoteStore:
    """The notes of a vault. Every method that changes one runs under the vault's lock."""

    def __init__(
        self, folder: Folder, now: Callable[[], datetime], conflict: Callable[..., Conflict]
    ) -> None:
        self._folder = folder
        self._now = now
        self._conflict = conflict

    def load(self, path: str) -> tuple[File, Document, Entry | None] | None:
        """Read a note; None where there is no file. Raises `Invalid` for a broken one."""
        file = self._folder.read(path)
        if file is None:
            return None
        note = file if isinstance(file, Problem) else notes.read(path, file)
        if isinstance(file, Problem) or isinstance(note, Problem):
            message = note.message if isinstance(note, Problem) else ""
            raise Invalid(f"{path} cannot be read: {message} Mend the file by hand first.")
        return file, *note

    def entry(self, path: str) -> Entry | None:
        """Return a note; None where there is none. Raises `Invalid` for a broken file."""
        loaded = self.load(path)
        return loaded[2] if loaded else None

    def write(self, request: WriteRequest, folder: str) -> str:
        """Store a note and return its id."""
        wanted = request.record_id or ""
        if wanted.endswith(".md") and folder and place_of(wanted).folder == folder:
            self._folder.check_path(wanted)
            return self._write_to(wanted, request)
        stem = notes.path_stem(request, folder, self._now())
        content = notes.content_for(request, place_of(f"{stem}.md"), self._now())
        for path in _candidates(stem):
            if self._folder.create(path, content, self._now()):
                return path
        raise Conflict(f"No free file name is left for {stem}.md; give the note another title.")

    def _write_to(self, path: str, request: WriteRequest) -> str:
        content = notes.content_for(request, place_of(path), self._now())
        if self._folder.create(path, content, self._now()):
            return path
        loaded = self.load(path)
        if loaded is None or loaded[2] is None or request.mode is not WriteMode.UPSERT:
            raise self._conflict(
                f"{path} is already there; correct it, or write it with mode upsert.",
                loaded[2] if loaded else None,
                request.content,
            )
        fields = notes.fields_for(request, place_of(path))
        self._save(path, loaded[1], request.content, fields)
        return path

    def correct(self, request: CorrectRequest, path: str) -> None:
        """Change a note's text, or lines of its frontmatter, and nothing else."""
        loaded = self.load(path)
        if loaded is None or loaded[2] is None:
            raise Conflict(f"{path} is gone.", proposed=request.text)
        entry = loaded[2]
        fields: Json = {}
        if request.pinned is not None and request.pinned != entry.pinned:
            fields["pinned"] = request.pinned
        if request.topic is not None and (request.topic or None) != entry.topic:
            fields["topic"] = request.topic
        if request.tags is not None and request.tags != entry.tags:
            fields["tags"] = list(request.tags)
        if request.sets_expiry and request.expires_at != entry.expires:
            fields["expires"] = request.expires_at
        self._save(path, loaded[1], request.text, fields)

    def _save(self, path: str, document: Document, text: str | None, fields: Json) -> None:
        text = None if text is None else frontmatter.with_line_ends_of(document, text)
        changed = frontmatter.with_fields(document, fields)
        if text is not None and text != document.text:
            notes.check_utf8(text)
            if not text:
                raise Invalid("A record needs text; forget it if it is no longer wanted.")
            changed = frontmatter.with_text(changed, text)
        if changed != document:
            self._folder.replace(path, changed.joined(), nanoseconds(self._now()))


def _candidates(stem: str) -> Iterator[str]:
    yield f"{stem}.md"
    for number in range(2, _NUMBERED + 1):
        yield f"{stem}-{number}.md"
    for _ in range(_NUMBERED):
        yield f"{stem}-{secrets.token_hex(4)}.md"
