"""The page about review, followed to the letter, and what else its commands say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_IDS = re.compile(r"\b[0-9a-f]{32}\b")


def held(here: Run) -> list[str]:
    return [one["pending_id"] for one in here("review", "list", "--json").document["waiting"]]


@pytest.mark.slow
def test_the_page_about_review_says_what_happens(here: Run) -> None:
    page = (Path(__file__).parents[3] / "docs/review.md").read_text("utf-8")
    steps = [
        step.partition("\n")
        for block in _BLOCK.findall(page)
        for step in block.removeprefix("$ ").split("\n$ ")
    ]
    assert len(steps) > 8
    for line, _, shown in steps:
        words = [next(iter(held(here))) if one == "ID" else one for one in shlex.split(line)]
        ran = here(*words[1:])
        told = re.sub(r"\b[0-9a-f]{16}\b", "SEEN", _IDS.sub("ID", ran.out))
        told = re.sub(r"held     \d+ s ago", "held     0 s ago", told)
        assert (ran.code, told.strip()) == (0, shown.strip()), line


@pytest.mark.slow
def test_several_are_decided_on_at_once_and_an_agent_is_refused(here: Run) -> None:
    assert here("review", "rule", "default", "hold", "all").code == 0
    bot = ("--principal", "agent:bot")
    noted = here(*bot, "note", "One.", "--json").document
    assert noted["pending"]["reasons"] == ["hold all"]
    for text in ("Two.", "Three."):
        assert here(*bot, "note", text).code == 0
    assert here(*bot, "review", "list").code == 4
    assert here("stats", "--json").document["pending_count"] == 3
    assert "3 now" in here("stats").out
    first, second, third = held(here)
    assert here("review", "fix", first, "One, fixed.").code == 0
    [fixed] = here("browse", "--json").document["records"]
    told = here("get", fixed["handle"]["provider_record_id"], "--provenance").out
    assert " by agent:bot, fixed and accepted by user:" in told
    history = here("get", "--history", fixed["handle"]["provider_record_id"])
    assert history.out.count(" by agent:bot, fixed and accepted by user:") == 2
    versions = here("get", "--history", fixed["handle"]["provider_record_id"], "--json").document
    assert [one["created_by"] for one in versions["timeline"]] == ["agent:bot"]
    changed = here("review", "accept", second, "0000", third)
    assert (changed.code, held(here)) == (1, [second, third])
    done = here("review", "accept", "--all", "--always", "agent", "--json").document
    assert [one["pending_id"] for one in done["decided"]] == [second, third]
    assert [one["value"] for one in done["rules"]] == ["bot"]
    assert here(*bot, "note", "Four.").err.startswith("Stored in default")
    assert here("browse").out.count("\n") >= 4
    undo = f"memtui undo {done['decided'][-1]['operation_id']}"
    assert here(*undo.split()[1:]).code == 0
    assert held(here) == [second, third]
    told = here("review", "refuse", "--all").err
    assert told.count("Refused ") == 2
    assert told.count("memtui undo ") == told.count(" takes all of it back.") == 1
    for wrong in (["accept"], ["accept", "x", "--all"], ["fix", "x", "y"], ["rule", "default",
                  "accept", "all"], ["refuse", "--older-than", "30d"]):  # fmt: skip
        assert here("review", *wrong).code in {1, 2}


@pytest.mark.slow
def test_a_correction_whose_record_is_gone_is_not_offered(here: Run) -> None:
    record_id = here("note", "We deploy from main").out.strip()
    assert here("review", "rule", "default", "hold", "all").code == 0
    assert here("--principal", "agent:bot", "correct", record_id, "From dev").code == 0
    assert here("forget", record_id, "--yes").code == 0
    [one] = held(here)
    shown = here("review", "show", one)
    assert f"is gone; refuse it: memtui review refuse {one[:8]}" in shown.out + shown.err
    assert "accepts it" not in shown.out + shown.err
    seen = here("review", "show", one, "--json").document["seen"]
    assert here("review", "accept", one, "--seen", seen).code == 5
    assert here("review", "accept", "--all").code == 5
    assert here("--principal", "agent:bot", "note", "Another.").code == 0
    done = here("review", "accept", "--all", "--json")
    assert (done.code, [one["kind"] for one in done.document["failed"]]) == (5, ["conflict"])
    assert here("review", "refuse", one).code == 0


@pytest.mark.slow
def test_what_no_rule_can_be_made_of_is_told_with_what_was_decided(here: Run) -> None:
    assert here("review", "rule", "default", "hold", "all").code == 0
    bot = ("--principal", "agent:bot", "--acts-for", "user:ben")
    assert here(*bot, "note", "Ben is here.", "--project", "web").code == 0
    [one] = held(here)
    assert here("review", "accept", one, "--always", "subject").code == 2
    assert held(here) == [one]
    ana, ben = ("--principal", "user:ana"), ("--principal", "user:ben")
    in_web = ("user:ben", "--role", "admin", "--project", "web")
    for member in (("user:ana", "--role", "owner"), in_web):
        assert here(*ana, "companies", "members", "add", *member).code == 0
    half = here(*ben, "review", "accept", one, "--always", "agent")
    assert half.code == 1
    assert "it is decided on, but no rule was made of it. Only an admin or owner" in half.err
    assert here(*ben, "browse", "--project", "web").out.count("Ben is here.") == 1


def test_a_change_of_a_binding_waits_for_a_second_person(here: Run) -> None:
    ben = {"MEMTUI_PRINCIPAL": "user:ben"}
    ana = {"MEMTUI_PRINCIPAL": "user:ana"}
    for who in ("user:ana", "user:ben"):
        assert here("companies", "members", "add", who, "--role", "owner", **ana).code == 0
    assert here("companies", "configure", "--second-yes", "on", **ana).code == 0
    waits = here("bindings", "disable", "default", "--json", **ana)
    assert (waits.code, waits.document["pending"]["reasons"]) == (0, ["second person"])
    pending_id = waits.document["pending"]["pending_id"]
    own = here("review", "accept", pending_id, **ana)
    assert (own.code, "You proposed this" in own.err) == (4, True)
    assert "binding default: enabled: true → false" in here("review", "list", **ben).out
    assert here("review", "show", pending_id, **ben).out.startswith(
        "  - enabled: true\n  + enabled: false\n"
    )
    assert here("review", "fix", pending_id, "x", **ben).code == 2
    assert here("review", "refuse", pending_id, "--reason", "Not now", **ben).code == 0
    told = here("review", "list", **ana)
    assert f"ben refused your {pending_id[:8]}" in told.err
    assert "Not now" in told.err
    again = here("bindings", "disable", "default", **ana)
    assert (again.code, again.out) == (0, "")
    assert "until another owner or admin accepts it" in again.err
    assert here("review", "accept", "--all", **ben).code == 0
    first = here("ops", "list", "--limit", "1", **ana).out.splitlines()[1]
    assert first.endswith("update binding default: not enabled, proposed by user:ana")
    assert "disabled" in here("note", "x", **ana).err
