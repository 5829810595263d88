"""Split a delivered context: find the piece of its text that belongs to each record."""

import re
from collections.abc import Sequence

_ENTRY = re.compile(r"^(?:- .*\n?|<memory (?s:.)*?^</memory>\n?)", re.MULTILINE)
"""A bullet, or an entry marked as data."""
_OPENING = re.compile(r"<memory .*\n\Z")
_CLOSING = re.compile(r"(?:\[truncated\]\n)?</memory>\n?")

_Span = tuple[int, int]


def pieces(text: str, records: Sequence[str | None]) -> list[str | None]:
    """Return the whole lines of each record in a delivered text.

    Args:
        text: The text as delivered to a model.
        records: The text of each record at that time, in the order of the context; None: not known.
            Unknown records between two known ones match the entries there if the numbers agree.

    Returns:
        One piece per record; None: not determined.
    """
    spans = _known(text, records)
    for first, end, place in _gaps(text, spans):
        entries = [one.span() for one in _ENTRY.finditer(text, *place)]
        if len(entries) == end - first:
            spans[first:end] = entries
    return [None if span is None else text[slice(*span)] for span in spans]


def _known(text: str, records: Sequence[str | None]) -> list[_Span | None]:
    spans: list[_Span | None] = []
    at = 0
    for record in records:
        place = _find(text, record, at) if record else -1
        if place < 0:
            spans.append(None)
            continue
        start = text.rfind("\n", 0, place) + 1
        last = text.find("\n", place + len(record or ""))
        at = len(text) if last < 0 else last + 1
        above = text.rfind("\n", 0, max(0, start - 1)) + 1
        if _OPENING.match(text, above, start) and (below := _CLOSING.match(text, at)):
            start, at = above, below.end()
        spans.append((start, at))
    return spans


def _find(text: str, record: str, at: int) -> int:
    """Return the position of a record: a bullet with its text, else the text itself."""
    bullet = text.find(f"\n- {record}\n", max(0, at - 1))
    return text.find(record, at) if bullet < 0 else bullet + len("\n- ")


def _gaps(text: str, spans: Sequence[_Span | None]) -> list[tuple[int, int, _Span]]:
    """Return runs of records without a span, and the part of the text between their neighbours."""
    found = []
    first, after = 0, 0
    for number, span in enumerate([*spans, (len(text), len(text))]):
        if span is None:
            continue
        if first < number:
            found.append((first, number, (after, span[0])))
        first, after = number + 1, span[1]
    return found
