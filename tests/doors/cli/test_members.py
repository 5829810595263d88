"""`members` and `tokens`."""

from __future__ import annotations

from tests.doors.cli.conftest import Run


def as_user(name: str) -> tuple[str, str]:
    return ("--principal", f"user:{name}")


def test_members_come_and_go(here: Run) -> None:
    assert "everybody may do everything" in here("members", "list").err
    assert here(*as_user("ana"), "members", "add", "user:ana").code == 2
    assert here(*as_user("ana"), "members", "add", "user:ana", "--role", "owner").code == 0
    bob = here(
        *as_user("ana"), "members", "add", "user:bob", "--project", "D", "--subject", "B", "--json"
    )
    assert bob.document == {
        "principal": "user:bob", "subject_id": "B", "project_id": "D", "role": "member",
    }  # fmt: skip
    assert here("members", "list").code == 4
    assert len(here(*as_user("bob"), "members", "list", "--json").document["members"]) == 2
    assert "user:bob" in here(*as_user("ana"), "members", "list").out
    assert here(*as_user("bob"), "facts", "add", "x", "--project", "D").code == 4
    assert here(*as_user("bob"), "facts", "add", "x", "--subject", "B").code == 0
    assert here(*as_user("ana"), "facts", "add", "x", "--project", "D").code == 0
    assert here(*as_user("bob"), "members", "add", "user:bob", "--role", "owner").code == 4
    assert here(*as_user("ana"), "members", "remove", "user:ana").code == 2
    assert here(*as_user("ana"), "members", "remove", "user:bob", "--project", "D").code == 0
    assert here(*as_user("ana"), "members", "remove", "user:bob").code == 1
    assert here(*as_user("ana"), "members", "add", "user:bob", "--role", "king").code == 2


def test_a_token_is_shown_once(here: Run) -> None:
    made = here("tokens", "add", "laptop", "--for", "agent:x", "--acts-for", "user:ana", "--json")
    token = made.document["token"]
    assert token.startswith("memtui_")
    printed = here("tokens", "add", "phone", "--for", "user:ana")
    assert printed.out.strip().startswith("memtui_")
    assert "cannot be shown again" in printed.err
    listed = here("tokens", "list", "--json")
    assert [one["label"] for one in listed.document["tokens"]] == ["laptop", "phone"]
    assert token not in listed.out + here("tokens", "list").out
    assert token not in here("ops", "list", "--json").out
    assert here("tokens", "add", "laptop", "--for", "user:ana").code == 5
    assert here("tokens", "remove", "laptop").code == 0
    assert here("tokens", "remove", "laptop").code == 1
    assert here("tokens", "add", "x").code == 2
