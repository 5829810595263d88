"""Operations to table rows and back.

A row to be inserted is a tuple of stored values in the order of its table's columns: every
operation passes here, and a mapping that SQLAlchemy converts takes thrice the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from memtui.contract import Json, Scope, SourceRef, Usage
from memtui.store.columns import (
    ForeignText,
    PicoDollars,
    UtcMicroseconds,
    stored_json,
    unsigned_zero,
)
from memtui.store.operation import Operation, OperationDraft, OperationHandle

Stored = tuple[Any, ...]

_text, _moment, _dollars = ForeignText.stored, UtcMicroseconds.stored, PicoDollars.stored
_SCOPE_FIELDS = tuple(Scope.model_fields)
_SOURCE_COLUMNS = {
    name: "source_kind" if name == "kind" else f"source_{name}"
    for name in SourceRef.model_fields
    if name != "company_id"
}
_NO_SOURCE: Stored = (None,) * len(_SOURCE_COLUMNS)
_PARTS = {"scope", "source", "handles", "usage", "absent", "salts"}
_OWN_FIELDS = tuple(name for name in Operation.model_fields if name not in _PARTS)


def operation_row(
    draft: OperationDraft, seq: int, previous: str, digest: str, salt: bytes
) -> Stored:
    """Return the operation's row."""
    scope, source = draft.scope, draft.source
    return (
        _text(scope.company_id),
        seq,
        _text(draft.operation_id),
        _text(draft.operation_type),
        _text(draft.status),
        _text(draft.binding_key),
        _text(draft.provider_key),
        _text(draft.binding_reason),
        _text(scope.agent_id),
        _text(scope.project_id),
        _text(scope.issue_id),
        _text(scope.run_id),
        _text(scope.subject_id),
        *(_source_values(source) if source else _NO_SOURCE),
        _text(draft.principal),
        _text(draft.door),
        _json(draft.request),
        _text(draft.error_kind),
        _text(draft.error_message),
        draft.result_count,
        draft.capped,
        _moment(draft.started_at),
        unsigned_zero(draft.latency_ms),
        _text(draft.undoes),
        previous,
        digest,
        salt,
        *(absent_values(draft) if draft.absent else (None, None)),
    )


def absent_values(draft: OperationDraft) -> tuple[str | None, str | None]:
    """Return what the columns `salts` and `absent` hold; None where there is nothing."""
    absent = {path: gone.model_dump() for path, gone in draft.absent.items()}
    return stored_json(draft.salts) if draft.salts else None, stored_json(absent)


def _source_values(source: SourceRef) -> Stored:
    return (
        _text(source.kind),
        _text(source.issue_id),
        _text(source.comment_id),
        _text(source.document_key),
        _text(source.run_id),
        _text(source.activity_id),
        _text(source.external_ref),
    )


def usage_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of its usage."""
    company_id = _text(draft.scope.company_id)
    return [
        (
            company_id,
            seq,
            ordinal,
            _text(usage.provider),
            _text(usage.model),
            usage.input_tokens,
            usage.output_tokens,
            usage.embedding_tokens,
            _dollars(usage.cost_usd),
            unsigned_zero(usage.latency_ms),
            _json(usage.details),
        )
        for ordinal, usage in enumerate(draft.usage)
    ]


def handle_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of its handles."""
    company_id, binding_key = _text(draft.scope.company_id), _text(draft.binding_key)
    operation_type = _text(draft.operation_type)
    return [
        (
            company_id,
            seq,
            handle.rank,
            _text(handle.binding_key) or binding_key,
            operation_type,
            _text(handle.provider_key),
            _text(handle.provider_record_id),
            unsigned_zero(handle.score),
            handle.ghost,
        )
        for handle in draft.handles
    ]


def _json(value: Json) -> str:
    return stored_json(value) if value else "{}"


def to_operation(
    row: Row[Any], usage: Iterable[Row[Any]] = (), handles: Iterable[Row[Any]] = ()
) -> Operation:
    """Build the operation of a row and of its usage and handle rows, in order."""
    columns = row._mapping  # noqa: SLF001 — SQLAlchemy's public name for it
    source = {name: columns[column] for name, column in _SOURCE_COLUMNS.items()}
    company_id = columns["company_id"]
    return Operation(
        **{name: columns[name] for name in _OWN_FIELDS},
        absent=columns["absent"] or {},
        salts=columns["salts"] or {},
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
