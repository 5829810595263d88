"""How much is remembered: the records and tokens of each owner in each binding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memtui.context.assembly import fact_tokens
from memtui.context.cost import TokenCounter
from memtui.contract import BrowseRequest, Record, Scope, owner_scope

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.operations.everywhere import ListedRecord
    from memtui.service.visibility import Caller

_MOST = 20_000
"""Most records that are counted."""
IN_CONTEXTS = frozenset({"fact", "identity", "guidance"})
"""Kinds of records that a context includes without a search."""


@dataclass(frozen=True, slots=True)
class OwnerShare:
    """The records of one owner in one binding."""

    owner: Scope
    binding_key: str
    records: int = 0
    tokens: int = 0
    """Tokens of all of them in a prompt."""
    in_contexts: int = 0
    """How many of them a context of the owner includes without a search."""
    context_tokens: int = 0
    """Tokens of these."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The records of all bindings that the caller sees."""

    shares: tuple[OwnerShare, ...] = ()
    unread: tuple[str, ...] = ()
    """Bindings that did not answer."""
    is_whole: bool = True
    """False: there are more records than were counted."""

    @property
    def records(self) -> int:
        """Number of records that were counted."""
        return sum(one.records for one in self.shares)

    @property
    def tokens(self) -> int:
        """Their tokens in a prompt."""
        return sum(one.tokens for one in self.shares)


async def remembered(service: MemoryService, caller: Caller, model: str) -> Remembered:
    """Count the records that the caller sees in all bindings, and their tokens for a model.

    Raises:
        Denied: the caller sees nothing here.
        NotFound: there is no enabled binding.
    """
    counter = TokenCounter(model)
    found: dict[tuple[Scope, str], OwnerShare] = {}

    def add(records: Sequence[Record | ListedRecord]) -> None:
        for record in records:
            owner, key = owner_scope(record.scope), getattr(record, "binding_key", "")
            one = found.get((owner, key)) or OwnerShare(owner, key)
            tokens = fact_tokens(record.text, counter)
            is_included = record.kind in IN_CONTEXTS and not record.read_only
            found[owner, key] = replace(
                one,
                records=one.records + 1,
                tokens=one.tokens + tokens,
                in_contexts=one.in_contexts + is_included,
                context_tokens=one.context_tokens + tokens * is_included,
            )

    request, counted = BrowseRequest(scope=Scope(company_id=caller.company_id), limit=1000), 0
    while True:
        page = await service.everywhere.browse(caller, request, seen_only=True)
        await asyncio.to_thread(add, page.records)
        counted += len(page.records)
        if page.next_cursor is None or not page.records or counted >= _MOST:
            break
        request = request.model_copy(update={"cursor": page.next_cursor})
    unread = tuple(one.binding_key for one in page.failed)
    return Remembered(tuple(found.values()), unread, is_whole=counted < _MOST)
