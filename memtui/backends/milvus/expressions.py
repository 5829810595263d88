"""Builds Milvus's filter expressions with escaped values, so that no value acts as syntax."""

import json
from collections.abc import Iterable

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -.:/@#+,")


def quoted(text: str) -> str:
    """Return a text as a string literal."""
    return f'"{"".join(_ESCAPES.get(char, char) for char in text)}"'


def one_of(field: str, values: Iterable[str]) -> str:
    """Return the condition that a field has one of these values."""
    return f"{field} in [{', '.join(map(quoted, values))}]"


def has_tag(field: str, tag: str) -> str:
    """Return a condition on a JSON array's text that matches a tag, its prefixes and a few others.

    Letters become wildcards, as tags do not differ by case. So do special characters, as versions
    of Milvus differ in escaping them, and programs in writing JSON. The caller filters the result.
    """
    inner = "".join("%" if char not in _PLAIN else "_" if char.isalpha() else char for char in tag)
    pattern = f'%"{inner}%'
    return f"{field} like {quoted(pattern)}"


def all_of(parts: Iterable[str]) -> str:
    """Return the conjunction of conditions; empty for none."""
    return " and ".join(f"({part})" for part in parts if part)


def json_list(values: Iterable[str]) -> str:
    """Return texts as a JSON array, the schema's form of tags."""
    return json.dumps(list(values), ensure_ascii=False)
