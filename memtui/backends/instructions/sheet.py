"""One instruction file: its sections as entries, and what it imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memtui.backends.files.entries import Entry, Flaw, Parsed, first_line
from memtui.backends.files.frontmatter import read_document
from memtui.backends.files.markdown import fenced_lines, sections

_IMPORT_COUNT = 1_000
_IMPORT = re.compile(r"(?:^|(?<=\s))@([^\s@`]{1,1000})")
_COMMENT_LINE = re.compile(r" {0,3}<!--")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE_SPAN = re.compile(r"`[^`]*`")


@dataclass(frozen=True, slots=True)
class Import:
    """An `@path` in a file."""

    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """One instruction file, parsed."""

    parsed: Parsed
    imports: tuple[Import, ...]
    has_paths: bool = False
    """Its frontmatter names the files that it is for."""


def parse_sheet(text: str, name: str, kind: str) -> Sheet:
    """Parse one file; `name` begins its records' ids."""
    if "\0" in text[:4096]:
        return Sheet(Parsed(flaws=(Flaw("The file is binary, so it is not shown."),)), ())
    document = read_document(text)
    flaws = [] if document.flaw is None else [document.flaw]
    body = without_comments(document.body)
    entries = tuple(_entries(body, document.body_line, name, kind))
    if document.values:
        entries = tuple(
            replace(entry, metadata={**entry.metadata, "frontmatter": document.values})
            for entry in entries
        )
    imports = list(_imports(body, document.body_line))
    if len(imports) > _IMPORT_COUNT:
        line = imports[_IMPORT_COUNT].line
        flaws.append(Flaw(f"Only the first {_IMPORT_COUNT} imports are followed.", line))
    has_paths = bool(document.values.get("paths"))
    return Sheet(Parsed(entries, tuple(flaws)), tuple(imports[:_IMPORT_COUNT]), has_paths)


def without_comments(body: str) -> str:
    """Return the text without the HTML comments that begin a line outside of code.

    What else stands on their lines stays, and so does the number of lines.
    """
    lines = body.split("\n")
    fenced = fenced_lines(lines)
    number = 0
    while number < len(lines):
        start = number
        number += 1
        if fenced[start] or not _COMMENT_LINE.match(lines[start]):
            continue
        end = next((at for at in range(start, len(lines)) if "-->" in lines[at]), None)
        if end is None:
            break
        left = _COMMENT.sub("", "\n".join(lines[start : end + 1]))
        lines[start : end + 1] = [*[""] * (end - start), left if left.strip() else ""]
        number = end + 1
    return "\n".join(lines)


def _entries(body: str, body_line: int, name: str, kind: str) -> Iterator[Entry]:
    for section in sections(body, first_line=body_line):
        text = section.body or (section.heading if section.is_leaf else "")
        if not text:
            continue
        yield Entry(
            id=f"{name}#{'/'.join(section.trail)}",
            text=text,
            line=section.body_line if section.body else section.line,
            title=section.heading or first_line(text),
            kind=kind,
            metadata={"headings": list(section.trail)} if section.trail else {},
        )


def _imports(body: str, body_line: int) -> Iterator[Import]:
    lines = body.split("\n")
    fenced = fenced_lines(lines)
    for number, line in enumerate(lines):
        if "@" not in line or fenced[number]:
            continue
        for match in _IMPORT.finditer(_CODE_SPAN.sub("``", line)):
            target = match[1].rstrip(".,;:!?)]}'\"*")
            if target:
                yield Import(target, body_line + number)
