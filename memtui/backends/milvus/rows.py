"""Converts between entries of the unified schema (seed 002 §6) and records.

The schema lacks fields for a record's author, source, kind, title, pin, expiry, and times to the
microsecond. Collections that memtui made store these details in the dynamic field `memtui`. In
another program's collection, a record only has the declared fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from memtui.contract import Invalid, Json, Record, RecordHandle, Scope, SourceKind, SourceRef
from memtui.fact_values import FactPair, pair_of, parsed, written

from .expressions import one_of, quoted

Row = dict[str, Any]
"""An entry: its fields by name."""

KEY = "milvus"
VECTOR = "embedding"
DETAILS = "memtui"
DOCUMENT, KV, TEMPORAL = "document", "kv", "temporal"
EVERY = one_of("entry_type", [DOCUMENT, KV, TEMPORAL])
DOCUMENTS = f"entry_type == {quoted(DOCUMENT)}"
_LONG, _SHORT = 65_535, 1_024
SCHEMA: Mapping[str, int | None] = {
    "entry_id": 512,
    "entry_type": 16,
    "content": _LONG,
    "original": _LONG,
    "kv_namespace": _SHORT,
    "kv_key": _SHORT,
    "kv_value": _LONG,
    "valid_from": None,
    "valid_to": None,
    "topic": _SHORT,
    "source": _LONG,
    "tags": _LONG,
    "updated_at": None,
}
"""The declared fields apart from the vector, and the most bytes of a text field; None: a time in
seconds since 1970, where 0 means none."""
_DETAILS_BYTES = 65_000
"""Most bytes of the details; Milvus accepts 65,536 for all dynamic values of an entry."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLION = 1_000_000
_WHOSE = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


@dataclass(frozen=True, slots=True)
class RecordAddress:
    """The parts of a record's id: its collection, and the fact or the entry in it."""

    collection: str
    entry_id: str | None = None
    fact: str | None = None
    """The name of a temporal fact, which has one entry per version."""

    @classmethod
    def of(cls, record_id: str) -> RecordAddress | None:
        """Parse an id; None if it can name no record."""
        at = next((at for at, char in enumerate(record_id) if char in "/#"), 0)
        rest = record_id[at + 1 :]
        if not at or not rest:
            return None
        if record_id[at] == "#":
            return cls(record_id[:at], fact=rest)
        return cls(record_id[:at], entry_id=rest)

    @property
    def handle(self) -> RecordHandle:
        """Return the handle."""
        rest = f"#{self.fact}" if self.fact is not None else f"/{self.entry_id}"
        return RecordHandle(provider_key=KEY, provider_record_id=f"{self.collection}{rest}")


