"""What the model will see: sections, the assembled text, its tokens, its price and its share."""

from __future__ import annotations

from memtui.context.assembly import (
    DEFAULT_BUDGET,
    TRUNCATED,
    AssembledContext,
    AssembledFact,
    AssembledSection,
    assemble,
    assemble_memory_context,
    fact_tokens,
)
from memtui.context.baseline import BASELINE, Component, PromptShare, share_of_prompt
from memtui.context.prices import Price, price
from memtui.context.sections import (
    ContextFact,
    ContextSection,
    LeftOut,
    SectionKind,
    Tier,
    section_of_records,
    section_of_texts,
)
from memtui.context.tokens import TokenCount, TokenCounter
from memtui.context.warnings import ContextWarning, WarningKind, unread_warning

__all__ = [
    "BASELINE",
    "DEFAULT_BUDGET",
    "TRUNCATED",
    "AssembledContext",
    "AssembledFact",
    "AssembledSection",
    "Component",
    "ContextFact",
    "ContextSection",
    "ContextWarning",
    "LeftOut",
    "Price",
    "PromptShare",
    "SectionKind",
    "Tier",
    "TokenCount",
    "TokenCounter",
    "WarningKind",
    "assemble",
    "assemble_memory_context",
    "fact_tokens",
    "price",
    "section_of_records",
    "section_of_texts",
    "share_of_prompt",
    "unread_warning",
]
