"""Facts files: bullets under markdown headings, parsed and edited without a model (seed 002 §7).

A heading of level two or deeper is a namespace; a title (level one) ends it. A top-level bullet is
a fact: `key: value` when the key has no spaces, plain text otherwise. The lines that belong to the
bullet in markdown (sub-bullets, indented or directly following lines) are its details: they stay
when the bullet's line changes, and are removed with it. Bullets inside fenced code and HTML
comments are not facts.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memtui.contract import Invalid, Problem
from memtui.fact_values import FactPair, pair_of
from memtui.patterns import late_pattern

from . import markdown
from .files import readable

_BULLET = late_pattern(
    r"(?P<indent> {0,3})(?P<marker>[-*+])(?P<space>[ \t]+)(?P<text>.*)", re.DOTALL
)
_BREAK = late_pattern(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}")
_HEADING = late_pattern(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*", re.DOTALL)
_FENCE = late_pattern(r" {0,3}(`{3,}|~{3,})")
_EDGES = " \t"
NEW_FILE = "# Facts\n\n"


@dataclass(frozen=True, slots=True)
class Bullet:
    """One fact's lines: the bullet at `first`, then its details up to `end`, exclusive."""

    first: int
    end: int
    prefix: str
    text: str
    suffix: str
    namespace: str | None
    details: str = ""

    @property
    def pair(self) -> FactPair | None:
        """Key and value of a `key: value` fact."""
        return pair_of(self.text)


@dataclass(frozen=True, slots=True)
class FactsFile:
    """A facts file as lines with their ends, and the parts found in them."""

    lines: tuple[str, ...]
    bullets: tuple[Bullet, ...]
    headings: tuple[tuple[int, str | None], ...]
    """Line and namespace of each heading; None for a title."""
    body: int
    """The first line after the frontmatter."""
    tags: tuple[str, ...] = ()
    """The frontmatter's tags, which every fact of the file inherits (seed 002 §7)."""
    problem: Problem | None = None
    """Why the frontmatter is unreadable; the facts below it are read."""

    @property
    def newline(self) -> str:
        """The line end that the file uses."""
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    def joined(self) -> str:
        """Return the file."""
        return "".join(self.lines)


@dataclass(frozen=True, slots=True)
class Insertion:
    """Lines to insert before line `index`: the fact's, and those needed around it."""

    index: int
    head: str
    line: str
    tail: str = ""


