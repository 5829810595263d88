"""Operations to table rows and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from memtui.contract import Scope, SourceRef, Usage
from memtui.store.operation import Operation, OperationDraft, OperationHandle

_SCOPE_FIELDS = tuple(Scope.model_fields)
_SOURCE_FIELDS = tuple(name for name in SourceRef.model_fields if name != "company_id")
_OWN_FIELDS = tuple(
    name for name in Operation.model_fields if name not in {"scope", "source", "handles", "usage"}
)


def operation_values(draft: OperationDraft, seq: int, previous: str, digest: str) -> dict[str, Any]:
    """Return the columns of the operation's row."""
    values = {name: getattr(draft, name) for name in OperationDraft.model_fields}
    for nested in ("scope", "source", "handles", "usage"):
        del values[nested]
    values |= {name: getattr(draft.scope, name) for name in _SCOPE_FIELDS}
    values |= {
        _source_column(name): getattr(draft.source, name) if draft.source else None
        for name in _SOURCE_FIELDS
    }
    return values | {"seq": seq, "previous_digest": previous, "digest": digest}


def usage_values(draft: OperationDraft, seq: int) -> list[dict[str, Any]]:
    """Return the rows of its usage."""
    place = {"company_id": draft.scope.company_id, "seq": seq}
    return [
        {**place, "ordinal": ordinal, **dict(usage)} for ordinal, usage in enumerate(draft.usage)
    ]


def handle_values(draft: OperationDraft, seq: int) -> list[dict[str, Any]]:
    """Return the rows of its handles."""
    place = {
        "company_id": draft.scope.company_id,
        "seq": seq,
        "operation_type": draft.operation_type,
    }
    return [
        {
            **place,
            "binding_key": handle.binding_key or draft.binding_key,
            "rank": handle.rank,
            "provider_key": handle.provider_key,
            "provider_record_id": handle.provider_record_id,
            "score": handle.score,
            "ghost": handle.ghost,
        }
        for handle in draft.handles
    ]


def to_operation(
    row: Row[Any], usage: Iterable[Row[Any]] = (), handles: Iterable[Row[Any]] = ()
) -> Operation:
    """Build the operation of a row and of its usage and handle rows, in order."""
    columns = row._mapping  # noqa: SLF001 — SQLAlchemy's public name for it
    source = {name: columns[_source_column(name)] for name in _SOURCE_FIELDS}
    company_id = columns["company_id"]
    return Operation(
        **{name: columns[name] for name in _OWN_FIELDS},
        scope=Scope(**{name: columns[name] for name in _SCOPE_FIELDS}),
        source=SourceRef(company_id=company_id, **source) if source["kind"] else None,
        usage=tuple(Usage(**_fields(part, Usage)) for part in usage),
        handles=tuple(_handle(part, columns["binding_key"]) for part in handles),
    )


def _handle(row: Row[Any], own_binding: str | None) -> OperationHandle:
    fields = _fields(row, OperationHandle)
    if fields["binding_key"] == own_binding:
        fields["binding_key"] = None
    return OperationHandle(**fields)


def _fields(row: Row[Any], model: type[Usage | OperationHandle]) -> dict[str, Any]:
    return {name: row._mapping[name] for name in model.model_fields}  # noqa: SLF001


def _source_column(name: str) -> str:
    return "source_kind" if name == "kind" else f"source_{name}"
