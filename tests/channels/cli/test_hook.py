"""`memtui hook`: what a client gets, what it leaves behind, and that it never stands in the way."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from memtui.paths import HOOK_PARENT
from tests.channels.cli.conftest import Ran, Run

SECRET = "sk-ant-api03-" + "A" * 95
LONG = "Deploys happen from release now, because main is not always green at night. " * 4


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason to end a hook; what ends one says so itself.

    Its client is this process: who started that may be a shell without a parent.
    """
    monkeypatch.setenv("MEMTUI_HOOK_TIMEOUT_MS", "60000")
    monkeypatch.setenv(HOOK_PARENT, str(os.getpid()))


def said(event: str, session: str = "s-1", **more: Any) -> bytes:
    call = {"session_id": session, "cwd": "/home/me/apollo", "hook_event_name": event, **more}
    return json.dumps(call).encode()


def context(ran: Ran) -> str:
    assert (ran.code, ran.err) == (0, "")
    return "" if not ran.out else ran.document["hookSpecificOutput"]["additionalContext"]


def logged(here: Run, *line: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = here("ops", "list", "--json", *line).document["operations"]
    return operations


@pytest.fixture
def remembered(here: Run) -> None:
    """A fact and a note of the project, and a binding that captures everything."""
    assert here("facts", "add", "Deploys happen from release", "--project", "apollo").code == 0
    note = "The restore drill took 41 minutes with a cold cache"
    assert here("note", note, "--project", "apollo").code == 0
    switches = ("--post-run", "on", "--comments", "on", "--documents", "on")
    assert here("bindings", "capture", "default", *switches).code == 0


@pytest.mark.usefixtures("remembered")
def test_a_run_is_told_facts_at_its_start_and_at_a_prompt_what_it_was_not_told(here: Run) -> None:
    def told(call: bytes) -> str:
        return context(here("hook", "pre-run", "--project-from-folder", stdin=call))

    start = told(said("SessionStart", source="startup"))
    assert "Deploys happen from release" in start
    assert "restore drill" not in start
    prompt = said("UserPromptSubmit", prompt="How long did the restore drill take?")
    first = told(prompt)
    assert "41 minutes" in first
    assert "Deploys happen" not in first
    assert told(prompt) == ""
    assert told(said("SessionStart", source="resume")) == ""
    assert told(said("SessionStart", source="compact")) == start
    assert told(prompt) == first

    contexts = logged(here, "type:context")
    assert {one["scope"]["run_id"] for one in contexts} == {"s-1"}
    assert {one["principal"] for one in contexts} == {"agent:claude-code"}
    assert {one["channel"] for one in contexts} == {"hook"}
    assert contexts[0]["request"]["text"] == first


@pytest.mark.usefixtures("remembered")
def test_what_was_compacted_away_is_told_with_the_next_prompt(here: Run) -> None:
    def told(event: str, **more: str) -> str:
        call = said(event, **more)
        return context(here("hook", "pre-run", "--project", "apollo", stdin=call))

    start = told("SessionStart", source="startup")
    asked = {"prompt": "What about Fridays?"}
    assert told("BeforeAgent", **asked) == ""
    assert told("PreCompress", trigger="auto") == ""
    after = here("hook", "post-run", stdin=said("AfterAgent", prompt_response="Done."))
    assert after.code == 0
    assert told("BeforeAgent", **asked) == start
    assert told("BeforeAgent", **asked) == ""


@pytest.mark.usefixtures("remembered")
def test_facts_wait_for_the_prompt_that_needs_them(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(event: str, **more: Any) -> str:
        call = said(event, **more)
        return context(here("hook", "pre-run", "--project", "apollo", stdin=call))

    monkeypatch.setenv("MEMTUI_FACTS_BY_RELEVANCE", "true")
    fact = "- Deploys happen from release"
    assert fact not in told("SessionStart")
    assert fact not in told("UserPromptSubmit", prompt="How long did the restore drill take?")
    assert fact in told("UserPromptSubmit", prompt="Where do I deploy from?")
    assert fact not in told("UserPromptSubmit", prompt="Do we deploy on Fridays?"), "once a run"
    place = ("--project", "apollo", "--prompt", "Where do I deploy from?")
    why = "delivered: Deploys happen from release (the prompt says “deploy”; relevance 2)"
    assert why in here("context", *place).out
    assert why not in here("context", *place, "--all-facts").out


@pytest.mark.usefixtures("remembered")
def test_the_share_of_a_prompt_is_of_those_that_transcripts_tell(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share() -> Any:
        return here("context", "--project", "apollo", "--json").document["share"]

    assert share()["prompt"] == {"source": "default", "tokens": 0, "prompts": 0}
    monkeypatch.setenv("MEMTUI_PROMPT_TOKENS", "9000")
    assert share()["prompt"] == {"source": "set", "tokens": 9_000, "prompts": 0}
    transcript = tmp_path / "s-1.jsonl"
    for number in (30_000, 38_000, 90_000):
        used = {"input_tokens": 1_000, "cache_read_input_tokens": number, "output_tokens": 70}
        line = {"type": "assistant", "message": {"usage": used}}
        aside = {
            "type": "assistant",
            "isSidechain": True,
            "message": {"usage": {"input_tokens": 5}},
        }
        transcript.write_text(f"{json.dumps(line)}\n{json.dumps(aside)}\n{{")
        if number == 90_000:  # nonsense is left out
            with transcript.open("w") as file:
                for wrong in (line, {"message": {"usage": {"input_tokens": 10**30}}}):
                    file.write(f"{json.dumps(wrong)}\n")
        call = said("UserPromptSubmit", prompt="And Friday?", transcript_path=str(transcript))
        assert here("hook", "pre-run", "--project", "apollo", stdin=call).code == 0
    found = share()
    assert found["prompt"] == {"source": "measured", "tokens": 39_000, "prompts": 3}
    assert found["total"]["min_tokens"] == found["total"]["max_tokens"] == 39_000
    printed = here("context", "--project", "apollo").out
    assert "of a measured prompt of 39,000 tokens, the median of 3" in printed
    assert "a measured prompt of 39,000 tokens" in here("facts", "stats").out


@pytest.mark.usefixtures("remembered")
def test_a_run_leaves_one_note_that_its_answers_bring_up_to_date(here: Run, tmp_path: Path) -> None:
    transcript = tmp_path / "s-1.jsonl"
    asked = {"type": "user", "message": {"content": "Where do we deploy from?"}}
    transcript.write_text(json.dumps(asked) + "\n")

    def left(event: str, reply: str, *more: str) -> Ran:
        call = said(event, transcript_path=str(transcript), last_assistant_message=reply)
        return here("hook", "post-run", "--project", "apollo", *more, stdin=call)

    trivial = left("Stop", "From release.")
    assert (trivial.code, trivial.out, trivial.err) == (0, "", "")
    cut = f"{LONG}{SECRET} \ud83d"  # the half of an emoji, which is not Unicode
    assert left("Stop", cut, "--json").document["outcome"] == "stored"
    assert left("SessionEnd", cut, "--json").document["outcome"] == "unchanged"
    updated = left("Stop", f"{LONG}Thursdays.", "--json").document
    assert updated["outcome"] == "updated"

    prompt = said("UserPromptSubmit", prompt="Where do we deploy from?")
    told = here("hook", "pre-run", "--project", "apollo", stdin=prompt)
    assert "Asked:" not in context(told)
    other = said("UserPromptSubmit", "s-2", prompt="Where do we deploy from?")
    told = here("hook", "pre-run", "--project", "apollo", stdin=other)
    assert "Asked: Where do we deploy from?" in context(told)

    [record_id] = updated["record_ids"]
    record = here("get", record_id, "--project", "apollo", "--json").document["record"]
    assert record["text"] == f"Asked: Where do we deploy from?\nResult: {LONG}Thursdays."
    assert record["source"]["run_id"] == "s-1"
    assert record["source"]["external_ref"] == f"{transcript}:1"
    assert SECRET not in json.dumps(logged(here, "channel:hook"))

    assert here("forget", record_id, "--project", "apollo", "--yes").code == 0
    assert left("Stop", f"{LONG}Fridays.", "--json").document["outcome"] == "removed"


@pytest.mark.usefixtures("remembered")
def test_a_comment_and_a_document_are_kept_once_and_true(here: Run) -> None:
    def kept(what: str, text: str, **more: str) -> dict[str, Any]:
        given = json.dumps({"issue_id": "ISS-1", "text": text, "author": "ana", **more}).encode()
        found: dict[str, Any] = here(
            "hook", what, "--project", "apollo", "--json", stdin=given
        ).document
        return found

    comment = {"comment_id": "2", "url": "https://x.test/2"}
    first = kept("comment", "We ship on Thursdays.", **comment)
    again = kept("comment", "We ship on Thursdays.", **comment)
    later = kept("comment", "We ship on Fridays.", **comment)
    assert [one["outcome"] for one in (first, again, later)] == ["stored", "unchanged", "updated"]
    assert first["record_ids"] == later["record_ids"]
    other = kept("comment", "Another comment.", comment_id="3")
    document = kept("document", "# Plan\n\nShip it.", document_key="plan")
    assert {other["outcome"], document["outcome"]} == {"stored"}
    record = here("get", later["record_ids"][0], "--project", "apollo", "--json").document["record"]
    assert (record["text"], record["title"]) == ("We ship on Fridays.", "Comment 2 on ISS-1 by ana")
    assert record["source"] == {
        **dict.fromkeys(record["source"]),
        "kind": "issue_comment",
        "company_id": "local",
        "issue_id": "ISS-1",
        "comment_id": "2",
        "external_ref": "https://x.test/2",
    }


def test_what_the_binding_does_not_capture_leaves_no_trace(here: Run) -> None:
    here("bindings", "list")
    before = len(logged(here))
    stop = said("Stop", prompt="Why?", last_assistant_message=LONG)
    assert here("hook", "post-run", "--json", stdin=stop).document["outcome"] == "off"
    comment = b'{"issue_id": "1", "comment_id": "2", "text": "x"}'
    assert here("hook", "comment", "--json", stdin=comment).document["outcome"] == "off"
    assert len(logged(here)) == before


_HOSTILE: list[tuple[tuple[str, ...], bytes, str]] = [
    (("pre-run",), b"{", "not JSON"),
    (("pre-run",), b'{"a": "\xff"}', "hook_event_name"),
    (("pre-run",), b"[" * 200_000, "not JSON"),
    (("pre-run",), b" " * (17 << 20), "longer than 16 MiB"),
    (("pre-run",), b'{"hook_event_name": "PreToolUse"}', "PreToolUse"),
    (("pre-run", "--binding", "nope"), said("SessionStart"), "no binding nope"),
    (("pre-run", "--bogus"), b"", "--bogus"),
    (("post-run",), b"", "nothing came"),
    (("post-run",), b'{"hook_event_name": "Stop"}', "--run"),
    (("comment",), b'{"issue_id": "1", "text": "x"}', "comment_id"),
    (("document",), b'{"issue_id": 1, "document_key": "2", "text": "x"}', "issue id"),
    (("comment",), b"[" * 200_000, "not JSON"),
]


@pytest.mark.parametrize("case", range(len(_HOSTILE)), ids=lambda at: _HOSTILE[at][2])
def test_whatever_comes_ends_well_and_is_told_in_the_log_file(
    here: Run, home: Path, case: int
) -> None:
    arguments, stdin, words = _HOSTILE[case]
    here("bindings", "list")
    ran = here("hook", *arguments, stdin=stdin)
    assert (ran.code, ran.out) == (0, "")
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert words in (home / "memtui.log").read_text()


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_is_believed(here: Run, encoding: str) -> None:
    text = said("UserPromptSubmit", prompt="Où?").decode()
    mark = "\ufeff" if encoding.endswith("e") else ""
    ran = here("hook", "pre-run", "--project", "apollo", stdin=(mark + text).encode(encoding))
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.usefixtures("remembered")
def test_an_answer_that_cannot_be_written_is_one_line_of_the_log_file(home: Path) -> None:
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as disk:
        ran = subprocess.run(
            [sys.executable, "-m", "memtui", "hook", "pre-run", "--project", "apollo"],
            input=said("SessionStart"), env=buffered | {"MEMTUI_HOME": str(home)},
            stdout=disk, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    [line] = (home / "memtui.log").read_text().splitlines()
    assert (ran.returncode, "The answer: No space left on device." in line) == (0, True)


def test_a_hook_ends_in_time_and_begins_no_home(
    tmp_path: Path, memtui: Run, here: Run, home: Path
) -> None:
    nowhere = here("--home", str(tmp_path / "none"), "hook", "pre-run")
    assert (nowhere.code, nowhere.out) == (0, "")
    assert "There is no memtui home at" in nowhere.err
    assert not (tmp_path / "none").exists()

    (tmp_path / "another").mkdir()
    anothers = memtui("hook", "pre-run", MEMTUI_HOME=str(tmp_path / "another"))
    assert (anothers.code, anothers.out) == (0, "")
    assert "There is no memtui home at" in anothers.err
    assert list((tmp_path / "another").iterdir()) == []

    assert here("bindings", "list").code == 0
    environment = os.environ | {"MEMTUI_HOME": str(home), "MEMTUI_HOOK_TIMEOUT_MS": "100"}
    command = [sys.executable, "-m", "memtui", "hook", "pre-run"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as waiting:  # its stdin stays open, and nothing comes
        assert waiting.stdout is not None
        assert waiting.stdout.read() == b""
        assert waiting.wait() == 0
    assert "hook_timeout_ms" in (home / "memtui.log").read_text()


async def test_calls_over_mcp_join_the_run_of_their_client(
    here: Run, home: Path, tmp_path: Path
) -> None:
    assert (await asyncio.to_thread(here, "bindings", "list")).code == 0
    names = "PATH", "MEMTUI_HELPER_IDLE_S"
    environment = {name: os.environ[name] for name in names} | {"MEMTUI_HOME": str(home)}
    folder = tmp_path / "apollo"
    folder.mkdir()
    arguments = ["-m", "memtui", "mcp", "--run", "mine", "--project-from-folder"]
    server = StdioServerParameters(
        command=sys.executable, args=arguments, env=environment, cwd=folder
    )
    runs = []
    async with Client(stdio_client(server), mode="legacy") as client:
        for session in (None, "s-1", "s-2"):
            if session is not None:
                script = f'"{sys.executable}" -m memtui hook pre-run; exit $?'
                call = said("SessionStart", session)
                ended = subprocess.run(
                    ["/bin/sh", "-c", script], input=call, check=False, env=environment
                )
                assert ended.returncode == 0
            stored = await client.call_tool("memory_note", {"text": f"Told in {session}."})
            runs.append(stored.structured_content["operation_id"])
        connected = (await asyncio.to_thread(here, "agents", "--json")).document["agents"]
        assert [one["run_id"] for one in connected if one["is_open"]] == ["s-2"]
    listed = await asyncio.to_thread(here, "ops", "list", "type:write", "--json")
    logged = listed.document["operations"]
    by_id = {one["operation_id"]: one["scope"]["run_id"] for one in logged}
    assert [by_id[one] for one in runs] == ["mine", "s-1", "s-2"]
    assert {one["scope"]["project_id"] for one in logged} == {"apollo"}
    assert len(list((home / "clients").iterdir())) == 1


def test_installing_a_hook_of_an_empty_home_says_what_to_do_first(here: Run, person: Path) -> None:
    given = ("--home", str(person / "none"), "hook", "install", "gemini")
    code = here(*given, "--json").document["code"]
    assert "start `memtui` once" in here(*given, "--yes", code).out
    assert not (person / "none").exists()


def test_hooks_are_installed_by_a_code_and_taken_out_again(here: Run, person: Path) -> None:
    path = person / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text('{\n  // mine\n  "theme": "x"\n}\n')
    before = path.read_bytes()
    given = ("hook", "install", "gemini", "--project-from-folder")
    shown = here(*given, "--json").document
    assert path.read_bytes() == before
    assert here(*given).code == 2
    assert here("hook", "install", "gemini", "--yes", shown["code"]).code == 5
    assert here(*given, "--yes", shown["code"]).code == 0
    assert "hook pre-run --client gemini --project-from-folder" in path.read_text()
    clients = here("hook", "clients", "--json").document["clients"]
    assert [one["client"] for one in clients if one["installed"]] == ["gemini"]
    code = here("hook", "uninstall", "gemini", "--json").document["code"]
    path.write_bytes(path.read_bytes() + b" ")
    assert here("hook", "uninstall", "gemini", "--yes", code).code == 5
    path.write_bytes(path.read_bytes()[:-1])
    assert here("hook", "uninstall", "gemini", "--yes", code).code == 0
    assert path.read_bytes() == before
    assert here("hook", "install", "emacs").code == 2
