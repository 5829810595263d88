"""Merge facts that say the same: one survives, with the pins, tags and expiry of all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memtui.contract import (
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    Record,
    Scope,
    owner_scope,
)
from memtui.service.answers import MutationAnswer
from memtui.service.runtime import to_its_end

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

SEVERAL_PLACES = (
    "Facts of different owners or bindings cannot be merged; choose facts of one owner in one "
    "binding."
)
_LATEST = datetime.max.replace(tzinfo=UTC)


class Merged(Model):
    """The answer of merging facts."""

    forgot: MutationAnswer
    """The deletion of the other facts, which may be held for review."""
    change: MutationAnswer | None = None
    """The change of the surviving fact; None: it was not changed."""

    @property
    def answers(self) -> tuple[MutationAnswer, ...]:
        """The answers of the operations, in order."""
        return (self.forgot,) if self.change is None else (self.forgot, self.change)


@to_its_end
async def merge(
    service: MemoryService,
    caller: Caller,
    survivor: Record,
    others: Sequence[Record],
    *,
    binding_key: str,
    text: str | None = None,
) -> Merged:
    """Merge facts of one owner and binding into one; one undo takes the whole merge back.

    The survivor gets the pins and tags of all, and the latest expiry.

    Args:
        service: The open service.
        caller: Who merges them.
        survivor: The fact that stays, as it was read.
        others: The facts to forget, as they were read; the survivor among them is ignored.
        binding_key: Their binding.
        text: The new text of the survivor; None: unchanged.

    Raises:
        Conflict: one of them changed since it was read.
        Denied: the caller's writes there are reviewed, and the survivor would change.
        Invalid: `others` is empty, or has a fact of another owner.
    """
    others = [one for one in others if one.handle != survivor.handle]
    scope = owner_scope(survivor.scope)
    if not others:
        raise Invalid("Name at least one other fact to merge into the survivor.")
    if any(owner_scope(one.scope) != scope for one in others):
        raise Invalid(SEVERAL_PLACES)
    fields = _of_all(survivor, others, text)
    if fields:
        await _refuse_reviewed(service, caller, scope, binding_key)
    together = service.runtime.new_id() if fields else None
    request = ForgetRequest.of(others, scope, binding_key)
    # Forget first: a store may refuse the same text or key twice.
    forgot = await service.forget(caller, request, staying=[survivor], together=together)
    if not fields:
        return Merged(forgot=forgot)
    correction = CorrectRequest(
        scope=scope,
        handle=survivor.handle,
        binding_key=binding_key,
        revision=survivor.revision,
        **fields,
    )
    try:
        change = await service.correct(caller, correction, together=together)
    except MemtuiError as error:
        await _bring_back(service, caller, forgot, error)
        raise
    return Merged(forgot=forgot, change=change)


async def _refuse_reviewed(
    service: MemoryService, caller: Caller, scope: Scope, binding_key: str
) -> None:
    """Raise `Denied` for an agent whose writes are reviewed: one part might be held alone."""
    binding = (await service.runtime.resolve(caller, scope, binding_key)).binding
    if binding.review and not caller.by_person:
        raise Denied(
            f"What agents write to {binding.key} is reviewed, so an agent cannot merge facts "
            "and change the one that stays; merge facts of the same pin, tags and expiry "
            "without a new text, or let a person do it."
        )


async def _bring_back(
    service: MemoryService, caller: Caller, forgot: MutationAnswer, error: MemtuiError
) -> None:
    """Undo the deletion of a merge, as the surviving fact could not be changed."""
    try:
        await service.undo(caller, forgot.operation_id)
    except MemtuiError as failed:
        raise type(failed)(
            f"{error} The other facts are forgotten, and could not be brought back: {failed} "
            f"`memtui undo {forgot.operation_id}` tries again."
        ) from error


def _of_all(survivor: Record, others: Sequence[Record], text: str | None) -> dict[str, Any]:
    """Return the changes of the surviving fact that keep pins, tags and expiry of the others."""
    fields: dict[str, Any] = {}
    if text is not None and text != survivor.text:
        fields["text"] = text
    if not survivor.pinned and any(one.pinned for one in others):
        fields["pinned"] = True
    tags = tuple(dict.fromkeys(tag for one in (survivor, *others) for tag in one.tags))
    if tags != survivor.tags:
        fields["tags"] = tags
    if survivor.expires_at is not None:
        ends = [one.expires_at or _LATEST for one in others]
        if _LATEST in ends:
            fields["never_expires"] = True
        elif max(ends) > survivor.expires_at:
            fields["expires_at"] = max(ends)
    return fields
