"""The auto memory of Claude Code: `~/.claude/projects/<slug>/memory/`.

`MEMORY.md` is an index whose first 200 lines or 25,000 bytes are loaded into every session; each
other file is one memory with frontmatter, flat (`type`, `originSessionId`) or with those keys
under `metadata`. `loaded` in a record's metadata is the part that a new session sees: `text`,
`part` (truncated), `hook` (only its line in the index) or `no`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, unquote

from memtui.backends.markdown import fenced_lines, read_document, sections
from memtui.backends.vault import markdown
from memtui.contract import Conflict, Invalid, Json, Problem, Record, Snapshot, WriteRequest
from memtui.provider_kit import require_unprotected
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.committed import FilesDraft
from memtui.provider_kit.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    own_id,
    parse_moment,
    slug,
)
from memtui.provider_kit.files.shared import encoded, text_of
from memtui.provider_kit.files.whole import WholeFilesAdapter

_DEPTH = 4
_TYPES = ("user", "feedback", "reference", "project")
"""Claude Code's types of memories; the last one is used for all other kinds."""
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


class ClaudeMemoryConfig(FilesConfig):
    """A Claude Code project's auto memory: its `memory` folder."""


class ClaudeMemoryAdapter(WholeFilesAdapter[ClaudeMemoryConfig]):
    """Shows a project's auto memory: one record per file, and per section of the index's own text.

    A write creates a file, with the frontmatter format of the others, and a line in the index. A
    correction changes the text, and also the description and the index line if they repeat its
    first line. Forgetting removes the file and its line.
    """

    key: ClassVar[str] = "claude-memory"
    config_model = ClaudeMemoryConfig
    inside = "memory/MEMORY.md"
    between = "_"
    is_committed = False
    capabilities = WholeFilesAdapter.capabilities.model_copy(update={"history": False})

    def memories(self, reader: FileReader) -> Iterable[Path]:
        """Return the files, the index among them."""
        return reader.files(self.config.path, ".md", depth=_DEPTH)

    def parse(self, content: str, name: str) -> ParsedFile:
        """Parse the file of a memory."""
        return parse_memory(content, name)

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the index, then every memory."""
        folder = self.config.path
        names = {path.relative_to(folder).as_posix(): path for path in self.memories(reader)}
        links: dict[str, IndexLine] = {}
        index_path = names.pop(INDEX, None)
        if index_path is not None and (text := reader.parse(index_path, str)) is not None:
            index = parse_index(text, frozenset(names))  # not cached, as it depends on the names
            links = index.links
            yield index_path, index.parsed.dated(reader.modified(index_path))
        for name, path in names.items():
            parsed = reader.parse(path, partial(parse_memory, name=name))
            if parsed is not None:
                entries = (self._placed(entry, path, links, reader) for entry in parsed.records)
                placed = replace(parsed, records=tuple(entries))
                yield path, placed.dated(reader.modified(path))

    def _placed(
        self, entry: ParsedRecord, path: Path, links: dict[str, IndexLine], reader: FileReader
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
            external_ref=None if transcript is None else str(transcript),
            title=entry.title or (link.title if link else None) or path.stem,
            metadata=metadata,
        )

    # Changes

    def own_kinds(self) -> frozenset[str]:
        """Return Claude Code's types, and the kind of what names none."""
        return frozenset({*_TYPES, "note"})

    def composed(self, request: WriteRequest) -> tuple[str, str, bytes]:
        """Return a file with the frontmatter format of the others."""
        kind, title = _type_of(request), _title_of(request)
        own = {"node_type": "memory", "type": kind}
        run_id = request.source.run_id if request.source else None
        if run_id is not None and SESSION.fullmatch(run_id):
            own["originSessionId"] = run_id
        values = {"name": title, "description": first_line(request.content, HOOK_CHARS)}
        there = [one.metadata for one in self._load()[0].values() if one.kind != INDEX_KIND]
        is_flat = bool(there) and not any(one.get("generation") == NESTED for one in there)
        content = composed(values, own, request.content, is_flat=is_flat)
        return "", f"{kind}_{slug(title)}", encoded(content)

    def added(self, draft: FilesDraft, name: str, request: WriteRequest) -> Json:
        """Give a new file its line in the index."""
        index, is_first = self._index_in(draft), draft[INDEX] is None
        hook = first_line(request.content, HOOK_CHARS)
        self._put_index(draft, with_entry(index, name, _title_of(request), hook))
        was_open, lines = bool(index) and not index.endswith("\n"), entries_of(index).get(name, [])
        return {"was_open": was_open, "is_first": is_first, "lines": lines}

    def corrected_in(self, draft: FilesDraft, record: Record, text: str) -> None:
        """Change a section of the index, or a memory and its line there."""
        index = self._index_in(draft)
        if record.kind == INDEX_KIND:
            self._put_index(draft, with_section(index, record, text))
            self._refuse_other_sections(draft, record, text)
            return
        name = self.file_of(record)
        self._put_index(draft, with_hook(index, name, record, text))
        super().corrected_in(draft, record, text)

    def with_text(self, record: Record, content: bytes, text: str) -> bytes:
        """Return a file with another text."""
        place = self.config.path / self.file_of(record)
        return encoded(with_body(text_of(content, place), record, text))

    def _refuse_other_sections(self, draft: FilesDraft, record: Record, text: str) -> None:
        """Raise `Invalid` if the index would not be read as the same sections with one text."""
        there = self._load()[0]
        texts = {name: one.text for name, one in there.items() if one.kind == INDEX_KIND}
        texts[record.handle.provider_record_id] = text
        plain = self._index_in(draft).removeprefix("\ufeff").replace("\r\n", "\n")
        names = frozenset(self.file_of(one) for one in there.values() if one.kind != INDEX_KIND)
        if [*texts.values()] != [one.text for one in parse_index(plain, names).parsed.records]:
            raise Invalid(
                f"Other sections would be read from {INDEX} after this change; make it in the file "
                "by hand."
            )

    def removed_in(self, draft: FilesDraft, records: Sequence[Record]) -> None:
        """Remove memories with their index lines, and sections of the index itself."""
        index = self._index_in(draft)
        sections = [one for one in records if one.kind == INDEX_KIND]
        for one in sorted(sections, key=_line_of, reverse=True):
            index = without_section(index, one)
        files = [one for one in records if one.kind != INDEX_KIND]
        self._put_index(draft, without_entries(index, {*map(self.file_of, files)}))
        super().removed_in(draft, files)

    def _stays(self, record: Record) -> str | None:
        require_unprotected(self.config.path / INDEX, str(self.config.path / INDEX))
        return None if record.kind == INDEX_KIND else super()._stays(record)

    def state_of(self, draft: FilesDraft, record: Record) -> Json:
        """Return a memory's file and its index lines, or a section's lines."""
        index = self._index_in(draft)
        if record.kind == INDEX_KIND:
            equal = self._equal_sections()[own_id(record.handle.provider_record_id)]
            return {"lines": whole_section(index, record), "equal": equal}
        name = self.file_of(record)
        return {**super().state_of(draft, record), "lines": entries_of(index).get(name, [])}

    def _equal_sections(self) -> Counter[str]:
        """Return how many sections there are under the same headings."""
        there = self._load()[0]
        return Counter(own_id(name) for name, one in there.items() if one.kind == INDEX_KIND)

    def restored_in(
        self, draft: FilesDraft, gone: Sequence[tuple[Record, Snapshot]], back: Sequence[Snapshot]
    ) -> None:
        """Put lines back into the index, then files."""
        self.removed_in(draft, [record for record, _ in gone])
        index, there, equal = self._index_in(draft), self._load()[0], self._equal_sections()
        if any(one.state.get("was_open") for _, one in gone):
            index = index.removesuffix("\n").removesuffix("\r")
        equal.subtract(own_id(one.handle.provider_record_id) for one, _ in gone)
        missing = [one for one in back if "file" in one.state]
        files = {one.state["file"] for one in missing}
        for one in sorted(back, key=lambda one: -_line_of(one.record)):
            name = one.handle.provider_record_id
            if "file" in one.state or one.record is None:
                continue
            more = equal[own_id(name)] - one.state["equal"]
            if more < 0 or name not in there:
                missing.append(one)
            elif more:  # then the next of that id was in its place
                index = without_section(index, there[name])
            else:
                index = with_section(index, there[name], one.record.text)
        missing += [one for _, one in gone]
        lines = [(at, line) for one in missing for at, line in one.state.get("lines", [])]
        self._put_index(draft, with_lines(without_entries(index, files), lines))
        if not draft[INDEX] and any(one.state.get("is_first") for _, one in gone):
            draft[INDEX] = None
        super().restored_in(draft, [], back)

    def _index_in(self, draft: FilesDraft) -> str:
        return text_of(draft[INDEX] or b"", self.config.path / INDEX)

    def _put_index(self, draft: FilesDraft, index: str) -> None:
        if index != self._index_in(draft):
            draft[INDEX] = encoded(index)


def _type_of(request: WriteRequest) -> str:
    return request.kind if request.kind in _TYPES else _TYPES[-1]


def _title_of(request: WriteRequest) -> str:
    return " ".join((request.title or "").split()) or first_line(request.content)


def _line_of(record: Record | None) -> int:
    return record.location.line if record and record.location else 0


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
