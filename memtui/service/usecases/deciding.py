"""Accept or refuse several pending writes, and from now on what is like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memtui.contract import MemtuiError
from memtui.service.answers import MutationAnswer, ReviewRule, RuleAction, RuleTest
from memtui.service.review.queue import PendingWrite, passed_over
from memtui.service.runtime import to_its_end
from memtui.service.usecases.several import Outcomes, each

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller


@dataclass(slots=True)
class Decided:
    """What became of pending writes, and the rules that were made of them."""

    writes: Outcomes[PendingWrite, MutationAnswer | str]
    """With the answer of an accepted one, and the operation's id of a refused one."""
    rules: dict[tuple[str, ReviewRule], str] = field(default_factory=dict)
    """By binding key, each with a warning or an empty text."""
    unruled: list[tuple[PendingWrite, MemtuiError]] = field(default_factory=list)
    """Writes that were decided on and of which no rule could be made."""

    @property
    def failed(self) -> list[tuple[PendingWrite, MemtuiError]]:
        """What was not done, of the decisions and of the rules."""
        return self.writes.failed + self.unruled


@to_its_end
async def decide(
    service: MemoryService,
    caller: Caller,
    chosen: Sequence[PendingWrite],
    action: RuleAction,
    *,
    text: str | None = None,
    seen: str | None = None,
    reason: str = "",
    always: RuleTest | None = None,
) -> Decided:
    """Accept or refuse pending writes; one undo takes all back, with the rules.

    One that cannot be decided on stays in the queue, and the others are decided on.

    Args:
        service: The open service.
        caller: The person who decides.
        chosen: The pending writes.
        action: `RuleAction.ACCEPT` or `RuleAction.REFUSE`.
        text: The text to store instead of an only write's; None: the agent's.
        seen: `PendingDetails.seen` of an only write, as it was shown to the person.
        reason: Why they are refused; with `always`, the rule's name if it is empty.
        always: The test of the rule to make of each that is decided on; None: none is made.

    Raises:
        MemtuiError: the only one could not be decided on.
    """
    review, made = service.review, Decided(Outcomes())
    together = service.runtime.new_id() if len(chosen) > 1 or always else None

    async def one_by_one(one: PendingWrite) -> MutationAnswer | str:
        rule = review.rule_from(one, action, always) if always else None
        answer: MutationAnswer | str
        if action is RuleAction.ACCEPT:
            answer = await review.accept(
                caller, one.pending_id, text=text, seen=seen, together=together
            )
        else:
            why = reason or (rule.name if rule else "")
            answer = await review.refuse(caller, one.pending_id, why, together=together)
        if rule is not None and (one.binding_key, rule) not in made.rules:
            try:
                there = await review.add_rule(caller, one.binding_key, rule, together=together)
            except MemtuiError as error:
                sentence = f"it is decided on, but no rule was made of it. {error}"
                made.unruled.append((one, type(error)(sentence)))
            else:
                made.rules[one.binding_key, rule] = passed_over(rule, there)
        return answer

    made.writes = await each([(one.binding_key, one) for one in chosen], one_by_one)
    return made
