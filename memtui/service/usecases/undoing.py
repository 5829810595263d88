"""Undo the last change, or several changes in turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memtui.contract import MemtuiError, NotFound, Scope
from memtui.service.answers import MutationAnswer, UndoCandidate
from memtui.service.runtime import to_its_end

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

_DEPTH = 1000
"""How many changes are searched for the last one in a scope."""


@dataclass(slots=True)
class Undone:
    """The outcome of undoing; to redo, undo the operations of `answers` in reverse order."""

    answers: list[MutationAnswer] = field(default_factory=list)
    failed: MemtuiError | None = None
    """Why a change could not be undone; those after it were not tried."""


async def last_change(
    service: MemoryService,
    caller: Caller,
    scope: Scope | None = None,
    binding_key: str | None = None,
) -> UndoCandidate:
    """Return the newest change in a scope and binding, also one that cannot be undone.

    Raises:
        NotFound: there is none.
    """
    given = scope.model_dump(exclude_none=True, exclude={"company_id"}) if scope else {}
    is_any = not given and binding_key is None
    for candidate in await service.undoable(caller, 1 if is_any else _DEPTH):
        operation = candidate.operation
        in_scope = given.items() <= operation.scope.model_dump().items()
        if in_scope and binding_key in {None, operation.binding_key}:
            return candidate
    raise NotFound(
        "There is nothing to undo." if is_any else "Nothing in this scope can be undone."
    )


@to_its_end
async def undo(
    service: MemoryService,
    caller: Caller,
    operation_ids: Sequence[str],
    records: Collection[str] = (),
) -> Undone:
    """Undo changes in this order, each with its group; of `records` only, if some are given.

    A change that an earlier group included is skipped. If one of a group cannot be undone, the
    others of the group are.
    """
    found = Undone()
    try:
        for one in operation_ids:
            if all(known.undoes != one for known in found.answers):
                await service.undo_together(caller, one, records=records, answers=found.answers)
    except MemtuiError as error:
        found.failed = error
    return found
