"""The columns of the facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from memtui.contract import RecordHandle
from memtui.screens.facts.rows import FactRow
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount

Reads: TypeAlias = "dict[RecordHandle, RetrievalCount]"
"""How often each fact was read; one that is missing never was."""


def by_words(principal: str | None) -> str:
    """Return who made a fact: `ai coding`, `ana`; a dash where it is not known."""
    if not principal:
        return "–"
    sort, _, name = principal.rpartition(":")
    return f"ai {name}" if sort == "agent" else name


def fact_columns(now: Callable[[], datetime], reads: Reads) -> list[Column[FactRow]]:
    """Return the columns; `now` is what relative times count from."""
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=95),
        Column("age", "age", lambda row: Cell(fmt.ago(row.created_at, now()), "muted"), 6, "right",
               keep=90),
        Column("section", "section", lambda row: Cell(row.section.value, "muted"), 9, keep=40),
        Column("by", "by", lambda row: Cell(by_words(row.created_by), "muted"), 12, keep=60),
        Column("read", "read", lambda row: _read(row, reads, now()), 10, keep=80),
        Column("text", "text", lambda row: _text(row, now()), 36, flexible=True, keep=100,
               share=0.5),
    ]  # fmt: skip


def sort_key(column: str, reads: Reads) -> Callable[[FactRow], Any]:
    """Return what the rows are ordered by under a column."""

    def times(row: FactRow) -> int:
        found = reads.get(row.handle) if row.handle else None
        return found.count if found else 0

    keys: dict[str, Callable[[FactRow], Any]] = {
        "tokens": lambda row: row.tokens or 0,
        "age": lambda row: row.created_at.timestamp() if row.created_at else 0.0,
        "section": lambda row: row.section.value,
        "by": lambda row: by_words(row.created_by),
        "read": times,
        "text": lambda row: row.text.casefold()[:200],
    }
    return keys[column]


def _tokens(row: FactRow) -> Cell:
    return Cell("–", "muted") if row.tokens is None else Cell(fmt.count(row.tokens))


def _read(row: FactRow, reads: Reads, now: datetime) -> Cell:
    found = reads.get(row.handle) if row.handle else None
    if found is None:
        return Cell("never", "muted")
    return Cell(fmt.reads(found.count, found.last_at, now))


def _text(row: FactRow, now: datetime) -> Cell:
    words = " ".join(row.text[:2_000].split())
    if row.left_out:
        return Cell(f"left out: {words}", "muted")
    if row.expires_at is not None:
        words = f"{words} (expires {fmt.ago(row.expires_at, now)})"
    return Cell(f"⚑ {words}" if row.pinned else words)
