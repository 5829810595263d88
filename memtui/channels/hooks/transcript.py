"""The note of a run: the questions, the last answer, the files changed.

It is extracted from the client's transcript without a model, so that the same transcript always
gives the same note. Transcripts of Claude Code and Codex are read (JSON lines); for other clients
the note uses only the input of the hook call.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from memtui.channels.hooks.calls import HookCall
from memtui.contract import Json, Unavailable
from memtui.json_text import spliced_json, whole

NOTE_CHARS = 2_000
"""Longest note in characters."""

_READ_BYTES = 32 << 20
"""Of a longer transcript only the end is read."""
_LATEST_BYTES = 1 << 20
"""The end of a transcript that is searched for the last prompt: it has to be quick."""
_MOST_TOKENS = 10_000_000
"""Greater counts of tokens are nonsense: no model takes such a prompt."""
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_ASKED_CHARS = 400
_TITLE_CHARS = 80
_FILES = 12
_TRIVIAL_CHARS = 200
"""An answer at most this long, in a run that changed no file, is trivial."""
_WRITING = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: ([^\n\\\"]+)")
_NOT_SAID = re.compile(r"\s*(?:<[a-z]+(?:[-_][a-z]+)+>|# AGENTS\.md instructions)")
"""Start of prompts that the client wrote itself: `<command-name>`, `<user_shell>` …"""
_NOT_ASKED = ("isMeta", "isSidechain", "isCompactSummary")
"""Fields that mark a line of Claude Code's that no person wrote."""


@dataclass(frozen=True, slots=True)
class CapturedNote:
    """The note of a run."""

    title: str
    text: str
    external_ref: str | None
    """The transcript's path, with the line of the first question."""


@dataclass(slots=True)
class _Run:
    """The content read from a transcript so far."""

    asked: list[str] = field(default_factory=list)
    reply: str = ""
    files: dict[str, None] = field(default_factory=dict)
    line: int | None = None


def note_of(call: HookCall) -> CapturedNote | None:
    """Return the note of a run; None: the exchange was trivial. Blocking.

    Raises:
        Unavailable: the transcript exists but cannot be read.
    """
    run = _Run()
    try:
        readable = call.transcript is not None and call.transcript.is_file()
        if readable and call.transcript is not None:
            for number, said in _lines(call.transcript):
                message = said.get("message")
                payload = said.get("payload")
                if isinstance(message, dict) and not any(said.get(name) for name in _NOT_ASKED):
                    _take_claude(run, number, str(said.get("type")), message.get("content"))
                elif isinstance(payload, dict):
                    _take_codex(run, number, payload)
    except OSError as error:
        raise Unavailable(f"The transcript cannot be read: {error.strerror}.") from error
    asked = run.asked or ([call.prompt] if call.prompt else [])
    reply = (call.reply or run.reply).strip()
    if not asked or (not run.files and len(reply) < _TRIVIAL_CHARS):
        return None
    parts = [f"Asked: {_cut(_one_line(asked[0]), _ASKED_CHARS)}"]
    if len(asked) > 1:
        parts.append(f"Last asked: {_cut(_one_line(asked[-1]), _ASKED_CHARS)}")
    if run.files:
        more = f" and {len(run.files) - _FILES} more" if len(run.files) > _FILES else ""
        shown = (_shown(path, call.cwd) for path in [*run.files][:_FILES])
        parts.append(f"Files changed: {', '.join(shown)}{more}")
    head = "\n".join(parts)
    room = NOTE_CHARS - len(head) - len("\nResult: ")
    text = f"{head}\nResult: {_cut(reply, room)}" if reply and room > 0 else head
    place = f":{run.line}" if run.line else ""
    return CapturedNote(
        title=_cut(_one_line(asked[0]), _TITLE_CHARS),
        text=_cut(text, NOTE_CHARS),
        external_ref=f"{call.transcript}{place}" if readable else None,
    )


def prompt_tokens(path: Path | None) -> int | None:
    """Return the tokens of the last prompt in Claude Code's transcript; None: they are unknown."""
    found: int | None = None
    try:
        for _, said in _lines(path, _LATEST_BYTES) if path is not None else ():
            message = said.get("message")
            used = message.get("usage") if isinstance(message, dict) else None
            if isinstance(used, dict) and not said.get("isSidechain"):
                counts = [used.get(name) for name in _INPUT]
                sane = (one for one in counts if isinstance(one, int) and 0 < one <= _MOST_TOKENS)
                found = sum(sane) or found
    except OSError:
        return None
    return found


def _lines(path: Path, most: int = _READ_BYTES) -> Iterator[tuple[int | None, Json]]:
    """Yield a transcript's objects with line numbers; None: only the end is read."""
    with path.open("rb") as file:
        number: int | None = 0
        beyond = os.fstat(file.fileno()).st_size - most
        if beyond > 0:
            file.seek(beyond)
            file.readline()
            number = None
        for raw in file:
            number = None if number is None else number + 1
            for said in _objects(raw):
                yield number, said


def _objects(line: bytes) -> list[Json]:
    """Return the objects of a line; empty: it is still being written, or not an object."""
    try:
        said = from_json(line)
    except ValueError:  # also for a lone surrogate, where a client cut a text
        return [whole(one) for one in spliced_json(line) if one is not None]
    return [said] if isinstance(said, dict) else []


def _take_claude(run: _Run, number: int | None, kind: str, content: Any) -> None:
    blocks = _blocks([{"text": content}] if isinstance(content, str) else content)
    if kind == "user":
        _ask(run, number, _words(blocks))
    elif kind == "assistant":
        run.reply = _words(blocks) or run.reply
        for one in blocks:
            given = one.get("input")
            if one.get("name") in _WRITING and isinstance(given, dict):
                path = given.get("file_path") or given.get("notebook_path")
                if isinstance(path, str):
                    run.files[path] = None


def _take_codex(run: _Run, number: int | None, payload: Json) -> None:
    kind, role = payload.get("type"), payload.get("role")
    if kind == "message" and role in {"user", "assistant"}:
        words = _words(_blocks(payload.get("content")))
        if role == "assistant":
            run.reply = words or run.reply
        else:
            _ask(run, number, words)
    elif kind in {"custom_tool_call", "function_call"}:
        for path in _PATCHED.findall(f"{payload.get('input')}{payload.get('arguments')}"):
            run.files[path.strip()] = None


def _blocks(content: Any) -> list[Json]:
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _words(blocks: Sequence[Json]) -> str:
    return "\n".join(text for one in blocks if isinstance(text := one.get("text"), str))


def _ask(run: _Run, number: int | None, words: str) -> None:
    if words.strip() and not _NOT_SAID.match(words):
        if not run.asked:
            run.line = number
        run.asked = [*run.asked[:1], words]


def _shown(path: str, cwd: str | None) -> str:
    return _one_line(path.removeprefix(f"{cwd}/") if cwd else path)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
