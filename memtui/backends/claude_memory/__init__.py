"""The auto memory of Claude Code: `~/.claude/projects/<slug>/memory/`.

`MEMORY.md` is an index whose first 200 lines or 25,000 bytes are loaded into every session; each
other file is one memory with frontmatter, flat (`type`, `originSessionId`) or with those keys
under `metadata`. `loaded` in a record's metadata is the part that a new session sees: `text`,
`part` (truncated), `hook` (only its line in the index) or `no`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from memtui.backends.claude_memory.texts import (
    HOOK_CHARS,
    INDEX,
    INDEX_KIND,
    NESTED,
    SESSION,
    IndexLine,
    composed,
    entries_of,
    parse_index,
    parse_memory,
    whole_section,
    with_body,
    with_entry,
    with_hook,
    with_lines,
    with_section,
    without_entries,
    without_section,
)
from memtui.contract import Invalid, Json, Record, Snapshot, WriteRequest
from memtui.provider_kit import require_unprotected
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.committed import FilesDraft
from memtui.provider_kit.files.reading import (
    FileReader,
    ParsedFile,
    ParsedRecord,
    first_line,
    own_id,
    slug,
)
from memtui.provider_kit.files.shared import encoded, text_of
from memtui.provider_kit.files.whole import WholeFilesAdapter

_DEPTH = 4
_TYPES = ("user", "feedback", "reference", "project")
"""Claude Code's types of memories; the last one is used for all other kinds."""


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
