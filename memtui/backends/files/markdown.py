"""Cut markdown into the sections under its headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEADING_LIMIT = 1_000
"""Characters; a longer line is text, whatever it starts with."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text up to the next one."""

    level: int
    """1 to 6; 0 for what stands before the first heading."""
    heading: str
    line: int
    """The heading's line, counted from 1."""
    trail: tuple[str, ...]
    """The headings above it, outermost first, its own last."""
    body: str
    """The text without the blank lines around it."""
    body_line: int
    is_leaf: bool
    """No deeper heading follows under it."""


def sections(text: str, *, first_line: int = 1, deepest: int = 6) -> list[Section]:
    """Return the sections of `text`; headings in code fences and below `deepest` are text.

    `first_line` is the line in the file at which `text` starts.
    """
    lines = text.split("\n")
    fenced = fenced_lines(lines)
    heads = [
        (number, *head)
        for number, line in enumerate(lines)
        if not fenced[number] and (head := _heading(line)) is not None and head[0] <= deepest
    ]
    found: list[Section] = []
    trail: list[tuple[int, str]] = []
    starts = [(-1, 0, ""), *heads]
    for index, (number, level, heading) in enumerate(starts):
        after = starts[index + 1] if index + 1 < len(starts) else (len(lines), 0, "")
        trail = [above for above in trail if above[0] < level]
        if level:
            trail.append((level, heading))
        start, body = _trimmed(lines, number + 1, after[0])
        if not level and not body:
            continue
        found.append(
            Section(
                level=level,
                heading=heading,
                line=max(number, 0) + first_line,
                trail=tuple(name for _, name in trail),
                body=body,
                body_line=start + first_line,
                is_leaf=after[1] <= level,
            )
        )
    return found


def fenced_lines(lines: Sequence[str]) -> list[bool]:
    """Tell for each line whether it is in a code fence; a fence that never closes is text."""
    fenced = [False] * len(lines)
    hopeless: dict[str, int] = {}
    number = 0
    while number < len(lines):
        fence = _fence(lines[number])
        if fence is None or fence[1] >= hopeless.get(fence[0], fence[1] + 1):
            number += 1
            continue
        end = next(_closings(lines, number + 1, *fence), None)
        if end is None:
            hopeless[fence[0]] = fence[1]
            number += 1
            continue
        fenced[number : end + 1] = [True] * (end + 1 - number)
        number = end + 1
    return fenced


def _closings(lines: Sequence[str], start: int, mark: str, length: int) -> Iterator[int]:
    for number in range(start, len(lines)):
        line = lines[number]
        if mark not in line[:4]:
            continue
        stripped = line.strip()
        if len(stripped) >= length and not stripped.strip(mark) and not line.startswith("    "):
            yield number


def _fence(line: str) -> tuple[str, int] | None:
    stripped = line[:_HEADING_LIMIT].lstrip(" ")
    mark = stripped[:1]
    if mark not in {"`", "~"} or line.startswith("    "):
        return None
    length = len(stripped) - len(stripped.lstrip(mark))
    if length < 3 or (mark == "`" and mark in stripped[length:]):
        return None
    return mark, length


def _heading(line: str) -> tuple[int, str] | None:
    if "#" not in line[:4] or len(line) > _HEADING_LIMIT:
        return None
    stripped = line.lstrip(" ")
    level = len(stripped) - len(stripped.lstrip("#"))
    rest = stripped[level:]
    if not 1 <= level <= 6 or (rest and rest[0] not in " \t") or line.startswith("    "):
        return None
    title = rest.strip()
    unclosed = title.rstrip("#")
    if not unclosed or unclosed[-1] in " \t":
        title = unclosed.rstrip()
    return (level, title) if title else None


def _trimmed(lines: Sequence[str], start: int, end: int) -> tuple[int, str]:
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return start, "\n".join(lines[start:end])
