"""Checks on facts and summaries (seed 004 §6.2, §10).

A fact is one short line, and a user or project has few enough facts that a model can read all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from memtui.contract import (
    Invalid,
    Model,
    Record,
    Scope,
    Unsupported,
    WriteMode,
    WriteRequest,
    owner_of,
)
from memtui.fact_values import FACT

if TYPE_CHECKING:
    from memtui.config import Settings
    from memtui.service.connections import Connection

_LIMITED = ("subject_id", "project_id")


class FactLimits(Model):
    """How long a fact may be, and how many a user or project may have; 0 sets no limit."""

    max_chars: int = 200
    max_count: int = 50

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits in the settings."""
        return cls(max_chars=settings.fact_max_chars, max_count=settings.fact_max_count)


def check_text(text: str, limits: FactLimits) -> None:
    """Refuse a text that is not one short line.

    Raises:
        Invalid: it has a line break, or is too long.
    """
    if len(text.splitlines()) > 1:
        raise Invalid("A fact is one line; take the line breaks out, or write a note instead.")
    if limits.max_chars and len(text) > limits.max_chars:
        raise Invalid(
            f"A fact has at most {limits.max_chars} characters and this one has {len(text)}; "
            "shorten it, or write a note instead."
        )


def check_summary(connection: Connection, kind: str, summary: str | None) -> None:
    """Refuse a summary that cannot be stored; an empty one is accepted.

    Raises:
        Invalid: the record is a fact, which needs no summary.
        Unsupported: the provider stores no summaries.
    """
    if not summary:
        return
    if kind == FACT:
        raise Invalid("A fact is one line and has no summary; write a note instead.")
    if not connection.adapter.capabilities.summaries:
        raise Unsupported(
            f"{connection.binding.key} keeps no summaries; leave it out, or choose another binding."
        )


def has_limit(scope: Scope, limits: FactLimits) -> bool:
    """Whether the number of facts is limited for a scope's owner."""
    return bool(limits.max_count) and owner_of(scope)[0] in _LIMITED


def check_room(own: Sequence[Record], request: WriteRequest, limits: FactLimits) -> None:
    """Refuse a fact beyond the limit of its scope, unless it replaces another.

    Raises:
        Invalid: the scope is full.
    """
    if not has_limit(request.scope, limits) or len(own) < limits.max_count:
        return
    ids = {record.handle.provider_record_id for record in own}
    if request.mode is WriteMode.UPSERT and request.record_id in ids:
        return
    raise Invalid(
        f"This scope holds {len(own):,} facts and may hold "
        f"{limits.max_count}; prune some with `memtui facts prune`, or raise fact_max_count."
    )
