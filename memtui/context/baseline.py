"""How large a prompt is before any memory, and the memory's share of the whole (seed 004 §11)."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.contract import Invalid, Model

TARGET_SHARE = 0.05
"""The memory context should stay under this share of the whole prompt (seed 004 §8.3)."""


class Component(Model):
    """A part of a prompt and its least and greatest size, in tokens."""

    name: str
    min_tokens: int
    max_tokens: int


BASELINE: tuple[Component, ...] = (
    Component(name="System prompt", min_tokens=1_500, max_tokens=3_500),
    Component(name="Tool definitions", min_tokens=3_000, max_tokens=9_000),
    Component(name="Conversation history", min_tokens=700, max_tokens=3_500),
    Component(name="Page tree", min_tokens=1_500, max_tokens=3_000),
)
"""What a request holds without memory: 6,700 to 19,000 tokens."""


class PromptShare(Model):
    """A prompt with its memory context: the rows of the table, the sums and the share."""

    rows: tuple[Component, ...]
    """The baseline's components, then the memory context."""
    baseline: Component
    total: Component
    min_share: float
    """The memory's part of the largest prompt, 0 to 1."""
    max_share: float
    """The memory's part of the smallest prompt, 0 to 1."""

    @property
    def over_target(self) -> bool:
        """Whether the memory takes more than its target even of the largest prompt."""
        return self.min_share > TARGET_SHARE


def share_of_prompt(memory_tokens: int, baseline: Sequence[Component] = BASELINE) -> PromptShare:
    """Put a memory context of `memory_tokens` beside the baseline.

    Raises:
        Invalid: `memory_tokens` is negative.
    """
    if memory_tokens < 0:
        raise Invalid("A memory context cannot have fewer than 0 tokens; give a count.")
    memory = Component(name="Memory", min_tokens=memory_tokens, max_tokens=memory_tokens)
    rows = (*baseline, memory)
    total = _total("Total with memory", rows)
    return PromptShare(
        rows=rows,
        baseline=_total("Total baseline", baseline),
        total=total,
        min_share=memory_tokens / total.max_tokens if total.max_tokens else 0.0,
        max_share=memory_tokens / total.min_tokens if total.min_tokens else 0.0,
    )


def _total(name: str, rows: Sequence[Component]) -> Component:
    return Component(
        name=name,
        min_tokens=sum(row.min_tokens for row in rows),
        max_tokens=sum(row.max_tokens for row in rows),
    )
