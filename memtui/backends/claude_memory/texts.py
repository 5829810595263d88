"""Reads and changes the files of Claude Code's auto memory.

A change preserves all other lines, unknown frontmatter keys and line ends.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from memtui.backends.markdown import fenced_lines, read_document, sections
from memtui.backends.vault import markdown
from memtui.contract import Conflict, Invalid, Json, Problem, Record
from memtui.provider_kit.files.reading import (
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    parse_moment,
)

INDEX = "MEMORY.md"
LOADED_LINES = 200
LOADED_BYTES = 25_000
_LINK = re.compile(
    r"\[([^\[\]\n]{0,500})\]\(([^()\s]{1,500}\.md)(?:#[^()\s]{0,200})?\)", re.IGNORECASE
)
_SAID = re.compile(r"^(name|description):[ \t]+([^\s'\"|>\[{&*!].*?)[ \t]*$", re.MULTILINE)
_LINE_LIMIT = 4_000
HOOK_CHARS = 120
INDEX_KIND = "index"
"""The kind of records that are sections of the index's own text."""
NESTED = "nested"
"""The newer format of frontmatter, with Claude Code's keys under `metadata`."""
SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_TAKEN = "\0in the index\0"
"""Placeholder for an index line of a memory file, whose text is in that file."""


@dataclass(frozen=True, slots=True)
class IndexLine:
    """A line of the index that links to a memory file."""

    title: str
    hook: str
    line: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """The parsed `MEMORY.md`: links by file name, and its own text as records."""

    links: dict[str, IndexLine]
    parsed: ParsedFile


def parse_memory(text: str, name: str) -> ParsedFile:
    """Parse one memory file; properties of broken frontmatter are parsed one by one."""
    document = read_document(text)
    flaws = () if document.flaw is None else (document.flaw,)
    if not document.body.strip() and not document.values:
        return ParsedFile(flaws=(*flaws, Flaw("The memory has no text.")))
    nested = document.values.get("metadata")
    values = {key: value for key, value in document.values.items() if key != "metadata"}
    values |= nested if isinstance(nested, dict) else {}
    values |= _whole_lines(text, values)
    session = _text(values, "originSessionId")
    if session is not None and SESSION.fullmatch(session) is None:
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
                metadata={
                    **({"frontmatter": values} if values else {}),
                    **({"generation": NESTED} if isinstance(nested, dict) else {}),
                },
            ),
        ),
        flaws,
    )


def _whole_lines(text: str, values: Json) -> Json:
    """Return whole names and descriptions that YAML cuts at a `#12` or `#word` as a comment."""
    parts = markdown.split(text)
    lines = _SAID.findall("" if isinstance(parts, Problem) else parts.front or "")
    rests = ((key, line, line.removeprefix(_text(values, key) or "")) for key, line in lines)
    return {key: line for key, line, rest in rests if re.match(r"\s*#\S", rest)}


def parse_index(text: str, names: frozenset[str]) -> MemoryIndex:
    """Parse the index of a folder with the files `names`."""
    lines = text.split("\n")
    loaded = _loaded_lines(lines)
    links: dict[str, IndexLine] = {}
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
                flaws.append(Flaw(f"The index points at {match[2]}, which does not exist.", number))
                continue
            hook = line[match.end() :].strip(" \t—–-:")
            links.setdefault(name, IndexLine(match[1], hook, number, number <= loaded))
            if not line[: match.start()].strip(" \t-*+"):
                kept[number - 1] = _TAKEN
    used = len(lines) - (lines[-1] == "")
    if used > loaded:
        limit = f"Claude Code loads only the first {LOADED_LINES} lines or {LOADED_BYTES:,} bytes"
        flaws.append(
            Flaw(f"{limit} of this index; everything from here on is left out.", loaded + 1)
        )
    entries = _index_entries("\n".join(kept), loaded)
    return MemoryIndex(links, ParsedFile(tuple(entries), tuple(flaws)))


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
            kind=INDEX_KIND,
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
    is_word = value is not None and not isinstance(value, (list, dict))
    return (markdown.as_written(value).strip() or None) if is_word else None


