"""What a person or a script does, as real processes over SQLite and the vault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from memtui.config import Paths
from memtui.contract import OperationType
from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless
from tests.demos import Built

pytestmark = pytest.mark.slow

MEMTUI = [sys.executable, "-m", "memtui"]


@pytest.fixture
def home(new_paths: Paths) -> Path:
    """A home that is not there yet, as after an installation."""
    return new_paths.data


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "MEMTUI_HOME": str(home), **more}


def terminal(home: Path, *arguments: str, **more: str) -> pexpect.spawn[str]:
    return pexpect.spawn(
        sys.executable,
        ["-m", "memtui", *arguments],
        env=environment(home, **more),
        encoding="utf-8",
        timeout=30,
    )


def test_from_note_to_undo(memtui: Run, here: Run) -> None:
    scope = ["--project", "P"]
    note = ["note", "we deploy from the release branch", *scope, "--source", "issue_comment"]
    written = memtui(*note, "--issue-id", "I", "--comment-id", "C")
    record_id = written.out.strip()
    assert written.code == 0
    assert len(written.out.splitlines()) == 1
    found = here("query", "deploy branch", *scope, "--json").document
    assert found["snippets"][0]["handle"]["provider_record_id"] == record_id
    assert found["snippets"][0]["source"]["comment_id"] == "C"
    assert here("get", record_id, *scope).out.startswith("we deploy from the release branch\n")
    assert here("correct", record_id, "we deploy from main", *scope).code == 0
    assert "+ we deploy from main" in here("get", "--history", record_id, *scope).out
    assert here("forget", record_id, "--yes", *scope).code == 0
    assert here("get", record_id, *scope).code == 1
    assert here("undo", *scope).code == 0
    back = here("get", record_id, *scope, "--json").document["record"]
    assert back["text"] == "we deploy from main"
    log = here("ops", "list", *scope, "--json").document
    steps = [(entry["operation_type"], entry["status"]) for entry in log["operations"]]
    assert steps == [
        ("get", "ok"), ("undo", "ok"), ("get", "error"), ("forget", "ok"), ("history", "ok"),
        ("correct", "ok"), ("get", "ok"), ("query", "ok"), ("write", "ok"),
    ]  # fmt: skip
    by_step = {entry["operation_type"]: entry for entry in log["operations"]}
    for step in ("write", "correct", "forget", "undo"):
        assert by_step[step]["source"]["issue_id"] == "I"
    assert {"seq", "binding_key", "scope", "usage", "latency_ms"} <= set(log["operations"][0])


def test_filters_and_pages_of_the_log(here: Run) -> None:
    for project in ("p", "q"):
        for number in range(3):
            here("note", f"{project} {number}", "--project", project, "--agent", f"a{number}")
    flags = [
        "--type",
        "write",
        "--project",
        "p",
        "--agent",
        "a1",
        "--since",
        "1d",
        "--channel",
        "cli",
    ]
    flagged = here("ops", "list", *flags, "--json").document
    line = ["type:write project:p", "agent:a1", "since:1d", "channel:cli"]
    assert flagged["total"] == 1
    assert here("ops", "list", *line, "--json").document == flagged
    assert here("ops", "list", "--until", "2020-01-01", "--json").document["operations"] == []
    first = here("ops", "list", "--type", "write", "--limit", "4", "--json").document
    rest = here(
        "ops", "list", "--type", "write", "--before", str(first["next_before"]), "--json"
    ).document
    seen = [entry["seq"] for entry in first["operations"] + rest["operations"]]
    assert seen == sorted(seen, reverse=True)
    assert (first["total"], len(set(seen)), rest["next_before"]) == (6, 6, None)


def test_browse_goes_on_with_its_cursor(here: Run) -> None:
    ids = {here("note", f"number {number}").out.strip() for number in range(5)}
    seen: list[str] = []
    cursor: list[str] = []
    while len(seen) < 10:
        page = here("browse", "--limit", "2", "--sort", "title", *cursor, "--json").document
        seen += [record["handle"]["provider_record_id"] for record in page["records"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert sorted(seen) == sorted(ids)


def test_of_a_long_memory_a_person_is_shown_the_passage(here: Run) -> None:
    assert here("note", "hay\n" * 1_000 + "the needle is here\n" + "hay\n" * 1_000).code == 0
    found = here("query", "needle")
    assert len(found.out) < 4_500
    assert "the needle is here" in found.out
    assert "A part of 8,019 characters; memtui get shows the whole." in found.out
    [snippet] = here("query", "needle", "--json").document["snippets"]
    assert len(snippet["text"]) == 8_019


def test_what_is_not_named_stays(here: Run) -> None:
    record_id = here("note", "text", "--topic", "t", "--tag", "a", "--tag", "b").out.strip()

    def record() -> Any:
        return here("get", record_id, "--json").document["record"]

    assert here("correct", record_id, "--pin").code == 0
    pinned = record()
    assert (pinned["pinned"], pinned["tags"], pinned["topic"]) == (True, ["a", "b"], "t")
    assert here("correct", record_id, "--tag", "", "--no-pin", "--expires", "30d").code == 0
    cleared = record()
    assert (cleared["pinned"], cleared["tags"], cleared["text"]) == (False, [], "text")
    assert cleared["expires_at"] is not None
    forever = here("correct", record_id, "--no-expiry", "--json")
    assert (forever.code, record()["expires_at"]) == (0, None)
    assert here("undo", forever.document["operation_id"]).code == 0
    assert record()["expires_at"] == cleared["expires_at"]
    assert here("correct", record_id, "--no-expiry", "--expires", "30d").code == 2


def test_a_file_changed_on_disk_is_a_conflict(here: Run) -> None:
    record_id = here("note", "mine at first").out.strip()
    record = here("get", record_id, "--json").document["record"]
    path = Path(record["location"]["path"])
    path.write_text(path.read_text().replace("mine at first", "theirs by hand"))
    ran = here("correct", record_id, "mine", "--revision", record["revision"], "--json")
    assert ran.code == 5
    assert "theirs by hand" in ran.document["error"]["current"]["text"]
    assert ran.document["error"]["proposed"] == "mine"
    assert "theirs by hand" in path.read_text()


def test_bindings_are_added_targeted_and_removed(here: Run, tmp_path: Path) -> None:
    added = here("bindings", "add", "other", "vault", "--read-only", "--json").document
    assert (added["key"], added["read_only"]) == ("other", True)
    assert here("bindings", "target", "set", "other", "project", "p").code == 0
    resolved = here("bindings", "resolve", "--project", "p", "--json").document
    assert (resolved["binding_key"], resolved["provider_key"]) == ("other", "vault")
    assert "project" in resolved["reason"]
    assert here("note", "x", "--project", "p").code == 4
    assert here("bindings", "read-only", "other", "off").code == 0
    assert here("note", "x", "--project", "p").code == 0
    assert "project p" in here("bindings", "list").out
    captured = here("bindings", "capture", "other", "--post-run", "on", "--json").document
    assert captured == {"key": "other", "post_run": True, "comments": False, "documents": False}
    assert "post-run" in here("bindings", "list").out
    assert here("bindings", "disable", "other").code == 0
    assert here("note", "x", "--project", "p").code == 4
    assert here("bindings", "enable", "other").code == 0
    assert here("bindings", "health", "--json").document["health"][1]["health"]["status"] == "ok"
    assert here("bindings", "target", "clear", "project", "p").code == 0
    assert here("bindings", "remove", "other", "--yes").code == 0
    keys = [view["key"] for view in here("bindings", "list", "--json").document["bindings"]]
    assert keys == ["default"]
    found = here("bindings", "providers", "--json").document["providers"]
    assert "vault" in [one["key"] for one in found]


def test_a_provider_is_synced_configured_and_explained(here: Run, tmp_path: Path) -> None:
    here("note", "we deploy from release", "--project", "p")
    assert here("bindings", "sync", "default", "--json").document["seen"] >= 1
    names = [
        each["name"]
        for each in here("bindings", "namespaces", "default", "--json").document["namespaces"]
    ]
    assert any("p" in name for name in names)
    assert "records" in here("bindings", "namespaces", "default").out
    stages = here("query", "deploy", "--project", "p", "--explain", "--json").document
    assert stages["explanation"]["stages"]
    assert "Looked for: deploy" in here("query", "deploy", "--project", "p", "--explain").out
    answer = here("query", "deploy", "--project", "p", "--json").document
    asked = answer["bindings"][0]["operation_ids"][0]
    [record_id] = answer["stages"][0]["scores"]
    logged = here("ops", "show", asked, "--json").document["request"]["stages"]
    assert [one["name"] for one in logged] == [one["name"] for one in answer["stages"]]
    assert record_id not in str(logged)
    assert "words: BM25" in here("ops", "show", asked).out
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    changed = here("bindings", "configure", "default", "--set", f"path={moved}", "--json").document
    assert changed["config"]["path"] == str(moved)
    assert here("browse", "--json").document["records"] == []


def test_discovery_adds_nothing_without_a_yes(here: Run, person: Path) -> None:
    (person / "CLAUDE.md").write_text("# Rules\n\n- Use tabs.\n")
    found = here("bindings", "discover", "--json").document
    key = found["findings"][0]["key"]
    assert found["added"] == []
    assert "CLAUDE.md" in here("bindings", "discover").out
    assert here("bindings", "list").err.startswith("There is no memtui home"), "nor a home"
    assert here("bindings", "discover", "--add", key, "--json").document["added"] == [key]
    bound = here("bindings", "show", key, "--json").document
    assert (bound["read_only"], bound["targets"]) == (True, [])
    assert f"bound as {key}" in here("bindings", "discover").out
    assert "Use tabs." in here("browse", "--binding", key).out


def test_companies_are_apart(here: Run) -> None:
    here("note", "ours alone")
    assert (
        here("companies", "add", "acme", "--name", "Acme", "--link", "run=https://x/{run_id}").code
        == 0
    )
    listed = here("companies", "list", "--json").document["companies"]
    assert [company["company_id"] for company in listed] == ["local", "acme"]
    assert listed[1]["link_templates"] == {"run": "https://x/{run_id}"}
    assert here("--company", "acme", "query", "ours").code == 1
    assert here("--company", "Acme", "bindings", "add", "default", "vault").code == 0
    assert here("--company", "Acme", "bindings", "target", "set", "default", "company").code == 0
    assert here("--company", "acme", "query", "ours", "--json").document["snippets"] == []
    assert here("--company", "acme", "ops", "list", "--json").document["total"] == 5


def test_doctor_is_content_with_a_fresh_home_and_with_a_used_one(here: Run, home: Path) -> None:
    fresh = here("doctor", "--json").document
    assert fresh["ok"] is True
    assert not home.exists()
    here("note", "x")
    used = here("doctor", "--json")
    assert used.code == 0, used.out
    names = [check["name"] for check in used.document["checks"]]
    for name in ("versions", "home", "settings", "database", "editor", "keymap", "terminal"):
        assert name in names
    assert "binding local/default" in names


def test_doctor_names_what_is_broken(here: Run, home: Path) -> None:
    here("note", "x")
    home.chmod(0o755)
    (home / "config.toml").write_text('[keymap]\n"records.nope" = "d"\n')
    ran = here("doctor")
    assert ran.code == 1
    assert "✗ keymap" in ran.out
    assert "chmod 700" in ran.out
    (home / "memtui.db").write_bytes(b"no database" * 1000)
    assert "✗ database" in here("doctor").out
    (home / "config.toml").write_text("nope = 1\n")
    assert "✗ settings" in here("doctor").out


def test_without_a_terminal_the_app_does_not_open(memtui: Run, here: Run) -> None:
    for ran in (memtui(), here("demo")):
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_a_reader_that_leaves_early_is_no_failure(home: Path, here: Run) -> None:
    record_id = here("note", "-", stdin=b"line\n" * 100_000).out.strip()
    for arguments in (["get", "--json"], ["get"]):
        with subprocess.Popen(
            [*MEMTUI, arguments[0], record_id, *arguments[1:]],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:
            assert running.stdout
            assert running.stderr
            running.stdout.read(1)
            running.stdout.close()
            assert running.stderr.read() == b""
        assert running.returncode == 0


def test_an_answer_that_cannot_be_written(home: Path, here: Run) -> None:
    here("note", "something to print")
    full = "The answer could not be written: No space left on device"
    cases = [
        ("browse", 74, full), ("browse --json", 74, full), ("--help", 74, full),
        ("nothing --json", 2, "No such command"),
    ]  # fmt: skip
    for arguments, code, sentence in cases:
        with Path("/dev/full").open("w") as disk:
            ran = subprocess.run(
                [*MEMTUI, *arguments.split()],
                env=environment(home), stdout=disk, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        # A person is told how many there are before the answer is flushed, or not at all.
        *others, last = ran.stderr.splitlines()
        assert (ran.returncode, last.startswith(sentence)) == (code, True)
        assert others in ([], ["1 of 1 in default (company default)."])


def test_output_is_utf8_whatever_the_locale(memtui: Run, here: Run) -> None:
    record_id = here("note", "naïve ✓ 日本", "--title", "plain").out.strip()
    exact = memtui("get", record_id, "--json", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert exact.document["record"]["text"] == "naïve ✓ 日本"
    assert "na\\xefve" in memtui("get", record_id, PYTHONIOENCODING="ascii").out


def test_following_the_log(home: Path, here: Run) -> None:
    here("note", "first", "--project", "p")
    with subprocess.Popen(
        [*MEMTUI, "ops", "list", "--type", "write", "--follow", "--json"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout
            assert running.stderr
            seen: list[Any] = [json.loads(running.stdout.readline())]
            here("note", "second", "--project", "p")
            here("query", "second")
            here("note", "third", "--project", "p")
            seen += [json.loads(running.stdout.readline()) for _ in range(2)]
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == 130
            assert running.stderr.read() == ""
        finally:
            running.kill()
    assert [entry["request"]["content"] for entry in seen] == ["first", "second", "third"]


def test_forget_asks_on_a_real_terminal(home: Path, here: Run) -> None:
    record_id = here("note", "-", stdin=f"{HOSTILE} bad".encode()).out.strip()
    child = terminal(home, "forget", record_id)
    child.expect_exact("Forget 1 record from default?")
    child.sendline("n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert here("get", record_id).code == 0
    shown = here("get", record_id, terminal=True, NO_COLOR="1")
    assert shown.code == 0
    assert_harmless(shown.out)


def test_a_record_is_changed_in_the_editor(
    home: Path, memtui: Run, here: Run, tmp_path: Path
) -> None:
    record_id = here("note", "first text").out.strip()
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nstat -c %a "$1" > mode\nsed -i s/first/second/ "$1"\n')
    editor.chmod(0o700)
    assert memtui("correct", record_id, "--editor", EDITOR=str(editor)).code == 0
    assert here("get", record_id, "--json").document["record"]["text"] == "second text"
    assert Path("mode").read_text() == "600\n"
    unchanged = here("correct", record_id, "--editor", EDITOR="true")
    assert (unchanged.code, unchanged.err) == (0, "Nothing was changed.\n")
    assert list(home.glob("draft-*")) == []


def test_an_edit_that_conflicts_is_kept(here: Run, tmp_path: Path) -> None:
    record_id = here("note", "first text").out.strip()
    path = here("get", record_id, "--json").document["record"]["location"]["path"]
    editor = tmp_path / "editor.sh"
    editor.write_text(f"#!/bin/sh\necho mine > \"$1\"\nsed -i s/first/theirs/ '{path}'\n")
    editor.chmod(0o700)
    ran = here("correct", record_id, "--editor", EDITOR=str(editor))
    assert ran.code == 5
    kept = ran.err.split("Your text is kept in ")[1].splitlines()[0].rstrip(".")
    assert Path(kept).read_text() == "mine\n"
    assert "theirs text" in Path(path).read_text()
    for editor_command in ("false", "no-such-editor", "'", "rm"):
        failed = here("correct", record_id, "--editor", EDITOR=editor_command)
        assert failed.code == 2, editor_command
        assert "Traceback" not in failed.err


def test_the_shell_completes_commands_keys_and_words(here: Run, home: Path) -> None:
    here("bindings", "target", "set", "default", "project", "mech-fighters")
    here("note", "Deploys wait.", "--agent", "coding", "--subject", "ana")
    here("views", "save", "writes", "type:write")

    def complete(line: str) -> list[str]:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        return here(_MEMTUI_COMPLETE="complete_bash", MEMTUI_HOME=str(home), **asked).out.split()

    assert complete("memtui qu") == ["query"]
    assert complete("memtui bindings dis") == ["disable", "discover"]
    assert complete("memtui bindings show de") == ["default"]
    assert complete("memtui query x --binding ") == ["default"]
    assert complete("memtui query x --project m") == ["mech-fighters"]
    assert complete("memtui note x --source issue_") == ["issue_comment", "issue_document"]
    assert complete("memtui ops list --st") == ["--status"]
    assert complete("memtui ops list ty") == [f"type:{one.value}" for one in OperationType], (
        "a field is completed with its values, as a shell puts a blank after a single word"
    )
    assert complete("memtui ops list since:7d type : wr") == ["write"], "as bash cuts at colons"
    assert complete("memtui browse agent:") == ["agent:coding"]
    risks = complete("memtui browse risk:")
    assert (risks[:2], len(risks)) == (["risk:any", "risk:none"], len(set(risks)))
    assert complete("memtui browse --agent co") == ["coding"]
    assert complete("memtui query x --subject ") == ["ana"]
    assert complete("memtui hook install cl") == ["claude-code"]
    assert complete("memtui mcp install claude-d") == ["claude-desktop"]
    assert complete("memtui bindings add x mem") == ["mem0", "memsearch"]
    assert complete("memtui views delete ") == ["writes"]


def test_a_completion_never_fails(here: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("nope = 1\n")
    asked = {"COMP_WORDS": "memtui get x --binding ", "COMP_CWORD": "4"}
    ran = here(_MEMTUI_COMPLETE="complete_bash", MEMTUI_HOME=str(home), **asked)
    assert (ran.code, ran.out.strip(), ran.err) == (0, "", "")


def test_the_demo_answers_as_a_script_expects(built: Built, home: Path, here: Run) -> None:
    shutil.copytree(built.paths.data, home)
    made = here("demo", "--no-tui", "--json")
    assert made.code == 0, made.err
    assert made.document["records"] > 100
    assert "demo" in here("demo", "--no-tui").out
    assert here("bindings", "list", "--json").document["bindings"]
    found = here("query", "deploy branch", "--json").document
    assert found["snippets"][0]["source"]["kind"]
    assert len(here("browse", "--json", "--limit", "5").document["records"]) == 5
    log = here("ops", "list", "--json", "--limit", "5").document
    assert len(log["operations"]) == 5
    for flags in (
        ["--type", "write"], ["--agent", "coding"], ["--project", "infra"],
        ["--source-kind", "issue_comment"], ["--status", "error"],
        ["--since", "30d"], ["--until", "30d"],
    ):  # fmt: skip
        narrowed = here("ops", "list", *flags, "--json").document
        assert 0 < narrowed["total"] < log["total"], flags


def test_the_terminal_app_opens_and_leaves(home: Path, here: Run) -> None:
    here("note", "a memory")
    (home / "session.json").write_text('{"toured": true}')
    child = terminal(home, "--read-only", TERM="xterm-256color")
    child.setwinsize(30, 120)
    child.expect_exact("a memory")
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_summary_is_shown_and_its_original_opens(here: Run) -> None:
    text = "Tuesday: 40 files were read twice,\nand the sums agreed."
    record_id = here("note", text, "--title", "Log", "--summary", "The import may run again.")
    name = record_id.out.strip()
    found = here("query", "may the import run again")
    assert found.out.splitlines()[0].endswith("  The import may run again.")
    assert "summary · " in found.out
    assert "The import may run again." in here("browse").out
    shown = here("get", name).out
    assert shown.startswith(text)
    assert "The import may run again." in shown
    assert here("correct", name, "--summary", "").code == 0
    assert "sums agreed" in here("browse").out
    refused = here("note", "a: b", "--kind", "fact", "--summary", "x")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
