"""`context`: the text, its tokens and its price, for a person, a program and a pipeline."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from memtui.context.cost import TokenCounter
from tests.channels.cli.conftest import Run
from tests.channels.cli.test_facts import U, add
from tests.contexts import seed_context

BOTH = (*U, "--project", "D")


@pytest.fixture
def text(here: Run) -> str:
    add(here, "Prefers concise replies")
    add(here, "Uses SQLite", "--project", "D")
    return seed_context(["Prefers concise replies"], ["Uses SQLite"])


def test_the_document(here: Run, text: str) -> None:
    found = here("context", *BOTH, "--model", "gpt-4o", "--json").document
    assert found["text"] == text
    assert found["tokens"] == TokenCounter("gpt-4o").tokens(text)
    assert (found["budget"], found["over_budget"], found["exact"]) == (500, False, True)
    assert [section["title"] for section in found["sections"]] == [
        "About This User", "About This Workspace",
    ]  # fmt: skip
    (fact,) = found["sections"][0]["facts"]
    assert (fact["text"], fact["tokens"] > 0) == ("Prefers concise replies", True)
    assert Decimal(found["price"]["cost_usd"]) * 1000 == Decimal(
        found["price"]["per_1000_requests_usd"]
    )
    assert isinstance(found["price"]["cost_usd"], str)
    assert found["share"]["baseline"]["max_tokens"] == 19_000
    assert found["left_out"] == found["warnings"] == []


def test_text_alone_is_exact(here: Run, text: str) -> None:
    assert here("context", *BOTH, "--text").out == text


def test_a_person_sees_bars_cost_and_share(here: Run, text: str) -> None:
    out = here("context", *BOTH).out
    assert out.startswith(text.rstrip("\n"))
    for part in ("░", "tokens of 500", "per 1,000 requests", "of a typical prompt", "estimated"):
        assert part in out
    assert "unpriced" in here("context", *BOTH, "--model", "nobody-has-it").out


def test_check_fails_over_budget(here: Run, text: str) -> None:
    ran = here("context", *BOTH, "--budget", "5", "--check")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert here("context", *BOTH, "--budget", "5", "--check", "--json").document["over_budget"]
    assert here("context", *BOTH, "--budget", "5").code == 0
    assert here("context", *BOTH, "--check").code == 0
    for number in range(6):
        assert here("facts", "add", f"{number} " + "word " * 36, *BOTH[:2]).code == 0
    checked = here("context", *BOTH, "--check")
    assert (checked.code, len(checked.err.splitlines())) == (1, 1)
    assert checked.err.startswith("The section ")


def test_the_settings_give_budget_and_model(
    here: Run, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTUI_CONTEXT_BUDGET", "7")
    monkeypatch.setenv("MEMTUI_CONTEXT_MODEL", "gpt-4o")
    found = here("context", *BOTH, "--json").document
    assert (found["budget"], found["model"]) == (7, "gpt-4o")


def test_only_a_delivered_one_counts_as_read(here: Run, text: str) -> None:
    def never_read() -> int:
        plan = here("facts", "prune", *U, "--unread-days", "0", "--json").document
        return sum(one["reason"] == "never_read" for one in plan["candidates"])

    [fact] = here("facts", "list", *U, "--json").document["facts"]
    record_id = fact["handle"]["provider_record_id"]
    looks = (
        ("context", *BOTH),
        ("get", record_id),
        ("get", record_id, "--history"),
        ("browse", *U),
        ("facts", "list", *U),
        ("ops", "list"),
    )
    for look in looks:
        assert here(*look).code == 0, look
    assert never_read() == 1
    assert here("browse", "read:never", *U, "--json").document["total"] == 1
    here("context", *BOTH, "--delivered")
    assert never_read() == 0


def test_what_is_cut_is_listed(here: Run, text: str) -> None:
    limit = here("context", *BOTH, "--json").document["tokens"] - 1
    cut = ("context", *BOTH, "--max-tokens", str(limit))
    found = here(*cut, "--json").document
    assert found["tokens"] <= limit
    assert [left["text"] for left in found["left_out"]] == ["Uses SQLite"]
    assert "left out of" in here(*cut).out


def test_a_run_gets_what_its_prompt_finds_and_nothing_twice(here: Run, text: str) -> None:
    here("note", "Deploys need two reviews", "--project", "D")
    asked = ("context", *BOTH, "--run", "r1", "--new-only", "--prompt", "deploys?", "--delivered")
    first = here(*asked, "--json").document
    assert first["text"].startswith(text)
    [found] = first["sections"][-1]["facts"]
    assert (found["text"], found["tokens"] > 0) == ("Deploys need two reviews", True)
    again = here(*asked)
    assert "SQLite" not in again.out
    assert "3 records left out: given to the run before" in again.out
    refused = here("context", *BOTH, "--new-only")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_a_provider_is_synced_and_says_what_it_knows(here: Run, text: str) -> None:
    here("bindings", "add", "hosted", "demo-hosted")
    here("note", "Guests pay in coins", "--subject", "U", "--binding", "hosted")
    found = here("bindings", "profile", *U, "--binding", "hosted", "--json").document
    assert "Guests pay in coins" in found["profile"]["summary"]
    assert "Guests pay in coins" in here("bindings", "profile", *U, "--binding", "hosted").out
    assert "Guests" not in here("bindings", "profile", "--project", "D", "--binding", "hosted").out
    refused = here("bindings", "profile", *U)
    assert (refused.code, refused.err) == (
        2, "The provider vault of binding default has no profile.\n",
    )  # fmt: skip
    assert here("bindings", "sync", "default").out == "saw 2, changed 0, removed 0\n"
    operation_id = here("bindings", "sync", "default", "--json").document["operation_id"]
    refused = here("undo", operation_id)
    assert (refused.code, "only reads changes" in refused.err) == (2, True)
    assert here("bindings", "sync", "default", "--source", "run").code == 2
    of_one = here("bindings", "sync", "default", "--source", "run", "--run-id", "r1")
    assert (of_one.code, of_one.err.count("\n")) == (2, 1)


def test_a_context_about_nobody_is_wrong_usage(here: Run) -> None:
    assert here("context").code == 2


def test_what_could_not_be_read_is_told(here: Run, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    facts = vault / "users/ana/facts.md"
    facts.parent.mkdir(parents=True)
    facts.write_bytes(b"- likes tabs\n- b\xffd\n")
    assert here("bindings", "add", "files", "vault", "--set", f"path={vault}").code == 0
    place = ("--subject", "ana", "--binding", "files")
    told = f"not read: {facts}:2: The line holds bytes that are not UTF-8"
    for command in (
        ("context", "--check", *place),
        ("context", "--text", *place),
        ("facts", "list", *place),
        ("facts", "export", *place),
        ("browse", *place),
        ("query", "tabs", *place),
    ):
        ran = here(*command)
        assert ran.code == 0, ran
        assert told in ran.err
        assert "likes tabs" in ran.out
        document = here(*command, "--json").document
        [problem] = document.get("bindings", [document])[0]["problems"]
        assert problem["location"] == {"path": str(facts), "line": 2}
    pruned = here("facts", "prune", *place)
    assert pruned.code == 0
    assert told in pruned.err
