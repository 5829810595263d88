"""`budget`: spending limits on the command line."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from memtui.contract import Usage
from tests.channels.cli.conftest import Run, assert_harmless
from tests.service.fake import FakeAdapter

Fake = type[FakeAdapter]


def spend(fake: Fake, here: Run, *usage: Usage, agent: str = "coding") -> None:
    fake.usage = usage
    assert here("note", "x", "--agent", agent).code == 0


def used(usd: str | None, tokens: int = 100) -> Usage:
    cost = None if usd is None else Decimal(usd)
    return Usage(provider="mem0", input_tokens=tokens, cost_usd=cost)


def test_without_limits_the_check_is_done(here: Run, fake: Fake) -> None:
    for command in ("check", "list"):
        plain = here("budget", command)
        assert (plain.code, plain.out) == (0, "")
        assert plain.err == "There are no spending limits; `memtui budget set` sets one.\n"
    assert here("budget", "check", "--json").document == {"passed": True, "limits": []}
    assert here("budget", "list", "--json").document == {"limits": []}


def test_limits_come_and_go(here: Run, fake: Fake) -> None:
    for target in ("agent", "project"):
        done = here("budget", "set", target, "nobody", "--usd", "5", "--per", "day")
        assert (done.code, f"Nothing has {target}:nobody." in done.err) == (0, True)
        assert here("budget", "remove", target, "nobody").code == 0
    made = here("budget", "set", "agent", "coding", "--usd", "$5.00", "--per", "day")
    assert (made.code, made.out) == (0, "agent coding: $5 a day\n")
    again = here("budget", "set", "agent", "coding", "--usd", "6.5", "--per", "day", "--json")
    assert again.document == {
        "target_type": "agent", "target_id": "coding", "measure": "usd", "amount": "6.5",
        "period": "day", "action": "warn",
    }  # fmt: skip
    here("budget", "set", "agent", "coding", "--tokens", "1000", "--per", "month")
    here("budget", "set", "company", "--tokens", "1000000", "--per", "month")
    assert here("budget", "list").out.splitlines()[1:] == [
        "agent coding      1,000 tokens  month  warn",
        "agent coding             $6.50  day    warn",
        "company       1,000,000 tokens  month  warn",
    ]
    gone = here("budget", "remove", "agent", "coding", "--usd", "--per", "day")
    assert (gone.code, gone.out) == (0, "agent coding: $6.50 a day\n")
    assert here("budget", "remove", "agent", "coding", "--per", "day").code == 1
    assert len(here("budget", "remove", "company", "--json").document["removed"]) == 1
    listed = here("budget", "list", "--json").document["limits"]
    assert [(one["measure"], one["amount"]) for one in listed] == [("tokens", 1000)]


def test_a_passed_limit_fails_the_check_and_is_named(here: Run, fake: Fake) -> None:
    here("budget", "set", "agent", "coding", "--usd", "5", "--per", "day")
    here("budget", "set", "company", "--tokens", "1000", "--per", "month")
    spend(fake, here, used("3.99"))
    fine = here("budget", "check")
    assert (fine.code, fine.err) == (0, "Spending is within every limit.\n")
    spend(fake, here, used("0.5"))
    near = here("budget", "check")
    assert near.code == 0
    assert near.err == "The agent coding is near its limit: $4.49 of $5 today (89%).\n"
    assert here("budget", "check", "--warn", "0.9").err == "Spending is within every limit.\n"
    spend(fake, here, used("1"), used(None))
    passed = here("budget", "check")
    assert passed.code == 1
    assert passed.err == (
        "The agent coding has passed its limit: ≥ $5.49 of $5 today (≥ 109%); 1 call unpriced.\n"
    )
    assert passed.out.splitlines()[1:] == [
        "✗ passed  agent coding     ≥ $5.49            $5  ≥ 109%  today       warn",
        "✓ ok      company       400 tokens  1,000 tokens     40%  this month  warn",
    ]
    machine = here("budget", "check", "--json")
    assert (machine.code, machine.err) == (1, "")
    assert not machine.document["passed"]
    dollars = machine.document["limits"][0]
    assert (dollars["spent"], dollars["amount"], dollars["unpriced_count"]) == ("5.49", "5", 1)
    assert (dollars["state"], dollars["share"]) == ("passed", 1.098)
    earlier = here("budget", "check", "--at", "90d")
    assert (earlier.code, earlier.err) == (0, "Spending is within every limit.\n")
    assert "today" not in earlier.out


def test_doctor_tells_of_a_passed_limit(here: Run, fake: Fake) -> None:
    here("budget", "set", "agent", "coding", "--usd", "5", "--per", "day")
    assert "limits local" not in here("doctor").out
    spend(fake, here, used("6"))
    [line] = [one for one in here("doctor").out.splitlines() if "limits local" in one]
    assert line.startswith("! limits local: The agent coding has passed its limit: $6 of $5 today")


def test_hostile_names_are_shown_safely(here: Run, fake: Fake) -> None:
    name = "\u202eevil [$error]"
    assert here("budget", "set", "agent", name, "--usd", "5", "--per", "day").code == 2
    assert here("budget", "set", "agent", "[/a [$x]", "--tokens", "10", "--per", "day").code == 0
    spend(fake, here, used("6"), agent="[/a [$x]")
    found = here("budget", "check")
    assert found.code == 1
    assert_harmless(found.out + found.err)
    assert "agent [/a [$x]" in found.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["set", "company", "--per", "day"], 2, "--usd or --tokens, one of them"),
        (["set", "company", "--usd", "1", "--tokens", "1", "--per", "day"], 2, "one of them"),
        (["set", "company", "--usd", "1"], 2, "'--per'"),
        (["set", "agent", "--usd", "1", "--per", "day"], 2, "Name the agent"),
        (["set", "planet", "x", "--usd", "1", "--per", "day"], 2, "TYPE"),
        (["set", "company", "acme", "--usd", "1", "--per", "day"], 2, "name no other"),
        (["set", "binding", "nope", "--usd", "1", "--per", "day"], 1, "no binding nope"),
        (["set", "company", "--usd", "five", "--per", "day"], 2, "in dollars such as 5"),
        (["set", "company", "--usd", "NaN", "--per", "day"], 2, "in dollars such as 5"),
        (["set", "company", "--usd", "-1", "--per", "day"], 2, "more than 0"),
        (["set", "company", "--tokens", "0", "--per", "day"], 2, "'--tokens'"),
        (["set", "company", "--tokens", str(2**63), "--per", "day"], 2, "whole number"),
        (["check", "--at", "once"], 2, "is not a time"),
        (["check", "--warn", "80"], 2, "'--warn'"),
        (["remove", "agent"], 2, "Name the agent"),
        (["remove", "agent", "x"], 1, "has no such limit"),
    ],
    ids=str,
)
def test_wrong_usage(here: Run, fake: Fake, arguments: list[str], code: int, words: str) -> None:
    plain = here("budget", *arguments)
    assert (plain.code, plain.out) == (code, "")
    assert words in plain.err
    assert len(plain.err.splitlines()) == 1


def test_read_only_refuses(here: Run, fake: Fake) -> None:
    set_one = ("budget", "set", "company", "--usd", "5", "--per", "day")
    assert here("--read-only", *set_one).code == 4
    assert here(*set_one).code == 0
    assert here("--read-only", "budget", "remove", "company").code == 4
    assert here("--read-only", "budget", "check").code == 0


def test_a_bindings_and_a_companys_limits_stand_with_them(here: Run, fake: Fake) -> None:
    here("budget", "set", "binding", "default", "--usd", "5", "--per", "day")
    shown = here("bindings", "show", "default", "--json").document
    assert (shown["key"], [one["amount"] for one in shown["limits"]]) == ("default", ["5"])
    assert "$0 of $5 today" in here("bindings", "show", "default").out
    company = here("companies", "show", "--json").document
    assert (company["company_id"], company["limits"]) == ("local", [])
    assert "none" in here("companies", "show").out.splitlines()[-1]


def test_a_passed_limit_is_told_to_whoever_asks(here: Run, fake: Fake) -> None:
    spend(fake, here, used("1"))
    made = here("budget", "set", "agent", "coding", "--tokens", "1", "--per", "day", "--then",
                "no-search")  # fmt: skip
    assert made.out == "agent coding: 1 token a day, then no-search\n"
    kept = here("budget", "set", "agent", "coding", "--tokens", "2", "--per", "day", "--json")
    assert kept.document["action"] == "no-search"
    assert "then no-search" in here("budget", "check").err
    sentence = "The agent coding has passed its spending limit of a day, so nothing is searched"
    asked = here("query", "main", "--agent", "coding", "--json")
    assert asked.code == 4
    error = asked.document["error"]
    assert (error["kind"], error["message"].startswith(sentence)) == ("denied", True)
    prompt = ("context", "--agent", "coding", "--prompt", "What about main?")
    assert sentence in here(*prompt).out
    call = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "And main?"}

    def told() -> str:
        ran = here("hook", "pre-run", "--agent", "coding", stdin=json.dumps(call).encode())
        assert ran.code == 0
        return str(ran.document["hookSpecificOutput"]["additionalContext"])

    assert sentence in told()
    here("budget", "set", "agent", "coding", "--tokens", "2", "--per", "day", "--then", "refuse")
    assert "so nothing is read, searched or written for it until" in told()
    hook = ("hook", "pre-run", "--agent", "coding", "--json")
    document = here(*hook, stdin=json.dumps(call).encode()).document
    assert "so nothing is read, searched or written" in document["error"]["message"]
    refused = here("query", "main", "--agent", "coding").err
    assert "so nothing is searched, written or put into a context for it until" in refused
