"""The daily markdown logs of memsearch: `.memsearch/memory/YYYY-MM-DD.md`.

A day holds `## Session HH:MM` headings and under them a `### HH:MM` entry a turn, an HTML comment
`session:<id> turn:<uuid> transcript:<path>` and bullets. One turn is one record: its bullets tell
one story and share one source. Clock times are this machine's local time, as memsearch writes
them. Text outside of this form becomes a record too, without a time or without a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memtui.backends.files.adapter import FilesAdapter, FilesConfig
from memtui.backends.files.markdown import Section, fenced_lines, sections
from memtui.backends.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    parse_moment,
)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_CLOCK = re.compile(r"(session\s+)?((?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)", re.IGNORECASE)
_ANCHOR_KEY = re.compile(r"(?:^|\s)(session|turn|transcript|rollout|source):")
_ANCHOR_LIMIT = 4_000
_DEPTH = 3


class MemsearchConfig(FilesConfig):
    """The daily logs of memsearch: a folder `.memsearch/memory`."""


class MemsearchAdapter(FilesAdapter[MemsearchConfig]):
    """Shows the daily logs, a record a turn."""

    key = "memsearch"
    config_model = MemsearchConfig
    holds = "folder"

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read every day."""
        folder = self.config.path
        for path in reader.files(folder, ".md", depth=_DEPTH):
            name = path.relative_to(folder).with_suffix("").as_posix()
            parsed = reader.parse(path, partial(parse_day, name=name))
            if parsed is not None:
                yield path, parsed


@dataclass(frozen=True, slots=True)
class _Block:
    anchor: dict[str, str]
    line: int
    text: str


def parse_day(text: str, name: str) -> ParsedFile:
    """Parse one log; `name` is its path below the folder without `.md`, a date as a rule."""
    entries: list[ParsedRecord] = []
    flaws: list[Flaw] = []
    day = name.rpartition("/")[2]
    if _DAY.fullmatch(day) is None:
        day = ""
    elif parse_moment(day) is None:
        flaws.append(Flaw(f"The name {day} is no date, so its entries have no time."))
        day = ""
    session: str | None = None
    for section in sections(text, deepest=3):
        clock = _CLOCK.fullmatch(section.heading)
        if section.level <= 2:
            session = clock[2] if clock else None
        time = clock[2] if clock else session
        blocks = list(_blocks(section))
        if not blocks and clock is None and section.heading != day:
            blocks = [_Block({}, section.line, section.heading)]
        for block in blocks:
            if not block.text:
                flaws.append(Flaw("This turn is recorded without any text.", block.line))
                continue
            entries.append(_entry(section, block, name, day, time))
    return ParsedFile(tuple(entries), tuple(flaws))


def _entry(section: Section, block: _Block, name: str, day: str, time: str | None) -> ParsedRecord:
    heading = section.heading if block.text != section.heading else ""
    metadata = {**block.anchor, "headings": list(section.trail)}
    return ParsedRecord(
        id=f"{name}/{block.anchor.get('turn') or section.heading.lower()}",
        text=block.text,
        line=block.line,
        title=first_line(block.text) if _CLOCK.fullmatch(heading) else heading or None,
        kind="turn" if time else "note",
        created_at=parse_moment(f"{day}T{time}" if time else day) if day else None,
        run_id=block.anchor.get("session"),
        external_ref=block.anchor.get("transcript") or block.anchor.get("rollout"),
        metadata={name: value for name, value in metadata.items() if value},
    )


def _blocks(section: Section) -> Iterator[_Block]:
    """Cut a section's body at the comments that name the turn; each begins a block."""
    if not section.body:
        return
    lines = section.body.split("\n")
    fenced = fenced_lines(lines)
    anchor: dict[str, str] | None = None
    start = 0
    for number in range(len(lines) + 1):
        ended = number == len(lines)
        found = None if ended or fenced[number] else _read_anchor(lines[number])
        if not ended and found is None:
            continue
        text_start = next((at for at in range(start, number) if lines[at].strip()), number)
        text = "\n".join(lines[text_start:number]).rstrip()
        if text or anchor is not None:
            at = text_start if text else start - 1
            yield _Block(anchor or {}, section.body_line + at, text)
        anchor, start = found, number + 1


def _read_anchor(line: str) -> dict[str, str] | None:
    stripped = line.strip()
    if len(stripped) > _ANCHOR_LIMIT or not stripped.startswith("<!--"):
        return None
    inner = stripped.removeprefix("<!--").removesuffix("-->").strip()
    if not stripped.endswith("-->") or not inner.startswith(("session:", "turn:")):
        return None
    parts = _ANCHOR_KEY.split(inner)
    return {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}
