"""Facts of the form `key: value`, and their values as JSON (seed 002 §6, `kv_value`; §7).

A fact's namespace is its topic: in a facts file, the heading above it.

A value is text. It is read as a number, a boolean or a list only if the original text can be
restored from the result: `47` is a number, while `3.10` and `007` stay texts. Only the spelling of
a list or an object may change when the JSON value is stored instead of the text.
"""

import json
import re
from typing import Any, NamedTuple

from memtui.contract import Invalid, Record
from memtui.patterns import late_pattern

FACT = "fact"
"""The kind of records that are facts."""

_PAIR = late_pattern(r"([A-Za-z0-9_.\-]+):(?:[ \t]+(.*))?", re.DOTALL)
_INTEGER = late_pattern(r"-?(?:0|[1-9][0-9]{0,15})")
_EXACT = 2**53
"""Largest integer that every JSON reader represents exactly."""
_DECIMAL = late_pattern(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?")
_KEYED = frozenset({"kv", "temporal"})
"""The entry types that have a key (seed 002 §6)."""
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LIST = late_pattern(r"\[([^\[\]{}\"\r\n]+)\]")
"""A list of plain words, such as `[Python 3.12, Pygame]`."""


class _Lossy(ValueError):
    """Parsing would lose part of the text."""


class FactPair(NamedTuple):
    """A fact's key, and its value as written."""

    key: str
    value: str


def pair_of(text: str) -> FactPair | None:
    """Return key and value of a `key: value` text, None for a plain one."""
    match = _PAIR.fullmatch(text)
    return FactPair(match.group(1), match.group(2) or "") if match else None


def fact_text(key: str, value: str) -> str:
    """Return the text of a fact with a key.

    Raises:
        Invalid: the key is not one, or the value is not a single line.
    """
    text = f"{key}: {value}"
    if not value.strip() or (pair := pair_of(text)) is None or pair.key != key:
        raise Invalid(
            "A key has letters, digits, dots, dashes and underscores, and its value is some "
            "text on one line."
        )
    return text


class Entry(NamedTuple):
    """Namespace and key of a fact; facts with equal entries have the same key."""

    namespace: str
    """In lower case; empty for none."""
    key: str
    """In lower case."""


def entry_of(record: Record) -> Entry | None:
    """Return namespace and key of a record; None: it is not a `key: value` fact."""
    if record.kind != "fact":
        return None
    more, pair = record.metadata, pair_of(record.text)
    key = pair.key if pair else more.get("key") if more.get("entry_type") in _KEYED else None
    return Entry((record.topic or "").casefold(), key.casefold()) if isinstance(key, str) else None


def value_of(record: Record) -> Any:
    """Return the value of a fact with a key, as JSON."""
    pair = pair_of(record.text)
    return parsed(pair.value) if pair else record.metadata.get("value")


def stated(record: Record) -> str:
    """Return a record's text; of a fact with a key, always as `key: value`."""
    entry = None if pair_of(record.text) else entry_of(record)
    return record.text if entry is None else f"{entry.key}: {written(value_of(record))}"


def parsed(text: str) -> Any:
    """Return a value as JSON: typed where the text can be restored from it, else the text.

    `parsed(written(value)) == value` for every JSON value that all JSON readers read alike.
    """
    if text[:1] in {"[", "{", '"'}:
        return _structure(text)
    return _scalar(text)


def written(value: Any) -> str:
    """Return a JSON value as text: written plainly if that parses back, else as JSON."""
    if isinstance(value, str):
        return value if parsed(value) == value else _json(value)
    if isinstance(value, list) and value:
        items = [one if isinstance(one, str) else _json(one) for one in value]
        plain = f"[{', '.join(items)}]"
        if parsed(plain) == value:
            return plain
    return _json(value)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if str(number) == text and abs(number) <= _EXACT else text
    if _DECIMAL.fullmatch(text) and repr(float(text)) == text:
        return float(text)
    return text


def _structure(text: str) -> Any:
    try:
        value = json.loads(
            text,
            parse_int=_scalar,
            parse_float=_scalar,
            parse_constant=_refused,
            object_pairs_hook=_object,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        pass
    else:
        return value
    match = _LIST.fullmatch(text)
    items = [item.strip() for item in match.group(1).split(",")] if match else []
    return [_scalar(item) for item in items] if all(items) and items else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _Lossy("a name that stands twice")
    return value


def _refused(word: str) -> None:
    raise _Lossy(word)  # NaN and Infinity are not JSON


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
