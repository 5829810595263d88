"""`facts export` and `import`: to a file and back, once or ten times with the same result.

JSON Lines keeps everything; markdown keeps the text and the topic.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer
from pydantic import ConfigDict, ValidationError

from memtui.channels.cli.fact_scope import FACT, FactScope
from memtui.channels.cli.options import DryRun, Force
from memtui.channels.cli.output import Line as Shown
from memtui.channels.cli.output import jsonable, write_exactly
from memtui.channels.cli.records import say_first_of
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import (
    Conflict,
    Invalid,
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

JSONL, MARKDOWN = "jsonl", "md"
_LINE_BYTES = 32 << 20
"""A longer line is refused."""
THERE, NO_TEXT = "It is there already.", "It has no text."
_SHOWN_CHARS = 200


class FileFact(Model):
    """What a line of a file says about a fact; fields of other names are left out."""

    model_config = ConfigDict(extra="ignore")

    text: str
    topic: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    valid_from: UtcDatetime | None = None
    source: SourceRef | None = None


class FileLine(Model):
    """A line of a file, counted from 1, and the fact on it, or why it is none."""

    number: int
    fact: FileFact | None = None
    why: str = ""


def format_of(name: str) -> str:
    """Return the format that a file's name tells.

    Raises:
        Invalid: it tells none.
    """
    ending = name.rpartition(".")[2].lower()
    if ending not in (JSONL, MARKDOWN):
        raise Invalid(f"{name} is neither .jsonl nor .md; name it by its format.")
    return ending


def written(records: Sequence[Record], form: str) -> str:
    """Return facts as the text of a file.

    Raises:
        Invalid: markdown cannot carry one of them.
    """
    return "".join(_jsonl(records) if form == JSONL else _markdown(records))


def parsed(text: str, form: str) -> list[FileLine]:
    """Return what each line of a file says; blank ones and headings say nothing.

    Raises:
        Invalid: the file as a whole cannot be read.
    """
    return list(read_jsonl(text) if form == JSONL else _read_markdown(text))


def _jsonl(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        values = {name: getattr(record, name) for name in FileFact.model_fields}
        kept = jsonable(FileFact.model_validate(values))
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
    back = [line.fact for line in _read_markdown(heading + bullet)]
    if [fact and (fact.text, fact.topic) for fact in back] != [(record.text, record.topic)]:
        raise Invalid(
            f"Markdown cannot carry the fact {record.handle.provider_record_id} unchanged; "
            "export as JSON Lines."
        )
    return bullet


def read_jsonl(text: str, kind: type[FileFact] = FileFact) -> Iterator[FileLine]:
    """Yield what each line of JSON Lines says."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            yield FileLine(number=number, why="It is not JSON.")
        else:
            yield read_value(number, value, kind)


def read_value(number: int, value: Any, kind: type[FileFact]) -> FileLine:
    """Return what a value of JSON says."""
    if not isinstance(value, dict):
        return FileLine(number=number, why='It is not a JSON object such as {"text": "…"}.')
    try:
        return FileLine(number=number, fact=kind.model_validate(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return FileLine(number=number, why=f"Its {field} does not fit: {misfit(first)}.")


def _read_markdown(text: str) -> Iterator[FileLine]:
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
            fact = FileFact(text=bullet.text, topic=bullet.namespace)
            yield FileLine(number=index + 1, fact=fact)


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

    chosen = form or (format_of(to.name) if to else JSONL)
    records, problems = await scope.facts(session)
    if to is None and session.out.as_json:
        document = {"facts": records, "count": len(records), "problems": problems}
        session.out.document(document)
        return
    content = written(records, chosen)
    if to is None:
        if sys.stdout.isatty():
            content = visible(content, keep_newlines=True)
        write_exactly(_encoded(content))
        session.out.tell(problems)
        return
    with replacing(to, force=force) as file:
        file.write_bytes(_encoded(content))
    document = {"path": str(to), "count": len(records), "problems": problems}
    session.out.answer(document, [str(to)])


async def facts_import(
    session: FirstSession,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl or .md file.")],
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
    lines = parsed(read_file(file), format_of(file.name))
    held = {record.text for record in (await scope.facts(session)).records}
    report = _sort(lines, held, session)

    def request_of(fact: FileFact) -> WriteRequest:
        return scope.request(session, WriteRequest, **values_of(session, fact), kind=FACT)

    return await load(session, report, request_of, dry_run=dry_run)


async def load(
    session: Session,
    report: FileReport,
    request_of: Callable[[FileFact], WriteRequest],
    *,
    dry_run: bool,
) -> int:
    """Write what a report would have added, tell what became of each line; one undo undoes it.

    Returns the exit code: 1 where a line was refused.
    """
    if report.added:
        of_whom = request_of(report.added[0][1])
        await say_first_of(session, of_whom.scope, of_whom.binding_key)
    if not dry_run:
        wanted, report.added = report.added, []
        report.changed.clear()
        together = uuid4().hex if len(wanted) > 1 else None

        async def write(fact: FileFact) -> MutationAnswer:
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
    """What became of each line, in order."""

    added: list[tuple[FileLine, FileFact]] = field(default_factory=list)
    """The `changed` ones are among them."""
    changed: dict[int, str] = field(default_factory=dict)
    """What stood there of the key of a line before, by the line's number."""
    skipped: list[tuple[FileLine, str]] = field(default_factory=list)
    refused: list[tuple[FileLine, str]] = field(default_factory=list)
    operation_ids: list[str] = field(default_factory=list)

    @property
    def undoing(self) -> str:
        """How what was added is undone; empty where nothing was."""
        return f"memtui undo {self.operation_ids[-1]} undoes it." if self.operation_ids else ""

    def document(self, *, dry_run: bool) -> dict[str, Any]:
        """Return it as JSON."""
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
            "skipped": [_told(line, why) for line, why in self.skipped],
            "refused": [_told(line, why) for line, why in self.refused],
            "operation_ids": self.operation_ids,
        }

    def lines(self, *, dry_run: bool) -> Iterator[Shown]:
        """Yield it for a person."""
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


def _told(line: FileLine, why: str) -> dict[str, Any]:
    return {"line": line.number, "text": line.fact.text if line.fact else None, "why": why}


def _sort(lines: Sequence[FileLine], held: set[str], session: Session) -> FileReport:
    """Say what is to become of each line, by the limits that the service keeps."""
    from memtui.service.operations.redaction import redact
    from memtui.service.review.fact_limits import FactLimits, check_text

    limits = FactLimits.of(session.settings)
    report, known = FileReport(), set(held)
    count, keys = len(held), {key: text for text in held if (key := _key_in(text))}
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


def values_of(session: Session, fact: FileFact) -> dict[str, Any]:
    """Return what a write takes of a line."""
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
    write: Callable[[FileFact], Awaitable[MutationAnswer]],
    line: FileLine,
    fact: FileFact,
    report: FileReport,
) -> None:
    """Write one line; what the service finds unfit is refused, all else stops the import."""
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
        Invalid: it is no file, cannot be read, has a line beyond all bounds, or is not UTF-8.
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
