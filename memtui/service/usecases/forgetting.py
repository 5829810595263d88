"""Forget several records at once, of one binding or several."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from memtui.contract import (
    ForgetRequest,
    Invalid,
    MemtuiError,
    Record,
    Scope,
    Unavailable,
    owner_scope,
)
from memtui.service.answers import BindingOutcome, MutationAnswer, OutcomesAnswer
from memtui.service.operations.everywhere import Asked, gather
from memtui.service.recorder import FanOut
from memtui.service.runtime import to_its_end

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller


class ForgottenEverywhere(OutcomesAnswer):
    """The answer of forgetting in several bindings; undoing one operation undoes all."""

    answers: tuple[MutationAnswer, ...]
    """One for each operation that forgot records."""


@to_its_end
async def forget(
    service: MemoryService,
    caller: Caller,
    records: Mapping[str, Sequence[Record]],
    staying: Mapping[str, Sequence[Record]] = MappingProxyType({}),
    hold: str = "",
) -> ForgottenEverywhere:
    """Forget records of one binding or several, which one undo takes back.

    If one record changed since it was read, its whole batch is kept: the records of its owner,
    or of its binding where the caller manages the company. A binding that refuses or fails is
    named and forgets the records that it can; the other bindings forget theirs.

    Args:
        service: The open service.
        caller: Who asks.
        records: The records to forget, as they were read, by the key of their binding.
        staying: The records that replace them, as they were read, by binding.
        hold: Why forgetting them waits for review, in place of being done; empty: it is done.

    Raises:
        Invalid: no record is named.
        MemtuiError: no record could be forgotten.
    """
    if not all(records.values()) or not records:
        raise Invalid("Nothing to forget; name at least one record.")
    visibility = await asyncio.to_thread(service.runtime.visibility, caller)
    manages = visibility is None or visibility.manages
    company = Scope(company_id=caller.company_id)
    requests = {
        key: _forgetting(key, found, company if manages else None) for key, found in records.items()
    }
    asked = Asked(
        fan_out=FanOut(service.runtime.new_id(), 0),
        outcomes={
            key: BindingOutcome(binding_key=key, provider_key=found[0].handle.provider_key)
            for key, found in records.items()
        },
    )
    several = sum(map(len, requests.values())) > 1
    together = asked.fan_out.together if several else None
    answers: list[MutationAnswer] = []

    async def forget_from(key: str) -> MutationAnswer:
        stays, refusal = staying.get(key, ()), None
        for request in requests[key]:
            try:
                if hold:
                    answer = await service.review.hold(caller, request, hold, together=together)
                else:
                    answer = await service.forget(caller, request, together=together, staying=stays)
            except Unavailable:
                raise  # the next owner's batch would fail alike
            except MemtuiError as error:
                refusal = refusal or error
                continue
            answers.append(answer)
            asked.note(key, answer, len(answer.handles), capped=False)
        if refusal is not None:
            raise refusal
        return answer

    calls = {key: partial(forget_from, key) for key in requests}
    await gather(asked, calls, lambda _key, _answer: None)
    if not answers and len(asked.errors) == 1:
        raise next(iter(asked.errors.values()))
    if not answers:
        asked.refuse_silence()
    return ForgottenEverywhere(**asked.values(), answers=tuple(answers))


def _forgetting(
    binding_key: str, records: Sequence[Record], whole: Scope | None
) -> list[ForgetRequest]:
    """Return the requests that forget these records: one in the scope `whole`, else one per owner.

    `whole` is the company, for a caller who may change its memories; None for others.
    """
    owners: dict[Scope, list[Record]] = defaultdict(list)
    for record in records:
        owners[owner_scope(record.scope)].append(record)
    if whole is not None and len(owners) > 1:
        return [ForgetRequest.of(records, whole, binding_key)]
    return [ForgetRequest.of(own, owner, binding_key) for owner, own in owners.items()]
