"""How agents read: in a column beside who acted, and what a connected one was told last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from memtui.contract import OperationType
from memtui.widgets.columns import Cell
from memtui.widgets.format import ago, counted

if TYPE_CHECKING:
    from memtui.service.agents import Told


def by_cell(principal: str, agent_id: str | None) -> Cell:
    """Return who acted, for a column beside that of the agent; of the agent itself just that."""
    if agent_id is not None and principal == f"agent:{agent_id}":
        return Cell("itself", "muted")
    return Cell(principal, "muted" if principal.startswith("user:") else "")


def told_words(told: Told | None, now: datetime) -> str:
    """Return an answer in one line: `“deploy branch” 4 memories, 2 min ago`."""
    if told is None:
        return "nothing yet"
    asked = " ".join((told.asked or "").split())
    words = [f"“{asked}”" if asked else str(told.operation_type)]
    if told.operation_type is OperationType.CONTEXT:
        words = ["context", *(words if asked else [])]
    held = counted(told.results, "memory", "memories")
    size = f", {counted(told.tokens, 'token')}" if told.tokens is not None else ""
    return f"{' '.join(words)} {held}{size}, {ago(told.at, now)} ago"
