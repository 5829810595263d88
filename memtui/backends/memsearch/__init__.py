"""The daily markdown logs of memsearch: `.memsearch/memory/YYYY-MM-DD.md`, and its search.

A day has `## Session HH:MM` headings, and under them one `### HH:MM` entry per turn: an HTML
comment `session:<id> turn:<uuid> transcript:<path>` and bullets. One turn is one record, since its
bullets belong together and share one source. Times are local, as memsearch writes them. Text
outside of this form also becomes a record, without a time or without a run.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from pydantic import Field, field_validator

from memtui.backends.markdown import MarkdownSection, fenced_lines, sections
from memtui.backends.memsearch.command import (
    PROGRAM,
    Chunk,
    collection_of,
    find_program,
    project_of,
    search,
)
from memtui.contract import (
    ContextBundle,
    Invalid,
    Location,
    Matching,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    Usage,
    WriteRequest,
    sees,
)
from memtui.provider_kit import LocalPath
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
from memtui.provider_kit.matching import eligible

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_CLOCK = re.compile(r"(session\s+)?((?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)", re.IGNORECASE)
_ANCHOR_KEY = re.compile(r"(?:^|\s)(session|turn|transcript|rollout|source):")
_ANCHOR_LIMIT = 4_000
_RUN = re.compile(r"[\w.-]{1,200}")
_TURN = "turn"
_DEPTH = 3
_TURN_LEVEL = 3


class MemsearchConfig(FilesConfig):
    """The daily logs of memsearch: a folder `.memsearch/memory`."""

    command: LocalPath | None = None
    """Path of the program memsearch, with which agents search; unset: on the PATH."""
    collection: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The collection to search; unset: the one that its plugins make for the project's folder."""
    search_seconds: float = Field(default=9.0, gt=0)
    """How long a search by the program may take, in seconds."""

    @field_validator("command")
    @classmethod
    def _is_memsearch(cls, command: Path | None) -> Path | None:
        """Ensure that a binding's config cannot run another program."""
        if command is not None and command.stem != PROGRAM:
            raise ValueError(f"the file's name must be {PROGRAM}, in any folder")
        return command


