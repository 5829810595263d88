"""The columns of the records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memtui.contract import Record
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import record_words

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount

PROVIDER_SORTS = {"age": "updated_at", "size": "size", "text": "title"}
"""Columns by which the provider orders all it holds, and the field it does so by."""


@dataclass
class Known:
    """What is known of the records beyond themselves, by record id."""

    stats: dict[str, RetrievalCount] = field(default_factory=dict)
    ghosts: set[str] = field(default_factory=set)


def record_key(record: Record) -> str:
    """Return what names a row: the id that the provider gave it."""
    return record.handle.provider_record_id


def record_columns(now: Callable[[], datetime], known: Known) -> list[Column[Record]]:
    """Return the columns; `now` is what relative times count from."""
    return [
        Column("age", "age", lambda one: _age(one, now()), 6, "right", keep=90),
        Column("size", "size", _size, 6, "right", keep=20),
        Column("kind", "kind", lambda one: Cell(one.kind, "muted"), 9, keep=40),
        Column("where", "where", _where, 14, keep=50),
        Column("read", "read", lambda one: _read(one, known.stats, now()), 10, keep=80),
        Column(
            "text",
            "text",
            lambda one: _text(one, known.ghosts, now()),
            36,
            flexible=True,
            keep=100,
            share=0.5,
        ),
    ]


def local_sort(column: str, known: Known) -> Callable[[Record], Any]:
    """Return what the rows that came are ordered by where the provider cannot do it."""
    if column == "read":
        return lambda one: _times(one, known.stats)
    if column == "kind":
        return lambda one: one.kind
    return lambda one: _where(one).text


def _times(record: Record, stats: Mapping[str, RetrievalCount]) -> int:
    found = stats.get(record_key(record))
    return found.count if found else 0


def _age(record: Record, now: datetime) -> Cell:
    return Cell(fmt.ago(record.updated_at or record.created_at, now), "muted")


def _size(record: Record) -> Cell:
    return Cell(fmt.count(len(record.text)), "muted")


def _where(record: Record) -> Cell:
    scope = record.scope
    place = scope.project_id or scope.agent_id or scope.subject_id
    return Cell(place) if place else Cell("company", "muted")


def _read(record: Record, stats: Mapping[str, RetrievalCount], now: datetime) -> Cell:
    found = stats.get(record_key(record))
    if found is None:
        return Cell("never", "muted")
    return Cell(fmt.reads(found.count, found.last_at, now))


def _text(record: Record, ghosts: Collection[str], now: datetime) -> Cell:
    words = record_words(record)
    if record.title and not words.startswith(record.title):
        words = f"{record.title}: {words}"
    if record_key(record) in ghosts:
        return Cell(f"ghost: {words}", "warning")
    if record.expires_at is not None and record.expires_at <= now:
        return Cell(f"expired: {words}", "muted")
    if record.valid_to is not None and record.valid_to <= now:
        return Cell(f"was: {words}", "muted")
    return Cell(f"⚑ {words}" if record.pinned else words)
