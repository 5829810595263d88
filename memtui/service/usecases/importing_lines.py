"""Import the lines of a file: new records are stored, and those that exist are skipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memtui.contract import Conflict, Invalid, Record, RecordHandle, WriteRequest
from memtui.fact_values import FACT, entry_of
from memtui.service.operations.fact_keys import of_same_key, refuse_several
from memtui.service.operations.redaction import redact
from memtui.service.review.fact_limits import check_room, check_text
from memtui.service.usecases.owned import owned_records

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

OUTCOMES = ("added", "changed", "skipped", "refused")


@dataclass(slots=True)
class ImportLine:
    """A line of a file, and its outcome: the planned one, then the actual one."""

    number: int
    """Counted from 1."""
    text: str | None
    request: WriteRequest | None = None
    """None: the line is refused."""
    why: str = ""
    """Why it is skipped or refused."""
    outcome: str = "refused"
    """One of `OUTCOMES`."""
    was: str | None = None
    """The text of the fact that it changes."""
    operation_id: str = ""
    """The write that stored it; empty: not stored."""

    @property
    def stores(self) -> bool:
        """Whether it adds or changes a record."""
        return self.outcome in {"added", "changed"}

    def refuse(self, why: str) -> None:
        """Set the outcome to refused."""
        self.outcome, self.why, self.was = "refused", why, None


async def plan_import(
    service: MemoryService,
    caller: Caller,
    lines: Iterable[ImportLine],
    *,
    kind: str | None = None,
) -> None:
    """Set the outcome that each line would have; nothing is stored.

    A text that is stored already, or that an earlier line stores, is skipped. A fact whose key
    exists under its heading changes that fact; of several lines with one key the last decides.

    Args:
        service: The open service.
        caller: Who imports them.
        lines: The lines, all of one scope and binding.
        kind: The kind of the records to compare with; None: all records of the owner.
    """
    asked = [(line, line.request) for line in lines if line.request]
    if not asked:
        return
    scope, binding_key = asked[0][1].scope, asked[0][1].binding_key
    present, _ = await owned_records(service, caller, scope, kind=kind, binding_key=binding_key)
    settings = service.runtime.settings
    known = {one.text for one in present}
    facts = [one for one in present if one.kind == FACT]
    of_key: dict[str | None, list[Record]] = defaultdict(list)
    for one in facts:
        of_key[_key_of(one)].append(one)
    for line, request in asked:
        is_fact = request.kind == FACT
        # As `write` would store it, so that it can be compared with the stored texts.
        text = redact(request.content.strip(" \t") if is_fact else request.content)[0]
        if text in known:
            line.outcome, line.why = "skipped", "It is there already."
            continue
        line.outcome = "added"
        if is_fact:
            handle = RecordHandle(provider_key=FACT, provider_record_id=f"line {line.number}")
            made = Record.like(request, handle=handle, text=text)
            alike = of_key[_key_of(made)]
            same = of_same_key(alike, request)
            try:
                check_text(text, settings)
                refuse_several(same, request)
                if not same:
                    check_room(facts, request, settings)
            except (Conflict, Invalid) as error:
                line.refuse(str(error))
                continue
            if same:
                line.outcome, line.was = "changed", same[0].text
                known.discard(line.was)  # a later line may set this value again
                alike[alike.index(same[0])] = same[0].model_copy(update={"text": text})
            else:
                alike.append(made)
                facts.append(made)
        known.add(text)


async def import_lines(service: MemoryService, caller: Caller, lines: Iterable[ImportLine]) -> None:
    """Store the lines that a plan adds or changes; one undo takes all back.

    A line that does not fit, conflicts or is held for review is refused; the others are stored. If
    cancelled, the import ends after the line that it is writing: a long import can be stopped, and
    a second one continues it.

    Args:
        service: The open service.
        caller: Who imports them.
        lines: The lines as `plan_import` left them; each gets its outcome.

    Raises:
        MemtuiError: the other lines would fail with the same error, such as in a read-only binding.
            The lines before it are stored, and have an `operation_id`.
    """
    wanted = [(line, line.request) for line in lines if line.stores and line.request]
    together = service.runtime.new_id() if len(wanted) > 1 else None
    for line, request in wanted:
        try:
            answer = await service.write(caller, request, together=together)
        except (Invalid, Conflict) as error:
            line.refuse(str(error))
            continue
        if answer.pending is not None:
            line.refuse(answer.pending.sentence)
            continue
        line.was, line.operation_id = answer.was, answer.operation_id
        line.outcome = "added" if line.was is None else "changed"


def _key_of(fact: Record) -> str | None:
    entry = entry_of(fact)
    return entry.key if entry else None
