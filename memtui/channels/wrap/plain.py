"""Reads a line of the agent as strictly as a rule of review needs it.

Servers read JSON in different ways. A line that one of them may take for another message than
memtui does counts as unreadable, and passes no rule.
"""

from __future__ import annotations

import json
from typing import Any

_NAMES = {"jsonrpc", "id", "method", "params", "result", "error", "name", "arguments"}
_CHANGING_NOTHING = frozenset(
    {
        "initialize", "ping", "server/discover", "logging/setLevel", "completion/complete",
        "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/read",
        "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
        "subscriptions/listen", "tasks/list", "tasks/get", "tasks/result", "tasks/update",
        "tasks/cancel",
    }
)  # fmt: skip
"""The requests of the protocol that change no memory, whatever the server."""


def plain_json(line: bytes) -> Any:
    """Return the JSON of a line.

    Raises:
        ValueError: it is no JSON, or some servers read it otherwise: a carriage return ends a line
            too, and of two names that differ in case alone either one counts.
        RecursionError: it is nested too deeply.
    """
    text = line.strip().decode()
    if "\r" in text:
        raise ValueError("a line end is within it")
    said = json.loads(text, object_pairs_hook=_once_each)
    for one in said if isinstance(said, list) else [said]:
        params = one.get("params") if isinstance(one, dict) else None
        for names in (one, params):
            if isinstance(names, dict) and any(_is_odd(name) for name in names):
                raise ValueError("a name is written in another case")
    return said


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name.casefold() for name, _ in pairs}) != len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _is_odd(name: str) -> bool:
    return name not in _NAMES and name.casefold() in _NAMES


def is_harmless(line: bytes, reads: frozenset[str]) -> bool:
    """Whether a line of the agent surely changes no memory; `reads`: tools that only read."""
    try:
        said = plain_json(line)
    except (ValueError, RecursionError):
        return not line.strip()
    return all(_changes_nothing(one, reads) for one in (said if isinstance(said, list) else [said]))


def _changes_nothing(said: Any, reads: frozenset[str]) -> bool:
    if not isinstance(said, dict):
        return False
    method, params = said.get("method"), said.get("params")
    if method == "tools/call":
        tool = params.get("name") if isinstance(params, dict) else None
        return isinstance(tool, str) and tool in reads
    is_answer = "method" not in said
    return is_answer or (
        isinstance(method, str)
        and (method in _CHANGING_NOTHING or method.startswith("notifications/"))
    )
