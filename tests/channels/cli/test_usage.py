"""Wrong usage: an exit code, one clear sentence, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memtui.channels.cli.session import Session
from tests.channels.cli.conftest import Run, assert_harmless

pytestmark = pytest.mark.usefixtures("fake")

WRONG: list[tuple[list[str], int, str]] = [
    ([], 2, "The terminal app needs a terminal"),
    (["qurey", "x"], 2, "Did you mean 'query'"),
    (["query"], 2, "Missing argument 'TEXT'; see memtui query --help."),
    (["get", "x", "y"], 2, "see memtui get --help."),
    (["query", "x", "--bogus"], 2, "No such option: --bogus; see memtui query --help."),
    (["query", "x", "--limit", "3"], 2, "--limit; did you mean --top-k? See memtui query --help."),
    (["forget", "a", "--limit=3"], 2, "No such option: --limit; did you mean --last?"),
    (["ops", "list", "-n", "5"], 2, "No such option: -n; did you mean --limit?"),
    (["browse", "--projct", "x"], 2, "No such option: --projct; did you mean --project?"),
    (["query", "x", "--top-k", "0"], 2, "'--top-k'"),
    (["query", "x", "--top-k", "many"], 2, "'--top-k': it takes a whole number; see"),
    (["query", " "], 2, "Say what to look for"),
    (["query", "x", "--intent", "guess"], 2, "'--intent'"),
    (["query", "x", "--as-of", "once"], 2, "is not a time"),
    (["query", "x", "--where", "{"], 2, "--where takes a JSON object"),
    (["query", "x", "--binding", "nope"], 1, "There is no binding nope"),
    (["query", "x", "--home", "/tmp"], 2, "--home goes before the command: memtui --home"),
    (["ops", "list", "--company", "x"], 2, "memtui --company … ops list"),
    (["note", ""], 2, "The content does not fit: it is empty."),
    (["note", "x", "--expires", "2020-01-01"], 2, "'2020-01-01' is past"),
    (["correct", "x", "y", "--expires", "2020-01-01"], 2, "'2020-01-01' is past"),
    (["facts", "expire", "x", "3 weeks ago"], 2, "'3 weeks ago' is past"),
    (["note", "x", "--mode", "upsert"], 2, "give --record-id"),
    (["note", "x: y", "--title", "T", "--mode", "upsert"], 2, "or --kind fact with a text"),
    (["facts", "prune", "--subject", "--project"], 2, "--project is an option itself"),
    (["sql", "SELECT * FROM operatons"], 2, "There is no view operatons; did you mean operations?"),
    (["undo", "zz", "--list"], 2, "--list takes neither"),
    (["undo", "--list", "--project", "x"], 2, "--list takes neither"),
    (["--read-only", "views", "save", "x"], 4, "memtui runs read-only"),
    (["--read-only", "views", "delete", "x"], 4, "memtui runs read-only"),
    (["note", "x", "--source", "dream"], 2, "'issue_comment'"),
    (["note", "x", "--source", "issue_comment", "--comment-id", "2"], 2, "--issue-id and --comm"),
    (["note", "x", "--source", "issue_comment", "--issue", "I-1"], 2, "--issue-id and --comment"),
    (["note", "x", "--source", "issue_document", "--issue-id", "I"], 2, "and --document-key"),
    (["note", "x", "--source", "issue"], 2, "give --issue-id"),
    (["note", "x", "--source", "run"], 2, "give --run-id"),
    (["note", "x", "--source", "activity"], 2, "give --activity-id"),
    (["facts", "add", "x", "--source", "external_document"], 2, "give --external-ref"),
    (["note", "x", "--mode", "maybe"], 2, "'--mode'"),
    (["note", "x", "--expires", "soon"], 2, "is not a time"),
    (["note", "x", "--metadata", "[]"], 2, "--metadata takes a JSON object"),
    (["note", "x", "--project", ""], 2, "project"),
    (["note", "x", "--project", "p" * 201], 2, "project"),
    (["mcp", "install", "cursor", "--project", ""], 2, "The id of the project"),
    (["get"], 2, "Missing argument 'RECORD_ID'"),
    (["get", ""], 2, "."),
    (["get", "nothing"], 1, "nothing"),
    (["correct", "a"], 2, "Nothing to change"),
    (["correct", "a", "b", "--editor"], 2, "not both"),
    (["correct", "nothing", "b"], 1, "."),
    (["forget"], 2, "Missing argument 'RECORD_ID"),
    (["forget", "a"], 1, "There is no record a in default for this scope"),
    (["forget", "a", "b", "--yes"], 1, "for this scope, nor the other; `memtui browse` lists"),
    (["forget", "a", "b", "c", "--yes"], 1, "for this scope, nor the 2 others; `memtui browse`"),
    (["undo"], 1, "."),
    (["undo", "zzz"], 1, "zzz"),
    (["get", "nothing", "--history"], 1, "."),
    (["browse", "--limit", "0"], 2, "'--limit'"),
    (["browse", "colour:red"], 2, "There is no filter field colour;"),
    (["browse", 'project:"x'], 2, "unclosed quote"),
    (["ops"], 2, "Missing command; see memtui ops --help."),
    (["ops", "list", "--type", "party"], 2, "'--type'"),
    (["ops", "list", "type:party"], 2, "party"),
    (["ops", "list", "--since", "eventually"], 2, "is not a time"),
    (["ops", "list", "--status", "fine"], 2, "'--status'"),
    (["ops", "show", "zzz"], 1, "zzz"),
    (["ops", "check", "zzz"], 1, "zzz"),
    (["bindings", "show", "nope"], 1, "the bindings are default"),
    (["bindings", "add", "x", "nope"], 2, "There is no provider nope"),
    (["bindings", "add", "X Y", "fake"], 2, "binding key"),
    (["bindings", "add", "x", "fake", "--set", "label"], 2, "--set takes NAME=VALUE"),
    (["bindings", "add", "x", "fake", "--set", "nope=1"], 2, "."),
    (["bindings", "add", "default", "fake"], 5, "."),
    (["bindings", "configure", "default"], 2, "Nothing to change"),
    (["bindings", "remove", "default"], 2, "add --yes"),
    (["bindings", "remove", "nope", "--yes"], 1, "nope"),
    (["bindings", "enable", "nope"], 1, "nope"),
    (["bindings", "read-only", "default", "maybe"], 2, "'SWITCH'"),
    (["bindings", "target", "set", "default", "planet"], 2, "'TYPE'"),
    (["bindings", "target", "set", "default", "project"], 2, "Name the project"),
    (["bindings", "target", "clear", "project", "nope"], 1, "nope"),
    (["bindings", "discover", "--add", "nope"], 1, "Nothing was found under nope"),
    (["get", "x", "--history", "--provenance"], 2, "leave out --provenance"),
    (["browse", "--tags", "--limit", "3"], 2, "--tags counts all tags"),
    (["browse", "--tags", "--sort", "title"], 2, "--tags counts all tags"),
    (["browse", "--tags", "--all-bindings"], 2, "--tags counts all tags"),
    (["bindings", "sync", "default"], 2, "."),
    (["bindings", "namespaces", "default"], 2, "."),
    (["--company", "acme", "browse"], 1, "There is no company acme; the companies are local."),
    (["companies", "add", "Big Corp"], 2, "company id"),
    (["companies", "add", "local"], 5, "."),
    (["companies", "add", "x", "--link", "run"], 2, "--link takes NAME=VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_wrong_usage(here: Run, arguments: list[str], code: int, words: str) -> None:
    plain = here(*arguments)
    assert (plain.code, plain.out) == (code, ""), plain.err
    assert words in plain.err
    assert len(plain.err.splitlines()) == 1
    assert_harmless(plain.err)
    machine = here(*arguments, "--json")
    assert machine.code == code
    error = machine.document["error"]
    assert error["message"] == machine.err.strip()
    assert error["kind"]


def test_json_is_no_option_behind_two_dashes(here: Run) -> None:
    assert here("get", "--", "--json").out == ""


def test_a_bad_setting_is_wrong_usage(
    here: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text("them = 'dark'\n")
    ran = here("browse")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "did you mean theme?" in ran.err


def test_a_home_that_cannot_be_made_is_wrong_usage(here: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = here("--home", str(tmp_path / "file" / "home"), "browse")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_a_database_that_is_none_is_unavailable(here: Run, home: Path) -> None:
    (home / "memtui.db").write_bytes(b"no database" * 1000)
    ran = here("browse", "--json")
    assert ran.code == 3
    assert ran.document["error"]["kind"] == "unavailable"


def test_a_fault_of_our_own_goes_to_the_log(
    here: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(*_: object) -> None:
        raise ZeroDivisionError("secret\x1b[2J")

    monkeypatch.setattr(Session, "resolved", fault)
    ran = here("correct", "a", "b", "--json")
    log = home / "memtui.log"
    assert ran.code == 70
    assert ran.document["error"]["kind"] == "internal"
    assert (
        ran.err
        == f"memtui ran into an internal error (ZeroDivisionError); the details are in {log}.\n"
    )
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_exits_130(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "resolved", interrupted)
    ran = here("correct", "a", "b")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_ctrl_c_before_the_command_is_imported_exits_130_too() -> None:
    script = (
        "import builtins, sys; from memtui.__main__ import main; load = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'memtui.channels.cli.main': raise KeyboardInterrupt\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupted; sys.argv = ['memtui', 'browse']; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_an_interrupt_after_a_command_leaves_its_exit_code() -> None:
    script = (
        "import os, signal, sys, threading, time\n"
        "from memtui.__main__ import main\n"
        "def interrupt():\n"
        "    threading.main_thread().join()\n"
        "    while True:\n"  # it may come just before the main thread waits
        "        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)\n"
        "        time.sleep(0.01)\n"
        "class AtTheEnd:\n"
        "    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGINT):\n"
        "        kill(own, number)\n"
        "at_the_end = AtTheEnd()\n"
        "if sys.argv[1] == 'thread': threading.Thread(target=interrupt).start()\n"
        "sys.argv = ['memtui', '--version']; main()"
    )
    for when in ("thread", "end"):
        ran = subprocess.run(
            [sys.executable, "-c", script, when], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), when


def test_version(here: Run) -> None:
    assert here("--version").out.startswith("memtui ")


def test_an_interrupt_ends_at_once_until_a_command_begins() -> None:
    while_imported = (
        "import os, signal\n"
        "from memtui.channels.cli.interrupts import end_at_once, raise_interrupts\n"
        "end_at_once()\n"
        "try: {}os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt: os._exit(7)\n"
    )
    for step, code in (("", 130), ("raise_interrupts(); ", 7)):
        ran = subprocess.run([sys.executable, "-c", while_imported.format(step)], check=False)
        assert ran.returncode == code
