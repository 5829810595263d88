"""Reads, writes, corrects and restores notes: one markdown file per record (seed 002 §3)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from memtui.contract import (
    OWNER_FIELDS,
    Conflict,
    CorrectRequest,
    Invalid,
    Json,
    Problem,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.patterns import late_pattern
from memtui.provider_kit import read_moment

from . import markdown
from .files import File, VaultFolder, decoded, encoded, readable
from .layout import (
    IDS,
    StoredRecord,
    VaultPath,
    handle_of,
    note_folder,
    own_ids,
    place_of,
    source_fields,
    source_of,
)
from .markdown import VaultDocument

Written = Callable[[str], str | None]
"""Returns the digest of memtui's last write to a path: empty for a removal, None if unknown."""

_OWN_KEYS = frozenset(
    {"created", "created_by", "source", "title", "summary", "tags", "topic", "kind", "pinned",
     "expires", "metadata", *IDS}
)  # fmt: skip
_MOMENTS = ("created", "expires")
_SOURCE_KEYS = frozenset(SourceRef.model_fields) - {"company_id"}
_HEADING = late_pattern(r"\s*#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*(?:\r?\n|\Z)")
_DATED = late_pattern(r"\d{4}-\d\d-\d\d-")
_WORD = late_pattern(r"[^\W_]+")
_SLUG_WORDS, _SLUG_BYTES = 8, 60
_NUMBERED = 9
_OWNER_LINE = late_pattern(rf"^\s*(?:{'|'.join(OWNER_FIELDS)})\s*:", re.MULTILINE)


def read(
    folder: VaultFolder, path: str, file: File | Problem
) -> tuple[VaultDocument, StoredRecord] | Problem:
    """Read a note; broken frontmatter becomes the record's `problem`.

    If broken frontmatter may name the note's owner, return a `Problem` and no record.
    """
    if isinstance(file, Problem):
        return file
    document, fields, problem = markdown.read(file.content)
    if problem and _may_name_owner(document):
        return Problem(message=f"{problem} It may name the note's owner, so the note is not shown.")
    if odd := [name for name in OWNER_FIELDS if isinstance(fields.get(name), list | dict)]:
        return Problem(message=f"The note's {odd[0]} is no name, so the note is not shown.")
    stored = _record(folder, path, document, fields, file)
    if problem:
        record = stored.record.model_copy(update={"problem": problem})
        return document, replace(stored, record=record, problems=(problem,))
    return document, stored


def _may_name_owner(document: VaultDocument) -> bool:
    if document.front is None:  # unclosed frontmatter is part of the text
        return _OWNER_LINE.search(document.text) is not None
    return any(name in document.front for name in OWNER_FIELDS)


def read_document(folder: VaultFolder, path: str, file: File) -> StoredRecord | None:
    """Read a workspace file; None: it is empty, so no record.

    Of its frontmatter only title, topic, tags and aliases are used: it is not written for memtui,
    so it cannot name an owner.
    """
    document, fields, _ = markdown.read(readable(file.content))
    text = document.text
    if not text.strip() and not fields:
        return None
    place, where, marks = place_of(path), folder.location(path), markdown.marks_of(text)
    stem, heading = _stem(path), _HEADING.match(text)
    aliases = markdown.texts(fields.get("aliases", fields.get("alias")))
    record = Record(
        handle=handle_of(path),
        text=text,
        scope=place.scope(folder.company_id),
        source=SourceRef(
            kind=SourceKind.EXTERNAL_DOCUMENT,
            company_id=folder.company_id,
            external_ref=where.path,
        ),
        title=_text(fields.get("title")) or (heading and heading.group(1)) or stem,
        kind=place.kind,
        topic=_text(fields.get("topic")),
        tags=marks.added_to(markdown.words(fields.get("tags"))),
        updated_at=file.modified,
        revision=digest(file.content),
        location=folder.location(path, document.first_text_line),
        metadata={"entry_type": "document"},
        read_only=True,
    )
    names = " ".join((stem, *aliases))
    return StoredRecord(record, place.area, names=names, links=marks.links, aliases=aliases)


