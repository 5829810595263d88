"""The auto memory of Claude Code: `~/.claude/projects/<slug>/memory/`.

`MEMORY.md` is an index whose first 200 lines or 25,000 bytes are loaded into every session; each
other file is one memory with frontmatter, flat (`type`, `originSessionId`) or with those keys
under `metadata`. A record's metadata says in `loaded` how much of it a new session sees: `text`,
`part` (cut off), `hook` (only its line in the index) or `no`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from memtui.backends.files.adapter import FilesAdapter, FilesConfig
from memtui.backends.files.markdown import fenced_lines, read_document, sections
from memtui.backends.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    parse_moment,
)
from memtui.contract import Json

INDEX = "MEMORY.md"
LOADED_LINES = 200
LOADED_BYTES = 25_000
_DEPTH = 4
_LINK = re.compile(
    r"\[([^\[\]\n]{0,500})\]\(([^()\s]{1,500}\.md)(?:#[^()\s]{0,200})?\)", re.IGNORECASE
)
_LINE_LIMIT = 4_000
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_TAKEN = "\0in the index\0"
"""Stands in for an index line whose file carries what the line says."""


class ClaudeMemoryConfig(FilesConfig):
    """A Claude Code project's auto memory: its `memory` folder."""


class ClaudeMemoryAdapter(FilesAdapter[ClaudeMemoryConfig]):
    """Shows a project's auto memory: a record a file, and one a section of the index's own text."""

    key = "claude-memory"
    config_model = ClaudeMemoryConfig
    holds = "folder"

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the index, then every memory."""
        folder = self.config.path
        paths = reader.files(folder, ".md", depth=_DEPTH)
        names = {path.relative_to(folder).as_posix(): path for path in paths}
        links: dict[str, Link] = {}
        if (index_path := names.pop(INDEX, None)) is not None:
            index = reader.parse(index_path, partial(parse_index, names=frozenset(names)))
            if index is not None:
                links = index.links
                modified = reader.modified(index_path)
                dated = (replace(entry, updated_at=modified) for entry in index.parsed.records)
                yield index_path, replace(index.parsed, records=tuple(dated))
        for name, path in names.items():
            parsed = reader.parse(path, partial(parse_memory, name=name))
            if parsed is not None:
                entries = (self._placed(entry, path, links, reader) for entry in parsed.records)
                yield path, replace(parsed, records=tuple(entries))

    def _placed(
        self, entry: ParsedRecord, path: Path, links: dict[str, Link], reader: FileReader
    ) -> ParsedRecord:
        link = links.get(entry.id)
        metadata: Json = {**entry.metadata, "loaded": "hook" if link and link.loaded else "no"}
        if link is not None:
            metadata |= {"index_line": link.line, "hook": link.hook}
        transcript: Path | None = None
        if entry.run_id is not None:
            transcript = self.config.path.parent / f"{entry.run_id}.jsonl"
            found = reader.look(transcript)
            if found is None or not found.is_file:
                metadata["transcript"] = "missing"
                transcript = None
        return replace(
            entry,
            updated_at=entry.updated_at or reader.modified(path),
            external_ref=None if transcript is None else str(transcript),
            title=entry.title or (link.title if link else None) or path.stem,
            metadata=metadata,
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A line of the index that points at a memory."""

    title: str
    hook: str
    line: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class Index:
    """What `MEMORY.md` says: links by file name, and its own text as entries."""

    links: dict[str, Link]
    parsed: ParsedFile


def parse_memory(text: str, name: str) -> ParsedFile:
    """Parse one memory file; broken frontmatter leaves its whole text as the memory."""
    document = read_document(text)
    if document.flaw is not None:
        records = (ParsedRecord(id=name, text=text),) if text.strip() else ()
        return ParsedFile(records, (document.flaw,))
    if not document.body.strip():
        return ParsedFile(flaws=(Flaw("The memory has no text."),))
    nested = document.values.get("metadata")
    values = {key: value for key, value in document.values.items() if key != "metadata"}
    values |= nested if isinstance(nested, dict) else {}
    session = _text(values, "originSessionId")
    if session is not None and _SESSION.fullmatch(session) is None:
        session = None
    return ParsedFile(
        (
            ParsedRecord(
                id=name,
                text=document.body.strip("\n"),
                line=document.body_line + len(document.body) - len(document.body.lstrip("\n")),
                title=_text(values, "name"),
                summary=_text(values, "description"),
                kind=_text(values, "type") or "note",
                updated_at=parse_moment(values.get("modified")),
                run_id=session,
                metadata={"frontmatter": values} if values else {},
            ),
        )
    )


def parse_index(text: str, names: frozenset[str]) -> Index:
    """Parse the index of a folder that holds the files `names`."""
    lines = text.split("\n")
    loaded = _loaded_lines(lines)
    links: dict[str, Link] = {}
    flaws: list[Flaw] = []
    fenced = fenced_lines(lines)
    kept = list(lines)
    for number, line in enumerate(lines, start=1):
        if fenced[number - 1] or len(line) > _LINE_LIMIT:
            continue
        for match in _LINK.finditer(line):
            name = os.path.normpath(unquote(match[2])).replace(os.sep, "/")
            if "://" in match[2] or name == INDEX:
                continue
            if name not in names:
                flaws.append(Flaw(f"The index points at {match[2]}, which is not there.", number))
                continue
            hook = line[match.end() :].strip(" \t—–-:")
            links.setdefault(name, Link(match[1], hook, number, number <= loaded))
            if not line[: match.start()].strip(" \t-*+"):
                kept[number - 1] = _TAKEN
    entries = _index_entries("\n".join(kept), loaded)
    return Index(links, ParsedFile(tuple(entries), tuple(flaws)))


def _index_entries(text: str, loaded: int) -> Iterator[ParsedRecord]:
    for section in sections(text):
        lines = section.body.split("\n")
        own = "\n".join(line for line in lines if line != _TAKEN).strip("\n")
        if not own.strip():
            if _TAKEN in lines or not section.is_leaf:
                continue
            own = section.heading
        before = next((n for n, one in enumerate(lines) if one.strip() and one != _TAKEN), None)
        end = section.body_line + len(lines) - 1
        state = "text" if end <= loaded else "part" if section.body_line <= loaded else "no"
        yield ParsedRecord(
            id=f"{INDEX}#{'/'.join(section.trail)}",
            text=own,
            line=section.line if before is None else section.body_line + before,
            title=section.heading or first_line(own),
            kind="index",
            metadata={"loaded": state, "headings": list(section.trail)},
        )


def _loaded_lines(lines: list[str]) -> int:
    size = 0
    for number, line in enumerate(lines[:LOADED_LINES]):
        size += len(line.encode("utf-8", "replace"))
        if size > LOADED_BYTES:
            return number
        size += 1
    return LOADED_LINES


def _text(values: Json, key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) and value.strip() else None
