"""`--as-of`, `changes` and `history`, and that the page about them says what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.channels.cli.conftest import Run

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def test_the_page_about_time_says_what_happens(here: Run) -> None:
    page = (Path(__file__).parents[3] / "docs/time.md").read_text("utf-8")
    steps = [
        step.partition("\n")
        for block in _BLOCK.findall(page)
        for step in block.removeprefix("$ ").split("\n$ ")
    ]
    assert len(steps) > 8
    for line, _, shown in steps:
        ran = here(*shlex.split(line)[1:])
        assert (ran.code, ran.out.strip()) == (0, shown.strip()), line


def test_an_answer_of_the_past_says_so(here: Run) -> None:
    place = ("--project", "web")
    assert here("note", "region: eu", "--kind", "fact", *place).code == 0
    for command in (
        ["browse", *place],
        ["query", "region", *place],
        ["facts", "list", *place],
        ["context", *place],
        ["runs", "list"],
    ):
        ran = here(*command, "--as-of", "2026-03-01T09:00")
        assert ran.err.startswith("As of 2026-03-01 09:00"), command
        document = here(*command, "--as-of", "2026-03-01T09:00", "--json").document
        assert document["as_of"].startswith("2026-03-01"), command
        assert "eu" not in ran.out
        assert here(*command, "--json").document["as_of"] is None
    delivered = here("context", *place, "--as-of", "1d", "--delivered")
    assert delivered.code == 2
    assert "leave out --delivered" in delivered.err
    ahead = here("browse", *place, "--as-of", "2400-01-01")
    assert (ahead.code, ahead.out) == (2, "")
    assert ahead.err == "2400-01-01 is yet to come; give a moment in the past, such as 90d.\n"


def test_changes_and_history_say_who_and_why(here: Run) -> None:
    place, kind = ("--project", "web"), ("--kind", "fact", "--mode", "upsert")
    assert here("note", "region: eu", *kind, *place, "--valid-from", "30d").code == 0
    run = ("--source", "run", "--run-id", "4410", "--principal", "agent:ops")
    changed = here(*run[4:], "note", "region: us", *kind, *place, *run[:4])
    assert changed.code == 0, changed.err
    ran = here("changes", "--since", "20d", *place)
    assert "  - region: eu\n  + region: us\n" in ran.out
    assert "by agent:ops, from run 4410" in ran.out
    assert "0 added, 1 changed, 0 removed" in ran.err
    days = here("changes", "--since", "60d", "--days", *place, "--json").document["days"]
    assert [(one["added"], one["changed"]) for one in days] == [(1, 0), (0, 1)]
    history = here("get", "projects/web/facts.md#/region", "--history", *place).out
    assert "to now  by agent:ops  from run 4410" in history
    assert "ended by agent:ops" in history
    assert "  + region: eu\n    valid: " in history
    assert here("correct", "projects/web/facts.md#/region", "--pin", *place).code == 0
    history = here("get", "projects/web/facts.md#/region", "--history", *place).out
    assert "    region: us\n    pinned: no → yes\n" in history
    ends_first = ("--valid-from", "2026-05-01", "--valid-to", "2026-04-01")
    wrong = here("note", "region: eu", *kind, *place, *ends_first)
    assert (wrong.code, wrong.err) == (
        2, "The request does not fit: the window must end after it begins.\n",
    )  # fmt: skip
    wrong = here("changes", "--since", "1d", "--until", "2d")
    assert (wrong.code, wrong.out) == (2, "")
    assert "swap them" in wrong.err
    ahead = here("changes", "--since", "2400-01-01")
    assert (ahead.code, ahead.out) == (2, "")
    assert "'2400-01-01' is still to come" in ahead.err


def test_a_moment_is_no_filter_of_changes(here: Run) -> None:
    for words in (["yesterday"], ["last monday"], ["2026-01-01", "2026-02-01"]):
        ran = here("changes", *words)
        assert ran.code == 2
        assert f"say --since {shlex.quote(words[0])}" in ran.err
    assert here("changes", "deployed", "today").code == 0
