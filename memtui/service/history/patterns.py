"""Conspicuous patterns in the changes of facts, over scopes and bindings, with their reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memtui.contract import (
    BrowseRequest,
    Filter,
    MemtuiError,
    Model,
    NotFound,
    OperationType,
    Problem,
    Record,
    Scope,
    UtcDatetime,
)
from memtui.fact_values import FACT
from memtui.pruning.patterns import FactVersion, Pattern, PatternRules, find_patterns
from memtui.service.connections import Connection
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, ServiceRuntime
from memtui.service.visibility import Caller, for_caller, readable
from memtui.store import bindings
from memtui.store.details import RecordDetails
from memtui.store.journal import Journal


class PatternRequest(Model):
    """A scope, and the rules that make a pattern."""

    scope: Scope
    binding_key: str | None = None
    """Search this binding only; None: every enabled one."""
    rules: PatternRules = PatternRules()


class PatternsAnswer(Model):
    """The patterns that were found."""

    operation_ids: tuple[str, ...]
    """One for each binding that was reached."""
    patterns: tuple[Pattern, ...]
    problems: tuple[Problem, ...] = ()
    """What could not be read, and so was not searched."""
    as_of: UtcDatetime | None = None
    """The moment at which patterns were searched; None: now."""


class Patterns(ServiceModule):
    """Search for patterns in the changes of facts."""

    async def find(self, caller: Caller, request: PatternRequest) -> PatternsAnswer:
        """Return the patterns in the versions of the facts that a scope sees.

        Raises:
            NotFound: the company has no enabled binding.
            MemtuiError: no binding can be read; the error of the first.
        """
        keys = [request.binding_key] if request.binding_key else await self._keys(caller)
        ids: list[str] = []
        problems: list[Problem] = []
        rules = request.rules.model_dump(exclude_defaults=True)
        asked = RecordDetails(purpose="patterns", rules=rules)

        async def one(key: str) -> list[FactVersion]:
            async with self._runtime.connected(
                OperationType.HISTORY, caller, request.scope, asked, key
            ) as (entry, connection):
                ids.append(entry.operation_id)
                found = await versions_of(self._runtime, entry, connection)
                entry.result_count = len(found)
            problems.extend(entry.problems)
            return found

        answers = await asyncio.gather(*map(one, keys), return_exceptions=True)
        versions: list[FactVersion] = []
        errors: list[MemtuiError] = []
        for key, answer in zip(keys, answers, strict=True):
            if not isinstance(answer, BaseException):
                versions += answer
            elif isinstance(answer, MemtuiError):
                errors.append(answer)
                problems.append(Problem(message=f"{key}: {answer}"))
            else:
                raise answer
        if errors and len(errors) == len(keys):
            raise errors[0]
        now = caller.as_of or self._runtime.clock()
        found = await asyncio.to_thread(find_patterns, versions, now=now, rules=request.rules)
        return PatternsAnswer(
            operation_ids=tuple(ids),
            patterns=tuple(_received(caller, pattern) for pattern in found),
            problems=tuple(dict.fromkeys(problems)),
            as_of=caller.as_of,
        )

    async def _keys(self, caller: Caller) -> list[str]:
        rows = await self._runtime.ask(bindings.bindings, caller.company_id)
        if keys := [row.key for row in rows if row.enabled]:
            return keys
        raise NotFound(
            f"{caller.company_id} has no binding that is on; add one with `memtui bindings add`."
        )


async def versions_of(
    runtime: ServiceRuntime,
    entry: RunningOperation,
    connection: Connection,
    current: Sequence[Record] | None = None,
) -> list[FactVersion]:
    """Return every version of the facts in one binding that an operation's scope sees.

    If the provider has no validity windows, earlier versions come from the undo journal, for the
    `current` records; None: for every fact in the list of the scope.
    """
    adapter, scope, key = connection.adapter, entry.scope, connection.binding.key
    if adapter.capabilities.validity:
        records: Sequence[Record] = await connection.read(lambda: adapter.versions(scope))
    elif adapter.capabilities.browse:
        if current is None:
            asked = BrowseRequest(scope=scope, filter=Filter(kind=FACT))
            current = [one async for page in connection.pages(asked) for one in page.records]
        earlier = await runtime.ask_journal(
            scope.company_id, Journal.earlier_facts, key, entry.caller.as_of
        )
        records = _dated(current, earlier)
    else:
        records = ()
    return [
        FactVersion(binding_key=key, record=one)
        for one in readable(records, scope, entry.visibility, key)
        if one.kind == FACT
    ]


def _dated(current: Sequence[Record], earlier: Sequence[Record]) -> list[Record]:
    """Return the earlier versions of current records, then these, valid since their last change."""
    known = {one.handle.provider_record_id: one for one in current}
    since = {one.handle.provider_record_id: one.valid_to for one in earlier}
    before = [one for one in earlier if one.handle.provider_record_id in known]
    return [
        *before,
        *(
            one.model_copy(update={"valid_from": since.get(name, one.created_at)})
            for name, one in known.items()
        ),
    ]


def _received(caller: Caller, pattern: Pattern) -> Pattern:
    """Return a pattern with its records in the form that the caller may receive."""
    return pattern.model_copy(
        update={
            "versions": tuple(
                one.model_copy(update={"record": for_caller(caller, [one.record])[0]})
                for one in pattern.versions
            )
        }
    )
