"""Accept or refuse several pending writes, and make review rules from them."""

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
    """The outcomes of decisions on pending writes, and the rules made from these writes."""

    writes: Outcomes[PendingWrite, MutationAnswer | str]
    """Each with the answer of its acceptance, or the operation id of its refusal."""
    rules: dict[tuple[str, ReviewRule], str] = field(default_factory=dict)
    """The new rules with their binding keys, each with a warning or an empty text."""
    unruled: list[tuple[PendingWrite, MemtuiError]] = field(default_factory=list)
    """Decided writes from which no rule could be made, each with the error."""

    @property
    def failed(self) -> list[tuple[PendingWrite, MemtuiError]]:
        """The failures of decisions and of rules."""
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

    If a decision fails, that write stays pending, and the others are still decided on.

    Args:
        service: The open service.
        caller: The person who decides.
        chosen: The pending writes.
        action: `RuleAction.ACCEPT` or `RuleAction.REFUSE`.
        text: For a single write: the text to store; None: the agent's.
        seen: For a single write: its `PendingDetails.seen`, as shown to the person.
        reason: Why they are refused; if empty, with `always`, the name of the rule.
        always: The test of the rule to make from each decided write; None: no rules.

    Raises:
        MemtuiError: there is only one write, and its decision failed.
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
