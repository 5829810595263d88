"""The input that a client sends a hook on stdin, and the answer that it expects.

The formats are those of Claude Code (code.claude.com/docs/en/hooks), which Codex shares
(developers.openai.com/codex/hooks), Gemini CLI (geminicli.com/docs/hooks/reference) and Cursor
(cursor.com/docs/agent/hooks). Each input names its event, which determines the format.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple, cast

from memtui.contract import Invalid, Json
from memtui.json_text import lenient_json, spliced_json, whole

MOST_CHARACTERS = 8_000
"""Longest context in characters; from 10,000 on Claude Code and Cursor put it into a file."""
MOST_BYTES = 16 << 20
"""Most bytes read from stdin."""

_ID_CHARS = 200
_OWN_WORDS = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)
"""Text that Gemini CLI adds to a prompt: the hook's answer at the session's start."""
_PROMPT_CHARS = 8_000


class Moment(Enum):
    """The moment of a run at which a client calls."""

    START = auto()
    """The session begins, or goes on after it was resumed or compacted."""
    COMPACTION = auto()
    """The conversation is about to be compacted, and no start follows."""
    PROMPT = auto()
    """A person has asked something."""
    TURN = auto()
    """The agent has answered."""
    END = auto()
    """The session is over."""


class _Event(NamedTuple):
    moment: Moment
    client: str


_EVENTS = {
    "SessionStart": _Event(Moment.START, "claude-code"),
    "UserPromptSubmit": _Event(Moment.PROMPT, "claude-code"),
    "Stop": _Event(Moment.TURN, "claude-code"),
    "SessionEnd": _Event(Moment.END, "claude-code"),
    "PreCompress": _Event(Moment.COMPACTION, "gemini"),
    "BeforeAgent": _Event(Moment.PROMPT, "gemini"),
    "AfterAgent": _Event(Moment.TURN, "gemini"),
    "sessionStart": _Event(Moment.START, "cursor"),
    "preCompact": _Event(Moment.COMPACTION, "cursor"),
    "beforeSubmitPrompt": _Event(Moment.PROMPT, "cursor"),
}
"""Events by name; those of subagents are left out: their work is part of the run."""
_WITHOUT_END = "codex"
"""The client without an event for the end of a session."""


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call of a hook."""

    event: str = ""
    """Empty: stdin was empty, as a person or a script called."""
    moment: Moment = Moment.START
    client: str | None = None
    """The client's key; None: the event does not show it."""
    run_id: str | None = None
    """The client's session id; imported transcripts use it as run id too."""
    cwd: str | None = None
    transcript: Path | None = None
    prompt: str | None = None
    reply: str | None = None
    """The agent's last answer."""
    is_resumed: bool = False
    """Whether the model still sees the earlier conversation, so a context need not be repeated."""
    is_compacted: bool = False
    """Whether the conversation was compacted since the last context."""
    ends_later: bool = False
    """Whether the client will also report the session's end."""


def read_call(text: str, *, client: str | None = None) -> HookCall:
    """Return the call that a client's input describes.

    Raises:
        Invalid: it is not a JSON object, or names no event of a run.
    """
    if not text.strip("\ufeff\0 \t\r\n"):
        return HookCall(client=client)
    said = json_object(text)
    name = _text(said, "hook_event_name") or ""
    event = _EVENTS.get(name)
    if event is None:
        known = ", ".join(_EVENTS)
        raise Invalid(f"The hook_event_name {name[:80]!r} is none of {known}.")
    transcript = _text(said, "transcript_path")
    prompt = _OWN_WORDS.sub("", _text(said, "prompt") or "").strip()
    client = client or event.client
    return HookCall(
        event=name,
        moment=event.moment,
        client=client,
        run_id=_id(said, "session_id") or _id(said, "conversation_id"),
        cwd=_text(said, "cwd") or _first(said, "workspace_roots"),
        transcript=Path(transcript) if transcript else None,
        prompt=prompt[:_PROMPT_CHARS] or None,
        reply=_text(said, "last_assistant_message") or _text(said, "prompt_response"),
        is_resumed=_text(said, "source") == "resume",
        ends_later=event.moment is Moment.TURN and client != _WITHOUT_END,
    )


def answer_to(call: HookCall, context: str) -> str:
    """Return the stdout that makes a client show its model a context; empty: nothing."""
    if not context.strip():
        return ""
    if not call.event:
        return context
    if call.client == "cursor" or call.event[0].islower():
        reply: Json = {"additional_context": context}
        return json.dumps({"continue": True, **reply} if call.moment is Moment.PROMPT else reply)
    own = {"hookEventName": call.event, "additionalContext": context}
    return json.dumps({"hookSpecificOutput": own})


def json_object(text: str) -> Json:
    """Return the JSON object at the start of a text, read leniently.

    Lone surrogates become U+FFFD. NUL bytes around the object and any text after it are ignored.

    Raises:
        Invalid: there is none.
    """
    try:
        said = lenient_json(text.strip("\ufeff\0 \t\r\n"))
    except (ValueError, RecursionError) as error:
        first = next(spliced_json(text.encode("utf-8", "replace")), None)
        if first is not None:
            return cast("Json", whole(first))
        raise Invalid(f"The input on stdin is not JSON: {str(error)[:200]}.") from error
    if not isinstance(said, dict):
        raise Invalid("The input on stdin is not a JSON object.")
    return said


def _text(said: Json, name: str) -> str | None:
    value: Any = said.get(name)
    return value if isinstance(value, str) and value.strip() else None


def _first(said: Json, name: str) -> str | None:
    values = said.get(name)
    first = values[0] if isinstance(values, list) and values else None
    return first if isinstance(first, str) and first else None


def _id(said: Json, name: str) -> str | None:
    value = (_text(said, name) or "").strip()
    return value if 0 < len(value) <= _ID_CHARS and value.isprintable() else None