def _record(
    folder: VaultFolder, path: str, document: VaultDocument, fields: Json, file: File
) -> StoredRecord:
    stem, text, place = _stem(path), readable(document.text), place_of(path)
    heading = _HEADING.match(text)
    plain_name = "" if _DATED.match(stem) and text.strip() else stem
    subject = _text(fields.get("subject_id")) or place.subject_id
    marks = markdown.marks_of(text)
    aliases = markdown.texts(fields.get("aliases", fields.get("alias")))
    record = Record(
        handle=handle_of(path),
        text=text,
        scope=Scope(
            company_id=folder.company_id,
            project_id=place.project_id,
            agent_id=_text(fields.get("agent_id")) or place.agent_id,
            subject_id=subject,
            issue_id=_text(fields.get("issue_id")),
            run_id=_text(fields.get("run_id")),
        ),
        source=source_of(_source(fields), folder.company_id),
        title=_text(fields.get("title")) or (heading and heading.group(1)) or plain_name or None,
        summary=_text(fields.get("summary")),
        kind=_text(fields.get("kind")) or place.kind,
        topic=_text(fields.get("topic")),
        tags=marks.added_to(markdown.words(fields.get("tags"))),
        created_at=read_moment(fields.get("created")),
        updated_at=file.modified,
        created_by=_text(fields.get("created_by")),
        expires_at=read_moment(fields.get("expires")),
        pinned=_is_true(fields.get("pinned")),
        revision=digest(file.content),
        location=folder.location(path, document.first_text_line),
        metadata=_metadata(fields),
    )
    no_moments = (
        f"The note's {key} is no date: {markdown.as_written(fields[key])[:100]}."
        for key in _MOMENTS
        if key in fields and not _is_used(key, fields)
    )
    return StoredRecord(
        record,
        place.area,
        names=" ".join(filter(None, (subject, plain_name, *aliases))),
        links=marks.links,
        aliases=aliases,
        problems=tuple(no_moments),
    )


