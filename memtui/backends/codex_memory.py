"""The memories of Codex: `$CODEX_HOME/memories`.

Codex records each session in `rollout_summaries/` and `raw_memories.md`, distils them by groups of
tasks into `MEMORY.md`, and loads `memory_summary.md`, truncated to 2,500 tokens, into every
session. A record's topic is its task group; its source is the session, if one is named.

Codex writes all of these itself. A person's additions and corrections are notes in
`extensions/ad_hoc/notes`, each a file, which its next consolidation applies; a new record is one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from memtui.backends.markdown import MarkdownSection, sections
from memtui.contract import Invalid, Json, WriteRequest
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import (
    EntriesAdapter,
    EntriesFile,
    FileEntry,
    entries_at_lines,
)
from memtui.provider_kit.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    parse_moment,
)

SUMMARY, MEMORY, RAW, ROLLOUTS = (
    "memory_summary.md", "MEMORY.md", "raw_memories.md", "rollout_summaries",
)  # fmt: skip
NOTES = "extensions/ad_hoc/notes"
_SLUG_CHARS = 40
_MAY_REWORD = (
    "Codex keeps a change here, but may word it anew when it next consolidates its memories."
)
_WRITES_ANEW = (
    "Codex writes this anew from its database when it next consolidates its memories, so the "
    "change is lost then; add a note that says what is to change."
)
_THREAD = re.compile(r"^## Thread `([^`\n]{1,200})`[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"([a-z_]{1,40}): (.*)")
_GROUP = "Task Group:"
_POINTERS, _KEYWORDS = "rollout_summary_files", "keywords"
_OWN_FIELDS = frozenset({"thread_id", "updated_at", "rollout_path"})
_POINTED = re.compile(r"\b(thread_id|rollout_path)=([^\s,)]+)")


class CodexMemoryConfig(FilesConfig):
    """Codex's memories: the folder `memories` in its home."""


class CodexMemoryAdapter(EntriesAdapter[CodexMemoryConfig]):
    """Shows Codex's memories: one record per section of a distilled file, session and note."""

    key = "codex-memory"
    config_model = CodexMemoryConfig
    inside = "memories/MEMORY.md"

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return the file that sessions load first, those it was distilled from, and notes."""
        folder = self.config.path
        sessions, notes = (reader.files(folder / one, ".md") for one in (ROLLOUTS, NOTES))
        return [
            EntriesFile(folder / SUMMARY, kind="summary"),
            EntriesFile(folder / MEMORY, kind="memory"),
            EntriesFile(folder / RAW, kind="raw memory"),
            *(EntriesFile(one, kind="rollout summary", goes_when_empty=True) for one in sessions),
            *(EntriesFile(one, goes_when_empty=True) for one in notes),
        ]

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry | Flaw]:
        """Yield the sections, sessions or the note of a file."""
        name, text = self.name_of(file), content.replace("\r\n", "\n")
        if name in {SUMMARY, MEMORY}:
            parsed = parse_sections(text, name, "summary" if name == SUMMARY else "memory")
        elif name == RAW:
            parsed = parse_raw_memories(text)
        else:
            parsed = parse_rollout(text, name) if name.startswith(ROLLOUTS) else _note(text, name)
        return entries_at_lines(content, parsed)

    def file_for(self, request: WriteRequest) -> EntriesFile:
        """Return a new note, named as Codex names its own: its time, and words of its text."""
        now, words = self._context.now(), re.findall(r"[a-z0-9]+", request.content.lower())
        slug = "-".join((*"-".join(words)[:_SLUG_CHARS].split("-"), uuid4().hex[:8])).strip("-")
        path = self.config.path / NOTES / f"{now:%Y-%m-%dT%H-%M-%S}-{slug}.md"
        return EntriesFile(path, goes_when_empty=True)

    def made(self, request: WriteRequest, file: EntriesFile) -> tuple[str, str]:
        """Return the name of the note, and its text."""
        text = request.content
        if [one.text for one in _note(text, "").records] != [text] or "\r" in text:
            raise Invalid(
                "A note would lose the blank lines at the ends of this text, or its carriage "
                "returns; remove them."
            )
        return self.name_of(file), text


def _note(text: str, name: str) -> ParsedFile:
    body = text.strip("\n")
    if not body.strip():
        return ParsedFile(flaws=(Flaw("The note has no text."),) if text else ())
    line = len(text) - len(text.lstrip("\n")) + 1
    return ParsedFile((ParsedRecord(name, body, line, first_line(body), kind="note"),))


def parse_sections(text: str, name: str, kind: str) -> ParsedFile:
    """Parse a distilled file; a task's sessions and keywords become part of its record."""
    found = sections(text)
    pointers = {one.trail[:-1]: one.body for one in found if one.heading == _POINTERS}
    keywords = {one.trail[:-1]: one.body for one in found if one.heading == _KEYWORDS}
    return ParsedFile(
        tuple(
            replace(
                _distilled(
                    one, name, kind, pointers.get(one.trail, ""), keywords.get(one.trail, "")
                ),
                lines=_lines(found, number),
            )
            for number, one in enumerate(found)
            if one.heading not in {_POINTERS, _KEYWORDS}
            and (one.body or one.trail in pointers or (one.heading and one.is_leaf))
        )
    )


