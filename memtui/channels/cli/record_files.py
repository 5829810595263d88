"""Records in files: `facts export`, `facts import` and `note --file`.

Importing a file again adds nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ConfigDict, ValidationError

from memtui.channels.cli.options import BindingOptions, DryRun, FactScope, Force, SourceOptions
from memtui.channels.cli.output import Line as Shown
from memtui.channels.cli.output import jsonable, write_exactly
from memtui.channels.cli.records import say_first_of
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import (
    Invalid,
    Json,
    MemtuiError,
    Model,
    Problem,
    Record,
    SourceRef,
    UtcDatetime,
    WriteRequest,
)
from memtui.fact_values import FACT
from memtui.json_text import json_text
from memtui.paths import refuse_other_than_file
from memtui.visible import visible
from memtui.wording import misfit

if TYPE_CHECKING:
    from memtui.service.usecases.importing_lines import ImportLine

JSON, JSONL, MARKDOWN = "json", "jsonl", "md"
_LINE_BYTES = 32 << 20
"""Longest line that is accepted."""
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
    to: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    form: Annotated[FormatName | None, typer.Option("--format")] = None,
    force: Force = False,
) -> None:
    """Write facts to a new file or to stdout.

    JSON Lines keeps everything; markdown keeps the text and the topic. On a terminal control
    characters are shown as marks.

    Args:
        to: A new file, .jsonl or .md; stdout if left out.
        form: The format on stdout; a file's follows from its name.
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
    session: FirstSession, file: Path, scope: FactScope, *, dry_run: DryRun = False
) -> int:
    """Add the facts of a file.

    A text that is already stored is skipped, so that a file can be imported again; a line with a
    known key changes its value. It prints what was done with each line, and one undo undoes all of
    it. Exit 1 if a line was refused.

    Args:
        file: A .json, .jsonl or .md file.
    """
    scope.owner()
    source, defaults = SourceOptions(), {"kind": FACT}
    return await load_file(session, file, scope, source, defaults, dry_run=dry_run, kind=FACT)


async def load_file(
    session: Session,
    file: Path,
    scope: BindingOptions,
    source: SourceOptions,
    defaults: dict[str, Any],
    *,
    dry_run: bool,
    kind: str | None = None,
) -> int:
    """Store the records of a file, and print the result of each; return the exit code.

    Args:
        session: The session.
        file: Ends in .json, .jsonl or .md.
        scope: Their owner and the binding.
        source: The source of records without one.
        defaults: Kind, topic and tags of records without them.
        dry_run: Only print what would happen.
        kind: The kind of all records, also of those with another; None: each its own.

    Raises:
        Invalid: the file cannot be read as a whole.
    """
    from memtui.service.usecases.importing_lines import OUTCOMES, import_lines, plan_import

    defaults = defaults | {
        "source": source.reference(scope.scope(session)),
        "created_by": session.caller.principal,
    }
    found = entries(file, defaults["kind"])
    lines = [_asked(session, entry, scope, defaults, kind) for entry in found]
    await plan_import(session.service, session.caller, lines, kind=kind)
    wanted = [line for line in lines if line.stores]
    if wanted:
        await say_first_of(session, scope.scope(session), scope.binding)
    if not dry_run:
        try:
            await import_lines(session.service, session.caller, lines)
        except MemtuiError:
            number = next(one.number for one in wanted if one.stores and not one.operation_id)
            done = sum(bool(one.operation_id) for one in wanted)
            session.out.say(
                f"It stopped at line {number}, with {done} of {len(wanted)} added; importing the "
                "file again continues from there."
            )
            raise
    by_outcome = {name: [line for line in lines if line.outcome == name] for name in OUTCOMES}
    ids = [line.operation_id for line in lines if line.operation_id]
    document = {
        "dry_run": dry_run,
        **{name: [*map(_entry, some)] for name, some in by_outcome.items()},
        "operation_ids": ids,
    }
    undoing = f"memtui undo {ids[-1]} undoes it." if ids else ""
    session.out.answer(document, _said(by_outcome, dry_run=dry_run), undoing)
    return 1 if by_outcome["refused"] else 0


def _asked(
    session: Session,
    entry: FileLine,
    scope: BindingOptions,
    defaults: dict[str, Any],
    kind: str | None,
) -> ImportLine:
    """Return the line with its write; `defaults` fill the fields that it lacks."""
    from memtui.service.usecases.importing_lines import ImportLine

    if entry.fact is None:
        return ImportLine(entry.number, None, why=entry.why)
    values = defaults | {name: value for name, value in dict(entry.fact).items() if value}
    text = values.pop("text", "")
    if not text.strip():
        return ImportLine(entry.number, text, why="It has no text.")
    here = {"company_id": session.company.company_id}
    values |= {"source": values["source"].model_copy(update=here), "content": text}
    values["kind"] = kind or values["kind"]
    try:
        return ImportLine(entry.number, text, scope.request(session, WriteRequest, **values))
    except Invalid as error:
        return ImportLine(entry.number, text, why=str(error))


def _entry(line: ImportLine) -> dict[str, Any]:
    more = {"was": line.was} if line.was is not None else {"why": line.why} if line.why else {}
    return {"line": line.number, "text": line.text, **more}


def _said(by_outcome: dict[str, list[ImportLine]], *, dry_run: bool) -> Iterator[Shown]:
    """Yield the outcome of each line, then their numbers."""
    added, changed, skipped, refused = by_outcome.values()
    for line in sorted(added + changed, key=lambda line: line.number):
        said = " ".join((line.text or "").split())
        said = said if len(said) <= _SHOWN_CHARS else f"{said[:_SHOWN_CHARS]}…"
        done = "added" if line.was is None else f"changed from {line.was}"
        yield f"{line.number}: {'would be ' if dry_run else ''}{done}: {said}"
    for line in skipped + refused:
        yield f"{line.number}: {line.outcome}: {line.why}"
    counts = {name: len(some) for name, some in by_outcome.items() if some or name != "changed"}
    yield ", ".join(f"{count:,} {name}" for name, count in counts.items())


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
