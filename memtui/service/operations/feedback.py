"""Verdicts of people and agents on results: that a record helped, or did not.

Each verdict is an operation, about one record that one query or context returned. A caller's later
verdict on the same result replaces the earlier one, which stays in the log.
"""

import asyncio
from collections.abc import Iterable
from enum import StrEnum

from memtui.contract import (
    Denied,
    Invalid,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
)
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller
from memtui.store import bindings
from memtui.store.details import FeedbackDetails
from memtui.store.operation import READS, Operation, OperationHandle

_LOOKED_AT = 100
"""The newest reads of a record that are searched for one of the caller."""


class Verdict(StrEnum):
    """A verdict on a result; `WITHDRAWN` removes the caller's earlier one."""

    HELPED = "helped"
    NOT_HELPED = "not_helped"
    WITHDRAWN = "withdrawn"


_SCORES = {Verdict.HELPED: 1.0, Verdict.NOT_HELPED: 0.0, Verdict.WITHDRAWN: None}


class FeedbackAnswer(Model):
    """A verdict that was recorded."""

    operation_id: str
    binding_key: str
    handle: RecordHandle
    judged: str
    """The query or context that returned the record."""
    verdict: Verdict


class Feedback(ServiceModule):
    """Records verdicts on results."""

    async def say(
        self,
        caller: Caller,
        record: RecordHandle | str,
        verdict: Verdict,
        *,
        operation_id: str | None = None,
        binding_key: str | None = None,
    ) -> FeedbackAnswer:
        """Record whether a record that a query or context returned helped; the last verdict counts.

        Args:
            caller: Who judges. An agent can only judge results that it, or its run, was given.
            record: The record, as it was returned.
            verdict: The verdict.
            operation_id: The query or context that returned it; None: the newest by the caller, or
                in its run, that did.
            binding_key: The record's binding, if it is not the operation's.

        Raises:
            NotFound: there is no such operation, or it did not return the record.
            Invalid: the operation is not a successful query or context.
            Denied: an agent was not given the result, or the caller has `as_of`.
        """
        runtime = self._runtime
        name = record if isinstance(record, str) else record.provider_record_id
        asked = FeedbackDetails(verdict=verdict.value)
        scope = Scope(company_id=caller.company_id)
        async with runtime.recorder.recorded(OperationType.FEEDBACK, caller, scope, asked) as entry:
            judged = await asyncio.to_thread(self._judged, caller, name, operation_id, binding_key)
            entry.request["operation_id"] = judged.operation_id
            returned = _returned(judged, name, binding_key)
            if returned is None:
                raise NotFound(
                    f"#{judged.seq} did not return {name}; `memtui ops show` lists what it did."
                )
            handle, key = returned
            entry.scope = judged.asked_scope.model_copy(update={"run_id": entry.scope.run_id})
            await runtime.admit(entry, key)
            entry.binding_reason = None  # no routing rule chose it, but the record
            update = {"rank": 1, "score": _SCORES[verdict], "binding_key": None}
            entry.handles = (handle.model_copy(update=update),)
            entry.result_count = 1
        return FeedbackAnswer(
            operation_id=entry.operation_id,
            binding_key=key,
            handle=handle.handle,
            judged=judged.operation_id,
            verdict=verdict,
        )

    def _judged(
        self, caller: Caller, name: str, operation_id: str | None, binding_key: str | None
    ) -> Operation:
        """Return the query or context that the verdict is about."""
        log = self._runtime.log_of(caller)
        keys = [binding_key] if binding_key else self._keys(caller)
        reads = (
            read.operation
            for key in keys
            for read in log.retrievals(key, name, _LOOKED_AT)[1]
            if _was_given(caller, read.operation)
        )
        if operation_id is None:
            newest = max(reads, key=lambda one: one.seq, default=None)
            if newest is None:
                raise NotFound(
                    f"No query or context of yours returned {name}; name the operation that did."
                )
            return newest
        judged = log.named(operation_id)
        if judged.operation_type not in READS or judged.status is not OperationStatus.OK:
            raise Invalid(
                f"Feedback is about records that a query or a context returned; #{judged.seq} is a "
                f"{judged.operation_type} that ended as {judged.status}."
            )
        if not caller.by_person and not _was_given(caller, judged):
            raise Denied(
                "An agent gives feedback only on its own queries and contexts; name one of them."
            )
        together = judged.request.get("together")
        if together and _returned(judged, name, binding_key) is None:
            # A query over several bindings is one operation in each, and its answer names one.
            return next((one for one in reads if one.request.get("together") == together), judged)
        return judged

    def _keys(self, caller: Caller) -> Iterable[str]:
        with self._runtime.database.read() as database:
            return [row.key for row in bindings.bindings(database, caller.company_id)]


def _was_given(caller: Caller, operation: Operation) -> bool:
    is_own_run = caller.run_id is not None and operation.scope.run_id == caller.run_id
    return is_own_run or operation.principal == caller.principal


def _returned(
    operation: Operation, name: str, binding_key: str | None
) -> tuple[OperationHandle, str] | None:
    """Return the handle of a record in an operation, with its binding's key; None: not in it."""
    for handle in operation.handles:
        key, record_id = operation.place_of(handle)
        if record_id == name and name and binding_key in {None, key}:
            return handle, key
    return None
