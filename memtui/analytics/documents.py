"""Operations as the JSON documents that every door prints, straight from rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from memtui.analytics.operations import named
from memtui.contract import Scope, SourceRef, Usage
from memtui.store.operation import OperationDraft, OperationHandle

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NESTED = {"scope", "source", "handles", "usage", "request", "started_at", "absent", "salts"}
PLAIN = (*(n for n in OperationDraft.model_fields if n not in _NESTED), "seq", "previous_digest")
SCOPE = tuple(Scope.model_fields)
SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
USAGE = tuple(name for name in Usage.model_fields if name not in {"cost_usd", "details"})
HANDLE = tuple(name for name in OperationHandle.model_fields if name != "binding_key")

Document = dict[str, Any]


def documents(
    operations: Sequence[Sequence[Any]],
    usage: Sequence[Sequence[Any]],
    handles: Sequence[Sequence[Any]],
) -> dict[int, Document]:
    """Return the documents of rows of `memtui.analytics.operations.COLUMNS`, by `seq`."""
    usage_of, handles_of = _by_seq("usage", usage), _by_seq("handles", handles)
    return {
        row["seq"]: _document(row, usage_of.get(row["seq"], ()), handles_of.get(row["seq"], ()))
        for row in named("operations", operations)
    }


def _document(row: Document, usage: Sequence[Document], handles: Sequence[Document]) -> Document:
    document = {name: row[name] for name in PLAIN}
    moment = _EPOCH + timedelta(microseconds=row["started_at"])
    document["started_at"] = moment.isoformat().replace("+00:00", "Z")
    document["request"] = row["request"]
    document["scope"] = {name: row[name] for name in SCOPE}
    document["source"] = row["source_kind"] and {
        "kind": row["source_kind"],
        "company_id": row["company_id"],
        **{name: row[f"source_{name}"] for name in SOURCE},
    }
    document["usage"] = [_usage(part) for part in sorted(usage, key=lambda part: part["ordinal"])]
    document["handles"] = [
        _handle(part, row["binding_key"]) for part in sorted(handles, key=lambda part: part["rank"])
    ]
    document["absent"] = row["absent"]
    document["digest"] = row["digest"]
    return document


def _usage(row: Document) -> Document:
    fields = {name: row[name] for name in USAGE}
    cost = row["cost_pico"]
    if cost is not None:
        dollars = Decimal(cost).scaleb(-12).normalize()
        cost = str(Decimal(format(dollars, "f")))
    return fields | {"cost_usd": cost, "details": row["details"]}


def _handle(row: Document, own_binding: str | None) -> Document:
    binding = row["binding_key"]
    return {name: row[name] for name in HANDLE} | {
        "binding_key": None if binding == own_binding else binding
    }


def _by_seq(table: str, rows: Sequence[Sequence[Any]]) -> dict[int, list[Document]]:
    found: dict[int, list[Document]] = defaultdict(list)
    for row in named(table, rows):
        found[row["seq"]].append(row)
    return found
