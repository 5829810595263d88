"""`members` and `tokens`."""

from __future__ import annotations

import pytest

from tests.channels.cli.conftest import Run


def as_user(name: str) -> tuple[str, str]:
    return ("--principal", f"user:{name}")


_ADD = ("companies", "tokens", "add")
_TOKEN = (*_ADD, "--for", "user:ana")


def test_members_come_and_go(here: Run) -> None:
    assert "everyone may do everything" in here("companies", "members", "list").err
    assert here(*as_user("ana"), "companies", "members", "add", "user:ana").code == 2
    assert (
        here(*as_user("ana"), "companies", "members", "add", "user:ana", "--role", "owner").code
        == 0
    )
    bob = here(
        *as_user("ana"),
        "companies",
        "members",
        "add",
        "user:bob",
        "--project",
        "D",
        "--subject",
        "B",
        "--json",
    )
    assert bob.document == {
        "principal": "user:bob", "subject_id": "B", "project_id": "D", "role": "member",
    }  # fmt: skip
    assert here("companies", "members", "list").code == 4
    assert (
        len(here(*as_user("bob"), "companies", "members", "list", "--json").document["members"])
        == 2
    )
    assert "user:bob" in here(*as_user("ana"), "companies", "members", "list").out
    assert here(*as_user("bob"), "facts", "add", "x", "--project", "D").code == 4
    assert here(*as_user("bob"), "facts", "add", "x", "--subject", "B").code == 0
    assert here(*as_user("ana"), "facts", "add", "x", "--project", "D").code == 0
    assert (
        here(*as_user("bob"), "companies", "members", "add", "user:bob", "--role", "owner").code
        == 4
    )
    assert here(*as_user("ana"), "companies", "members", "remove", "user:ana").code == 2
    assert (
        here(*as_user("ana"), "companies", "members", "remove", "user:bob", "--project", "D").code
        == 0
    )
    assert here(*as_user("ana"), "companies", "members", "remove", "user:bob").code == 1
    assert (
        here(*as_user("ana"), "companies", "members", "add", "user:bob", "--role", "king").code == 2
    )


def test_a_token_is_shown_once(here: Run) -> None:
    made = here(
        "companies",
        "tokens",
        "add",
        "laptop",
        "--for",
        "agent:x",
        "--acts-for",
        "user:ana",
        "--json",
    )
    token = made.document["token"]
    assert token.startswith("memtui_")
    printed = here("companies", "tokens", "add", "phone", "--for", "user:ana")
    assert printed.out.strip().startswith("memtui_")
    assert "cannot be shown again" in printed.err
    listed = here("companies", "tokens", "list", "--json")
    assert [one["label"] for one in listed.document["tokens"]] == ["laptop", "phone"]
    assert token not in listed.out + here("companies", "tokens", "list").out
    assert token not in here("ops", "list", "--json").out
    assert here("companies", "tokens", "add", "laptop", "--for", "user:ana").code == 5
    assert here("companies", "tokens", "remove", "laptop").code == 0
    assert here("companies", "tokens", "remove", "laptop").code == 1
    assert here("companies", "tokens", "add", "x").code == 2
    for bare in (
        ("companies", "tokens", "add", "x", "--for", "ana"),
        ("companies", "members", "add", "ana"),
    ):
        refused = here(*bare)
        assert (refused.code, refused.out) == (2, "")
        assert "'ana' does not say what it is: write user:NAME" in refused.err
    assert "Nothing has project:web." in here(*_TOKEN, "a", "--project", "web").err
    assert here("companies", "members", "add", "user:ana", "--role", "owner").code == 0
    as_ana = ("--principal", "user:ana", *_TOKEN)
    assert "member" not in here(*as_ana, "b").err
    assert "user:nobody is no member" in here(*as_ana[:2], *_ADD, "c", "--for", "user:nobody").err
    assert "agent:x acts for no member" in here(*as_ana[:2], *_ADD, "d", "--for", "agent:x").err


def test_an_agent_says_for_whom_it_acts(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        here(*as_user("ana"), "companies", "members", "add", "user:ana", "--role", "owner").code
        == 0
    )
    assert here(*as_user("ana"), "companies", "members", "add", "user:bob").code == 0
    assert here(*as_user("bob"), "note", "kept to oneself", "--subject", "bob").code == 0
    agent = ("--principal", "agent:x")
    alone = here(*agent, "ops", "list")
    assert (alone.code, "--acts-for" in alone.err) == (4, True)
    for_bob = here(*agent, "--acts-for", "user:bob", "browse", "--subject", "bob")
    assert (for_bob.code, "kept to oneself" in for_bob.out) == (0, True)
    assert here(*agent, "--acts-for", "user:ana", "browse", "--subject", "bob").code == 4
    assert here(*agent, "--acts-for", "agent:y", "ops", "list").code == 2
    assert here(*as_user("bob"), "--acts-for", "user:ana", "ops", "list").code == 2
    monkeypatch.setenv("MEMTUI_ACTS_FOR", "user:bob")
    assert "kept to oneself" in here(*agent, "ops", "list").out
    assert "kept to oneself" not in here(*as_user("ana"), "ops", "list").out


def test_a_stranger_is_refused_at_every_command(here: Run) -> None:
    assert (
        here(*as_user("ana"), "companies", "members", "add", "user:ana", "--role", "owner").code
        == 0
    )
    assert here(*as_user("ana"), "note", "kept", "--subject", "ana").code == 0
    for command in (
        ("ops", "list"),
        ("ops", "show", "1"),
        ("stats",),
        ("facts", "stats"),
        ("sql", "SELECT * FROM operations"),
        ("bindings", "list"),
        ("budget", "check"),
        ("companies", "members", "list"),
        ("companies", "tokens", "list"),
        ("ops", "archive", "list"),
        ("audit", "verify"),
        ("note", "x"),
    ):
        refused = here(*as_user("eve"), *command)
        assert (refused.code, refused.out) == (4, ""), command
        assert "not a member" in refused.err, command
    assert here(*as_user("eve"), "companies", "list", "--json").document == {"companies": []}


def test_a_company_is_made_read_only_and_opened(here: Run) -> None:
    assert here("companies", "read-only", "local", "on").code == 0
    refused = here("budget", "set", "agent", "x", "--usd", "1", "--per", "day")
    assert (refused.code, "companies read-only local off" in refused.err) == (4, True)
    assert here("companies", "read-only", "local", "off", "--json").document["read_only"] is False
    assert here("budget", "set", "agent", "x", "--usd", "1", "--per", "day").code == 0


def test_who_makes_somebody_else_the_first_owner_is_told_what_that_means(here: Run) -> None:
    done = here(*as_user("bob"), "companies", "members", "add", "user:ana", "--role", "owner")
    assert (done.code, "user:bob is not one; with --principal user:ana" in done.err) == (0, True)
    here(*as_user("ana"), "companies", "members", "add", "user:eve")
    undone = here(*as_user("ana"), "undo")
    assert "“set member user:eve: role member”" in undone.err
    more = here(*as_user("ana"), "companies", "members", "add", "user:eve")
    assert (more.code, more.err) == (0, "")


def test_a_name_without_its_kind_is_nobody(here: Run) -> None:
    refused = here("--principal", "ana", "stats")
    assert (refused.code, "write user:NAME for a person" in refused.err) == (2, True)
