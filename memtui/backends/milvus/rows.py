"""Entries of the unified schema (seed 002 §6), and the records that they are.

The schema has no room for what else memtui knows of a record: who wrote it and from where, its kind
and title, pin and expiry, and moments to the microsecond. In collections that memtui made, this
stands beside the declared fields, under the dynamic name `memtui`. In another program's collection
a record is what the declared fields say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from memtui.contract import (
    Invalid,
    Json,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
)
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
"""The declared fields beside the vector, and how many bytes a text in one may have; None: a moment
in seconds since 1970, where 0 is none."""
_DETAILS_BYTES = 65_000
"""Milvus takes 65,536 for all dynamic values of an entry."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLION = 1_000_000
_WHOSE = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


@dataclass(frozen=True, slots=True)
class RecordAddress:
    """What a record's id says: its collection, and the fact or the entry in it."""

    collection: str
    entry_id: str | None = None
    fact: str | None = None
    """The name of a temporal fact, whose versions are entries of their own."""

    @classmethod
    def of(cls, record_id: str) -> RecordAddress | None:
        """Read an id; None where it can name no record."""
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
    """Return what the schema has no field for."""
    found = row.get(DETAILS)
    return found if isinstance(found, dict) else {}


def window_of(row: Row) -> tuple[datetime | None, datetime | None]:
    """Return since when and until when an entry holds."""
    return _to_the_microsecond(row, "valid_from"), _to_the_microsecond(row, "valid_to")


def set_window(row: Row, begins: datetime | None, ends: datetime | None) -> None:
    """Say since when and until when an entry holds."""
    _set_moment(row, "valid_from", begins)
    _set_moment(row, "valid_to", ends)


def _to_the_microsecond(row: Row, field: str) -> datetime | None:
    """Return a moment; the details know it exactly unless somebody has changed the field since."""
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
    """Return the name by which a temporal entry's versions belong together."""
    given = details_of(row).get("fact")
    if isinstance(given, str) and given:
        return given
    key = row.get("kv_key") or ""
    return natural_name(row.get("kv_namespace") or "", key, fact_text(row))


def natural_name(namespace: str, key: str, text: str) -> str:
    """Return the name that a fact has by itself."""
    own = key or hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{quote(namespace, safe='')}/{own}" if namespace or "/" in own else own


def fact_text(row: Row) -> str:
    """Return a fact's text: as it was worded, where that says what key and value say."""
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
    """Put a fact's text into the fields of its key and value."""
    key, value = pair_of(text) or FactPair("", "")
    row["content"] = text
    row["kv_key"] = key
    row["kv_value"] = json.dumps(parsed(value) if key else text, ensure_ascii=False)


def tags_of(row: Row) -> tuple[str, ...]:
    """Return an entry's tags; what is not a list has none."""
    try:
        found = json.loads(row.get("tags") or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def revision_of(row: Row) -> str:
    """Return a digest of all that an entry says."""
    said = [[row.get(name) for name in SCHEMA], sorted(details_of(row).items())]
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def scope_of(row: Row, owner: Scope) -> Scope:
    """Return an entry's scope: its collection's, and what the details add to it."""
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
    """Whether a document says nothing, which is not a memory."""
    return row.get("entry_type") == DOCUMENT and not (row.get("content") or row.get("original"))


def to_embed(content: str, title: str | None) -> str:
    """Return what a document is found by: its title, and its summary or text."""
    return f"{title}\n{content}" if title else content


def text_to_embed(row: Row) -> str:
    """Return what a stored document is found by."""
    return to_embed(row.get("content") or "", _text(details_of(row), "title"))


def record_of(
    row: Row, collection: str, owner: Scope, *, created: datetime | None = None
) -> Record:
    """Return the record of an entry; `created`: when its first version began, for a fact."""
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
        except (ValueError, TypeError):  # another program put something else there
            pass
    path = row.get("source")
    if not path:
        return None
    return SourceRef(kind=SourceKind.EXTERNAL_DOCUMENT, company_id=company_id, external_ref=path)


def source_fields(source: SourceRef) -> Json:
    """Return a source as the details keep it: a store belongs to one company."""
    return source.model_dump(mode="json", exclude={"company_id"}, exclude_none=True)


def own_ids(scope: Scope, owner: Scope) -> Json:
    """Return what of a scope its collection does not say."""
    ids = {name: getattr(scope, name) for name in _WHOSE}
    return {name: one for name, one in ids.items() if one and one != getattr(owner, name)}


def check_row(row: Row, sizes: Mapping[str, int | None]) -> None:
    """Raise `Invalid` for an entry that Milvus would refuse, or would keep in part."""
    for name, most in sizes.items():
        value = row.get(name)
        if not isinstance(value, str):
            continue
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise Invalid(
                "The record holds half a character, which Milvus cannot keep; take it out."
            ) from error
        if most is not None and size > most:
            raise Invalid(
                f"The record's {_WORDS.get(name, name)} has {size:,} bytes, and Milvus takes "
                f"{most:,}; shorten it."
            )
    try:
        size = len(json.dumps(details_of(row), ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(
            "The record's metadata holds something that JSON cannot carry; take it out."
        ) from error
    if size > _DETAILS_BYTES:
        raise Invalid(
            f"What is known of the record beside its text has {size:,} bytes, and Milvus takes "
            f"{_DETAILS_BYTES:,}; shorten its metadata."
        )


_WORDS = {"content": "text", "original": "text", "kv_value": "value", "kv_key": "key",
          "kv_namespace": "topic"}  # fmt: skip


def set_written(row: Row, moment: datetime) -> None:
    """Say when an entry was last written."""
    _set_moment(row, "updated_at", moment)
