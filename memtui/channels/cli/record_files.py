"""Records in files: `facts export`, `facts import` and `note --file`.

Importing a file again adds nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer
from pydantic import ConfigDict, ValidationError

from memtui.channels.cli.fact_scope import FACT, FactScope
from memtui.channels.cli.options import DryRun, Force, ScopeOptions, SourceOptions
from memtui.channels.cli.output import Line as Shown
from memtui.channels.cli.output import jsonable, write_exactly
from memtui.channels.cli.records import say_first_of
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import (
    BrowseRequest,
    Conflict,
    Invalid,
    Json,
    MemtuiError,
    Model,
    Problem,
    Record,
    SourceKind,
    SourceRef,
    UtcDatetime,
    WriteRequest,
)
from memtui.fact_values import pair_of
from memtui.json_text import json_text
from memtui.paths import refuse_other_than_file
from memtui.visible import visible
from memtui.wording import misfit

if TYPE_CHECKING:
    from memtui.service import MutationAnswer

JSON, JSONL, MARKDOWN = "json", "jsonl", "md"
_LINE_BYTES = 32 << 20
"""Longest line that is accepted."""
THERE, NO_TEXT = "It is there already.", "It has no text."
_SHOWN_CHARS = 200
_FIXED = {"kind", "metadata"}
"""Fields that an export of facts leaves out, as they follow from the text."""
_MEDIA = {"image": "a picture", "audio": "a sound", "video": "a film"}
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


class FileRecord(Model):
    """A record in a file; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    text: str
    title: str | None = None
    summary: str | None = None
    kind: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    valid_from: UtcDatetime | None = None
    valid_to: UtcDatetime | None = None
    source: SourceRef | None = None
    metadata: Json = {}


class FileLine(Model):
    """The record that begins on a line, or why there is none; `number` counts from 1."""

    number: int
    fact: FileRecord | None = None
    why: str = ""


def format_of(file: Path, forms: Sequence[str]) -> str:
    """Return the format from a file's suffix.

    Raises:
        Invalid: it is none of `forms`.
    """
    ending = file.suffix.removeprefix(".").lower()
    if ending in forms:
        return ending
    if media := _MEDIA.get((guess_type(file.name)[0] or "").partition("/")[0]):
        raise Invalid(
            f"{file} is {media}; memtui's providers keep text alone (multimodal is false), so "
            "describe it in words."
        )
    *first, last = (f".{form}" for form in forms)
    raise Invalid(f"{file} is not {', '.join(first)} or {last}; name it by its format.")


def entries(file: Path, kind: str) -> list[FileLine]:
    """Return the records of a file; in a JSON document `number` is their position, from 1.

    In markdown a bullet is a fact, and a heading of the highest level begins any other record.

    Raises:
        Invalid: the file cannot be read as a whole.
    """
    form = format_of(file, (JSON, JSONL, MARKDOWN))
    text = read_file(file)
    if form == JSONL:
        return list(_from_jsonl(text))
    if form == JSON:
        return list(_from_json(file, text))
    return list(_bullets(text) if kind == FACT else _sections(file, text))


def written(records: Sequence[Record], form: str) -> str:
    """Return facts as the text of a file.

    Raises:
        Invalid: markdown cannot represent one of them unchanged.
    """
    return "".join(_jsonl(records) if form == JSONL else _markdown(records))


