"""Lines of JSON-RPC: read as strictly as a rule of review needs it, and written as answers.

Servers read JSON in different ways. A line that one of them may take for another message than
memtui does counts as unreadable, and passes no rule.
"""

import json
from contextlib import suppress
from typing import Any

NOT_READ = (
    "memtui refused this call, as its rules of review cannot be read now; nothing was changed. Try "
    "again later, and let a person run `memtui doctor`."
)
_UNREADABLE = (
    "memtui weighs calls by the rules of review here, and this line is not plain JSON: send one "
    "message in UTF-8 without a line end within it, each name once and in the protocol's case, and "
    "a tool's arguments as an object."
)
_ONE_BY_ONE = (
    "memtui weighs one call at a time by the rules of review here; send the calls of this batch "
    "one by one."
)
_UNKNOWN = (
    "memtui weighs calls by the rules of review here, and does not know what this method changes; "
    "call a tool instead."
)
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
    for one in _each(said):
        params = one.get("params") if isinstance(one, dict) else None
        for names in (one, params):
            odd = names.keys() - _NAMES if isinstance(names, dict) else ()
            if any(name.casefold() in _NAMES for name in odd):
                raise ValueError("a name is written in another case")
    return said


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name.casefold() for name, _ in pairs}) != len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _each(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def is_harmless(line: bytes, reads: frozenset[str]) -> bool:
    """Whether a line of the agent surely changes no memory; `reads`: tools that only read."""
    try:
        return all(_changes_nothing(one, reads) for one in _each(plain_json(line)))
    except (ValueError, RecursionError):
        return not line.strip()


def _changes_nothing(said: Any, reads: frozenset[str]) -> bool:
    if not isinstance(said, dict):
        return False
    method, params = said.get("method", "notifications/"), said.get("params")  # or an answer
    if method == "tools/call":
        tool = params.get("name") if isinstance(params, dict) else None
        return isinstance(tool, str) and tool in reads
    return isinstance(method, str) and (
        method in _CHANGING_NOTHING or method.startswith("notifications/")
    )


def unweighable(line: bytes) -> str | None:
    """Return why a line cannot be weighed, as a sentence; None: it is one call of a tool."""
    try:
        said = plain_json(line)
    except (ValueError, RecursionError):
        return _UNREADABLE
    if isinstance(said, list):
        return _ONE_BY_ONE
    is_call = isinstance(said, dict) and said.get("method") == "tools/call"
    params = said.get("params") if is_call else None
    # Some servers read arguments out of a text: no rule would see what is in it.
    is_plain = isinstance(params, dict) and isinstance(params.get("arguments") or {}, dict)
    return None if is_plain else _UNREADABLE if is_call else _UNKNOWN


def refused(line: bytes, sentence: str) -> bytes:
    """Return the lines that answer each request in a line of the agent with a tool's error.

    A line that is not plain, or without a request, is answered with one error of JSON-RPC.
    """
    said: Any = None
    with suppress(ValueError, RecursionError):
        said = plain_json(line)
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": sentence}}
    answers = (
        tool_answer(one["id"], sentence, is_error=True)
        for one in _each(said)
        if isinstance(one, dict) and "id" in one and "method" in one
    )
    return b"".join(answers) or json.dumps(error).encode() + b"\n"


def tool_answer(request_id: Any, sentence: str, *, is_error: bool, **more: Any) -> bytes:
    """Return the line that answers a call of a tool with a sentence."""
    content = [{"type": "text", "text": sentence}]
    result = {"content": content, "isError": is_error, **more}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode() + b"\n"
