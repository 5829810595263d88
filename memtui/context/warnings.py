"""What is wrong with a memory context, each as one sentence for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from memtui.context.sections import ContextFact
from memtui.contract import Model, Problem, RecordHandle

FAR_OVER = 2
"""A budget exceeded more than so many times is a warning of its own (seed 002)."""

_LINE_BREAK = re.compile(r"[\n\r]")
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class WarningKind(StrEnum):
    """The sorts of warning."""

    OVER_BUDGET = "over_budget"
    FAR_OVER_BUDGET = "far_over_budget"
    CUT = "cut"
    LINE_BREAK = "line_break"
    CONTROL_CHARACTERS = "control_characters"
    UNREAD = "unread"


class ContextWarning(Model):
    """One thing wrong. `section` is a title; None means the whole context."""

    kind: WarningKind
    section: str | None = None
    message: str
    handles: tuple[RecordHandle, ...] = ()


def budget_warning(tokens: int, budget: int, section: str | None) -> tuple[ContextWarning, ...]:
    """Warn where `tokens` exceed `budget`, more so over twice the budget."""
    if tokens <= budget:
        return ()
    far = tokens > FAR_OVER * budget
    what = "The memory context" if section is None else f"The section {section}"
    degree = "more than twice" if far else "over"
    return (
        ContextWarning(
            kind=WarningKind.FAR_OVER_BUDGET if far else WarningKind.OVER_BUDGET,
            section=section,
            message=f"{what} has {tokens:,} tokens, {degree} its budget of {budget:,}; prune it.",
        ),
    )


def unread_warning(problem: Problem) -> ContextWarning:
    """Warn that something which belongs into the context may not be in it."""
    message = f"The model is not told what could not be read. {problem.sentence()}"
    return ContextWarning(kind=WarningKind.UNREAD, message=message)


def cut_warning(limits: str) -> ContextWarning:
    """Warn that the text was cut to `limits`."""
    return ContextWarning(
        kind=WarningKind.CUT,
        message=f"The memory context was cut to {limits}; what was left out is listed.",
    )


def text_warnings(
    facts: Sequence[ContextFact], section: str, *, one_line: bool
) -> tuple[ContextWarning, ...]:
    """Warn of text that a model may read as something else than one fact."""
    found = []
    broken = [fact for fact in facts if one_line and _LINE_BREAK.search(fact.text)]
    if broken:
        found.append(
            _about(
                WarningKind.LINE_BREAK,
                section,
                broken,
                f"{_count(broken)} in {section} with a line break: the model reads more lines "
                "than facts; edit or forget it.",
            )
        )
    odd = [fact for fact in facts if _CONTROL.search(fact.text)]
    if odd:
        found.append(
            _about(
                WarningKind.CONTROL_CHARACTERS,
                section,
                odd,
                f"{_count(odd)} in {section} with invisible control characters, which the model "
                "reads; edit or forget it.",
            )
        )
    return tuple(found)


def _count(facts: Sequence[ContextFact]) -> str:
    return "There is 1 fact" if len(facts) == 1 else f"There are {len(facts):,} facts"


def _about(
    kind: WarningKind, section: str, facts: Sequence[ContextFact], message: str
) -> ContextWarning:
    handles = tuple(fact.handle for fact in facts if fact.handle is not None)
    return ContextWarning(kind=kind, section=section, message=message, handles=handles)
