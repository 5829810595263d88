"""A note: what a markdown file says as a record, and the file it becomes (seed 002 §3)."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

from memtui.contract import Invalid, Json, Problem, SourceKind, SourceRef, WriteRequest

from . import frontmatter
from .entries import Entry, source_fields
from .files import File, encoded, readable
from .frontmatter import Document
from .layout import Place, note_folder, place_of

_SCOPE_KEYS = ("agent_id", "subject_id", "issue_id", "run_id")
_OWN_KEYS = frozenset(
    {"created", "created_by", "source", "title", "tags", "topic", "kind", "pinned", "expires",
     "metadata", *_SCOPE_KEYS}
)  # fmt: skip
_SOURCE_KEYS = frozenset(SourceRef.model_fields) - {"company_id"}
_HEADING = re.compile(r"\s*#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*(?:\r?\n|\Z)")
_DATED = re.compile(r"\d{4}-\d\d-\d\d-")
_WORD = re.compile(r"[^\W_]+")
_SLUG_WORDS, _SLUG_BYTES = 8, 60


def read(path: str, file: File) -> tuple[Document, Entry | None] | Problem:
    """Read a note. An empty file is no record; a broken one is a `Problem` with its message."""
    document = frontmatter.split(file.content)
    if isinstance(document, Problem):
        return document
    fields = frontmatter.parse(document.front)
    if isinstance(fields, Problem):
        return fields
    if not document.text or (document.front is None and not document.text.strip()):
        return document, None
    return document, _entry(path, place_of(path), document, fields, file)


def _entry(path: str, place: Place, document: Document, fields: Json, file: File) -> Entry:
    stem, text = PurePosixPath(path).stem, readable(document.text)
    subject = _text(fields.get("subject_id")) or place.subject_id
    return Entry(
        id=path,
        path=path,
        line=document.first_text_line,
        area=place.area,
        kind=_text(fields.get("kind")) or place.kind,
        text=text,
        revision=hashlib.sha256(encoded(file.content)).hexdigest()[:16],
        project_id=place.project_id,
        agent_id=_text(fields.get("agent_id")) or place.agent_id,
        subject_id=subject,
        issue_id=_text(fields.get("issue_id")),
        run_id=_text(fields.get("run_id")),
        topic=_text(fields.get("topic")),
        tags=_tags(fields.get("tags")),
        title=_title(fields, text, stem),
        created=_moment(fields.get("created")),
        updated=file.modified,
        expires=_moment(fields.get("expires")),
        pinned=fields.get("pinned") is True,
        created_by=_text(fields.get("created_by")),
        source=_source(fields),
        metadata=_metadata(fields),
        names=f"{subject or ''} {'' if _DATED.match(stem) else stem}".strip(),
    )


def _text(value: Any) -> str | None:
    if isinstance(value, (list, dict)) or value is None or value == "":
        return None
    return str(value)


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,\s]+", value) if word)
    return tuple(str(tag) for tag in value if tag is not None) if isinstance(value, list) else ()


def _title(fields: Json, text: str, stem: str) -> str | None:
    title = _text(fields.get("title"))
    if title:
        return title
    heading = _HEADING.match(text)
    if heading:
        return heading.group(1)
    return None if _DATED.match(stem) else stem


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def _source(fields: Json) -> Json | None:
    value = fields.get("source")
    if isinstance(value, dict) and str(value.get("kind")) in set(SourceKind):
        if set(value) <= _SOURCE_KEYS:
            return {key: str(item) for key, item in value.items() if item is not None}
        return None
    task = _text(fields.get("source_task"))
    return {"kind": SourceKind.ISSUE.value, "issue_id": task} if task else None


def _metadata(fields: Json) -> Json:
    """Our `metadata` with every other key that a person wrote beside it."""
    own = fields.get("metadata")
    others = {
        key: value.isoformat() if isinstance(value, date) else value
        for key, value in fields.items()
        if key not in _OWN_KEYS or (key == "source" and not _source(fields))
    }
    return others | own if isinstance(own, dict) else others


def content_for(request: WriteRequest, place: Place, now: datetime) -> str:
    """Return the file that a write makes.

    Raises `Invalid` for text that UTF-8 cannot carry, and for metadata that is too large or deep.
    """
    check_utf8(request.content)
    fields = {"created": request.created_at or now} | fields_for(request, place)
    too_much = "The memory's metadata is too large, too deep or not UTF-8 for a note."
    yaml = {key: value for key, value in fields.items() if key != "metadata"}
    if len(json.dumps(yaml, ensure_ascii=False, default=str)) > 2 * frontmatter.MAX_FRONT_CHARS:
        raise Invalid(too_much)  # writing YAML takes a second a megabyte
    content = frontmatter.compose(fields, request.content)
    document = frontmatter.split(content)
    read = document if isinstance(document, Problem) else frontmatter.parse(document.front)
    if isinstance(document, Problem) or isinstance(read, Problem):
        raise Invalid(too_much)
    return content


def fields_for(request: WriteRequest, place: Place) -> Json:
    """Return the frontmatter that a request sets, only what differs from what the path says."""
    fields: Json = {
        "created_by": request.created_by,
        "source": source_fields(request.source),
        "title": request.title,
        "tags": list(request.tags) or None,
        "topic": request.topic,
        "kind": request.kind if request.kind != place.kind else None,
        "pinned": request.pinned or None,
        "expires": request.expires_at,
    }
    for key in _SCOPE_KEYS:
        value = getattr(request.scope, key)
        fields[key] = value if value != getattr(place, key, None) else None
    fields["metadata"] = request.metadata or None
    return {key: value for key, value in fields.items() if value is not None}


def check_utf8(text: str) -> None:
    """Raise `Invalid` if a text holds a lone surrogate, which no file can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"The text holds a character that UTF-8 cannot carry (at {error.start}); remove it."
        ) from None


def path_stem(request: WriteRequest, folder: str, now: datetime) -> str:
    """Return the path of a new note without suffix: date and the first words of title or text."""
    day = (request.created_at or now).date().isoformat()
    words = unicodedata.normalize("NFC", (request.title or request.content)[:1000]).lower()
    slug = "-".join(_WORD.findall(words)[:_SLUG_WORDS])
    short = slug.encode()[:_SLUG_BYTES].decode(errors="ignore").strip("-")
    return f"{note_folder(folder, request.kind)}/{day}-{short or 'note'}"