def _jsonl(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        values = {name: getattr(record, name) for name in FileRecord.model_fields.keys() - _FIXED}
        kept = jsonable(FileRecord.model_validate(values))
        document = {"id": record.handle.provider_record_id, **kept}
        yield json_text({name: value for name, value in document.items() if value}) + "\n"


def _markdown(records: Sequence[Record]) -> Iterator[str]:
    yield "# Facts\n"
    topics = dict.fromkeys(record.topic for record in records)
    for topic in sorted(topics, key=lambda topic: (topic is not None, topic or "")):
        yield f"\n## {topic}\n\n" if topic else "\n"
        for record in records:
            if record.topic == topic:
                yield _bullet(record)


def _bullet(record: Record) -> str:
    bullet = f"- {record.text}\n"
    heading = f"## {record.topic}\n" if record.topic else ""
    back = [line.fact for line in _bullets(heading + bullet)]
    if [fact and (fact.text, fact.topic) for fact in back] != [(record.text, record.topic)]:
        raise Invalid(
            f"Markdown cannot carry the fact {record.handle.provider_record_id} unchanged; "
            "export as JSON Lines."
        )
    return bullet


def _from_jsonl(text: str) -> Iterator[FileLine]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            yield FileLine(number=number, why="It is not JSON.")
        else:
            yield _read(number, value)


def _from_json(file: Path, text: str) -> Iterator[FileLine]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not JSON; one object a line is .jsonl.") from error
    listed = found.get("records", found.get("facts")) if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise Invalid(
            f'{file} holds no list of records such as [{{"text": "…"}}], nor what `memtui browse '
            "--json` prints."
        )
    for number, value in enumerate(listed, start=1):
        yield _read(number, {"text": value} if isinstance(value, str) else value)


def _read(number: int, value: Any) -> FileLine:
    if not isinstance(value, dict):
        return FileLine(number=number, why='It is not a JSON object such as {"text": "…"}.')
    try:
        return FileLine(number=number, fact=FileRecord.model_validate(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return FileLine(number=number, why=f"Its {field} does not fit: {misfit(first)}.")


def _bullets(text: str) -> Iterator[FileLine]:
    """Yield a fact for each bullet; other lines, except blanks and headings, are errors."""
    from memtui.backends.vault import facts

    file = facts.parse(text.replace("\r\n", "\n"))
    if isinstance(file, Problem):
        raise Invalid(f"The markdown cannot be read: {file.message}")
    bullets = {bullet.first: bullet for bullet in file.bullets}
    headings = {line for line, _ in file.headings}
    inside = {line for bullet in file.bullets for line in range(bullet.first + 1, bullet.end)}
    for index in range(file.body, len(file.lines)):
        if (bullet := bullets.get(index)) is None:
            if file.lines[index].strip() and index not in headings | inside:
                yield FileLine(
                    number=index + 1, why="This line is not a bullet; write each fact as - a fact."
                )
        elif bullet.details.strip():
            yield FileLine(number=index + 1, why="A fact is one line, and this bullet has several.")
        else:
            fact = FileRecord(text=bullet.text, topic=bullet.namespace)
            yield FileLine(number=index + 1, fact=fact)


def _sections(file: Path, text: str) -> Iterator[FileLine]:
    """Yield a record for each heading of the highest level; without one, the file is one record."""
    from memtui.backends.vault import markdown

    document = markdown.split(text.replace("\r\n", "\n"))
    if isinstance(document, Problem):
        raise Invalid(f"{file} cannot be read: {document.message}")
    fields = markdown.parse(document.front)
    if isinstance(fields, Problem):
        raise Invalid(f"{file} cannot be read: {fields.message}")
    fields = {
        name: markdown.as_written(value) if isinstance(value, int | float) else value
        for name, value in fields.items()
        if name in FileRecord.model_fields
    }
    if "tags" in fields:
        fields["tags"] = markdown.words(fields["tags"])
    lines = document.text.split("\n")
    headings = [] if "title" in fields else list(_headings(lines))
    edges = [*(place for place, _ in headings), len(lines)]
    parts: list[tuple[int, str | None, list[str]]] = [
        (0, fields.get("title"), lines[: edges[0]]),
        *(
            (place, title, lines[place + 1 : end])
            for (place, title), end in zip(headings, edges[1:], strict=True)
        ),
    ]
    for place, title, part in parts:
        body = "\n".join(part).strip("\n") or title or ""
        if body.strip():
            entry = {**fields, "title": title, "text": body}
            yield _read(document.first_text_line + place, entry)


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Return index and title of each heading of the highest level, outside code blocks."""
    found: list[tuple[int, int, str]] = []
    fence = ""
    for place, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence and (heading := _HEADING.fullmatch(line)):
            found.append((place, len(heading[1]), heading[2]))
    top = min((level for _, level, _ in found), default=0)
    return ((place, title) for place, level, title in found if level == top)


FormatName = Literal["jsonl", "md"]


async def facts_export(
    session: Session,
    scope: FactScope,
    *,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file, .jsonl or .md; stdout if left out."),
    ] = None,
    form: Annotated[
        FormatName | None, typer.Option("--format", help="On stdout; a file's name tells its own.")
    ] = None,
    force: Force = False,
) -> None:
    """Write facts to a new file or to stdout.

    JSON Lines keeps everything; markdown keeps the text and the topic. A terminal gets control
    characters as marks.
    """
    from memtui.analytics.export import replacing

    chosen = form or (format_of(to, (JSONL, MARKDOWN)) if to else JSONL)
    records, last = await scope.facts(session)
    if to is None and session.out.as_json:
        document = {"facts": records, "count": len(records), "problems": last.problems}
        session.out.document(document)
        return
    content = written(records, chosen)
    if to is None:
        if sys.stdout.isatty():
            content = visible(content, keep_newlines=True)
        write_exactly(_encoded(content))
        session.out.tell(last.problems)
        return
    with replacing(to, force=force) as file:
        file.write_bytes(_encoded(content))
    document = {"path": str(to), "count": len(records), "problems": last.problems}
    session.out.answer(document, [str(to)])


async def facts_import(
    session: FirstSession,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .json, .jsonl or .md file.")],
    scope: FactScope,
    *,
    dry_run: DryRun = False,
) -> int:
    """Add the facts of a file.

    A text that is there already is skipped, so that the same file can be imported again, and a line
    of a key that is there changes its value. Exit 1 if a line was refused; what was done is said
    line by line, and one undo undoes all of it.
    """
    scope.owner()
    lines = entries(file, FACT)
    present = {record.text for record in (await scope.facts(session))[0]}
    report = _sort(lines, present, session)

    def request_of(fact: FileRecord) -> WriteRequest:
        return scope.request(session, WriteRequest, **values_of(session, fact) | {"kind": FACT})

    return await load(session, report, request_of, dry_run=dry_run)


async def load_notes(
    session: Session,
    file: Path,
    scope: ScopeOptions,
    source: SourceOptions,
    *,
    dry_run: bool,
    defaults: dict[str, Any],
) -> int:
    """Store the records of a file, and print the result of each; return the exit code.

    Args:
        session: The session.
        file: Ends in .json, .jsonl or .md.
        scope: Their owner and the binding.
        source: The source of records without one.
        dry_run: Only print what would happen.
        defaults: Kind, topic and tags of records without them.

    Raises:
        Invalid: the file cannot be read as a whole.
    """
    lines = entries(file, defaults["kind"])
    request = scope.request(session, BrowseRequest)
    present = {
        record.text
        async for page in session.service.pages(session.caller, request)
        for record in page.records
    }
    report = _sort_notes(lines, present)
    reference = source.reference(scope.scope(session))

    def request_of(one: FileRecord) -> WriteRequest:
        values = values_of(session, one)
        values |= {name: value for name, value in defaults.items() if not values[name]}
        values["source"] = values["source"] if one.source else reference
        return scope.request(session, WriteRequest, **values)

    return await load(session, report, request_of, dry_run=dry_run)


def _sort_notes(lines: list[FileLine], present: set[str]) -> FileReport:
    """Sort the entries into new, known and refused ones."""
    from memtui.service.operations.redaction import redact

    report, known = FileReport(), set(present)
    for entry in lines:
        if entry.fact is None:
            report.refused.append((entry, entry.why))
            continue
        text = redact(entry.fact.text)[0]
        if not text.strip():
            report.refused.append((entry, NO_TEXT))
        elif text in known:
            report.skipped.append((entry, THERE))
        else:
            known.add(text)
            report.added.append((entry, entry.fact))
    return report


async def load(
    session: Session,
    report: FileReport,
    request_of: Callable[[FileRecord], WriteRequest],
    *,
    dry_run: bool,
) -> int:
    """Write the records to add, and print the result of each line; one undo undoes all.

    Returns the exit code: 1 if a line was refused.
    """
    if report.added:
        of_whom = request_of(report.added[0][1])
        await say_first_of(session, of_whom.scope, of_whom.binding_key)
    if not dry_run:
        wanted, report.added = report.added, []
        report.changed.clear()
        together = uuid4().hex if len(wanted) > 1 else None

        async def write(fact: FileRecord) -> MutationAnswer:
            request = request_of(fact)
            return await session.service.write(session.caller, request, together=together)

        try:
            for line, fact in wanted:
                await _add(write, line, fact, report)
        except MemtuiError:
            session.out.say(
                f"It stopped at line {line.number}, with {len(report.added)} of {len(wanted)} "
                "added; importing the file again continues from there."
            )
            raise
    document = report.document(dry_run=dry_run)
    session.out.answer(document, report.lines(dry_run=dry_run), report.undoing)
    return 1 if report.refused else 0


@dataclass(slots=True)
class FileReport:
    """The result of each line, in order."""

    added: list[tuple[FileLine, FileRecord]] = field(default_factory=list)
    """Lines added, including the `changed` ones."""
    changed: dict[int, str] = field(default_factory=dict)
    """Earlier text of a line's key, by line number."""
    skipped: list[tuple[FileLine, str]] = field(default_factory=list)
    refused: list[tuple[FileLine, str]] = field(default_factory=list)
    operation_ids: list[str] = field(default_factory=list)

    @property
    def undoing(self) -> str:
        """How to undo the additions; empty: there are none."""
        return f"memtui undo {self.operation_ids[-1]} undoes it." if self.operation_ids else ""

    def document(self, *, dry_run: bool) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "dry_run": dry_run,
            "added": [
                {"line": line.number, "text": fact.text}
                for line, fact in self.added
                if line.number not in self.changed
            ],
            "changed": [
                {
                    "line": line.number,
                    "text": fact.text,
                    "was": self.changed[line.number],
                }
                for line, fact in self.added
                if line.number in self.changed
            ],
            "skipped": [_named(line, why) for line, why in self.skipped],
            "refused": [_named(line, why) for line, why in self.refused],
            "operation_ids": self.operation_ids,
        }

    def lines(self, *, dry_run: bool) -> Iterator[Shown]:
        """Yield the report as lines."""
        for line, fact in self.added:
            said = " ".join(fact.text.split())
            said = said if len(said) <= _SHOWN_CHARS else f"{said[:_SHOWN_CHARS]}…"
            was = self.changed.get(line.number)
            done = "added" if was is None else f"changed from {was}"
            yield f"{line.number}: {'would be ' if dry_run else ''}{done}: {said}"
        for word, entries in (("skipped", self.skipped), ("refused", self.refused)):
            for line, why in entries:
                yield f"{line.number}: {word}: {why}"
        skipped, refused = len(self.skipped), len(self.refused)
        changed = f"{len(self.changed):,} changed, " if self.changed else ""
        added = len(self.added) - len(self.changed)
        yield f"{added:,} added, {changed}{skipped:,} skipped, {refused:,} refused"


def _named(line: FileLine, why: str) -> dict[str, Any]:
    return {"line": line.number, "text": line.fact.text if line.fact else None, "why": why}


def _sort(lines: Sequence[FileLine], present: set[str], session: Session) -> FileReport:
    """Sort the lines into new, changed, known and refused ones, by the service's limits."""
    from memtui.service.operations.redaction import redact
    from memtui.service.review.fact_limits import FactLimits, check_text

    limits = FactLimits.of(session.settings)
    report, known = FileReport(), set(present)
    count, keys = len(present), {key: text for text in present if (key := _key_in(text))}
    for line in lines:
        if line.fact is None:
            report.refused.append((line, line.why))
            continue
        text = redact(line.fact.text.strip(" \t"))[0]
        if text in known:
            report.skipped.append((line, THERE))
            continue
        try:
            check_text(text, limits)
        except Invalid as error:
            report.refused.append((line, str(error)))
            continue
        if not text:
            report.refused.append((line, NO_TEXT))
        elif (key := _key_in(text)) in keys:
            report.changed[line.number] = keys[key]
            keys[key] = text
            report.added.append((line, line.fact))
        elif limits.max_count and count >= limits.max_count:
            report.refused.append((line, f"The scope may hold {limits.max_count:,} facts."))
        else:
            count += 1
            known.add(text)
            keys |= {key: text} if key else {}
            report.added.append((line, line.fact))
    return report


def _key_in(text: str) -> str | None:
    pair = pair_of(text)
    return pair.key.casefold() if pair else None


def values_of(session: Session, fact: FileRecord) -> dict[str, Any]:
    """Return the fields of the write of a record."""
    here = {"company_id": session.company.company_id}
    source = fact.source or SourceRef(kind=SourceKind.MANUAL_NOTE, **here)
    values = dict(fact) | {
        "source": source.model_copy(update=here),
        "content": fact.text,
        "created_by": fact.created_by or session.caller.principal,
    }
    del values["text"]
    return values


async def _add(
    write: Callable[[FileRecord], Awaitable[MutationAnswer]],
    line: FileLine,
    fact: FileRecord,
    report: FileReport,
) -> None:
    """Write one line; `Invalid` and `Conflict` refuse it, other errors stop the import."""
    try:
        answer = await write(fact)
    except (Invalid, Conflict) as error:
        report.refused.append((line, str(error)))
    else:
        if answer.pending is not None:
            report.refused.append((line, answer.pending.sentence))
            return
        if answer.was is not None:
            report.changed[line.number] = answer.was
        report.added.append((line, fact))
        report.operation_ids.append(answer.operation_id)


def read_file(path: Path) -> str:
    """Return the text of a file.

    Raises:
        Invalid: it is no file, cannot be read, has a line that is too long, or is not UTF-8.
    """
    refuse_other_than_file(path)
    lines: list[bytes] = []
    try:
        with path.open("rb") as file:
            while line := file.readline(_LINE_BYTES + 1):
                lines.append(line)
                if len(line) > _LINE_BYTES:
                    raise Invalid(
                        f"Line {len(lines)} of {path} is longer than {_LINE_BYTES >> 20} MiB; "
                        "split the file."
                    )
        return b"".join(lines).decode("utf-8-sig")
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 text.") from error


def _encoded(content: str) -> bytes:
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Invalid("UTF-8 cannot carry one of the facts; export as JSON Lines.") from error
