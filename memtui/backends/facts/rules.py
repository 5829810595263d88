"""What a fact may be, and who made it (seed 004 §6.1, §6.2)."""

from __future__ import annotations

import unicodedata

from memtui.contract import Invalid, SourceKind, WriteRequest

DRIVE_PREFIX = "drive:"
"""Begins the handle of a drive's fact whose id a user's fact bears as well."""

_REFUSED = frozenset({"Cc", "Cs", "Zl", "Zp"})
_ID_CHARS = 500


def check_line(text: str) -> str:
    """Return `text` if it is one line that any database can hold.

    Raises:
        Invalid: it is empty, has several lines, or holds control characters or lone surrogates.
    """
    if not text.strip():
        raise Invalid("A fact needs some text; forget it instead of emptying it.")
    if text.isprintable():
        return text
    for char in text:
        if char in "\n\r\x0b\x0c\x85\u2028\u2029":
            raise Invalid("A fact is one line; split it into several facts, or write a note.")
        if unicodedata.category(char) in _REFUSED:
            raise Invalid(
                f"A fact holds no control characters, and this one has U+{ord(char):04X}; "
                "take it out."
            )
    return text


def check_text(text: str, max_chars: int) -> str:
    """Return a fact's text. Raises `Invalid` if it is no line or longer than `max_chars`."""
    if len(text) > max_chars:
        raise Invalid(
            f"A fact has {max_chars} characters at most, and this one has {len(text)}; shorten it "
            "or split it."
        )
    return check_line(text)


def check_id(record_id: str) -> str:
    """Return the id of a new fact. Raises `Invalid` where it cannot be one."""
    if record_id.startswith(DRIVE_PREFIX) or not (
        record_id.isprintable() and record_id.strip() and len(record_id) <= _ID_CHARS
    ):
        raise Invalid(
            f"A fact's id is printable, has {_ID_CHARS} characters at most and does not begin "
            f"with {DRIVE_PREFIX!r}; leave it out to get one."
        )
    return record_id


def maker(request: WriteRequest) -> str:
    """Return the seed's `source`: `ai` for an agent's write or one out of a run, else `user`."""
    by_agent = (request.created_by or "").startswith("agent:")
    return "ai" if by_agent or request.source.kind is SourceKind.RUN else "user"
