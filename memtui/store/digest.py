"""The digest that chains a company's operations, so that an auditor can prove none was altered."""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite

from pydantic_core import to_jsonable_python

from memtui.contract import Json, Scope, SourceRef, Usage
from memtui.store.columns import unsigned_zero
from memtui.store.operation import Operation, OperationDraft, OperationHandle

GENESIS = "0" * 64
"""The digest before a company's first operation."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical(document: object) -> str:
    """Return the one JSON text of a document: keys sorted, no spaces, ASCII only."""
    return _ENCODER.encode(document)


def digest_of(draft: OperationDraft, *, seq: int, previous_digest: str) -> str:
    """Return the SHA-256, in hex, of an operation in its place in the chain.

    It covers the operation's JSON document as every door prints it, less the `digest` itself and
    with `previous_digest` and `seq` in it.
    """
    return hashlib.sha256(_operation(draft, seq, previous_digest).encode()).hexdigest()


def is_intact(operation: Operation) -> bool:
    """Tell whether an operation still is what its digest was made of."""
    return operation.digest == digest_of(
        operation, seq=operation.seq, previous_digest=operation.previous_digest
    )


# What follows is `canonical(operation.model_dump(mode="json"))`, written member by member: every
# operation is hashed as it is appended, and this takes half the time.


def _operation(one: OperationDraft, seq: int, previous_digest: str) -> str:
    handles = ",".join([_handle(handle) for handle in one.handles])
    usage = ",".join([_usage(usage) for usage in one.usage])
    return (
        f'{{"binding_key":{_text(one.binding_key)},"binding_reason":{_text(one.binding_reason)},'
        f'"capped":{_truth(one.capped)},"door":{_quoted(one.door)},'
        f'"error_kind":{_text(one.error_kind)},"error_message":{_text(one.error_message)},'
        f'"handles":[{handles}],"latency_ms":{_number(one.latency_ms)},'
        f'"operation_id":{_quoted(one.operation_id)},'
        f'"operation_type":{_quoted(one.operation_type)},'
        f'"previous_digest":{_quoted(previous_digest)},"principal":{_quoted(one.principal)},'
        f'"provider_key":{_text(one.provider_key)},"request":{_json(one.request)},'
        f'"result_count":{one.result_count},"scope":{_scope(one.scope)},"seq":{seq},'
        f'"source":{_source(one.source) if one.source else "null"},'
        f'"started_at":"{one.started_at.isoformat().replace("+00:00", "Z")}",'
        f'"status":{_quoted(one.status)},"undoes":{_text(one.undoes)},"usage":[{usage}]}}'
    )


def _handle(handle: OperationHandle) -> str:
    return (
        f'{{"binding_key":{_text(handle.binding_key)},"ghost":{_truth(handle.ghost)},'
        f'"provider_key":{_quoted(handle.provider_key)},'
        f'"provider_record_id":{_quoted(handle.provider_record_id)},'
        f'"rank":{handle.rank},"score":{_number(handle.score)}}}'
    )


def _usage(usage: Usage) -> str:
    cost = "null" if usage.cost_usd is None else f'"{usage.cost_usd}"'
    return (
        f'{{"cost_usd":{cost},"details":{_json(usage.details)},'
        f'"embedding_tokens":{usage.embedding_tokens},"input_tokens":{usage.input_tokens},'
        f'"latency_ms":{_number(usage.latency_ms)},"model":{_text(usage.model)},'
        f'"output_tokens":{usage.output_tokens},"provider":{_quoted(usage.provider)}}}'
    )


def _scope(scope: Scope) -> str:
    return (
        f'{{"agent_id":{_text(scope.agent_id)},"company_id":{_quoted(scope.company_id)},'
        f'"issue_id":{_text(scope.issue_id)},"project_id":{_text(scope.project_id)},'
        f'"run_id":{_text(scope.run_id)},"subject_id":{_text(scope.subject_id)}}}'
    )


def _source(source: SourceRef) -> str:
    return (
        f'{{"activity_id":{_text(source.activity_id)},"comment_id":{_text(source.comment_id)},'
        f'"company_id":{_quoted(source.company_id)},'
        f'"document_key":{_text(source.document_key)},'
        f'"external_ref":{_text(source.external_ref)},"issue_id":{_text(source.issue_id)},'
        f'"kind":{_quoted(source.kind)},"run_id":{_text(source.run_id)}}}'
    )


def _text(value: str | None) -> str:
    return "null" if value is None else _quoted(value)


def _truth(value: bool) -> str:  # noqa: FBT001
    return "true" if value else "false"


def _number(value: float | None) -> str:
    stored = unsigned_zero(value)
    if stored is None:
        return "null"
    return repr(stored) if isfinite(stored) else canonical(stored)


def _json(value: Json) -> str:
    if not value:
        return "{}"
    try:
        return canonical(to_jsonable_python(value, inf_nan_mode="null"))
    except UnicodeEncodeError:  # pydantic knows no key with half of a surrogate pair
        return canonical(value)
