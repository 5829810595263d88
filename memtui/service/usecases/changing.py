"""Change several records at once, such as pinning those that are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memtui.contract import CorrectRequest, Record, owner_scope
from memtui.record_changes import corrected
from memtui.service.runtime import to_its_end
from memtui.service.usecases.several import Outcomes, each

if TYPE_CHECKING:
    from memtui.service.answers import MutationAnswer
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller


@to_its_end
async def change(
    service: MemoryService,
    caller: Caller,
    records: Mapping[str, Sequence[Record]],
    /,
    **fields: Any,
) -> Outcomes[Record, MutationAnswer]:
    """Set fields that do not depend on the text, such as the pin; one undo takes all back.

    A record that already has these values is skipped. No revision is checked: a record whose text
    changed since it was read is changed too.

    Args:
        service: The open service.
        caller: Who changes them.
        records: The records, as they were read, by the key of their binding.
        fields: The fields of `CorrectRequest` to set.

    Raises:
        MemtuiError: there is only one record to change, and its change failed.
    """
    asked = []
    for key, some in records.items():
        for one in some:
            request = CorrectRequest(
                scope=owner_scope(one.scope),
                handle=one.handle,
                binding_key=key,
                **fields,
            )
            if corrected(one, request) != one:
                asked.append((key, (one, request)))
    together = service.runtime.new_id() if len(asked) > 1 else None

    async def correct(item: tuple[Record, CorrectRequest]) -> MutationAnswer:
        return await service.correct(caller, item[1], together=together)

    found = await each(asked, correct)
    return Outcomes(
        [(record, answer) for (record, _), answer in found.done],
        [(record, error) for (record, _), error in found.failed],
    )
