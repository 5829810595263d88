"""Each client's own form in, and the form that it takes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memtui.channels.hooks.calls import Moment, answer_to, read_call
from memtui.contract import Invalid

_SESSION = {"session_id": "s-1", "transcript_path": "/t/s-1.jsonl", "cwd": "/home/me/apollo"}


def said(event: str, **more: Any) -> str:
    return json.dumps({**_SESSION, "hook_event_name": event, **more})


@pytest.mark.parametrize(
    ("event", "more", "moment", "client"),
    [
        ("SessionStart", {"source": "startup", "model": "m"}, Moment.START, "claude-code"),
        ("UserPromptSubmit", {"prompt": "Why?", "permission_mode": "plan"}, Moment.PROMPT, None),
        ("BeforeAgent", {"prompt": "Why?", "timestamp": "2026-11-22"}, Moment.PROMPT, "gemini"),
    ],
)
def test_claude_codex_and_gemini_take_hook_specific_output(
    event: str, more: dict[str, str], moment: Moment, client: str | None
) -> None:
    call = read_call(said(event, **more))
    assert (call.moment, call.run_id, call.cwd) == (moment, "s-1", "/home/me/apollo")
    assert call.prompt == more.get("prompt")
    assert client is None or call.client == client
    assert json.loads(answer_to(call, "- a fact\n")) == {
        "hookSpecificOutput": {"hookEventName": event, "additionalContext": "- a fact\n"}
    }
    assert answer_to(call, "\n") == ""


def test_cursor_takes_additional_context_and_is_told_to_go_on() -> None:
    start = {"hook_event_name": "sessionStart", "workspace_roots": ["/home/me/apollo"]}
    call = read_call(json.dumps({"conversation_id": "c-1", **start}))
    assert (call.run_id, call.client, call.cwd) == ("c-1", "cursor", "/home/me/apollo")
    assert json.loads(answer_to(call, "a fact")) == {"additional_context": "a fact"}
    prompt = read_call(said("beforeSubmitPrompt", prompt="Why?"))
    answer = json.loads(answer_to(prompt, "a fact"))
    assert answer == {"continue": True, "additional_context": "a fact"}


def test_nothing_on_stdin_is_answered_in_plain_text() -> None:
    call = read_call(" \n", client="gemini")
    assert (call.moment, call.run_id) == (Moment.START, None)
    assert answer_to(call, "a fact\n") == "a fact\n"


@pytest.mark.parametrize(
    "written",
    [
        "\ufeff{}",
        "\0\0{}\0\0\n",
        "{}\n\n",
        "{} trailing words",
        "{}{}",
        "{}\n{",
    ],
)
def test_what_stands_around_the_object_does_not_count(written: str) -> None:
    told = '{"hook_event_name":"Stop","session_id":"s","prompt":"zebra\ndeploys\tagain"}'
    call = read_call(written.replace("{}", told))
    assert (call.run_id, call.prompt) == ("s", "zebra\ndeploys\tagain")


@pytest.mark.parametrize("written", ["", "\ufeff", "\0\0", " \r\n"])
def test_nothing_in_any_form_is_nothing(written: str) -> None:
    assert read_call(written).event == ""


def test_what_was_told_counts_while_the_conversation_is_there() -> None:
    resumed = {
        source: read_call(said("SessionStart", source=source)).is_resumed
        for source in ("startup", "resume", "clear", "compact")
    }
    assert resumed == {"startup": False, "resume": True, "clear": False, "compact": False}


def test_what_gemini_repeats_of_a_hook_is_no_part_of_the_prompt() -> None:
    prompt = "<hook_context>## Facts\n\n- a fact\n</hook_context>\n\nWhy?"
    assert read_call(said("BeforeAgent", prompt=prompt)).prompt == "Why?"


def test_the_end_of_a_turn_brings_the_reply() -> None:
    stop = read_call(said("Stop", last_assistant_message="Done."))
    assert (stop.moment, stop.reply, stop.ends_later) == (Moment.TURN, "Done.", True)
    after = read_call(said("AfterAgent", prompt="Why?", prompt_response="So."))
    assert (after.prompt, after.reply) == ("Why?", "So.")
    assert not read_call(said("Stop"), client="codex").ends_later
    assert read_call(said("SessionEnd", reason="exit")).moment is Moment.END


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        ("{}", "hook_event_name"),
        (said("PreToolUse"), "PreToolUse"),
        (json.dumps({"hook_event_name": {"a": []}}), "hook_event_name"),
        ("\0x", "not JSON"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        read_call(text)


def test_values_of_other_types_are_as_if_they_were_not_there() -> None:
    odd = {"session_id": 7, "transcript_path": [], "prompt": {"a": 1}, "cwd": None}
    call = read_call(json.dumps({"hook_event_name": "UserPromptSubmit", **odd}))
    assert (call.run_id, call.transcript, call.prompt, call.cwd) == (None, None, None, None)
    long = read_call(said("UserPromptSubmit", session_id="x" * 201, prompt="y" * 100_000))
    assert long.run_id is None
    assert len(long.prompt or "") == 8_000
