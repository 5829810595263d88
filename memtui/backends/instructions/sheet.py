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


def parse_sheet(text: str, name: str, kind: str) -> Sheet:
    """Parse one file; `name` begins its records' ids."""
    if "\0" in text[:4096]:
        return Sheet(Parsed(flaws=(Flaw("The file is binary, so it is not shown."),)), ())
    document = read_document(text)
    flaws = [] if document.flaw is None else [document.flaw]
    entries = tuple(_entries(document.body, document.body_line, name, kind))
    if document.values:
        entries = tuple(
            replace(entry, metadata={**entry.metadata, "frontmatter": document.values})
            for entry in entries
        )
    imports = list(_imports(document.body, document.body_line))
    if len(imports) > _IMPORT_COUNT:
        line = imports[_IMPORT_COUNT].line
        flaws.append(Flaw(f"Only the first {_IMPORT_COUNT} imports are followed.", line))
    return Sheet(Parsed(entries, tuple(flaws)), tuple(imports[:_IMPORT_COUNT]))


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