def _stem(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def digest(content: str) -> str:
    """Return the digest of a file's content."""
    return hashlib.sha256(encoded(content)).hexdigest()[:16]


def _text(value: Any) -> str | None:
    if isinstance(value, (list, dict)) or value is None or value == "":
        return None
    return markdown.as_written(value)


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() in {"true", "yes", "on"}


def _source(fields: Json) -> Json | None:
    value = fields.get("source")
    if isinstance(value, dict) and str(value.get("kind")) in set(SourceKind):
        if set(value) <= _SOURCE_KEYS:
            return {
                key: markdown.as_written(item) for key, item in value.items() if item is not None
            }
        return None
    task = _text(fields.get("source_task"))
    return {"kind": SourceKind.ISSUE.value, "issue_id": task} if task else None


def _is_used(key: str, fields: Json) -> bool:
    """Whether the value of one of memtui's keys is usable as a record field, or absent."""
    value = fields[key]
    if key == "source":
        return bool(_source(fields))
    if key in _MOMENTS:
        return value is None or read_moment(value) is not None
    if key == "metadata":
        return value is None or isinstance(value, dict)
    return not isinstance(value, dict if key == "tags" else (dict, list))


def _metadata(fields: Json) -> Json:
    """The note's `metadata` key, and all frontmatter that is no record field."""
    own = fields.get("metadata")
    others = {
        key: value
        for key, value in fields.items()
        if key not in _OWN_KEYS or not _is_used(key, fields)
    }
    return others | own if isinstance(own, dict) else others


def load(folder: VaultFolder, path: str) -> tuple[VaultDocument, StoredRecord] | None:
    """Read a note; None if there is no file. Raises `Invalid` if it cannot be read."""
    file = folder.read(path)
    if file is None:
        return None
    note = read(folder, path, file)
    if isinstance(note, Problem):
        raise Invalid(f"{path} cannot be read: {note.message} Fix the file by hand first.")
    return note


def not_whole(record: Record) -> str:
    """Return the refusal to change a record with a problem."""
    path = record.location.path if record.location else record.handle.provider_record_id
    return f"{path}: {record.problem} Fix the file by hand first."


def _require_whole(record: Record) -> None:
    """Raise `Invalid` for a record with a problem."""
    if record.problem:
        raise Invalid(not_whole(record))


def write(folder: VaultFolder, request: WriteRequest, scope_folder: str) -> str:
    """Store a note and return its id. The caller holds the vault's lock."""
    wanted = request.record_id or ""
    if wanted.endswith(".md") and place_of(wanted).folder == scope_folder:
        folder.check_path(wanted)
        return _write_to(folder, wanted, request)
    stem = _path_stem(request, scope_folder, folder.now())
    content = _content(request, place_of(f"{stem}.md"), folder.now())
    for path in _candidates(stem):
        if folder.create(path, content):
            return path
    raise Conflict(f"No free file name is left for {stem}.md; give the note another title.")


def _write_to(folder: VaultFolder, path: str, request: WriteRequest) -> str:
    if folder.create(path, _content(request, place_of(path), folder.now())):
        return path
    document, stored = load(folder, path) or (None, None)
    if document is None or stored is None or request.mode is not WriteMode.UPSERT:
        raise Conflict(
            f"{path} is already there; correct it, or write it with mode upsert.",
            current=stored.record if stored else None,
            proposed=request.content,
        )
    _require_whole(stored.record)
    _save(folder, path, document, request.content, _fields(request, place_of(path)))
    return path


def _candidates(stem: str) -> Iterator[str]:
    yield f"{stem}.md"
    for number in range(2, _NUMBERED + 1):
        yield f"{stem}-{number}.md"
    for _ in range(_NUMBERED):
        yield f"{stem}-{secrets.token_hex(4)}.md"


def _path_stem(request: WriteRequest, folder: str, now: datetime) -> str:
    """The path of a new note without suffix: date and the first words of title or text."""
    day = (request.created_at or now).date().isoformat()
    words = unicodedata.normalize("NFC", (request.title or request.content)[:1000]).lower()
    slug = "-".join(_WORD.findall(words)[:_SLUG_WORDS])
    short = slug.encode()[:_SLUG_BYTES].decode(errors="ignore").strip("-")
    return f"{note_folder(folder, request.kind)}/{day}-{short or 'note'}"


def _content(request: WriteRequest, place: VaultPath, now: datetime) -> str:
    """Return the content of a new note's file.

    Raises `Invalid` for text that UTF-8 cannot encode, and for metadata that is too large or deep.
    """
    check_utf8(request.content)
    fields = {"created": request.created_at or now} | _fields(request, place)
    too_much = Invalid("The record's metadata is too large, too deep or not UTF-8 for a note.")
    yaml = {key: value for key, value in fields.items() if key != "metadata"}
    if len(json.dumps(yaml, ensure_ascii=False, default=str)) > 2 * markdown.MAX_FRONT_CHARS:
        raise too_much  # writing YAML takes a second per megabyte
    content = markdown.compose(fields, request.content)
    document = markdown.split(content)
    if isinstance(document, Problem) or isinstance(markdown.parse(document.front), Problem):
        raise too_much
    return content


def _fields(request: WriteRequest, place: VaultPath) -> Json:
    """Return the frontmatter of a request, without the values that the path implies."""
    fields: Json = {
        "created_by": request.created_by,
        "source": request.source and source_fields(request.source),
        "title": request.title,
        "summary": request.summary,
        "tags": list(request.tags) or None,
        "topic": request.topic,
        "kind": request.kind if request.kind != place.kind else None,
        "pinned": request.pinned or None,
        "expires": request.expires_at,
        **own_ids(request.scope, place),
        "metadata": request.metadata or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def check_utf8(text: str) -> None:
    """Raise `Invalid` if a text contains a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"The text contains a character that UTF-8 cannot encode (at {error.start}); remove it."
        ) from None


def correct(folder: VaultFolder, request: CorrectRequest, path: str) -> None:
    """Change a note's text, or lines of its frontmatter, and nothing else."""
    document, stored = load(folder, path) or (None, None)
    if document is None or stored is None:
        raise Conflict(f"{path} is gone.", proposed=request.text)
    record = stored.record
    _require_whole(record)
    fields: Json = {}
    if request.pinned is not None and request.pinned != record.pinned:
        fields["pinned"] = request.pinned
    if request.summary is not None and (request.summary or None) != record.summary:
        fields["summary"] = request.summary
    if request.topic is not None and (request.topic or None) != record.topic:
        fields["topic"] = request.topic
    if request.tags is not None and request.tags != record.tags:
        front = markdown.parse(document.front)
        kept = () if isinstance(front, Problem) else markdown.words(front.get("tags"))
        text = record.text if request.text is None else request.text
        fields["tags"] = list(
            markdown.tags_beside(text, request.tags, kept, stays=request.text is None)
        )
    if request.sets_expiry and request.expires_at != record.expires_at:
        fields["expires"] = request.expires_at
    _save(folder, path, document, request.text, fields)


def _save(
    folder: VaultFolder, path: str, document: VaultDocument, text: str | None, fields: Json
) -> None:
    text = None if text is None else markdown.with_line_ends_of(document, text)
    _, there, _ = markdown.read(document.joined())
    for key in fields.keys() & there.keys():
        if not _is_used(key, there):
            written = markdown.as_written(there[key])[:100]
            raise Invalid(
                f"memtui cannot read the note's {key} ({written}); change it in its file, {path}."
            )
    changed = markdown.with_fields(document, fields)
    if text is not None and text != document.text:
        check_utf8(text)
        if not text:
            raise Invalid("A record needs text; forget it if it is no longer wanted.")
        changed = markdown.with_text(changed, text)
    if changed != document:
        folder.replace(path, changed.joined())


@dataclass(frozen=True, slots=True)
class NoteState:
    """A note's file in a snapshot."""

    content: str
    modified_ns: int
    created: str | None
    mode: int | None = None

    @classmethod
    def take(cls, folder: VaultFolder, path: str) -> NoteState | None:
        """Return the present file at `path`; None if there is no readable file."""
        file = folder.read(path)
        if file is None or isinstance(file, Problem):
            return None
        note = read(folder, path, file)
        created = None if isinstance(note, Problem) else note[1].record.created_at
        moment = created.isoformat() if created else None
        return cls(file.content, file.modified_ns, moment, file.mode)

    def to_json(self) -> Json:
        """Return the state as JSON values."""
        return asdict(self) | {"content": base64.b64encode(encoded(self.content)).decode()}

    @classmethod
    def from_json(cls, data: Json) -> NoteState:
        """Read what `to_json` returned."""
        return cls(**data | {"content": decoded(base64.b64decode(data["content"]))})


def check_restore(
    folder: VaultFolder,
    states: Mapping[str, NoteState | None],
    seen: Mapping[str, str],
    written: Written,
) -> None:
    """Raise `Conflict` if a file is neither as it was `seen` nor as memtui last wrote it.

    Both are compared by digest. For an interrupted change, memtui's last write is unknown.
    """
    for path, state in states.items():
        now, file = NoteState.take(folder, path), folder.read(path)
        if file is None or (now and seen.get(path) == digest(now.content)):
            continue
        if now and _is_ours(now, state, written(path)):
            continue
        note = read(folder, path, file)
        raise Conflict(
            f"{path} was changed or replaced since; look at it before undoing.",
            current=None if isinstance(note, Problem) else note[1].record,
            proposed=readable(state.content) if state else None,
        )


def _is_ours(now: NoteState, state: NoteState | None, written: str | None) -> bool:
    if state is not None and now.content == state.content:
        return True
    is_same = state is None or now.created == state.created
    if written is None:
        return is_same and state is not None and now.created is not None
    return is_same and written == digest(now.content)


def restore(folder: VaultFolder, states: Mapping[str, NoteState | None]) -> None:
    """Write each file back with its modification time, or remove it for None."""
    for path, state in states.items():
        if state is None:
            folder.remove(path)
        else:
            folder.replace(path, state.content, state.modified_ns, state.mode)