# Changes


def composed(values: Json, own: Json, text: str, *, is_flat: bool) -> str:
    """Return a new file with `values` and Claude Code's `own` keys, in either format.

    Raises:
        Invalid: the file would not read back as exactly this text.
    """
    if is_flat:
        flat = {name: value for name, value in own.items() if name != "node_type"}
        content = markdown.compose(values | flat, text)
    else:
        inner = markdown.compose(own, "").split("\n")[1 : len(own) + 1]
        above, _, body = markdown.compose(values, text).partition("\n---\n")
        nested = "\n".join(f"  {line}" for line in inner)
        content = f"{above}\nmetadata:\n{nested}\n---\n{body}"
    _refuse_changed(content, text)
    return content


def _refuse_changed(content: str, text: str) -> None:
    said = [one.text for one in parse_memory(content.replace("\r\n", "\n"), "").records]
    if said != [text] or "\r" in text:
        raise Invalid(
            "A markdown file cannot keep this text exactly; remove carriage returns, and blank "
            "lines at its start and end."
        )


def with_body(content: str, record: Record, text: str) -> str:
    """Return a memory's file with another text; update name and description that repeated it.

    Raises:
        Conflict: the file's text is no longer the record's.
        Invalid: the file would not read back as exactly this text.
    """
    parts = markdown.split(content)
    if isinstance(parts, Problem):
        raise Invalid(f"{parts.message} Fix the file by hand first.")
    now = parts.text.replace("\r\n", "\n")
    if now.strip("\n") == text:
        return content
    if now.strip("\n") != record.text:
        raise Conflict(
            "The file changed while you edited it; compare both versions.", proposed=text
        )
    before = now[: len(now) - len(now.lstrip("\n"))]
    after = now[len(now.rstrip("\n")) :]
    body = markdown.with_line_ends_of(parts, f"{before}{text}{after}")
    changed = markdown.with_text(parts, body)
    fields: Json = {}
    if record.title == first_line(record.text):
        fields["name"] = first_line(text)
    if record.summary == first_line(record.text, HOOK_CHARS):
        fields["description"] = first_line(text, HOOK_CHARS)
    written = markdown.parse(parts.front)
    if isinstance(written, Problem):  # only the lines that repeated it are replaced, by valid YAML
        front = parts.front or ""
        old = {"name": record.title, "description": record.summary}
        for key, value in fields.items():
            front = _with_line(front, f"{key}: {old[key]}", key, value)
        changed, fields = replace(changed, front=front), {}
    else:
        fields = {key: value for key, value in fields.items() if key in written}
    joined = markdown.with_fields(changed, fields).joined()
    _refuse_changed(joined, text)
    return joined


def _with_line(front: str, old: str, key: str, value: str) -> str:
    """Return frontmatter with another value in the lines equal to `old`."""
    new = markdown.compose({key: value}, "").split("\n")[1]
    lines = front.split("\n")
    return "\n".join(f"{new}{line[len(old) :]}" if line.rstrip() == old else line for line in lines)


def entries_of(content: str) -> dict[str, list[tuple[int, str]]]:
    """Return the index lines of each memory, by file name; numbers count from 0."""
    lines = _lines(content)
    fenced = fenced_lines([line.rstrip("\r\n") for line in lines])
    found: dict[str, list[tuple[int, str]]] = {}
    for at, line in enumerate(lines):
        if not fenced[at] and (link := _entry(line)) is not None:
            found.setdefault(_target(link), []).append((at, line))
    return found


def _lines(content: str) -> list[str]:
    """Return the lines with their ends."""
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def _entry(line: str) -> re.Match[str] | None:
    """Return the link at the start of an index line; None: the line is plain text."""
    link = _LINK.search(line) if len(line) <= _LINE_LIMIT else None
    return link if link is not None and not line[: link.start()].strip(" \t-*+\ufeff") else None


def _target(link: re.Match[str]) -> str:
    return os.path.normpath(unquote(link[2])).replace(os.sep, "/")