def short_hash(text: str) -> str:
    """Return the name of a plain fact: a short digest of its text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def clean(text: str) -> str:
    """Return the trimmed text of a bullet. Raises `Invalid` unless it is one line with text."""
    if "\n" in text or "\r" in text:
        raise Invalid("A fact is one line; write a longer record as a note.")
    trimmed = text.strip(_EDGES)
    if not trimmed:
        raise Invalid("A fact needs text.")
    return trimmed


def parse(content: str) -> FactsFile:
    """Find the facts of a file, even below broken frontmatter."""
    document = markdown.split(content)
    lines = tuple(split_lines(content))
    if isinstance(document, Problem):
        return replace(_Parser(lines, 0).run(), problem=document)
    fields = markdown.parse(document.front)
    body = document.first_text_line - 1 if document.front is not None else 0
    found = _Parser(lines, body).run()
    if isinstance(fields, Problem):
        return replace(found, problem=fields)
    return replace(found, tags=markdown.words(fields.get("tags")))


def split_lines(content: str) -> list[str]:
    """Return the lines with their ends; only a newline ends a line."""
    pieces = content.split("\n")
    lines = [f"{piece}\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


class _Parser:
    def __init__(self, lines: tuple[str, ...], body: int) -> None:
        self._lines = lines
        self._body = body
        self._bullets: list[Bullet] = []
        self._ends: list[int] = []
        """The end line of each bullet, exclusive."""
        self._headings: list[tuple[int, str | None]] = []
        self._namespace: str | None = None
        self._fence = ""
        self._comment = False
        self._column = 0
        """Column of the text of the bullet that is still open for details; 0: none is."""

    def run(self) -> FactsFile:
        blank = False
        for index in range(self._body, len(self._lines)):
            line = self._lines[index].rstrip("\r\n")
            if index == 0:
                line = line.removeprefix("\ufeff")
            if self._inside_block(line):
                if self._column:
                    self._ends[-1] = index + 1
            elif line.strip():
                self._read(line, index, after_blank=blank)
                blank = False
            else:
                blank = True
        bullets = tuple(
            replace(
                bullet,
                end=end,
                details=readable("".join(self._lines[bullet.first + 1 : end])),
            )
            for bullet, end in zip(self._bullets, self._ends, strict=True)
        )
        return FactsFile(self._lines, bullets, tuple(self._headings), self._body)

    def _inside_block(self, line: str) -> bool:
        if self._fence and line.strip() and _column(line) < self._column:
            self._fence = ""
        if self._fence:
            closing = _FENCE.match(line.lstrip())
            if closing and closing.group(1).startswith(self._fence):
                self._fence = ""
            return True
        if self._comment:
            self._comment = "-->" not in line
            return True
        return False

    def _read(self, line: str, index: int, *, after_blank: bool) -> None:
        if self._column and _column(line) >= self._column:
            self._opens_fence(line.lstrip())
            self._ends[-1] = index + 1
            return
        is_break = _BREAK.fullmatch(line) is not None
        bullet = None if is_break else _BULLET.fullmatch(line)
        heading = _HEADING.fullmatch(line)
        if bullet:
            self._column = 0
            self._start(bullet, index)
        elif heading:
            self._column = 0
            name = readable(heading.group(2) or "").strip() or None
            self._namespace = name if len(heading.group(1)) > 1 else None
            self._headings.append((index, self._namespace))
        elif self._opens_block(line) or is_break or after_blank or not self._column:
            self._column = 0
        else:
            self._ends[-1] = index + 1

    def _opens_block(self, line: str) -> bool:
        start = line.lstrip()
        if self._opens_fence(line) or not start.startswith("<!--"):
            return bool(self._fence)
        self._comment = "-->" not in start
        return True

    def _opens_fence(self, line: str) -> bool:
        match = _FENCE.match(line)
        if match and not (match.group(1)[0] == "`" and "`" in line[match.end() :]):
            self._fence = match.group(1)
        return bool(self._fence)

    def _start(self, match: re.Match[str], index: int) -> None:
        raw = self._lines[index]
        text = match.group("text").rstrip(_EDGES)
        if not text:
            return
        start = raw.index(match.group("marker")) + 1 + len(match.group("space"))
        suffix = raw[start + len(text) :]
        self._column = _column(match.group("indent") + " " + match.group("space"))
        self._ends.append(index + 1)
        self._bullets.append(
            Bullet(index, index + 1, raw[:start], readable(text), suffix, self._namespace)
        )


def _column(line: str) -> int:
    column = 0
    for char in line:
        if char == " ":
            column += 1
        elif char == "\t":
            column += 4 - column % 4
        else:
            break
    return column


def replaced(file: FactsFile, bullet: Bullet, text: str) -> str:
    """Return the file with another text in one bullet, all other bytes unchanged."""
    lines = list(file.lines)
    lines[bullet.first] = f"{bullet.prefix}{text}{bullet.suffix}"
    return "".join(lines)


def removed(file: FactsFile, bullets: Sequence[Bullet]) -> str:
    """Return the file without these bullets and their details."""
    gone = {index for bullet in bullets for index in range(bullet.first, bullet.end)}
    return "".join(line for index, line in enumerate(file.lines) if index not in gone)


def place_for(file: FactsFile, text: str, namespace: str | None) -> Insertion:
    """Return the place of a new fact: after its namespace's last one, or under a new heading.

    Facts without a namespace come before the first heading of level two.
    """
    newline, index = file.newline, len(file.lines)
    head, line, tail = "", f"- {text}{newline}", ""
    if not file.lines:
        heading = f"## {namespace}{newline}" if namespace is not None else ""
        return Insertion(0, f"{NEW_FILE}{heading}", line)
    start, end = _section(file, namespace)
    inside = [bullet for bullet in file.bullets if start <= bullet.first < end]
    if inside:
        index = inside[-1].end
        line = f"{inside[-1].prefix.removeprefix(chr(0xFEFF))}{text}{newline}"
    elif start < 0:
        gap = newline if file.lines and file.lines[-1].strip() else ""
        head = f"{gap}## {namespace}{newline}"
    elif filled := [number for number in range(start, end) if file.lines[number].strip()]:
        index, head = filled[-1] + 1, newline if namespace is None else ""
    else:
        tail = newline if end < len(file.lines) else ""
        index = max(start, file.body)
    if index == len(file.lines) and file.lines and not file.lines[-1].endswith("\n"):
        # A missing final newline stays missing when the fact becomes the last line.
        return Insertion(index, newline + head, line.removesuffix(newline))
    return Insertion(index, head, line, tail)


def _section(file: FactsFile, namespace: str | None) -> tuple[int, int]:
    """First line and exclusive end of a namespace; -1: the namespace has no heading."""
    marks = [*file.headings, (len(file.lines), None)]
    if namespace is None:
        return file.body, next((i for i, name in marks if name is not None), len(file.lines))
    for (start, name), (end, _) in itertools.pairwise(marks):
        if name == namespace:
            return start, end
    return -1, -1


def inserted(file: FactsFile, insertion: Insertion) -> str:
    """Return the file with the new lines in their place."""
    before, after = file.lines[: insertion.index], file.lines[insertion.index :]
    return "".join([*before, insertion.head, insertion.line, insertion.tail, *after])
