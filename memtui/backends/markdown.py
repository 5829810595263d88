"""Splits markdown into frontmatter and sections, for reading only."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memtui.backends.vault import markdown
from memtui.contract import Json
from memtui.provider_kit.files.reading import Flaw

_HEADING_LIMIT = 1_000
"""Most characters of a heading; a longer line is text."""
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.*)", re.DOTALL)
_CLOSING = re.compile(r"(?:^|(?<=[ \t]))#+$")
_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MarkdownSection:
    """A heading and the text up to the next one."""

    level: int
    """1 to 6; 0 for the text before the first heading."""
    heading: str
    line: int
    """The heading's line, counted from 1."""
    trail: tuple[str, ...]
    """The headings from the outermost to its own."""
    body: str
    """The text without the blank lines around it."""
    body_line: int
    is_leaf: bool
    """No deeper heading follows under it."""

    @property
    def lines(self) -> tuple[int, int]:
        """The first and last line of what only this section has: deeper ones need its heading."""
        first = self.line if (self.level and self.is_leaf) or not self.body else self.body_line
        return first, self.body_line + self.body.count("\n") if self.body else self.line


def sections(text: str, *, first_line: int = 1, deepest: int = 6) -> list[MarkdownSection]:
    """Return the sections of `text`; headings in code fences and below `deepest` are text.

    `first_line` is the line in the file at which `text` starts.
    """
    lines = text.split("\n")
    fenced = fenced_lines(lines)
    heads = [
        (number, *head)
        for number, line in enumerate(lines)
        if not fenced[number] and (head := heading_of(line)) is not None and head[0] <= deepest
    ]
    found: list[MarkdownSection] = []
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
            MarkdownSection(
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
    """Return for each line whether it is in a code fence; an unclosed fence is text."""
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
    found = _FENCE.match(line[:_HEADING_LIMIT])
    return (found[1][0], len(found[1])) if found else None


def heading_of(line: str) -> tuple[int, str] | None:
    """Return the level and words of a heading; None if the line is none."""
    found = _HEADING.match(line) if len(line) <= _HEADING_LIMIT else None
    title = _CLOSING.sub("", found[2].strip()).rstrip() if found else ""
    return (len(found[1]), title) if found and title else None


def _trimmed(lines: Sequence[str], start: int, end: int) -> tuple[int, str]:
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return start, "\n".join(lines[start:end])


@dataclass(frozen=True, slots=True)
class MarkdownFile:
    """A markdown file; with a flaw, `values` are the properties that are readable one by one."""

    body: str
    body_line: int = 1
    values: Json = field(default_factory=dict)
    """The frontmatter as JSON."""
    flaw: Flaw | None = None


def read_document(text: str) -> MarkdownFile:
    """Split `text` into frontmatter and body."""
    parts, values, problem = markdown.read(text)
    flaw = Flaw(problem) if problem else None
    return MarkdownFile(parts.text, parts.first_text_line, values, flaw)
