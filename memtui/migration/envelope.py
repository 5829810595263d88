"""A record in transit: hashes of its fields, and the migration record in its metadata.

Where the destination has no field for a value, such as an expiry, the migration record stores the
value, and `unpack` restores the record as it was.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from pydantic import ConfigDict, ValidationError

from memtui.contract import Capabilities, Json, Model, Problem, Record, WriteRequest, owner_of
from memtui.fact_values import FACT
from memtui.service.operations.memories import redact_write
from memtui.service.operations.undo import as_write
from memtui.store.tables import MIGRATED_FROM

FIELDS = (
    "text", "kind", "title", "summary", "topic", "tags", "created_at", "created_by", "expires_at",
    "pinned", "valid_from", "valid_to", "source", "scope", "metadata",
)  # fmt: skip
"""Fields compared. Id, revision, location and time of change are the provider's, so they differ."""
_STANDS_IN = "\N{REPLACEMENT CHARACTER}"
_BYTES = 8
_WORDS = {"expires_at": "expiry", "pinned": "pin", "valid_to": "valid until"}


class Loss(Model):
    """A field that the destination does not store as the source has it."""

    what: str
    records: int
    carried: bool
    """True: the value is stored in the metadata, and a migration back restores it."""
    filled: bool = False
    """True: these records have no value, and the destination fills one in."""

    @property
    def fate(self) -> str:
        """What happens to the field, as text for a person."""
        if self.filled:
            return "not known, and filled in by the destination"
        return "carried in the metadata" if self.carried else "lost"


def losses(records: Counter[str], *, carried: bool) -> Iterator[Loss]:
    """Yield the losses, from the number of affected records by field name."""
    for name in (*FIELDS, "id"):
        if records[name]:
            what = _WORDS.get(name, name.replace("_", " "))
            yield Loss(what=what, records=records[name], carried=carried)


def filled_fields(record: Record, names: Collection[str]) -> list[str]:
    """Return those of the named fields that are not empty in a record."""
    filled = [name for name in names if getattr(record, name) not in (None, False, "", (), {})]
    return [name for name in filled if name != "kind" or record.kind != FACT]


def unable(can: Capabilities) -> set[str]:
    """Return the fields that a provider with these capabilities cannot store."""
    able = {
        "expires_at": can.expiry,
        "pinned": can.pin,
        "valid_from": can.validity,
        "valid_to": can.validity,
        "summary": can.summaries,
    }
    return {name for name, is_able in able.items() if not is_able}


def as_json(record: Record) -> dict[str, Any]:
    """Return the compared fields as JSON values."""
    return record.model_dump(mode="json", include=set(FIELDS))


def prints_of(record: Record) -> bytes:
    """Return one hash per field, concatenated in the order of `FIELDS`."""
    fields = as_json(record)
    return b"".join(_hash(fields[name], _BYTES) for name in FIELDS)


def print_of(prints: bytes, name: str) -> bytes:
    """Return one field's hash."""
    start = FIELDS.index(name) * _BYTES
    return prints[start : start + _BYTES]


def digest_of(prints: bytes) -> str:
    """Return a single hash of a whole record."""
    return blake2b(prints, digest_size=16).hexdigest()


def differing(left: bytes, right: bytes) -> tuple[str, ...]:
    """Return the names of the fields that differ."""
    return tuple(name for name in FIELDS if print_of(left, name) != print_of(right, name))


def is_empty(prints: bytes, name: str) -> bool:
    """Return whether an optional field or a list is empty."""
    return print_of(prints, name) in _EMPTY


def identity_of(binding_key: str, record_id: str) -> str:
    """Return a fixed-length name for a record of a binding: a hash of binding and id."""
    return _hash([binding_key, record_id], 16).hex()


def _hash(value: object, size: int) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=size).digest()


_NOTHING: tuple[object, ...] = (None, [], {}, "")
_EMPTY = frozenset(_hash(value, _BYTES) for value in _NOTHING)


class MigrationRecord(Model):
    """Where a record was migrated from."""

    model_config = ConfigDict(extra="ignore")

    binding: str
    record_id: str
    """Its id in that binding."""
    revision: str | None = None
    """Its revision there when it was migrated."""
    identity: str
    """The hash of binding and id: unlike `record_id`, redaction cannot change it."""
    state: str
    """The hash of the record as it was migrated."""
    origin_id: str
    """Its id before the first of any number of migrations."""
    kept: str = "{}"
    """JSON: the values of the fields that the destination cannot store."""
    added: tuple[str, ...] = ()
    """Names of the metadata entries that the destination adds."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A record as it was in its first binding, without its migration record."""

    record: Record
    prints: bytes
    migration_record: MigrationRecord | None = None
    redacted: tuple[str, ...] = ()
    """Labels of the secrets that a migration removes from the record."""
    endpoints: datetime | None = None
    """When the record expires, if only the migration record knows."""

    @property
    def record_id(self) -> str:
        """The record's id in the binding that holds it."""
        return self.record.handle.provider_record_id