def _lines(found: Sequence[MarkdownSection], number: int) -> tuple[int, int]:
    """Return a section's lines, with those of its sessions and keywords if it has no others."""
    own, after = found[number], number + 1
    while after < len(found) and found[after].heading in {_POINTERS, _KEYWORDS}:
        after += 1
    if after == number + 1 or (after < len(found) and found[after].level > own.level):
        return own.lines
    return own.line, found[after - 1].lines[1]


def _distilled(
    section: MarkdownSection, name: str, kind: str, pointers: str, keywords: str
) -> ParsedRecord:
    group = section.trail[0].removeprefix(_GROUP).strip() if section.trail else None
    sessions = [dict(_POINTED.findall(line)) for line in pointers.split("\n")]
    sessions = [one for one in sessions if "thread_id" in one]
    threads = [one["thread_id"] for one in sessions]
    metadata: Json = {"headings": list(section.trail)} if section.trail else {}
    if words := keywords.strip().removeprefix("-").strip():
        metadata["keywords"] = words
    if len(threads) > 1:
        metadata["sessions"] = threads
    return ParsedRecord(
        id=f"{name}#{'/'.join(section.trail)}",
        text=section.body or section.heading,
        line=section.body_line if section.body else section.line,
        title=section.heading or first_line(section.body),
        kind=kind,
        topic=group,
        caution=_MAY_REWORD,
        run_id=threads[0] if threads else None,
        external_ref=sessions[0].get("rollout_path") if sessions else None,
        metadata=metadata,
    )


def parse_raw_memories(text: str) -> ParsedFile:
    """Parse the notes of all sessions: a heading per thread, fields, then the text."""
    heads = list(_THREAD.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    return _sessions(
        (head[1], text[head.end() : end], text.count("\n", 0, head.end()) + 1)
        for head, end in zip(heads, ends, strict=True)
    )


def _sessions(parts: Iterator[tuple[str, str, int]]) -> ParsedFile:
    records: list[ParsedRecord] = []
    flaws: list[Flaw] = []
    for thread, part, line in parts:
        noted = part.lstrip("\n")
        start = line + len(part) - len(noted)
        record = _session(noted, f"{RAW}#{thread}", start, "raw memory", thread)
        if record is None:
            flaws.append(Flaw("The entry of this session has no text.", line))
        else:
            records.append(replace(record, lines=(line, _last_line(record))))
    return ParsedFile(tuple(records), tuple(flaws))


def parse_rollout(text: str, name: str) -> ParsedFile:
    """Parse the summary of one session."""
    record = _session(text, name, 1, "rollout summary", None)
    if record is None:
        return ParsedFile(flaws=(Flaw("The summary has no text."),))
    return ParsedFile((replace(record, lines=(1, _last_line(record))),))


def _last_line(record: ParsedRecord) -> int:
    return record.line + record.text.count("\n")


def _session(
    text: str, record_id: str, line: int, kind: str, thread: str | None
) -> ParsedRecord | None:
    """Return the record of a session's notes, which begin with fields; None without text."""
    fields: dict[str, str] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines) and (field := _FIELD.fullmatch(lines[at])) is not None:
        fields[field[1]] = field[2].strip()
        at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    body = "\n".join(lines[at:]).rstrip()
    if not body:
        return None
    return ParsedRecord(
        id=record_id,
        text=body,
        line=line + at,
        caution=_WRITES_ANEW,
        title=first_line(body.lstrip("-\n# ")) or None,
        kind=kind,
        updated_at=parse_moment(fields.get("updated_at")),
        run_id=fields.get("thread_id") or thread,
        external_ref=fields.get("rollout_path"),
        metadata={name: value for name, value in fields.items() if name not in _OWN_FIELDS},
    )
