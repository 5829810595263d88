"""Operations as the JSON documents that their digests are made of, straight from rows.

The same documents as `memtui.store.digest` makes of operations, without building those first.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from memtui.analytics.operations import COLUMNS, text_of
from memtui.contract import Scope, SourceRef, Usage
from memtui.store.digest import canonical
from memtui.store.operation import OperationDraft, OperationHandle

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NESTED = {"scope", "source", "handles", "usage", "request", "started_at"}
_PLAIN = (*(n for n in OperationDraft.model_fields if n not in _NESTED), "seq", "previous_digest")
_SCOPE = tuple(Scope.model_fields)
_SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
_USAGE = tuple(name for name in Usage.model_fields if name not in {"cost_usd", "details"})
_HANDLE = tuple(name for name in OperationHandle.model_fields if name != "binding_key")

Document = dict[str, Any]


def documents(
    operations: Sequence[Sequence[Any]],
    usage: Sequence[Sequence[Any]],
    handles: Sequence[Sequence[Any]],
) -> dict[int, Document]:
    """Return the documents of rows of `memtui.analytics.operations.COLUMNS`, by `seq`.

    Each has `digest` in it too, the one thing that the digest does not cover.
    """
    usage_of, handles_of = _by_seq("usage", usage), _by_seq("handles", handles)
    names = COLUMNS["operations"]
    found = {}
    for values in operations:
        row = dict(zip(names, map(text_of, values), strict=True))
        seq = row["seq"]
        found[seq] = _document(row, usage_of.get(seq, ()), handles_of.get(seq, ()))
    return found


def digest_of(document: Document) -> str:
    """Return the SHA-256, in hex, that the document's `digest` has to be."""
    covered = {name: value for name, value in document.items() if name != "digest"}
    return hashlib.sha256(canonical(covered).encode()).hexdigest()


def _document(row: Document, usage: Sequence[Document], handles: Sequence[Document]) -> Document:
    document = {name: row[name] for name in _PLAIN}
    moment = _EPOCH + timedelta(microseconds=row["started_at"])
    document["started_at"] = moment.isoformat().replace("+00:00", "Z")
    document["request"] = json.loads(row["request"])
    document["scope"] = {name: row[name] for name in _SCOPE}
    document["source"] = row["source_kind"] and {
        "kind": row["source_kind"],
        "company_id": row["company_id"],
        **{name: row[f"source_{name}"] for name in _SOURCE},
    }
    document["usage"] = [_usage(part) for part in sorted(usage, key=lambda part: part["ordinal"])]
    document["handles"] = [
        _handle(part, row["binding_key"]) for part in sorted(handles, key=lambda part: part["rank"])
    ]
    document["digest"] = row["digest"]
    return document


def _usage(row: Document) -> Document:
    fields = {name: row[name] for name in _USAGE}
    cost = row["cost_pico"]
    if cost is not None:
        dollars = Decimal(cost).scaleb(-12).normalize()
        cost = str(Decimal(format(dollars, "f")))
    return fields | {"cost_usd": cost, "details": json.loads(row["details"])}


def _handle(row: Document, own_binding: str | None) -> Document:
    binding = row["binding_key"]
    return {name: row[name] for name in _HANDLE} | {
        "binding_key": None if binding == own_binding else binding
    }


def _by_seq(table: str, rows: Sequence[Sequence[Any]]) -> dict[int, list[Document]]:
    found: dict[int, list[Document]] = defaultdict(list)
    for values in rows:
        row = dict(zip(COLUMNS[table], map(text_of, values), strict=True))
        found[row["seq"]].append(row)
    return found
