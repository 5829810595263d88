"""What a parser finds in a file, and the small values that every parser needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

from memtui.contract import Json

_ID_LIMIT = 160


@dataclass(frozen=True, slots=True)
class Entry:
    """One memory in a file, before it is bound to a company and a binding."""

    id: str
    """Stable over reloads; two entries of one collection may share it, the second gets `~2`."""
    text: str
    line: int = 1
    """Where the text starts, counted from 1."""
    title: str | None = None
    summary: str | None = None
    kind: str = "note"
    topic: str | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    run_id: str | None = None
    """The run that wrote it, where the file says so."""
    external_ref: str | None = None
    """Where that run can be read; without a run the source is the file itself."""
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something in a file that could not be read."""

    message: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class Parsed:
    """All that a parser found in one file; what is not in an entry is in a flaw."""

    entries: tuple[Entry, ...] = ()
    flaws: tuple[Flaw, ...] = ()


def digest(*parts: str) -> str:
    """Return twelve hexadecimal digits that stand for the parts."""
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:12]


def printable_id(text: str) -> str:
    """Return `text` as an id that can be printed, typed and stored, cut and hashed where needed."""
    if len(text) <= _ID_LIMIT and text.isprintable():
        return text
    kept = "".join(char if char.isprintable() else "_" for char in text[:_ID_LIMIT])
    return f"{kept}-{digest(text)}"


def first_line(text: str, limit: int = 80) -> str:
    """Return the first line of `text` as a title of at most `limit` characters."""
    line = text.lstrip()[: limit * 4].partition("\n")[0].strip().lstrip("-*+ ").strip()
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def parse_moment(value: object) -> datetime | None:
    """Return the UTC moment that ISO 8601 text names, or None; no offset means local time."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
