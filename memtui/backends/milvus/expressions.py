"""Milvus's filter expressions, put together so that no value can become a part of one."""

from __future__ import annotations

import json
from collections.abc import Iterable

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -.:/@#+,")


def quoted(text: str) -> str:
    """Return a text as a literal."""
    return f'"{"".join(_ESCAPES.get(char, char) for char in text)}"'


def one_of(field: str, values: Iterable[str]) -> str:
    """Return the test that a field has one of these values."""
    return f"{field} in [{', '.join(map(quoted, values))}]"


def has_tag(field: str, tag: str) -> str:
    """Return a test of a JSON array's text: of the tag, one that begins with it, and a few others.

    A letter stands for any sign, as tags do not differ by case. Versions of Milvus differ in how a
    pattern's own signs are escaped, and programs in how they write JSON: what is not plain stands
    for anything, so whoever asks looks at what it gets.
    """
    inner = "".join("%" if char not in _PLAIN else "_" if char.isalpha() else char for char in tag)
    pattern = f'%"{inner}%'
    return f"{field} like {quoted(pattern)}"


def all_of(parts: Iterable[str]) -> str:
    """Return the test that all of these hold, empty for none."""
    return " and ".join(f"({part})" for part in parts if part)


def json_list(values: Iterable[str]) -> str:
    """Return texts as the JSON array that the schema keeps tags as."""
    return json.dumps(list(values), ensure_ascii=False)
