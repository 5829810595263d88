"""Ids on the wire: one segment of a path, whatever the provider's own ids hold."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence


def encode(*parts: str) -> str:
    """Return an id that holds `parts`: each in base64 for URLs, with a dot between them."""
    return ".".join(
        base64.urlsafe_b64encode(part.encode("utf-8", "surrogatepass")).decode().rstrip("=")
        for part in parts
    )


def decode(wire_id: str, count: int) -> Sequence[str] | None:
    """Return the `count` parts of an id, None where it is no id that `encode` makes."""
    words = wire_id.split(".")
    if len(words) != count:
        return None
    try:
        parts = [_decoded(word) for word in words]
    except (binascii.Error, UnicodeError):
        return None
    return parts if all(parts) and encode(*parts) == wire_id else None


def _decoded(word: str) -> str:
    padded = word + "=" * (-len(word) % 4)
    return base64.urlsafe_b64decode(padded.encode("ascii")).decode("utf-8", "surrogatepass")
