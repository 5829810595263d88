"""The memories of OpenClaw: the files of an agent's workspace.

`MEMORY.md` and `USER.md` go into its sessions, `memory/YYYY-MM-DD.md` are daily notes, and
`DREAMS.md` is what its nightly sweeps ("dreaming") say of their work. A record is a list item or a
paragraph. Comments that OpenClaw reads with an entry (promotion marks and observation dates before
it, triggers and importance behind it) belong to the entry and are kept as they are.

Sweeps lock `MEMORY.md` by a file in OpenClaw's own folder, and memtui does as well. OpenClaw's
agents edit the files without a lock.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from memtui.backends.markdown import fenced_lines, heading_of
from memtui.contract import BindingContext, Invalid, Json, Record, WriteRequest
from memtui.provider_kit import LocalPath
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesAdapter, EntriesFile, FileEntry, record_id
from memtui.provider_kit.files.lock_file import lock_file
from memtui.provider_kit.files.reading import (
    FileReader,
    Flaw,
    ParsedRecord,
    first_line,
    parse_moment,
    resolved,
)

MEMORY, USER, DAILY = "MEMORY.md", "USER.md", "memory"
_DREAMS = ("DREAMS.md", "dreams.md")
_DEPTH = 8
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_GIVEN = {MEMORY: 20_000, USER: 4_000}
"""The most characters of a file that OpenClaw puts into a session, unless it is set otherwise."""

_COMMENT = re.compile(r"[ \t]*(?:<!--[^<>]*-->[ \t]*)+\r?")
_OWN_COMMENT = re.compile(r"[ \t]*<!--[ \t]*(?:openclaw-memory-[a-z]+|observed|status)[ \t]*:")
_SWEPT = re.compile(r"[ \t]*<!-- openclaw:dreaming:(light|rem|deep):(start|end) -->")
_ITEM = re.compile(r"[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_RULE = re.compile(r"[ \t]{0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}\r?")
_BULLET = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+\Z")
_NOTE = re.compile(r"(?:<!--[^<>\n]*-->|\[score=[^\[\]\n]*\]|Source: [^\s#]+#L\d+-L\d+)\Z")
"""What OpenClaw writes behind an entry."""
_NOTE_CHARS = 2_000
_FIELD = re.compile(r"(?<![\w-])([\w-]+)[ \t]*:[ \t]*([^|]*[^|\s])")
_SWEEP = "OpenClaw's next sweep replaces the block in which this stands."
_REPORT = "OpenClaw replaces this report when it sweeps the same day again."
_PROMOTED = "OpenClaw wrote this entry, and its next sweep may merge or remove it."


class OpenclawConfig(FilesConfig):
    """OpenClaw's memories: the workspace of an agent."""

    state: LocalPath | None = None
    """OpenClaw's state folder, which has the lock of `MEMORY.md`; unset: `~/.openclaw`."""
    settle_ms: int = Field(default=100, ge=0, le=10_000)
    """How long a change is watched, and repeated where OpenClaw overwrites it, in milliseconds."""


class OpenclawAdapter(EntriesAdapter[OpenclawConfig]):
    """Shows OpenClaw's memories; those of the kinds `user` and `daily` have their own files."""

    key = "openclaw"
    config_model = OpenclawConfig
    inside = "workspace/MEMORY.md"
    keeps = (
        "OpenClaw's own index and origins (`openclaw-agent.sqlite` in its folder) may keep what is "
        "gone from its files until it indexes them again."
    )

    def __init__(self, context: BindingContext, config: OpenclawConfig) -> None:
        super().__init__(context, config)
        self.settle_seconds = config.settle_ms / 1000

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return the files of the root and those of `memory`."""
        return memory_files(self.config.path, reader)

    def file_for(self, request: WriteRequest) -> EntriesFile:
        """Return the file of a write's kind; a daily note goes into the file of today."""
        if request.kind != "daily":
            return super().file_for(request)
        today = self._context.now().astimezone().date()
        return EntriesFile(self.config.path / DAILY / f"{today}.md", kind="daily")

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry | Flaw]:
        """Yield the list items and paragraphs."""
        name = self.name_of(file)
        most = _GIVEN.get(name)
        if most is not None and len(content) > most:
            line = content.count("\n", 0, most) + 1
            yield Flaw(f"OpenClaw shows its agent only the first {most:,} characters of it.", line)
        day = _DAY.match(file.path.name)
        caution = _REPORT if name.startswith(f"{DAILY}/dreaming/") else None
        for block in blocks_of(content):
            start, end = block.inner
            record = ParsedRecord(
                id=record_id(name, block.text),
                text=block.text,
                title=first_line(block.text),
                kind=file.kind,
                created_at=parse_moment(day[0]) if day else None,
                metadata=block.metadata,
                caution=block.caution or caution,
            )
            yield FileEntry(block.start, block.end, block.text, record, (start, end))

    def made_of(self, record: Record, source: Record) -> bool:
        """Whether a sweep promoted an entry from a note, whose file its mark names."""
        _, name, *_ = f"{record.metadata.get('openclaw-memory-promotion')}::".split(":")
        if not (name and source.location and source.location.path.endswith(f"/{name}")):
            return False
        return record.text in source.text or source.text in record.text

    def as_written(self, text: str, before: str = "", was: str = "") -> str:
        """Return the text, indented in a list item; a new entry is one."""
        if was and not _BULLET.search(before):
            return text
        first, *rest = text.split("\n")
        indented = "\n".join([first, *(f"  {one}" if one else one for one in rest)])
        if was:
            return indented
        written = f"- {indented}"
        if [one.text for one in blocks_of(written)] != [text]:
            raise Invalid(
                "OpenClaw would read this text otherwise: it has blanks or comments at its ends, "
                "or carriage returns; change it."
            )
        return written

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold the lock of OpenClaw's sweeps, which change `MEMORY.md`."""
        state = self.config.state or Path.home() / ".openclaw"
        if path != self.config.path / MEMORY or not state.is_dir():
            yield
            return
        workspace = str(resolved(self.config.path) or self.config.path)
        name = f"memory-promotion-{hashlib.sha256(workspace.encode()).hexdigest()}.lock"
        with lock_file(state / "locks" / name, f"OpenClaw is changing {path}"):
            yield


