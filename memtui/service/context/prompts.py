"""The size of a whole prompt: as the log measured it, as the settings say, or a default."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from memtui.context.cost import TYPICAL_PROMPT, PromptSize
from memtui.contract import Filter, OperationStatus, OperationType
from memtui.service.home.imports import IMPORTED

if TYPE_CHECKING:
    from memtui.analytics.company_log import CompanyLog
    from memtui.config import Settings
    from memtui.store.operation import Operation

_NEWEST = 500
"""Contexts of the log that are looked at."""


def prompt_size(settings: Settings, log: CompanyLog) -> PromptSize:
    """Return the size of a whole prompt; blocking.

    Measured are the prompts of imported replies, and those that hooks found in a transcript.
    """
    contexts = Filter(
        operation_type=OperationType.CONTEXT, status=OperationStatus.OK, internal=True
    )
    newest = log.page(contexts, limit=_NEWEST, strict=False).operations
    if sizes := list(filter(None, map(_tokens, newest))):
        return PromptSize(source="measured", tokens=round(median(sizes)), prompts=len(sizes))
    if settings.prompt_tokens:
        return PromptSize(source="set", tokens=settings.prompt_tokens)
    return TYPICAL_PROMPT


def _tokens(one: Operation) -> int:
    if isinstance(origin := one.request.get(IMPORTED), dict):
        return 0 if origin.get("sidechain") else sum(used.input_tokens for used in one.usage)
    found = one.request.get("prompt_tokens")
    return found if isinstance(found, int) else 0
