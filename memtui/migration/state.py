"""What a record is, field by field, as hashes: what must be the same on both sides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from memtui.contract import Record

FIELDS = (
    "text", "kind", "title", "topic", "tags", "created_at", "created_by", "expires_at", "pinned",
    "valid_from", "source", "scope", "metadata",
)  # fmt: skip
"""What is compared. A record's id, revision, place and time of change are its provider's own."""
_BYTES = 8


def as_json(record: Record) -> dict[str, Any]:
    """Return the compared fields as JSON values."""
    return record.model_dump(mode="json", include=set(FIELDS))


def prints_of(record: Record) -> bytes:
    """Return one hash a field, in the order of `FIELDS`."""
    held = as_json(record)
    return b"".join(_print(held[name]) for name in FIELDS)


def print_of(prints: bytes, name: str) -> bytes:
    """Return one field's hash."""
    start = FIELDS.index(name) * _BYTES
    return prints[start : start + _BYTES]


def digest_of(prints: bytes) -> str:
    """Return the one hash of a whole record."""
    return blake2b(prints, digest_size=16).hexdigest()


def differing(left: bytes, right: bytes) -> tuple[str, ...]:
    """Return the names of the fields that are not the same."""
    return tuple(name for name in FIELDS if print_of(left, name) != print_of(right, name))


def is_empty(prints: bytes, name: str) -> bool:
    """Tell whether an optional field, or a list, holds nothing."""
    return print_of(prints, name) in _EMPTY


def identity_of(binding_key: str, record_id: str) -> str:
    """Return the name of a record of a binding, of one length whatever its id."""
    return _hash([binding_key, record_id], 16).hex()


def _print(value: object) -> bytes:
    return _hash(value, _BYTES)


def _hash(value: object, size: int) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=size).digest()


def _empty_prints(values: Sequence[object]) -> frozenset[bytes]:
    return frozenset(_print(value) for value in values)


_EMPTY = _empty_prints([None, [], {}, ""])
