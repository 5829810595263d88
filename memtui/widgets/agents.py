"""Text about agents: the `by` column, and the last answer to a connected agent."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from memtui.contract import OperationType
from memtui.presenters.format import ago, counted
from memtui.widgets.columns import Cell

if TYPE_CHECKING:
    from memtui.service.home.agents import LastAnswer


def by_cell(principal: str, agent_id: str | None) -> Cell:
    """Return who acted, for a column beside the agent's: `itself` where it was the agent."""
    if agent_id is not None and principal == f"agent:{agent_id}":
        return Cell("itself", "muted")
    return Cell(principal, "muted" if principal.startswith("user:") else "")


def last_answer_words(last_answer: LastAnswer | None, now: datetime) -> str:
    """Return an agent's last answer in one line: `“deploy branch” 4 memories, 2 min ago`."""
    if last_answer is None:
        return "nothing yet"
    asked = " ".join((last_answer.asked or "").split())
    words = [f"“{asked}”" if asked else str(last_answer.operation_type)]
    if last_answer.operation_type is OperationType.CONTEXT:
        words = ["context", *(words if asked else [])]
    size_words = counted(last_answer.results, "record")
    size = f", {counted(last_answer.tokens, 'token')}" if last_answer.tokens is not None else ""
    return f"{' '.join(words)} {size_words}{size}, {ago(last_answer.at, now)} ago"
