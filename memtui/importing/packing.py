"""Drafts of operations made quickly, and as bytes while they wait.

Making and validating models is most of the time that an import would take. What comes through here
was checked value by value when it was read.
"""

from __future__ import annotations

import marshal
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, TypeVar

from memtui.contract import Model, OperationStatus, OperationType, Scope, SourceRef, Usage
from memtui.store.operation import OperationDraft, OperationHandle

_APART = frozenset({"operation_id", "operation_type", "status", "scope", "source", "handles",
                    "usage", "started_at", "absent", "salts"})  # fmt: skip
_OWN = tuple(name for name in OperationDraft.model_fields if name not in _APART)
_SCOPE = tuple(Scope.model_fields)
_USAGE = tuple(name for name in Usage.model_fields if name != "cost_usd")
_own, _scope, _usage = attrgetter(*_OWN), attrgetter(*_SCOPE), attrgetter(*_USAGE)
_TYPES = {kind.value: kind for kind in OperationType}
_STATUSES = {status.value: status for status in OperationStatus}

_ALL = set(OperationDraft.model_fields)
_ALL_OF_SCOPE = set(Scope.model_fields)
_ALL_OF_USAGE = set(Usage.model_fields)

M = TypeVar("M", bound=Model)


def made(**values: Any) -> OperationDraft:
    """Return the draft of these values, one for every field, each what its field holds.

    No value of it is absent.
    """
    return _model(OperationDraft, values | {"absent": {}, "salts": {}}, _ALL)


def scope_of(values: tuple[str | None, ...]) -> Scope:
    """Return the scope of these values, in the order of its fields."""
    return _model(Scope, dict(zip(_SCOPE, values, strict=True)), _ALL_OF_SCOPE)


def pack(draft: OperationDraft) -> bytes:
    """Return all of a draft but its id and the moment it began at."""
    source = draft.source
    return marshal.dumps(
        (
            draft.operation_type._value_,
            draft.status._value_,
            _scope(draft.scope),
            _own(draft),
            [
                (None if usage.cost_usd is None else str(usage.cost_usd), _usage(usage))
                for usage in draft.usage
            ],
            None if source is None else source.model_dump(mode="json"),
            [handle.model_dump() for handle in draft.handles],
        )
    )


def unpack(packed: bytes, operation_id: str, started_at: datetime) -> OperationDraft:
    """Return a draft that was packed."""
    kind, status, scope, own, usage, source, handles = marshal.loads(packed)  # noqa: S302 — ours
    return made(
        operation_id=operation_id,
        operation_type=_TYPES[kind],
        status=_STATUSES[status],
        scope=scope_of(scope),
        source=None if source is None else SourceRef.model_validate(source),
        handles=tuple([OperationHandle.model_validate(handle) for handle in handles]),
        usage=tuple([_usage_of(cost, values) for cost, values in usage]),
        started_at=started_at,
        **dict(zip(_OWN, own, strict=True)),
    )


def _usage_of(cost: str | None, values: tuple[Any, ...]) -> Usage:
    given: dict[str, Any] = dict(zip(_USAGE, values, strict=True))
    given["cost_usd"] = None if cost is None else Decimal(cost)
    return _model(Usage, given, _ALL_OF_USAGE)


def _model(kind: type[M], values: dict[str, Any], fields: set[str]) -> M:
    """Do what `model_construct` does in a tenth of its time, as it need not look for anything."""
    model = kind.__new__(kind)
    object.__setattr__(model, "__dict__", values)
    object.__setattr__(model, "__pydantic_fields_set__", fields)
    object.__setattr__(model, "__pydantic_extra__", None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model
