"""The observations of basic-memory: lines of its notes such as `- [category] text #tag (context)`.

A record is such a line, without its bullet and category; its topic is the category. An item of a
list that has a #tag and no category is an observation too. Lines such as `- depends on [[Note]]`
are the links of the observations of their note. The notes as a whole are opened by the vault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memtui.backends.markdown import fenced_lines, read_document
from memtui.backends.vault import markdown
from memtui.contract import Invalid, Json, Link, Links, Location, RecordHandle, Scope, WriteRequest
from memtui.provider_kit import blocking
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesAdapter, EntriesFile, FileEntry, record_id
from memtui.provider_kit.files.reading import FileReader, ParsedRecord, first_line
from memtui.provider_kit.files.shared import content_of

KIND = "observation"
_DEPTH = 20
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_CATEGORY = re.compile(r"\[([^\[\]()\n]+)\][ \t]+(?=\S)")
_CLOCK = r"\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?"
_WORDS = re.compile(r"[^\s\[\]()](?:[^\[\]()\r\n]*[^\s\[\]()])?")
_NO_CATEGORY = re.compile(rf"\s*(?:{_CLOCK}(?:\s+-\s+{_CLOCK})?|[xX_]|[^\w\s]|)\s*")
"""Times of a transcript and the marks of tasks."""
_NO_OBSERVATION = re.compile(r"\[[ x-]\]|\[[^\]]*\]\([^)]*\)\Z|\[\[[^\]]*\]\]\Z")
_TAG = re.compile(r"(?<!\S)#(\S+)")
_CONTEXT = re.compile(r"\(([^()]*)\)\s*\Z")


class BasicMemoryConfig(FilesConfig):
    """The observations in basic-memory's notes: the folder of one of its projects."""

    new: str = "observations"
    """The note to which new observations are added, by its path in the folder without `.md`."""


class BasicMemoryAdapter(EntriesAdapter[BasicMemoryConfig]):
    """Shows the observations of all notes, and changes them in their lines."""

    key = "basic-memory"
    config_model = BasicMemoryConfig
    capabilities = EntriesAdapter.capabilities.model_copy(update={"links": True})
    keeps = "basic-memory's own database keeps what is gone from its notes until it syncs them."

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return the notes."""
        files = reader.files(self.config.path, ".md", depth=_DEPTH)
        return [EntriesFile(one, kind=KIND) for one in files]

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry]:
        """Yield the observations of a note."""
        name = self.name_of(file)
        for start, begin, end, category in observations_of(content):
            text = content[begin:end]
            context = _CONTEXT.search(text)
            said: Json = {"context": context[1]} if context else {}
            record = ParsedRecord(
                id=record_id(name, f"[{category}] {text}" if category else text),
                text=text,
                title=first_line(text),
                kind=KIND,
                topic=category,
                tags=tuple(dict.fromkeys(_TAG.findall(text))),
                metadata={"note": name.removesuffix(".md")} | said,
            )
            yield FileEntry(start, end, text, record, (begin, end))

    def file_for(self, request: WriteRequest) -> EntriesFile:  # noqa: ARG002
        """Return the note that new observations are added to."""
        return EntriesFile(self.config.path / f"{self.config.new}.md", kind=KIND)

    def made(self, request: WriteRequest, file: EntriesFile) -> tuple[str, str]:
        """Return an observation of the topic's category, or else `note`."""
        topic, text = request.topic or "", request.content
        is_one = _WORDS.fullmatch(topic) and not _NO_CATEGORY.fullmatch(topic)
        written = f"- [{topic if is_one else 'note'}] {text}"
        read = [written[begin:end] for _, begin, end, _ in observations_of(written)]
        if read != [text] or "\r" in text:
            raise Invalid("An observation is one line, without blanks at its ends; change it.")
        return record_id(self.name_of(file), written.removeprefix("- ")), written

    @blocking
    def links(self, handles: Sequence[RecordHandle], scope: Scope) -> Mapping[str, Links]:
        """Return the links of each observation's note, with their relations."""
        found: dict[str, Links] = {}
        notes: dict[str, Links] = {}
        for handle in handles:
            record = self._find(handle, scope)
            if record is not None and record.location is not None:
                path = record.location.path
                if path not in notes:
                    notes[path] = self._links_in(Path(path))
                found[handle.provider_record_id] = notes[path]
        return {name: one for name, one in found.items() if one.links}

    def _links_in(self, path: Path) -> Links:
        document = read_document((content_of(path) or b"").decode("utf-8", "replace"))
        return Links(
            links=tuple(
                Link(
                    target=one.target,
                    words=one.words,
                    relation=one.relation,
                    location=Location(path=str(path), line=document.body_line + one.line),
                )
                for one in markdown.marks_of(document.body).links
            )
        )


def observations_of(content: str) -> Iterator[tuple[int, int, int, str | None]]:
    """Yield each observation: where its line and its text begin, where it ends, its category."""
    lines = content.split("\n")
    first = read_document(content.replace("\r\n", "\n")).body_line - 1
    at = 0
    for number, (line, is_fenced) in enumerate(zip(lines, fenced_lines(lines), strict=True)):
        item = None if is_fenced or number < first else _ITEM.match(line)
        text = line[item.end() :].rstrip() if item else ""
        category = _CATEGORY.match(text)
        if category and _NO_CATEGORY.fullmatch(category[1]):
            category = None
        if item and not _NO_OBSERVATION.match(text) and (category or _TAG.search(text)):
            begin, end = item.end() + (category.end() if category else 0), len(line.rstrip())
            if not _CONTEXT.fullmatch(line, begin, end):  # a context without anything it is of
                yield at, at + begin, at + end, category[1].strip() if category else None
        at += len(line) + 1
