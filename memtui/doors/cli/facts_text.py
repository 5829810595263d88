"""Facts as a file: JSON Lines, which keeps everything, or markdown, which keeps text and topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError

from memtui.contract import Invalid, Model, Problem, Record, SourceRef, UtcDatetime
from memtui.doors.cli.output import jsonable
from memtui.json_text import json_text

JSONL, MARKDOWN = "jsonl", "md"


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


class Line(Model):
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


def parsed(text: str, form: str) -> list[Line]:
    """Return what each line of a file says; blank ones and headings say nothing.

    Raises:
        Invalid: the file as a whole cannot be read.
    """
    return list(_read_jsonl(text) if form == JSONL else _read_markdown(text))


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


def _read_jsonl(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _read_json(number, line)


def _read_json(number: int, line: str) -> Line:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return Line(number=number, why="It is no JSON.")
    if not isinstance(value, dict):
        return Line(number=number, why='It is no JSON object such as {"text": "…"}.')
    try:
        return Line(number=number, fact=FileFact.model_validate(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return Line(number=number, why=f"Its {field} does not fit: {first['msg']}.")


def _read_markdown(text: str) -> Iterator[Line]:
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
                yield Line(number=index + 1, why="It is no bullet of its own (- a fact).")
        elif bullet.details.strip():
            yield Line(number=index + 1, why="A fact is one line, and this bullet has more.")
        else:
            fact = FileFact(text=bullet.text, topic=bullet.namespace)
            yield Line(number=index + 1, fact=fact)
