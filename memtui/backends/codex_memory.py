"""The memories of Codex: `$CODEX_HOME/memories`, which Codex rewrites and memtui only reads.

Codex records each session in `rollout_summaries/` and `raw_memories.md`, distils them by groups of
tasks into `MEMORY.md`, and loads `memory_summary.md`, truncated to 2,500 tokens, into every
session. A record's topic is its task group; its source is the session, if one is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from memtui.backends.markdown import MarkdownSection, sections
from memtui.contract import Json
from memtui.provider_kit.files.adapter import FilesAdapter, FilesConfig
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
_THREAD = re.compile(r"^## Thread `([^`\n]{1,200})`[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"([a-z_]{1,40}): (.*)")
_GROUP = "Task Group:"
_POINTERS, _KEYWORDS = "rollout_summary_files", "keywords"
_OWN_FIELDS = frozenset({"thread_id", "updated_at", "rollout_path"})
_POINTED = re.compile(r"\b(thread_id|rollout_path)=([^\s,)]+)")


class CodexMemoryConfig(FilesConfig):
    """Codex's memories: the folder `memories` in its home."""


class CodexMemoryAdapter(FilesAdapter[CodexMemoryConfig]):
    """Shows Codex's memories: one record per section of a distilled file, and per session."""

    key = "codex-memory"
    config_model = CodexMemoryConfig
    holds = "folder"

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the file that sessions load first, then those from which it was distilled."""
        folder = self.config.path
        parsers: dict[str, Callable[[str], ParsedFile]] = {
            SUMMARY: partial(parse_sections, name=SUMMARY, kind="summary"),
            MEMORY: partial(parse_sections, name=MEMORY, kind="memory"),
            RAW: parse_raw_memories,
        }
        for name, parser in parsers.items():
            path = folder / name
            if reader.look(path) is not None and (parsed := reader.parse(path, parser)) is not None:
                yield path, parsed
        for path in reader.files(folder / ROLLOUTS, ".md"):
            parsed = reader.parse(path, partial(parse_rollout, name=f"{ROLLOUTS}/{path.name}"))
            if parsed is not None:
                yield path, parsed


def parse_sections(text: str, name: str, kind: str) -> ParsedFile:
    """Parse a distilled file; a task's sessions and keywords become part of its record."""
    found = sections(text)
    pointers = {one.trail[:-1]: one.body for one in found if one.heading == _POINTERS}
    keywords = {one.trail[:-1]: one.body for one in found if one.heading == _KEYWORDS}
    return ParsedFile(
        tuple(
            _distilled(one, name, kind, pointers.get(one.trail, ""), keywords.get(one.trail, ""))
            for one in found
            if one.heading not in {_POINTERS, _KEYWORDS}
            and (one.body or one.trail in pointers or (one.heading and one.is_leaf))
        )
    )


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
            records.append(record)
    return ParsedFile(tuple(records), tuple(flaws))


def parse_rollout(text: str, name: str) -> ParsedFile:
    """Parse the summary of one session."""
    record = _session(text, name, 1, "rollout summary", None)
    if record is None:
        return ParsedFile(flaws=(Flaw("The summary has no text."),))
    return ParsedFile((record,))


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
        title=first_line(body.lstrip("-\n# ")) or None,
        kind=kind,
        updated_at=parse_moment(fields.get("updated_at")),
        run_id=fields.get("thread_id") or thread,
        external_ref=fields.get("rollout_path"),
        metadata={name: value for name, value in fields.items() if name not in _OWN_FIELDS},
    )
