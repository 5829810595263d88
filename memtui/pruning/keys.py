"""Facts of the form `key: value` that a newer fact of the same key overrules (seed 002 §7)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from memtui.contract import Record
from memtui.pruning.sameness import compare
from memtui.pruning.words import form_of

_PAIR = re.compile(r"\s*([\w.\-]+):\s+\S")

_LABELS = frozenset(
    {"note", "todo", "fixme", "tip", "warning", "important", "example", "see", "fact", "remember"}
)
"""Words before a colon that label a text; there may be many texts of one label."""


def contradictions(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield (older, newest) for each fact whose key has another value in a newer fact.

    Keys are compared within a topic, the facts file's heading. A fact without a time, or of the
    same time as the newest, is not judged: nobody can tell which of them holds. One that says the
    same in another order is a duplicate and no contradiction, so that never both are to go.
    """
    of_key: dict[tuple[str, str], list[tuple[datetime, Record]]] = defaultdict(list)
    for record in records:
        key = fact_key(record.text)
        at = record.valid_from or record.updated_at or record.created_at
        if key is not None and at is not None:
            of_key[record.topic or "", key].append((at, record))
    for facts in of_key.values():
        newest_at, newest = max(
            facts, key=lambda fact: (fact[0], fact[1].handle.provider_record_id)
        )
        holds = form_of(newest.text)
        for at, record in facts:
            if at < newest_at and compare(form_of(record.text), holds) is None:
                yield record, newest


def fact_key(text: str) -> str | None:
    """Return the folded key of a `key: value` fact; None for any other text."""
    match = _PAIR.match(text)
    key = match[1].casefold() if match else None
    return None if key in _LABELS else key