def with_entry(content: str, name: str, title: str, hook: str) -> str:
    """Return an index with a line for a memory: replacing its line, or after the last one."""
    entries = entries_of(content)
    line = f"- [{_link_title(title)}]({quote(name)}) — {hook}{_line_end(content)}"
    if name in entries:
        at = entries[name][0][0]
        return with_lines(_without(content, [at]), [(at, line)])
    last = max((at for found in entries.values() for at, _ in found), default=None)
    return with_lines(content, [(len(_lines(content)) if last is None else last + 1, line)])


def with_hook(content: str, name: str, record: Record, text: str) -> str:
    """Return an index whose line of a memory has the new first line, if it had the old one."""
    lines = _lines(content)
    for at, line in entries_of(content).get(name, []):
        if (link := _entry(line)) is not None:
            title = link[1]
            if title == _link_title(first_line(record.text)):
                title = _link_title(first_line(text))
            hook = line[link.end() :]
            old, new = first_line(record.text, HOOK_CHARS), first_line(text, HOOK_CHARS)
            if hook.strip(" \t\r\n—–-:") == old.strip(" —–-:"):
                hook = f" — {new}" + hook[len(hook.rstrip("\r\n")) :]
            lines[at] = f"{line[: link.start(1)]}{title}{line[link.end(1) : link.end()]}{hook}"
    return "".join(lines)


def _link_title(title: str) -> str:
    return re.sub(r"[\[\]]", "", title)


def _line_end(content: str) -> str:
    return "\r\n" if "\r\n" in content else "\n"


def without_entries(content: str, names: Collection[str]) -> str:
    """Return an index without the lines of some memories."""
    entries = entries_of(content)
    return _without(content, {at for name in names for at, _ in entries.get(name, [])})


def _without(content: str, gone: Collection[int]) -> str:
    return "".join(line for at, line in enumerate(_lines(content)) if at not in gone)


def with_lines(content: str, added: Iterable[tuple[int, str]]) -> str:
    """Return an index with lines at their places, counted from 0."""
    lines = _lines(content)
    for at, line in sorted(added):
        if lines and at >= len(lines) and not lines[-1].endswith("\n"):
            lines[-1] += _line_end(content)
        is_open = at < len(lines) and not line.endswith("\n")
        lines.insert(at, line + _line_end(content) * is_open)
    return "".join(lines)


def section_lines(content: str, record: Record) -> tuple[int, list[str]]:
    """Return the start of a section's own text, counted from 0, and its lines.

    Raises:
        Invalid: index lines of memories interrupt the text, or the file changed.
    """
    at = record.location.line - 1 if record.location else 0
    lines = _lines(content)[at : at + record.text.count("\n") + 1]
    if "\n".join(line.rstrip("\r\n") for line in lines).removeprefix("\ufeff") != record.text:
        raise Invalid(
            f"This part of {INDEX} has lines that point at memories around it, or it changed just "
            "now; edit the file itself."
        )
    return at, lines


def whole_section(content: str, record: Record) -> list[tuple[int, str]]:
    """Return a section's lines, with its heading if no other section is below that."""
    at, own = section_lines(content, record)
    found = [one for one in sections(content.replace("\r\n", "\n")) if one.level and one.is_leaf]
    heading = next((one.line - 1 for one in found if one.body_line - 1 == at), at)
    return list(enumerate(_lines(content)[heading : at + len(own)], heading))


def with_section(content: str, record: Record, text: str) -> str:
    """Return an index with another text in a section. Raises `Invalid`."""
    at, own = section_lines(content, record)
    mark, end = "\ufeff" * own[0].startswith("\ufeff"), own[-1][len(own[-1].rstrip("\r\n")) :]
    new = f"{mark}{text.replace(chr(10), _line_end(content))}{end}"
    lines = _lines(content)
    return "".join([*lines[:at], new, *lines[at + len(own) :]])


def without_section(content: str, record: Record) -> str:
    """Return an index without a section's own text. Raises `Invalid`."""
    return _without(content, {at for at, _ in whole_section(content, record)})
