"""JSON text that is safe to print, and lenient readers of damaged JSON."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

_OBEYED = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Characters that a terminal obeys or hides: controls, line separators, lone surrogates, and
invisible format characters except the two joiners that scripts need. JSON escapes C0 itself."""

_OBJECT = re.compile(r"\{\s*[\"}]")
_OF_A_LINE = frozenset({"type", "uuid", "sessionId", "timestamp", "payload"})
"""Fields of a transcript line; an object nested in a line has at most one of them."""
_DECODER = json.JSONDecoder(strict=False)
_MOST_TRIED = 1 << 28
"""Limit of characters scanned in one line for the next whole object."""


def json_text(document: object, *, indent: int | None = None) -> str:
    r"""Return a document as JSON text that is safe to print on a terminal.

    Characters that a terminal obeys or hides are escaped (`\u009b`), which is the same JSON.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    return text if text.isascii() and "\x7f" not in text else _OBEYED.sub(_escaped, text)


def compact_json(document: object) -> str:
    """Return a document as JSON text for a program. Raises `ValueError` for NaN and infinities."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def whole(value: Any) -> Any:
    """Return JSON with lone surrogates, which no database stores, replaced by U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(one) for one in value]
    if isinstance(value, dict):
        return {whole(name): whole(one) for name, one in value.items()}
    return value


def lenient_json(text: str | bytes) -> Any:
    """Return JSON that another program sent, read leniently.

    A byte order mark is skipped, raw control characters in strings are allowed, and invalid UTF-8
    and lone surrogates become U+FFFD.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return whole(json.loads(text.removeprefix("\ufeff"), strict=False))


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return an object as `lenient_json` does; empty: it is none."""
    try:
        found = lenient_json(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def spliced_json(line: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of a possibly damaged transcript line; None for each unreadable part.

    A killed client leaves half an object, a second object after it, or NUL bytes. After an
    unreadable part, an object counts only if it has the fields of a whole line; otherwise it may
    be nested in the lost one.
    """
    tried = 0
    for piece in re.split(rb"\0+", line):
        text = piece.decode("utf-8", "replace").removeprefix("\ufeff")
        end, is_lost = 0, False
        for begins in _OBJECT.finditer(text):
            start = begins.start()
            if start < end or tried > _MOST_TRIED:
                continue
            is_lost = is_lost or bool(text[end:start].strip())
            try:
                value, stop = _DECODER.raw_decode(text, start)
            except json.JSONDecodeError as error:
                far = len(text) if error.msg.startswith("Unterminated") else error.pos
                tried, is_lost = tried + far, True  # the error itself counts lines up to there
                continue
            except RecursionError:
                is_lost = True
                break
            if is_lost and len(_OF_A_LINE & value.keys()) < 2:
                continue
            if is_lost:
                yield None
            yield value
            end, is_lost = stop, False
        if is_lost or text[end:].strip():
            yield None


def plain(value: Any) -> Any:
    """Return the JSON form of a value from DuckDB.

    Decimals (as money everywhere), timestamps, dates and intervals become text, and so do `NaN`,
    `Infinity` and `-Infinity`; bytes become hexadecimal.
    """
    if isinstance(value, dict):
        return {plain_text(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, bytes | Decimal):
        return value.hex() if isinstance(value, bytes) else f"{value:f}"
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def plain_text(value: Any) -> str:
    """Return `plain` of a value as one text."""
    found = plain(value)
    return found if isinstance(found, str) else json_text(found)


# Places of the parts of a JSON text, so that one can be changed and all other characters stay.

_PARTS = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def json_members(text: str, start: int = 0) -> dict[str, tuple[int, int]]:
    """Return the start and end of each member's value in the object at `start`."""
    found: dict[str, tuple[int, int]] = {}
    at = _after(text, text.index("{", start) + 1)
    while text[at] != "}":
        key, at = _PARTS.raw_decode(text, at)
        begins = _after(text, _after(text, at) + 1)
        _, end = _PARTS.raw_decode(text, begins)
        found[key] = begins, end
        at = _after(text, end)
        at = _after(text, at + 1) if text[at] == "," else at
    return found


def json_elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each element of the list at `start`."""
    at = _after(text, start + 1)
    while text[at] != "]":
        _, end = _PARTS.raw_decode(text, at)
        yield at, end
        at = _after(text, end)
        at = _after(text, at + 1) if text[at] == "," else at


def with_member(text: str, path: Sequence[str], value: object) -> str:
    """Return the JSON text of an object with one value replaced, or added as the last member.

    The value's objects on the `path` must be there; all other characters stay.
    """
    start = 0
    for name in path[:-1]:
        start = json_members(text, start)[name][0]
    members = json_members(text, start)
    written = compact_json(value)
    if path[-1] in members:
        begins, end = members[path[-1]]
        return f"{text[:begins]}{written}{text[end:]}"
    last = max((end for _, end in members.values()), default=text.index("{", start) + 1)
    comma = "," if members else ""
    return f"{text[:last]}{comma}{json.dumps(path[-1])}:{written}{text[last:]}"


def _after(text: str, at: int) -> int:
    """Return the place after the white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
