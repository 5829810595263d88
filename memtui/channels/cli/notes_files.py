"""`note --file`: the notes of a file, JSON, JSON Lines or markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from memtui.channels.cli.facts_files import (
    JSONL,
    MARKDOWN,
    NO_TEXT,
    THERE,
    FileFact,
    FileLine,
    FileReport,
    load,
    read_file,
    read_jsonl,
    read_value,
    values_of,
)
from memtui.channels.cli.options import ScopeOptions, SourceOptions
from memtui.channels.cli.session import Session
from memtui.contract import BrowseRequest, Invalid, Json, Problem, UtcDatetime, WriteRequest

_JSON = "json"
_MEDIA = {"image": "a picture", "audio": "a sound", "video": "a film"}
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


class FileNote(FileFact):
    """What an entry of a file says about a note."""

    title: str | None = None
    summary: str | None = None
    kind: str | None = None
    valid_to: UtcDatetime | None = None
    metadata: Json = {}


async def load_notes(
    session: Session,
    file: Path,
    scope: ScopeOptions,
    source: SourceOptions,
    *,
    dry_run: bool,
    defaults: dict[str, Any],
) -> int:
    """Store the notes of a file, and tell what became of each; returns the exit code.

    Args:
        session: The session.
        file: Ends in .json, .jsonl or .md.
        scope: Whose they are, and in which binding.
        source: Where those come from that do not say.
        dry_run: Only say what would happen.
        defaults: The kind, topic and tags of those that have none.

    Raises:
        Invalid: the file cannot be read as a whole.
    """
    entries = list(_entries(file))
    request = scope.request(session, BrowseRequest)
    held = {
        record.text
        async for page in session.service.pages(session.caller, request)
        for record in page.records
    }
    report = _sort(entries, held)
    reference = source.reference(scope.scope(session))

    def request_of(one: FileFact) -> WriteRequest:
        values = values_of(session, one)
        values |= {name: value for name, value in defaults.items() if not values[name]}
        values["source"] = values["source"] if one.source else reference
        return scope.request(session, WriteRequest, **values)

    return await load(session, report, request_of, dry_run=dry_run)


def _sort(entries: list[FileLine], held: set[str]) -> FileReport:
    """Say what is to become of each entry."""
    from memtui.service.operations.redaction import redact

    report, known = FileReport(), set(held)
    for entry in entries:
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


def _entries(file: Path) -> Iterator[FileLine]:
    """Yield the notes of a file, by line; those of a JSON document are counted from 1."""
    readers = {JSONL: _from_jsonl, _JSON: _from_json, MARKDOWN: _from_markdown}
    reader = readers.get(file.suffix.removeprefix(".").lower())
    if reader is None:
        sort = (guess_type(file.name)[0] or "").partition("/")[0]
        if sort in _MEDIA:
            raise Invalid(
                f"{file} is {_MEDIA[sort]}; memtui's providers keep text alone (multimodal is "
                "false), so describe it in words."
            )
        raise Invalid(f"{file} is none of .json, .jsonl and .md; name it by its format.")
    return reader(file, read_file(file))


def _from_jsonl(_file: Path, text: str) -> Iterator[FileLine]:
    return read_jsonl(text, FileNote)


def _from_json(file: Path, text: str) -> Iterator[FileLine]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not JSON; one object a line is .jsonl.") from error
    listed = found.get("records") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise Invalid(
            f'{file} holds no list of notes such as [{{"text": "…"}}], nor what `memtui browse '
            "--json` prints."
        )
    for number, value in enumerate(listed, start=1):
        yield read_value(number, {"text": value} if isinstance(value, str) else value, FileNote)


def _from_markdown(file: Path, text: str) -> Iterator[FileLine]:
    """Yield a note for each heading of the highest level that the file has, or the one it is."""
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
        if name in FileNote.model_fields
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
            yield read_value(document.first_text_line + place, entry, FileNote)


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield place and title of each heading of the highest level; in code there are none."""
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
