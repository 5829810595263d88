"""The size of a whole prompt: as the log measured it, as the settings say, or a default."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from memtui.context.cost import TYPICAL_PROMPT, PromptSize

if TYPE_CHECKING:
    from memtui.analytics.company_log import CompanyLog
    from memtui.config import Settings

_NEWEST = 500
"""Contexts of the log that are looked at."""


def prompt_size(settings: Settings, log: CompanyLog) -> PromptSize:
    """Return the size of a whole prompt; blocking.

    Measured are the prompts of imported replies, and those that hooks found in a transcript.
    """
    if sizes := list(filter(None, log.prompt_sizes(_NEWEST))):
        return PromptSize(source="measured", tokens=round(median(sizes)), prompts=len(sizes))
    if settings.prompt_tokens:
        return PromptSize(source="set", tokens=settings.prompt_tokens)
    return TYPICAL_PROMPT