def memory_files(folder: Path, reader: FileReader) -> list[EntriesFile]:
    """Return the files of a workspace, those of `memory` by name; some may be missing."""
    dreams = next((one for one in _DREAMS if reader.look(folder / one)), _DREAMS[0])
    notes = folder / DAILY
    return [
        EntriesFile(folder / MEMORY),
        EntriesFile(folder / USER, kind="user"),
        *(
            EntriesFile(one, kind=_kind(one.relative_to(notes)))
            for one in reader.files(notes, ".md", depth=_DEPTH)
        ),
        EntriesFile(folder / dreams, kind="dream"),
    ]


def _kind(inside: Path) -> str:
    if inside.parts[0] == "dreaming":
        return "dream"
    return "daily" if len(inside.parts) == 1 and _DAY.match(inside.name) else "file"


@dataclass(frozen=True, slots=True)
class Block:
    """A list item or paragraph, with the comments that belong to it."""

    start: int
    end: int
    inner: tuple[int, int]
    """The place of the text without its bullet and without the comments."""
    text: str
    metadata: Json
    caution: str | None


def blocks_of(content: str) -> Iterator[Block]:
    """Yield the list items and paragraphs of markdown. Line ends may be CRLF."""
    lines = content.split("\n")
    fenced = fenced_lines(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    at, swept, trail = _after_frontmatter(lines), False, list[tuple[int, str]]()
    lead: int | None = None
    while at < len(lines):
        line, first = lines[at], at
        at += 1
        if not line.strip() or (not fenced[first] and _RULE.fullmatch(line)):
            continue
        if not fenced[first] and (head := heading_of(line.rstrip("\r"))):
            lead, trail = None, [*(one for one in trail if one[0] < head[0]), head]
            continue
        if not fenced[first] and _COMMENT.fullmatch(line):
            if mark := _SWEPT.match(line):
                swept = mark[2] == "start"
            is_own = _OWN_COMMENT.match(line) is not None
            lead = (first if lead is None else lead) if is_own else None
            continue
        at = _end_of(lines, fenced, first)
        start = starts[first if lead is None else lead]
        lead = None
        block = _block(content, start, starts[first], starts[at] - 1, is_swept=swept)
        if block is not None:
            block.metadata.update({"headings": [one for _, one in trail]} if trail else {})
            yield block


def _after_frontmatter(lines: Sequence[str]) -> int:
    if lines[0].rstrip() != "---":
        return 0
    return next((n + 1 for n, one in enumerate(lines) if n and one.rstrip() == "---"), 0)


def _end_of(lines: Sequence[str], fenced: Sequence[bool], first: int) -> int:
    """Return the line after a block: a code fence, a list item with its lines, or a paragraph."""
    at, is_item = first + 1, _ITEM.match(lines[first]) is not None
    while at < len(lines):
        line = lines[at]
        if is_item and line.strip() and line.startswith(("  ", "\t")):
            at += 1
        elif is_item and not line.strip():
            after = next((n for n in range(at, len(lines)) if lines[n].strip()), len(lines))
            if after == len(lines) or not lines[after].startswith(("  ", "\t")):
                return at
            at = after
        elif fenced[at] != fenced[first] or (not fenced[at] and _ends_block(line)):
            return at
        else:
            at += 1
    return at


def _ends_block(line: str) -> bool:
    return (
        not line.strip()
        or heading_of(line.rstrip("\r")) is not None
        or any(one.fullmatch(line) for one in (_COMMENT, _RULE))
        or _ITEM.match(line) is not None
    )


def _block(content: str, start: int, first: int, end: int, *, is_swept: bool) -> Block | None:
    item = _ITEM.match(content, first, end)
    begin = item.end() if item else first
    stop = begin + len(content[begin:end].rstrip(" \t\r"))
    line = max(begin, content.rfind("\n", begin, end) + 1)
    while note := _NOTE.search(content, max(line, stop - _NOTE_CHARS), stop):
        stop = begin + len(content[begin : note.start()].rstrip(" \t"))
    text = content[begin:stop].replace("\r\n", "\n")
    if not text.strip():
        return None
    top, *rest = text.split("\n")
    if item and all(one.startswith("  ") for one in rest if one.strip()):
        text = "\n".join([top, *(one[2:] if one.strip() else one for one in rest)])
    beside = content[start:first] + content[stop:end]
    metadata = {
        name: int(value) if re.fullmatch(r"[0-9]{1,4}", value) else value
        for comment in re.findall(r"<!--([^<>]*)-->", beside)
        for name, value in _FIELD.findall(comment)
    }
    is_promoted = "openclaw-memory-promotion" in metadata
    caution = _SWEEP if is_swept else _PROMOTED if is_promoted else None
    return Block(start, end, (begin, stop), text, metadata, caution)
