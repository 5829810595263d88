"""Operations to table rows and back.

A row to be inserted is a tuple of stored values in the order of its table's columns: every
operation passes here, and a mapping that SQLAlchemy converts takes thrice the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memtui.contract import Json, Scope, SourceRef, Usage
from memtui.store.operation import Operation, OperationDraft, OperationHandle
from memtui.store.values import (
    stored_dollars,
    stored_json,
    stored_moment,
    stored_text,
    unsigned_zero,
)

Stored = tuple[Any, ...]
Loaded = Mapping[Any, Any]

_SCOPE_FIELDS = tuple(Scope.model_fields)
_SOURCE_COLUMNS = {
    name: "source_kind" if name == "kind" else f"source_{name}"
    for name in SourceRef.model_fields
    if name != "company_id"
}
_NO_SOURCE: Stored = (None,) * len(_SOURCE_COLUMNS)
_USAGE_FIELDS = tuple(Usage.model_fields)
_HANDLE_FIELDS = tuple(name for name in OperationHandle.model_fields if name != "binding_key")
_PARTS = {"scope", "source", "handles", "usage", "absent", "salts"}
_OWN_FIELDS = tuple(name for name in Operation.model_fields if name not in _PARTS)


def operation_row(
    draft: OperationDraft, seq: int, previous: str, digest: str, salt: bytes | None
) -> Stored:
    """Return the operation's row."""
    scope, source = draft.scope, draft.source
    return (
        stored_text(scope.company_id),
        seq,
        stored_text(draft.operation_id),
        stored_text(draft.operation_type),
        stored_text(draft.status),
        stored_text(draft.binding_key),
        stored_text(draft.provider_key),
        stored_text(draft.binding_reason),
        stored_text(scope.agent_id),
        stored_text(scope.project_id),
        stored_text(scope.issue_id),
        stored_text(scope.run_id),
        stored_text(scope.subject_id),
        *(_source_values(source) if source else _NO_SOURCE),
        stored_text(draft.principal),
        stored_text(draft.door),
        _json(draft.request),
        stored_text(draft.error_kind),
        stored_text(draft.error_message),
        draft.result_count,
        draft.capped,
        stored_moment(draft.started_at),
        unsigned_zero(draft.latency_ms),
        stored_text(draft.undoes),
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
        stored_text(source.kind),
        stored_text(source.issue_id),
        stored_text(source.comment_id),
        stored_text(source.document_key),
        stored_text(source.run_id),
        stored_text(source.activity_id),
        stored_text(source.external_ref),
    )


def usage_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of its usage."""
    company_id = stored_text(draft.scope.company_id)
    return [
        (
            company_id,
            seq,
            ordinal,
            stored_text(usage.provider),
            stored_text(usage.model),
            usage.input_tokens,
            usage.output_tokens,
            usage.embedding_tokens,
            stored_dollars(usage.cost_usd),
            unsigned_zero(usage.latency_ms),
            _json(usage.details),
        )
        for ordinal, usage in enumerate(draft.usage)
    ]


def handle_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of its handles."""
    company_id, binding_key = stored_text(draft.scope.company_id), stored_text(draft.binding_key)
    operation_type = stored_text(draft.operation_type)
    return [
        (
            company_id,
            seq,
            handle.rank,
            stored_text(handle.binding_key) or binding_key,
            operation_type,
            stored_text(handle.provider_key),
            stored_text(handle.provider_record_id),
            unsigned_zero(handle.score),
            handle.ghost,
        )
        for handle in draft.handles
    ]


def _json(value: Json) -> str:
    return stored_json(value) if value else "{}"


def to_operation(
    row: Loaded, usage: Iterable[Loaded] = (), handles: Iterable[Loaded] = ()
) -> Operation:
    """Build the operation of a row and of its usage and handle rows, in order."""
    source = {name: row[column] for name, column in _SOURCE_COLUMNS.items()}
    own_binding = row["binding_key"]
    return Operation(
        **{name: row[name] for name in _OWN_FIELDS},
        absent=row["absent"] or {},
        salts=row["salts"] or {},
        scope=Scope(**{name: row[name] for name in _SCOPE_FIELDS}),
        source=SourceRef(company_id=row["company_id"], **source) if source["kind"] else None,
        usage=tuple(Usage(**{name: part[name] for name in _USAGE_FIELDS}) for part in usage),
        handles=tuple(
            OperationHandle(
                **{name: part[name] for name in _HANDLE_FIELDS},
                binding_key=None if part["binding_key"] == own_binding else part["binding_key"],
            )
            for part in handles
        ),
    )