def unpack(record: Record) -> Envelope:
    """Return a record without its migration record, with the fields restored from there."""
    try:
        migration_record = MigrationRecord.model_validate(record.metadata[MIGRATED_FROM])
    except (KeyError, ValidationError):
        return Envelope(record, prints_of(record))
    own = {
        name: value
        for name, value in record.metadata.items()
        if name != MIGRATED_FROM and name not in migration_record.added
    }
    kept = _kept(migration_record)
    try:
        said = {name: value for name, value in kept.items() if name != "text"}
        whole = Record.model_validate({**dict(record), "metadata": own, **said})
    except ValidationError:
        return Envelope(record, prints_of(record))
    if _as_blank(kept) and record.text == stand_in(whole):
        whole = whole.model_copy(update={"text": kept["text"]})
    same_company = whole.scope.company_id == record.scope.company_id
    if not same_company or owner_of(whole.scope) != owner_of(record.scope):
        # Anybody can write metadata, so it must not move a record to another owner.
        whole = whole.model_copy(update={"scope": record.scope})
    endpoints = whole.expires_at if "expires_at" in kept else None
    return Envelope(whole, prints_of(whole), migration_record, endpoints=endpoints)


def stand_in(record: Record) -> str:
    """Return the text to write for a blank one, which few providers accept."""
    return record.summary or record.title or "(no text)"


def _as_blank(kept: Json) -> bool:
    text = kept.get("text")
    return isinstance(text, str) and not text.strip()


def unpack_clean(record: Record) -> Envelope:
    """Unpack a record and redact its secrets (seed 001)."""
    envelope = unpack(record)
    clean, labels = redact_write(_written(envelope.record, None))
    if not labels:
        return envelope
    changed = envelope.record.model_copy(
        update={
            "text": clean.content if envelope.record.text.strip() else envelope.record.text,
            "source": clean.source,
            **{
                name: getattr(clean, name) for name in ("title", "summary", "kind", "topic", "tags")
            },
            "metadata": clean.metadata,
        }
    )
    return Envelope(
        changed, prints_of(changed), envelope.migration_record, labels, envelope.endpoints
    )


def why_left(record: Record, problems: Collection[Problem]) -> str | None:
    """Return why a record must not be copied; None: no reason is known.

    A copy of a record that is only partly readable would silently lose the unreadable part.
    """
    if record.problem:
        return f"{record.problem} Fix that first."
    if not problems or record.location is None or _STANDS_IN not in record.model_dump_json():
        return None
    path = record.location.path
    if not any(one.location and one.location.path == path for one in problems):
        return None
    return "Bytes of its file are not UTF-8 and would be lost; save the file as UTF-8 first."


def living(records: Iterable[Record], read: Callable[[Record], Envelope]) -> list[Envelope]:
    """Apply `read` to records, and leave out those whose expiry has passed."""
    now = datetime.now(UTC)
    return [
        envelope
        for envelope in map(read, records)
        if envelope.endpoints is None or envelope.endpoints > now
    ]


def pack(
    envelope: Envelope,
    source_key: str,
    destination_key: str,
    lost: Iterable[str],
    added: Iterable[str],
) -> WriteRequest:
    """Return the write that stores a record elsewhere, its migration record in the metadata.

    `lost` names the fields that the destination cannot store, `added` the metadata it adds.
    """
    record = envelope.record
    unsent = {name for name in _FILLED if not getattr(record, name)}
    fields = as_json(record)
    is_blank = not record.text.strip()
    kept = {
        name: fields[name]
        for name in FIELDS
        if (name in {*lost, *unsent} if name != "text" else is_blank)
    }
    origin_id = (
        envelope.migration_record.origin_id if envelope.migration_record else envelope.record_id
    )
    migration_record = MigrationRecord(
        binding=source_key,
        record_id=envelope.record_id,
        revision=record.revision,
        identity=identity_of(source_key, envelope.record_id),
        state=digest_of(envelope.prints),
        origin_id=origin_id,
        kept=json.dumps(kept, sort_keys=True),
        added=tuple(sorted(set(added) - record.metadata.keys())),
    )
    request = _written(record, destination_key)
    stamp = migration_record.model_dump(mode="json", exclude_defaults=True)
    update: Json = {"record_id": origin_id, "metadata": {**record.metadata, MIGRATED_FROM: stamp}}
    update |= {name: value for name, value in _WITHOUT.items() if name in kept}
    return request.model_copy(update=update)


def _written(record: Record, binding_key: str | None) -> WriteRequest:
    """Return the write of a record, with `stand_in` for a blank text."""
    text = record.text if record.text.strip() else stand_in(record)
    return as_write(record.model_copy(update={"text": text}), binding_key)


_FILLED = ("source", "created_at", "created_by")
"""Fields that a destination may fill in where they are empty."""
_WITHOUT: Json = {
    "expires_at": None, "pinned": False, "valid_from": None, "valid_to": None, "summary": None,
}  # fmt: skip
"""Values to send for fields that the destination cannot store."""


def _kept(migration_record: MigrationRecord) -> Json:
    try:
        kept = json.loads(migration_record.kept)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {name: value for name, value in kept.items() if name in FIELDS}
