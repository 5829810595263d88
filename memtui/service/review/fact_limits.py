"""Checks on facts and summaries (seed 004 §6.2, §10).

A fact is one short line, and a user or project has few enough facts that a model can read all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memtui.contract import (
    Invalid,
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


def check_text(text: str, settings: Settings) -> None:
    """Refuse a text that is not one short line.

    Raises:
        Invalid: it has a line break, or is too long.
    """
    if len(text.splitlines()) > 1:
        raise Invalid("A fact is one line; take the line breaks out, or write a note instead.")
    most = settings.fact_max_chars
    if most and len(text) > most:
        raise Invalid(
            f"A fact has at most {most} characters and this one has {len(text)}; "
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


def has_limit(scope: Scope, settings: Settings) -> bool:
    """Whether the number of facts is limited for a scope's owner."""
    return bool(settings.fact_max_count) and owner_of(scope)[0] in _LIMITED


def check_room(own: Sequence[Record], request: WriteRequest, settings: Settings) -> None:
    """Refuse a fact beyond the limit of its scope, unless it replaces another.

    Raises:
        Invalid: the scope is full.
    """
    if not has_limit(request.scope, settings) or len(own) < settings.fact_max_count:
        return
    ids = {record.handle.provider_record_id for record in own}
    if request.mode is WriteMode.UPSERT and request.record_id in ids:
        return
    raise Invalid(
        f"This scope holds {len(own):,} facts and may hold "
        f"{settings.fact_max_count}; prune some with `memtui facts prune`, or raise fact_max_count."
    )