def microseconds(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(value: object) -> datetime | None:
    """Return the moment of microseconds since 1970."""
    if not isinstance(value, int):
        return None
    try:
        return _EPOCH + value * _MICROSECOND
    except OverflowError:
        return None


def details_of(row: Row) -> Json:
    """Return an entry's details, for which the schema has no fields."""
    found = row.get(DETAILS)
    return found if isinstance(found, dict) else {}


def window_of(row: Row) -> tuple[datetime | None, datetime | None]:
    """Return the start and the end of an entry's validity."""
    return _to_the_microsecond(row, "valid_from"), _to_the_microsecond(row, "valid_to")


def set_window(row: Row, begins: datetime | None, ends: datetime | None) -> None:
    """Set the start and the end of an entry's validity."""
    _set_moment(row, "valid_from", begins)
    _set_moment(row, "valid_to", ends)


def _to_the_microsecond(row: Row, field: str) -> datetime | None:
    """Return a moment, exact from the details unless the field was changed since."""
    seconds = row.get(field)
    if not isinstance(seconds, int) or seconds == 0:
        return None
    exact = details_of(row).get(field)
    if isinstance(exact, int) and exact // _MILLION == seconds:
        return moment_of(exact)
    return moment_of(seconds * _MILLION)


def _set_moment(row: Row, field: str, moment: datetime | None) -> None:
    value = None if moment is None else microseconds(moment)
    row[field] = 0 if value is None else value // _MILLION
    if DETAILS in row:
        known = {name: one for name, one in details_of(row).items() if name != field}
        row[DETAILS] = known if value is None else {**known, field: value}


def fact_name(row: Row) -> str:
    """Return the fact name of a temporal entry, which all versions of the fact share."""
    given = details_of(row).get("fact")
    if isinstance(given, str) and given:
        return given
    key = row.get("kv_key") or ""
    return natural_name(row.get("kv_namespace") or "", key, fact_text(row))


def natural_name(namespace: str, key: str, text: str) -> str:
    """Return a fact's name before numbering: namespace, and key or a digest of its text."""
    own = key or hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{quote(namespace, safe='')}/{own}" if namespace or "/" in own else own


def fact_text(row: Row) -> str:
    """Return a fact's text as written, unless it disagrees with the key and value fields."""
    key, content = row.get("kv_key") or "", row.get("content") or ""
    value = _value(row)
    pair = pair_of(content)
    if (pair is not None and pair.key == key and parsed(pair.value) == value) or (
        not key and content == value
    ):
        return str(content)
    return f"{key}: {written(value)}" if key else written(value)


def _value(row: Row) -> Any:
    text = row.get("kv_value") or ""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # another program wrote no JSON
        return text


def set_fact(row: Row, text: str) -> None:
    """Set the text, key and value fields from a fact's text."""
    key, value = pair_of(text) or FactPair("", "")
    row["content"] = text
    row["kv_key"] = key
    row["kv_value"] = json.dumps(parsed(value) if key else text, ensure_ascii=False)


def tags_of(row: Row) -> tuple[str, ...]:
    """Return an entry's tags; none if the field is no JSON list."""
    try:
        found = json.loads(row.get("tags") or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def revision_of(row: Row) -> str:
    """Return a digest of an entry's fields and details."""
    said = [[row.get(name) for name in SCHEMA], sorted(details_of(row).items())]
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def scope_of(row: Row, owner: Scope) -> Scope:
    """Return an entry's scope: its collection's owner, with the ids in its details."""
    known = details_of(row).get("scope")
    if not isinstance(known, dict):
        return owner
    added = {
        name: known[name]
        for name in _WHOSE
        if isinstance(known.get(name), str) and getattr(owner, name) is None
    }
    return owner.model_copy(update=added)


def is_empty(row: Row) -> bool:
    """Whether a document has no text, so that it is no record."""
    return row.get("entry_type") == DOCUMENT and not (row.get("content") or row.get("original"))


def to_embed(content: str, title: str | None) -> str:
    """Return a document's text to embed: its title, and its summary or text."""
    return f"{title}\n{content}" if title else content


def text_to_embed(row: Row) -> str:
    """Return a stored document's text to embed."""
    return to_embed(row.get("content") or "", _text(details_of(row), "title"))


def record_of(
    row: Row, collection: str, owner: Scope, *, created: datetime | None = None
) -> Record:
    """Return the record of an entry; `created`: a fact's creation, from its first version."""
    details, is_fact = details_of(row), row.get("entry_type") in {KV, TEMPORAL}
    is_temporal = row.get("entry_type") == TEMPORAL
    place = (
        RecordAddress(collection, fact=fact_name(row))
        if is_temporal
        else RecordAddress(collection, entry_id=row["entry_id"])
    )
    content, original = row.get("content") or "", row.get("original") or ""
    begins, ends = window_of(row)
    updated = _to_the_microsecond(row, "updated_at")
    metadata = details.get("metadata")
    return Record(
        handle=place.handle,
        text=fact_text(row) if is_fact else original or content,
        summary=content if original and not is_fact and content != original else None,
        scope=scope_of(row, owner),
        source=_source_of(row, owner.company_id),
        title=_text(details, "title"),
        kind=_text(details, "kind") or ("fact" if is_fact else "note"),
        topic=(row.get("kv_namespace") if is_fact else row.get("topic")) or None,
        tags=tags_of(row),
        created_at=moment_of(details.get("created_at")) or created,
        updated_at=updated,
        created_by=_text(details, "created_by"),
        expires_at=moment_of(details.get("expires_at")),
        pinned=details.get("pinned") is True,
        valid_from=begins,
        valid_to=ends,
        revision=revision_of(row),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _text(details: Json, name: str) -> str | None:
    value = details.get(name)
    return value if isinstance(value, str) and value else None


def _source_of(row: Row, company_id: str) -> SourceRef | None:
    known = details_of(row).get("source")
    if isinstance(known, dict):
        try:
            return SourceRef(**{**known, "company_id": company_id})
        except (ValueError, TypeError):  # another program uses the field otherwise
            pass
    path = row.get("source")
    if not path:
        return None
    return SourceRef(kind=SourceKind.EXTERNAL_DOCUMENT, company_id=company_id, external_ref=path)


def source_fields(source: SourceRef) -> Json:
    """Return a source's stored fields, without the company: a store belongs to one."""
    return source.model_dump(mode="json", exclude={"company_id"}, exclude_none=True)


def own_ids(scope: Scope, owner: Scope) -> Json:
    """Return the ids of a scope that differ from its collection's owner."""
    ids = {name: getattr(scope, name) for name in _WHOSE}
    return {name: one for name, one in ids.items() if one and one != getattr(owner, name)}


def check_row(row: Row, sizes: Mapping[str, int | None]) -> None:
    """Raise `Invalid` for an entry that Milvus would refuse or truncate."""
    for name, most in sizes.items():
        value = row.get(name)
        if not isinstance(value, str):
            continue
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise Invalid(
                "The record contains half a character (a lone surrogate), which Milvus cannot "
                "store; remove it."
            ) from error
        if most is not None and size > most:
            raise Invalid(
                f"The record's {_WORDS.get(name, name)} has {size:,} bytes, and Milvus takes at "
                f"most {most:,}; shorten it."
            )
    try:
        size = len(json.dumps(details_of(row), ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(
            "The record's metadata contains a value that JSON cannot represent; remove it."
        ) from error
    if size > _DETAILS_BYTES:
        raise Invalid(
            f"The record's details besides its text have {size:,} bytes, and Milvus takes at most "
            f"{_DETAILS_BYTES:,}; shorten its metadata."
        )


_WORDS = {"content": "text", "original": "text", "kv_value": "value", "kv_key": "key",
          "kv_namespace": "topic"}  # fmt: skip


def set_written(row: Row, moment: datetime) -> None:
    """Set the time of an entry's last write."""
    _set_moment(row, "updated_at", moment)
