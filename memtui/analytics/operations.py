"""Rows that DuckDB read to the operations that the log's writers knew."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from memtui.contract import Scope, SourceRef, Usage
from memtui.store.columns import ForeignText, UtcMicroseconds
from memtui.store.operation import Operation, OperationHandle
from memtui.store.values import MARK

_SCOPE = tuple(Scope.model_fields)
_SOURCE = {
    name: "source_kind" if name == "kind" else f"source_{name}"
    for name in SourceRef.model_fields
    if name != "company_id"
}
_OWN = tuple(
    name for name in Operation.model_fields if name not in {"scope", "source", "handles", "usage"}
)
_USAGE = tuple(name for name in Usage.model_fields if name != "cost_usd")
_HANDLE = tuple(OperationHandle.model_fields)

COLUMNS = {
    "operations": tuple(dict.fromkeys((*_OWN, *_SCOPE, *_SOURCE.values()))),
    "usage": ("seq", "ordinal", *_USAGE, "cost_pico"),
    "handles": ("seq", *_HANDLE),
}
"""What is read of each table."""

Row = dict[str, Any]

_JSON_COLUMNS = {
    "operations": ("request", "salts", "absent"),
    "usage": ("details",),
    "handles": (),
}

_TEXT, _MOMENT = ForeignText.loaded, UtcMicroseconds.loaded


def select_list(table: str) -> str:
    """Return the columns to select, with moments as microseconds."""
    return ", ".join(
        "epoch_us(started_at) AS started_at" if name == "started_at" else name
        for name in COLUMNS[table]
    )


def text_of(value: Any) -> Any:
    """Return a value as it was before the database escaped it."""
    return _TEXT(value) if isinstance(value, str) else value


def build(
    operations: Sequence[Sequence[Any]],
    usage: Sequence[Sequence[Any]],
    handles: Sequence[Sequence[Any]],
) -> list[Operation]:
    """Return the operations of rows of `COLUMNS`, in order; their parts come in any order."""
    usage_of, handles_of = _by_seq("usage", usage), _by_seq("handles", handles)
    return [
        _operation(row, usage_of[row["seq"]], handles_of[row["seq"]])
        for row in named("operations", operations)
    ]


def _operation(row: Row, usage: list[Row], handles: list[Row]) -> Operation:
    own = {name: row[name] for name in _OWN}
    own["started_at"] = _MOMENT(row["started_at"])
    source = {name: row[column] for name, column in _SOURCE.items()}
    return Operation(
        **own,
        scope=Scope(**{name: row[name] for name in _SCOPE}),
        source=SourceRef(company_id=row["company_id"], **source) if source["kind"] else None,
        usage=tuple(_usage(part) for part in sorted(usage, key=lambda part: part["ordinal"])),
        handles=tuple(
            _handle(part, row["binding_key"])
            for part in sorted(handles, key=lambda part: part["rank"])
        ),
    )


def _handle(row: Row, own_binding: str | None) -> OperationHandle:
    fields = {name: row[name] for name in _HANDLE}
    if fields["binding_key"] == own_binding:
        fields["binding_key"] = None
    return OperationHandle(**fields)


def _usage(row: Row) -> Usage:
    cost = None if row["cost_pico"] is None else Decimal(row["cost_pico"]).scaleb(-12)
    return Usage(**{name: row[name] for name in _USAGE}, cost_usd=cost)


def _by_seq(table: str, rows: Sequence[Sequence[Any]]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in named(table, rows):
        found[row["seq"]].append(row)
    return found


def named(table: str, rows: Sequence[Sequence[Any]]) -> Iterator[Row]:
    """Yield rows of `COLUMNS` by column, as they were before the database escaped them."""
    names = COLUMNS[table]
    columns = [(name, names.index(name)) for name in _JSON_COLUMNS[table]]
    for row in rows:
        found = dict(zip(names, row, strict=True))
        for name, value in found.items():
            if value.__class__ is str and MARK in value:
                found[name] = _TEXT(value)
        for name, place in columns:  # it is never escaped that way
            text = row[place]
            found[name] = {} if text is None or text == "{}" else _DECODER.decode(text)
        yield found


def _nothing(_constant: str) -> None:
    """What JSON knows no number for counts as null in the digest."""


_DECODER = json.JSONDecoder(parse_constant=_nothing)
