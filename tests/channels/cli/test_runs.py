"""`runs`: a run that a hook told something, listed, replayed and asked again."""

from __future__ import annotations

import json

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless

FACT = "Deploys happen from release"
APOLLO = ("--project", "apollo")


@pytest.fixture
def told(here: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a session was told at its start; afterwards it asked something and left a note."""
    monkeypatch.setenv("MEMTUI_HOOK_TIMEOUT_MS", "60000")  # what it is told hangs on no speed
    assert here("facts", "add", FACT, *APOLLO).code == 0
    call = {
        "session_id": "s-1",
        "cwd": "/x",
        "hook_event_name": "SessionStart",
        "source": "startup",
    }
    ran = here("hook", "pre-run", *APOLLO, stdin=json.dumps(call).encode())
    assert here("query", "deploys", *APOLLO, "--run", "s-1").code == 0
    note = f"Mind the geese. {HOSTILE}\nThe second line is {'long ' * 30}"
    assert here("note", note, *APOLLO, "--run", "s-1").code == 0
    text: str = ran.document["hookSpecificOutput"]["additionalContext"]
    return text


def test_a_run_is_listed_and_replayed(here: Run, told: str) -> None:
    [run] = here("runs", "list", "since:1d", "--json").document["runs"]
    assert (run["run_id"], run["contexts"], run["queries"], run["writes"]) == ("s-1", 1, 1, 1)
    assert run["channels"] == ["cli", "hook"]
    counted = here("stats", "--json").document["operation_count"]
    found = here("runs", "show", "s-", "--json").document
    assert here("stats", "--json").document["operation_count"] == counted
    first, asked, wrote = found["steps"]
    assert first["context"]["text"] == told
    assert [one["text"] for one in first["records"]] == [FACT]
    assert [one["state"] for one in asked["records"]] == ["unchanged"]
    assert wrote["operation"]["operation_type"] == "write"
    shown = here("runs", "show", "s-1").out
    own = ("ops", "list", "type:get")
    assert (here(*own).out, "  for replay\n" in here(*own, "--internal").out) == ("", True)
    read, *_ = here(*own, "--internal", "--json").document["operations"]
    assert (read["to_show"], read["binding_reason"]) == (True, "because you chose it")
    assert here("stats", "--json").document["hit_sign"] == "score", "a replay opens nothing"
    assert f"| - {FACT}" in shown
    assert "given    1 context" in shown
    price = first["context"]["price"]
    assert f"prompts  ${price['cost_usd']} as {price['model']}\n" in shown
    assert "cost     $0.00\n" in shown
    assert_harmless(shown)
    [line] = [one for one in shown.splitlines() if "still stored: Mind the geese." in one]
    assert line.endswith("…")
    record = first["records"][0]["handle"]["provider_record_id"]
    assert here("runs", "list", "--delivered", record, "--json").document["total"] == 1
    assert here("runs", "list", "--delivered", "no-such", "--json").document["total"] == 0


def test_what_it_would_be_told_now(here: Run, told: str) -> None:
    same = here("runs", "show", "s-1", "--diff")
    assert "the same, word for word" in same.out
    [record] = here("runs", "show", "s-1", "--json").document["steps"][0]["records"]
    record_id = record["handle"]["provider_record_id"]
    assert here("correct", record_id, "Deploys are paused", *APOLLO).code == 0
    [now] = here("runs", "show", "s-1", "--diff", "--json").document["contexts"]
    assert now["delivered"] == told
    assert [line for line in now["difference"][2:] if line[0] in "-+"] == [
        f"-- {FACT}", "+- Deploys are paused",
    ]  # fmt: skip
    shown = here("runs", "show", "s-1").out
    assert "changed since" in shown
    assert "now: Deploys are paused" in shown


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (
            ("show", "nobody"),
            1,
            "There is no run nobody; `memtui runs list` shows those there are.",
        ),
        (("show", ""), 2, "A run is named by its id; give one, or the beginning of it."),
        (("list", "agnt:x"), 2, "There is no filter field agnt; did you mean agent:?"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    here: Run, line: tuple[str, ...], code: int, sentence: str
) -> None:
    ran = here("runs", *line)
    assert (ran.code, ran.out, ran.err.strip()) == (code, "", sentence)


def test_a_run_that_was_told_nothing_has_nothing_to_compare(here: Run) -> None:
    assert here("query", "deploys", "--run", "r-2").code == 0
    ran = here("runs", "show", "r-2", "--diff")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.strip() == "The run r-2 was given no context by memtui."
    assert here("runs", "list", "run:r-3").err.splitlines()[0].startswith("No run is in the log")


def test_a_fact_belongs_to_the_run_that_is_named(here: Run) -> None:
    run = (*APOLLO, "--run", "r-3")
    assert here("facts", "add", FACT, *run, "--source", "run").code == 0
    assert here("facts", "set", "region", "eu", *run).code == 0
    [listed] = here("runs", "list", "--json").document["runs"]
    assert (listed["run_id"], listed["writes"]) == ("r-3", 2)
    [fact, *_] = here("facts", "list", *APOLLO, "--json").document["facts"]
    assert fact["source"]["run_id"] == "r-3", "which is also what it comes from"
