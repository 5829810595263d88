"""A foreign operation on its way into the log."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Any, NamedTuple

from memtui.importing.values import plain
from memtui.store.operation import OperationDraft

_NAMESPACE = uuid.UUID("6f0d4a0e-0c6b-5d1c-9d0a-2f3d6a6d7c11")
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
    text = json.dumps(plain(parts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def operation_id(company_id: str, key: str, occurrence: int) -> str:
    """Return the id of the n-th row with a key, the same at every import into a company."""
    return uuid.uuid5(_NAMESPACE, f"{company_id}\n{key}\n{occurrence}").hex


def kept_id(foreign_id: str | None, occurrence: int) -> str | None:
    """Return the foreign id if it can name the operation here too: long enough, and no number."""
    if foreign_id is None or occurrence > 1 or not _KEPT_ID.fullmatch(foreign_id):
        return None
    return foreign_id
