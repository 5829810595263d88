"""Requests rebuilt from logged operations, to run them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    Filter,
    Invalid,
    Json,
    OperationStatus,
    OperationType,
    QueryRequest,
    Scope,
)
from memtui.service.context.contexts import ContextRequest
from memtui.store.bindings import EXPLICIT_KEY
from memtui.store.details import Details
from memtui.store.given import texts_given
from memtui.store.operation import Operation

_OF_QUERY = ("query", "intent", "top_k", "topic", "filter", "metadata_filter", "matching")
_OF_CONTEXT = ("model", "budget", "max_tokens", "max_characters", "topic", "prompt", "profile")
"""The logged fields of a request, which have the names of the request model."""
_MOST_CONTEXTS = 1_000
"""Most contexts of one run whose texts a later one leaves out."""


class Given:
    """The texts already delivered to runs before contexts with `skip_given`. Blocking."""

    def __init__(self, log: CompanyLog) -> None:
        self._log = log
        self._contexts: dict[str, list[tuple[int, Details]]] = {}
        """`seq` and request of the contexts, by run, the newest first."""

    def before(self, operation: Operation) -> list[str]:
        """Return the texts delivered before it.

        Call it for the newest operation of a run first: its contexts are cached for the others.
        """
        run_id = operation.scope.run_id
        if run_id is None or not operation.request.get("skip_given"):
            return []
        if run_id not in self._contexts:
            contexts = Filter(
                run_id=run_id, operation_type=OperationType.CONTEXT, status=OperationStatus.OK
            )
            page = self._log.page(contexts, limit=_MOST_CONTEXTS, before=operation.seq)
            own = (one for one in page.operations if one.scope.run_id == run_id)
            self._contexts[run_id] = [(one.seq, one.request) for one in own]
        return texts_given(one for seq, one in self._contexts[run_id] if seq < operation.seq)[0]


def scope_outside(operation: Operation) -> Scope:
    """Return the scope of an operation, without its run.

    Where a purge erased an id of the scope, return the scope of the company.
    """
    if any(path.startswith("scope.") for path in operation.absent):
        return Scope(company_id=operation.scope.company_id)
    return operation.asked_scope.outside_run()


def query_again(operation: Operation) -> QueryRequest:
    """Return the logged query, for the binding that answered it. Raises `Invalid` if it is none."""
    asked = _named(operation.request, _OF_QUERY)
    company_id = operation.scope.company_id
    try:
        owners = (one.split(" ", 1) for one in operation.request.get("owners", ()))
        asked["owners"] = [{"company_id": company_id, field: name} for field, name in owners]
        asked |= {"scope": scope_outside(operation), "binding_key": operation.binding_key}
        return QueryRequest.model_validate(asked)
    except (ValidationError, ValueError, AttributeError) as error:
        raise _is_none(operation) from error


def context_again(operation: Operation, given: list[str]) -> ContextRequest:
    """Return the logged context request; `given`: the texts delivered to its run before.

    Raises `Invalid` if the operation has no such request.
    """
    was_chosen = operation.binding_reason == EXPLICIT_KEY
    try:
        return ContextRequest.model_validate(
            {
                **_named(operation.request, _OF_CONTEXT),
                "scope": scope_outside(operation),
                "given": given,
                "binding_key": operation.binding_key if was_chosen else None,
            }
        )
    except ValidationError as error:
        raise _is_none(operation) from error


def _named(request: Mapping[str, Any], names: tuple[str, ...]) -> Json:
    return {name: request[name] for name in names if name in request}


def _is_none(operation: Operation) -> Invalid:
    return Invalid(
        f"Operation {operation.operation_id} was not a request to memtui; it cannot be repeated."
    )
