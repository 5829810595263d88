"""The note of a run, drawn from what the clients write of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtui.channels.hooks.calls import HookCall, Moment
from memtui.channels.hooks.transcript import NOTE_CHARS, note_of
from memtui.contract import Unavailable

LONG = "Deploys happen from release, as main is not always green. " * 5


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def reply(text: str, **tools: str) -> dict[str, Any]:
    used = [
        {"type": "tool_use", "name": name, "input": {"file_path": path}}
        for name, path in tools.items()
    ]
    return {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}, *used]},
    }


def call(path: Path, *lines: Any, **more: Any) -> HookCall:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    given = {"event": "Stop", "moment": Moment.TURN, "cwd": "/srv/apollo", **more}
    return HookCall(transcript=path, **given)


def test_the_note_says_what_was_asked_what_came_of_it_and_which_files_changed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    lines = (
        {"type": "summary", "summary": "older"},
        user("Read the rules first.", isMeta=True),
        user("<command-name>/clear</command-name>"),
        user("Move the deploy\nto release."),
        reply("I will.", Edit="/srv/apollo/deploy.yml", Read="/srv/apollo/seen.md"),
        user([{"type": "tool_result", "content": "ok"}]),
        user("A subagent's task", isSidechain=True),
        user([{"type": "text", "text": "<b>And</b> the docs?"}]),
        reply(LONG, Write="/srv/apollo/docs/deploy.md", Edit="/srv/apollo/deploy.yml"),
    )
    note = note_of(call(path, *lines))
    assert note is not None
    assert note.title == "Move the deploy to release."
    assert note.text == (
        "Asked: Move the deploy to release.\nLast asked: <b>And</b> the docs?\n"
        f"Files changed: deploy.yml, docs/deploy.md\nResult: {LONG.strip()}"
    )
    assert note.external_ref == f"{path}:4"
    assert note_of(call(path, *lines)) == note
    told = note_of(call(path, *lines, reply="The last words, not yet in the transcript."))
    assert told is not None
    assert told.text.endswith("Result: The last words, not yet in the transcript.")


def test_codex_transcripts_are_read_too(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: src/b.py\n"
    shell = {"command": ["apply_patch", "*** Begin Patch\n*** Delete File: src/c.py\n"]}
    payloads = (
        message("developer", "## About This Workspace"),
        message("user", "<environment_context>"),
        message("user", "# AGENTS.md instructions for /work"),
        message("user", "Fix the parser"),
        {"type": "custom_tool_call", "name": "apply_patch", "input": patch},
        {"type": "function_call", "name": "shell", "arguments": json.dumps(shell)},
        message("assistant", "Fixed."),
    )
    lines = ({"type": "response_item", "payload": payload} for payload in payloads)
    note = note_of(call(tmp_path / "r.jsonl", {"type": "session_meta", "payload": {}}, *lines))
    assert note is not None
    files = "src/a.py, src/b.py, src/c.py"
    assert note.text == f"Asked: Fix the parser\nFiles changed: {files}\nResult: Fixed."


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_without_a_transcript_the_call_itself_says_what_was_asked(tmp_path: Path) -> None:
    gone = HookCall(event="AfterAgent", transcript=tmp_path / "gone", prompt="Why?", reply=LONG)
    note = note_of(gone)
    assert note is not None
    assert (note.title, note.external_ref) == ("Why?", None)


def test_a_transcript_that_cannot_be_read_is_told_in_a_sentence() -> None:
    with pytest.raises(Unavailable, match=r"^The transcript cannot be read: File name too long\.$"):
        note_of(HookCall(event="Stop", transcript=Path("x" * 5_000), prompt="Why?", reply=LONG))


def test_half_of_a_character_loses_no_line(tmp_path: Path) -> None:
    note = note_of(call(tmp_path / "s.jsonl", user("Why \ud83d?"), reply(LONG)))
    assert note is not None
    assert note.title == "Why \ufffd?"


def test_spliced_and_padded_lines_lose_only_what_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    said = call(path, user("Why?", timestamp="t"), reply(LONG, Edit="/a") | {"timestamp": "t"})
    first, second = path.read_text().splitlines()
    path.write_text(f"{first[:40]}{first}\n\0\0{second[:50]}{second}{second[:60]}")
    note = note_of(said)
    assert note is not None
    assert note.title == "Why?"
    assert "Files changed: /a" in note.text


def test_a_trivial_exchange_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert note_of(call(path, user("Thanks!"), reply("You are welcome."))) is None
    assert note_of(call(path)) is None
    assert note_of(call(path, user("Rename it."), reply("Done.", Edit="/x/a.py"))) is not None


def test_a_note_is_bounded_whatever_the_transcript_holds(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    many = [reply("", Write=f"/srv/apollo/{'d' * 90}/{number}.py") for number in range(60)]
    given = call(path, user("why " * 5_000), *many, reply("because " * 5_000))
    with path.open("ab") as file:
        file.write(b'\xff\xfe not JSON\n{"type": "user", "message": 7}\n[1]\n{"type": "as')
    note = note_of(given)
    assert note is not None
    assert len(note.text) <= NOTE_CHARS
    assert len(note.title) <= 80
    assert "and 48 more" in note.text
