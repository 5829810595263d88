"""A foreign operation on its way into the log."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from memtui.importing.values import plain
from memtui.store.operation import OperationDraft

_NAMESPACE = uuid.UUID("6f0d4a0e-0c6b-5d1c-9d0a-2f3d6a6d7c11")
_UUID_DIGITS, _UUID_5 = ~(0xF << 76 | 0x3 << 62), 0x5 << 76 | 0x2 << 62
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEPT_ID = re.compile(r"(?!\d+\Z)[A-Za-z0-9][A-Za-z0-9_.:-]{15,63}")


class Entry(NamedTuple):
    """An operation, and what tells it from every other one of its log."""

    line: int
    draft: OperationDraft
    """Its `operation_id` is given later."""
    key: str
    """The same whenever this row is read, from whatever file."""
    foreign_id: str | None = None
    weight: int = 0
    """Of several that are one operation, the heaviest is the one that counts."""


def key_of(*parts: Any) -> str:
    """Return the digest of what identifies a row."""
    return hashlib.sha256(_ENCODER.encode(plain(parts)).encode()).hexdigest()


def key_of_id(foreign_id: str, moment: int) -> str:
    """Return `key_of("id", foreign_id, moment)`."""
    text = f'["id",{encode_basestring_ascii(foreign_id)},{moment}]'
    return hashlib.sha256(text.encode()).hexdigest()


def operation_id(company_id: str, key: str, occurrence: int) -> str:
    """Return the id of the n-th row with a key, the same at every import into a company."""
    name = f"{company_id}\n{key}\n{occurrence}".encode()
    digest = hashlib.sha1(_NAMESPACE.bytes + name, usedforsecurity=False).digest()
    number = int.from_bytes(digest[:16]) & _UUID_DIGITS | _UUID_5
    return f"{number:032x}"  # uuid.uuid5(_NAMESPACE, name).hex in a third of its time


def kept_id(foreign_id: str | None, occurrence: int) -> str | None:
    """Return the foreign id if it can name the operation here too: long enough, and no number."""
    if foreign_id is None or occurrence > 1 or not _KEPT_ID.fullmatch(foreign_id):
        return None
    return foreign_id
