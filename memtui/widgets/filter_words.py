"""What completes a filter line: its fields, their values, and what the log knows; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from memtui.contract import OperationStatus, OperationType, SourceKind
from memtui.filters import FIELDS, MEASURES
from memtui.store.operation import OperationDraft

_VALUES: dict[str, tuple[str, ...]] = {
    "type": tuple(one.value for one in OperationType),
    "status": tuple(one.value for one in OperationStatus),
    "source": tuple(one.value for one in SourceKind),
    "since": ("today", "yesterday", "1h", "24h", "7d", "30d", "3m"),
    "until": ("today", "yesterday", "1h", "24h", "7d", "30d"),
}
_MOST = 12
_LONGEST = 80


def last_term(line: str) -> str:
    """Return the term that is being written; empty after a blank."""
    return "" if line[-1:].isspace() else line.rpartition(" ")[2]


def completions(line: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what the term that is being written may become, at most twelve.

    Args:
        line: The line up to the cursor.
        known: Values of fields that stand in the log.
    """
    term = last_term(line)
    field, colon, part = term.partition(":")
    if not colon:
        words = [*(f"{name}:" for name in FIELDS), *(f"{name}>" for name in MEASURES)]
        return [word for word in words if word.startswith(term)][:_MOST]
    values = _VALUES.get(field) or known.get(field, ())
    found = [value for value in values if value.casefold().startswith(part.casefold())]
    return [f"{field}:{shlex.quote(value)}" for value in found if value != part][:_MOST]


def completed(line: str, word: str) -> str:
    """Return a line with a completion in place of its last term; a value is closed by a blank."""
    term = last_term(line)
    kept = line[: len(line) - len(term)]
    return f"{kept}{word}" if word.endswith((":", ">")) else f"{kept}{word} "


def known_values(operations: Iterable[OperationDraft]) -> dict[str, tuple[str, ...]]:
    """Return the values that fields have in some operations, each once, in their order.

    Only those that a person could write: an input shows control characters as they are.
    """
    found: dict[str, dict[str, None]] = {}
    for one in operations:
        scope = one.scope
        values = {
            "agent": scope.agent_id,
            "project": scope.project_id,
            "issue": scope.issue_id,
            "run": scope.run_id,
            "subject": scope.subject_id,
            "binding": one.binding_key,
            "door": one.door,
            "by": one.principal,
        }
        for field, value in values.items():
            if value and len(value) <= _LONGEST and value.isprintable():
                found.setdefault(field, {})[value] = None
    return {field: tuple(values) for field, values in found.items()}