class MemsearchAdapter(EntriesAdapter[MemsearchConfig]):
    """Shows the daily logs, one record per turn; searches by words or by memsearch's own search.

    memsearch only adds to them; its index has a change after `memsearch index`.
    """

    key = "memsearch"
    config_model = MemsearchConfig
    capabilities = EntriesAdapter.capabilities.model_copy(update={"agents_search": True})
    settle_seconds = 0.05
    keeps = "memsearch's index keeps what is gone from its files until `memsearch index`."
    _stale: Problem | None = None

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search by words, or by the program, whose model reports no cost."""
        if request.matching is not Matching.AGENTS:
            return await super().query(request)
        if not request.query.strip():
            return ContextBundle()
        started, project = perf_counter(), project_of(self.config.path)
        chunks = await search(
            request.query,
            request.top_k,
            program=await asyncio.to_thread(find_program, self.config.command),
            collection=self.config.collection or collection_of(project),
            folder=project,
            seconds=self.config.search_seconds,
        )
        snippets = await asyncio.to_thread(self._found, chunks)
        seen = tuple(filter(eligible(request), snippets))
        latency_ms = (perf_counter() - started) * 1000
        return ContextBundle(
            snippets=seen[: request.top_k],
            capped=len(chunks) >= request.top_k or len(seen) > request.top_k,
            usage=(Usage(provider=self.key, latency_ms=latency_ms),),
        )

    def _found(self, chunks: Sequence[Chunk]) -> list[Snippet]:
        """Return the records of chunks, each once with its best score."""
        by_file: dict[str, list[Record]] = {}
        for record in self._load()[0].values():
            if record.location is not None:
                by_file.setdefault(os.path.realpath(record.location.path), []).append(record)
        found: dict[RecordHandle, Snippet] = {}
        stale = 0
        for chunk in chunks:
            records = _records_in(chunk, by_file.get(os.path.realpath(chunk.source), ()))
            stale += not records
            for record in records:
                found.setdefault(record.handle, Snippet(**dict(record), score=chunk.score))
        self._stale = _behind(stale, len(chunks), self.config.path, self._scope) if stale else None
        return list(found.values())

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the unreadable parts, and whether memsearch's index was older than the files."""
        known = await super().problems(scope)
        stale = self._stale
        return [*known, stale] if stale and sees(scope, self._scope) else known

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return the logs of all days."""
        files = reader.files(self.config.path, ".md", depth=_DEPTH)
        return [EntriesFile(one, kind=_TURN) for one in files]

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry | Flaw]:
        """Yield the turns of a day."""
        name = self.name_of(file).removesuffix(".md")
        return entries_at_lines(content, parse_day(content.replace("\r\n", "\n"), name))

    def file_for(self, request: WriteRequest) -> EntriesFile:  # noqa: ARG002
        """Return the log of today."""
        today = self._context.now().astimezone().date()
        return EntriesFile(self.config.path / f"{today}.md", kind=_TURN)

    def made(self, request: WriteRequest, file: EntriesFile) -> tuple[str, str]:
        """Return the id of a turn of its own, and its entry."""
        turn, now = str(uuid4()), self._context.now().astimezone()
        run_id = request.scope.run_id
        session = f"session:{run_id} " if run_id and _RUN.fullmatch(run_id) else ""
        written = f"### {now:%H:%M}\n<!-- {session}turn:{turn} -->\n{request.content}"
        name = f"{self.name_of(file).removesuffix('.md')}/{turn}"
        if [one.text for one in parse_day(written, file.path.stem).records] != [request.content]:
            raise Invalid(
                "This text would not be one turn of the log: it has headings or comments of its "
                "own, blank lines at its ends, or carriage returns; change it."
            )
        return name, written


def _behind(stale: int, found: int, path: Path, scope: Scope) -> Problem:
    return Problem(
        message=f"{stale} of {found} results of memsearch no longer match the files; run "
        "`memsearch index` to update its index.",
        location=Location(path=str(path)),
        scope=scope,
    )


def _records_in(chunk: Chunk, records: Sequence[Record]) -> list[Record]:
    """Return the records of a file that a chunk contains, or the one that contains the chunk.

    Records without a common line are left out: memsearch has indexed another version of the file.
    """
    lines = {record.handle: record.location.line for record in records if record.location}
    inside = [one for one in records if chunk.start_line <= lines[one.handle] <= chunk.end_line]
    before = [one for one in records if lines[one.handle] <= chunk.start_line]
    candidates = inside or sorted(before, key=lambda one: lines[one.handle])[-1:]
    words = {line.strip() for line in chunk.content.splitlines() if line.strip()}
    return [
        one for one in candidates if any(line.strip() in words for line in one.text.splitlines())
    ]


@dataclass(frozen=True, slots=True)
class _Block:
    anchor: dict[str, str]
    line: int
    text: str
    first_line: int
    """The line of its anchor, or else of its text."""


def parse_day(text: str, name: str) -> ParsedFile:
    """Parse one log; `name` is its path below the folder without `.md`, usually a date."""
    entries: list[ParsedRecord] = []
    flaws: list[Flaw] = []
    day = name.rpartition("/")[2]
    if _DAY.fullmatch(day) is None:
        day = ""
    elif parse_moment(day) is None:
        flaws.append(Flaw(f"The name {day} is not a date, so its entries have no time."))
        day = ""
    session: str | None = None
    for section in sections(text, deepest=_TURN_LEVEL):
        clock = _CLOCK.fullmatch(section.heading)
        if section.level <= 2:
            session = clock[2] if clock else None
        time = clock[2] if clock else session
        blocks = list(_blocks(section))
        if not blocks and clock is None and section.heading != day:
            blocks = [_Block({}, section.line, section.heading, section.line)]
        is_alone = section.level == _TURN_LEVEL and len(blocks) == 1
        for block in blocks:
            if not block.text:
                flaws.append(Flaw("The entry of this turn has no text.", block.line))
                continue
            last = block.line + block.text.count("\n")
            entry = _entry(section, block, name, day, time)
            first = section.line if is_alone else block.first_line
            entries.append(replace(entry, lines=(first, last)))
    return ParsedFile(tuple(entries), tuple(flaws))


def _entry(
    section: MarkdownSection, block: _Block, name: str, day: str, time: str | None
) -> ParsedRecord:
    heading = section.heading if block.text != section.heading else ""
    metadata = {**block.anchor, "headings": list(section.trail)}
    return ParsedRecord(
        id=f"{name}/{block.anchor.get('turn') or section.heading.lower()}",
        text=block.text,
        line=block.line,
        title=first_line(block.text) if _CLOCK.fullmatch(heading) else heading or None,
        kind=_TURN if time else "note",
        created_at=parse_moment(f"{day}T{time}" if time else day) if day else None,
        run_id=block.anchor.get("session"),
        external_ref=block.anchor.get("transcript") or block.anchor.get("rollout"),
        metadata={name: value for name, value in metadata.items() if value},
    )


def _blocks(section: MarkdownSection) -> Iterator[_Block]:
    """Split a section's body at the comments that name a turn; each starts a block."""
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
            begins = at if anchor is None else start - 1
            yield _Block(anchor or {}, section.body_line + at, text, section.body_line + begins)
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
