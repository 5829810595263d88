"""Take a markdown file apart for reading only, tolerant of broken frontmatter."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from memtui.backends.files.entries import Flaw
from memtui.backends.vault import frontmatter
from memtui.contract import Json, Problem


@dataclass(frozen=True, slots=True)
class Document:
    """A markdown file; with a flaw, `body` is the whole text and `values` empty."""

    body: str
    body_line: int = 1
    values: Json = field(default_factory=dict)
    """The frontmatter as JSON, moments as ISO 8601 text."""
    flaw: Flaw | None = None


def read_document(text: str) -> Document:
    """Split `text` into frontmatter and body."""
    parts = frontmatter.split(text)
    if isinstance(parts, Problem):
        return Document(text, flaw=Flaw(parts.message))
    try:
        values = frontmatter.parse(parts.front)
    except (LookupError, AttributeError, RecursionError):
        # What PyYAML's constructors let through for a tag that its value does not fit.
        return Document(text, flaw=Flaw("The frontmatter holds a value that cannot be read."))
    if isinstance(values, Problem):
        return Document(text, flaw=Flaw(values.message))
    readable = {
        key: value.isoformat() if isinstance(value, date) else value
        for key, value in values.items()
    }
    return Document(parts.text, parts.first_text_line, readable)
