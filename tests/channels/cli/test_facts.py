"""`facts` over the real vault: add, list, edit, delete, clear, merge, pin, expire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless

U = ("--subject", "U")


def add(here: Run, text: str, *more: str) -> str:
    ran = here("facts", "add", text, *(more or U))
    assert ran.code == 0, ran.err
    return ran.out.strip()


def listed(here: Run, *scope: str) -> list[Any]:
    return list(here("facts", "list", *(scope or U), "--json").document["facts"])


def texts(here: Run, *scope: str) -> list[str]:
    return [fact["text"] for fact in listed(here, *scope)]


def test_a_fact_is_added_listed_edited_and_deleted(here: Run) -> None:
    record_id = add(here, "Prefers tabs")
    (fact,) = listed(here)
    assert (fact["text"], fact["kind"], fact["scope"]["subject_id"]) == (
        "Prefers tabs",
        "fact",
        "U",
    )
    assert fact["tokens"] > 0
    assert fact["created_by"].startswith("user:")
    shown = here("facts", "list", *U)
    assert "Prefers tabs" in shown.out
    assert "line by line" in shown.err  # which is not what a context counts
    assert here("facts", "edit", record_id, "Prefers spaces", *U).code == 0
    assert texts(here) == ["Prefers spaces"]
    assert here("facts", "edit", record_id, "-", *U, stdin=b"Prefers both\n").code == 0
    assert here("facts", "edit", record_id, *U, "--tag", "style").code == 0
    assert [(one["text"], one["tags"]) for one in listed(here)] == [("Prefers both", ["style"])]
    assert here("undo").code == here("undo", "--subject", "U").code == 0
    assert here("facts", "delete", record_id, *U).code == 2
    assert here("facts", "delete", record_id, *U, "--dry-run").code == 0
    deleted = here("facts", "delete", record_id, *U, "--yes")
    assert (deleted.code, deleted.out.strip()) == (0, record_id)
    assert texts(here) == []
    assert here("undo").code == 0
    assert texts(here) == ["Prefers spaces"]


def test_a_fact_has_200_characters_at_most(here: Run) -> None:
    assert add(here, "x" * 200)
    for arguments in (["facts", "add", "x" * 201, *U], ["facts", "add", "two\nlines", *U]):
        ran = here(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
    assert len(listed(here)) == 1


def test_a_scope_holds_no_more_than_its_limit(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTUI_FACT_MAX_COUNT", "2")
    for number in range(2):
        add(here, f"Fact {number}")
    ran = here("facts", "add", "One more", *U)
    assert (ran.code, "may hold 2" in ran.err) == (2, True)
    assert here("facts", "add", "One more", "--project", "D").code == 0


def test_whose_facts(here: Run) -> None:
    add(here, "Of the user")
    add(here, "Of the drive", "--project", "D")
    add(here, "From the agent", "--project", "D", "--agent", "coding")
    add(here, "Of the agent", "--agent", "coding")
    assert texts(here, "--project", "D") == ["Of the drive", "From the agent"]
    assert texts(here, "--agent", "coding") == ["Of the agent"]
    assert len(here("facts", "list", "--json").document["facts"]) == 4
    for command in (["add", "x"], ["edit", "x", "x"], ["delete", "x", "--yes"]):
        assert here("facts", *command, *U, "--project", "D").code == 2
    assert texts(here, *U, "user") == ["Of the user"]
    assert texts(here, *U, "nothing") == []


def test_a_note_is_no_fact(here: Run) -> None:
    note = here("note", "a note", "--project", "D").out.strip()
    for command in (
        ["facts", "edit", note, "x"],
        ["facts", "delete", note, "--yes"],
        ["facts", "delete", note, "--dry-run"],
        ["facts", "delete", note, "--impact"],
        ["facts", "pin", note],
        ["forget", note, "--yes", "--kind", "fact"],
        ["correct", note, "x", "--kind", "fact"],
    ):
        ran = here(*command, "--project", "D")
        assert (ran.code, "is not a fact" in ran.err) == (2, True)
    assert here("forget", note, "--project", "D", "--yes", "--kind", "note").code == 0
    assert here("facts", "edit", "missing", "x", *U).code == 1


def test_pins_of_several_are_taken_back_at_once(here: Run) -> None:
    ids = [add(here, "Prefers tabs"), add(here, "Lives in Turku")]
    pinned = here("facts", "pin", *ids, *U)
    assert pinned.out.split() == ids
    assert "Changed 2 facts; memtui undo " in pinned.err
    assert [one["pinned"] for one in listed(here)] == [True, True]
    assert here("undo").code == 0
    assert [one["pinned"] for one in listed(here)] == [False, False]


def test_pin_unpin_and_expire(here: Run) -> None:
    record_id = add(here, "Prefers tabs")
    assert here("facts", "pin", record_id, *U).code == 0
    assert listed(here)[0]["pinned"]
    assert "pinned" in here("facts", "list", *U).out
    assert here("facts", "unpin", record_id, *U, "--json").document["changed"][0]["operation_id"]
    assert not listed(here)[0]["pinned"]
    assert here("facts", "expire", record_id, "30d", *U).code == 0
    assert listed(here)[0]["expires_at"] is not None
    assert here("facts", "expire", record_id, "soon", *U).code == 2
    assert here("facts", "expire", record_id, "never", *U).code == 0
    assert listed(here)[0]["expires_at"] is None


def test_clear_wants_the_name(here: Run) -> None:
    add(here, "One")
    add(here, "Two")
    add(here, "Of the drive", "--project", "D")
    assert here("facts", "clear").code == 2
    assert here("facts", "clear", *U).code == 2
    assert here("facts", "clear", *U, "--yes", "V").code == 2
    assert here("facts", "clear", *U, stdin=b"u\n", terminal=True).code == 2
    assert len(listed(here)) == 2
    assert here("facts", "clear", *U, stdin=b"U\n", terminal=True).code == 0
    assert (texts(here), texts(here, "--project", "D")) == ([], ["Of the drive"])
    assert here("undo").code == 0
    assert texts(here) == ["One", "Two"]
    cleared = here("facts", "clear", *U, "--yes", "U", "--json").document
    assert len(cleared["handles"]) == 2
    assert here("facts", "clear", *U, "--yes", "U", "--json").document == {"deleted": 0}


def test_merge_keeps_one(here: Run) -> None:
    first, second, third = (add(here, text) for text in ("Likes tea", "likes TEA", "Tea"))
    merged = here("facts", "merge", first, second, third, *U, "--text", "Tea", "--json")
    assert merged.code == 0
    assert merged.document["deleted"] == [second, third]
    assert len(merged.document["operation_ids"]) == 2
    assert texts(here) == ["Tea"]
    undone = here("undo", "--json")
    assert (undone.code, len(undone.document["together"])) == (0, 1)
    assert texts(here) == ["Likes tea", "likes TEA", "Tea"]
    again = here("facts", "merge", first, second, third, *U, "--text", "Tea")
    assert "Made one of 3 facts; memtui undo" in again.err
    [deletion] = here("ops", "list", "type:forget", "--limit", "1", "--json").document["operations"]
    assert here("undo", deletion["operation_id"]).code == 0, "either id takes back both"
    assert texts(here) == ["Likes tea", "likes TEA", "Tea"]


def test_a_merge_gives_the_key_of_one_to_the_other_and_keeps_the_pin(here: Run) -> None:
    first, second = add(here, "branch: main"), add(here, "deploy: main")
    assert here("facts", "pin", second, *U).code == 0
    merged = here("facts", "merge", first, second, *U, "--text", "deploy: release")
    assert (merged.code, "Made one of 2 facts" in merged.err) == (0, True)
    [fact] = listed(here)
    assert (fact["text"], fact["pinned"]) == ("deploy: release", True)
    assert here("undo").code == 0
    assert [(one["text"], one["pinned"]) for one in listed(here)] == [
        ("branch: main", False), ("deploy: main", True),
    ]  # fmt: skip


def test_a_merge_that_is_refused_changes_nothing(here: Run) -> None:
    first, second = add(here, "Likes tea"), add(here, "likes TEA")
    assert here("facts", "merge", first, second, *U, "--text", "x" * 201).code == 2
    assert texts(here) == ["Likes tea", "likes TEA"]
    assert here("facts", "merge", first, first, *U).code == 2
    assert here("facts", "merge", first, "missing", *U).code == 1


def test_an_agent_that_is_reviewed_merges_without_a_new_text(here: Run) -> None:
    first, second = add(here, "Likes tea"), add(here, "likes TEA")
    assert here("review", "rule", "default", "hold", "text", "green").code == 0
    merge = ("--principal", "agent:bot", "facts", "merge", first, second, *U)
    refused = here(*merge, "--text", "Likes green tea")
    assert refused.code == 4
    assert "an agent cannot merge facts and change" in refused.err
    assert texts(here) == ["Likes tea", "likes TEA"]
    assert here("review", "list", "--json").document["waiting"] == []
    assert here(*merge).code == 0
    assert texts(here) == ["Likes tea"]


def test_hostile_text_is_shown_and_kept(here: Run) -> None:
    text = HOSTILE.replace("\x00", "")
    add(here, text)
    assert texts(here) == [text.strip()]
    for command in (
        ["facts", "list"],
        ["context"],
        ["facts", "prune", "--unread-days", "0", "--reason", "never_read"],
    ):
        assert_harmless(here(*command, *U).out)


def test_prune_shows_and_applies(here: Run) -> None:
    first, second = add(here, "Likes green tea"), add(here, "likes green tea.")
    add(here, "likes 2 green teas")
    for flags in ([], ["--dry-run"]):
        plan = here("facts", "prune", *U, *flags, "--json").document
        assert (plan["dry_run"], plan["marked"], plan["operation_id"]) == (True, 1, None)
    (cluster,) = plan["clusters"]
    assert {cluster["survivor_id"], *cluster["duplicate_ids"]} == {first, second}
    assert plan["tokens_saved"] == plan["tokens_before"] - plan["tokens_after"] > 0
    assert [line["sign"] for line in plan["diff"]] == ["-", " "]
    assert {one["reason"] for one in plan["candidates"]} == {"exact_duplicate"}
    assert len(listed(here)) == 3
    assert "- " in here("facts", "prune", *U).out
    applied = here("facts", "prune", *U, "--apply")
    assert "memtui undo" in applied.err
    assert len(listed(here)) == 2
    assert here("facts", "prune", *U, "--apply", "--json").document["operation_id"] is None
    assert here("undo").code == 0
    assert len(listed(here)) == 3
    assert here("facts", "prune", *U, "--apply", "--dry-run").code == 2
    assert here("facts", "prune", *U, "--reason", "ugly").code == 2
    unread = ("--unread-days", "0", "--reason", "never_read")
    never = here("facts", "prune", *U, *unread, "--apply", "--json").document
    assert len(never["forgotten"]) == 3


def test_what_would_change_is_told_before(here: Run) -> None:
    first, lone = add(here, f"Likes green tea{HOSTILE}"), add(here, "Walks to work")
    add(here, f"likes green tea{HOSTILE}.")
    for words in ("green tea", "green tea", "walks"):
        assert here("query", words, *U).code == 0
    told = here("forget", lone, *U, "--impact", "--json").document
    assert (told["asked"], told["differ"], told["would_lose"], told["is_all"]) == (3, 1, 1, True)
    [effect] = told["effects"]
    assert (effect["question"], effect["emptied"], effect["subjects"]) == ("walks", True, ["U"])
    assert [(one["record_id"], one["marked"]) for one in effect["gone"]] == [(lone, True)]
    shown = here("forget", lone, *U, "--impact", "--check")
    assert (shown.code, "finds nothing any more" in shown.out) == (1, True)
    assert "3 answers that could use this record: 1 would change" in shown.err

    pruned = here("facts", "prune", *U, "--impact", "--last", "2", "--json").document
    assert (pruned["dry_run"], pruned["marked"], pruned["impact"]["asked"]) == (True, 1, 2)
    assert pruned["impact"]["would_lose"] == 0
    assert_harmless(here("facts", "prune", *U, "--impact").out)
    assert len(listed(here)) == 3
    assert here("forget", first, *U, "--last", "2").code == 2
    assert here("facts", "prune", *U, "--impact", "--apply").code == 2
    nothing = here("forget", "users/U/facts.md#no", *U, "--impact")
    assert (nothing.code, len(nothing.err.splitlines())) == (1, 1)


def test_everything_is_pruned_at_once_and_comes_back_at_once(here: Run) -> None:
    assert here("bindings", "add", "table", "facts").code == 0
    add(here, "Likes tea")
    add(here, "likes tea.", *U, "--binding", "table")
    assert here("note", "Deploy on Mondays", "--project", "web").code == 0
    for text, scope in (("likes TEA", U), ("deploy on MONDAYS", ("--project", "web"))):
        add(here, text, *scope)
    add(here, "likes tea!", *U, "--binding", "table")
    plan = here("facts", "prune", "--everything", "--json").document
    assert {(one["binding_key"], one["belongs_to"]) for one in plan["candidates"]} == {
        ("default", "user U"),
        ("default", "project web"),
        ("table", "user U"),
    }
    assert (plan["records"], plan["marked"], plan["operation_id"]) == (6, 3, None)
    assert [one["status"] for one in plan["bindings"]] == ["ok", "ok"]
    shown = here("facts", "prune", "--everything", "binding:table")
    assert "would go" in shown.err
    assert "MONDAYS" not in shown.out
    assert here("facts", "prune", "--everything", *U).code == 2
    alone = here("facts", "prune", *U, "binding:table", "--json").document
    assert ([one["binding_key"] for one in alone["bindings"]], alone["records"]) == (["table"], 2)
    elsewhere = here("facts", "prune", *U, "--apply", "--", "-binding:default")
    assert (elsewhere.code, "excludes default, the binding to review" in elsewhere.err) == (2, True)
    refused = here("facts", "prune", "--everything", "--apply")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    gone = here("facts", "prune", "--everything", "--apply", "--yes", "--json").document
    assert (len(gone["operation_ids"]), len(gone["forgotten"]), gone["failed"]) == (2, 3, [])
    left = here("facts", "prune", "--everything", "--json").document
    assert left["records"] == 3
    assert {one["reason"] for one in left["candidates"]} == {"said_elsewhere"}
    back = here("undo", "--json").document
    assert len(back["together"]) == 1
    assert here("facts", "prune", "--everything", "--json").document["records"] == 6
    assert here("undo", back["operation_id"]).code == 0
    assert here("facts", "prune", "--everything", "--json").document["records"] == 3
    assert here("stats", "--insights", "--json").document["insights"] == []
    assert here("stats", "--insights", "--patterns").code == 2
    assert here("stats", "--insights", "--project", "nope").code == 1

    add(here, "likes tea!", *U, "--binding", "table")
    assert here("bindings", "read-only", "table", "on").code == 0
    told = here("facts", "prune", "--everything")
    assert "1 record cannot be forgotten: table is read-only." in told.err
    denied = here("facts", "prune", "--everything", "--apply", "--yes")
    assert (denied.code, denied.err.strip()) == (4, "table is read-only.")


def test_facts_by_their_key(here: Run) -> None:
    project = ("--project", "apollo", "--agent", "coding")
    assert here("facts", "set", "port", "3.10", "--namespace", "Net").code == 0
    assert here("facts", "set", "port", "8080", "--agent", "coding", "--namespace", "Net").code == 0
    assert here("facts", "set", "hosts", "[a b, c]", "--agent", "coding").code == 0
    near = here("facts", "get", "port", *project)
    assert (near.code, near.out) == (0, "8080\n")
    assert "Agent coding comes before company" in near.err
    assert "hidden: company" in near.err
    document = here("facts", "get", "port", *project, "--json").document
    assert document["value"] == 8080
    assert document["hidden"][0]["value"] == "3.10"
    assert here("facts", "set", "port", "9090", "--agent", "coding", "--namespace", "Net").code == 0
    keys = here("facts", "keys", *project, "--json").document["facts"]
    assert [(one["key"], one["value"]) for one in keys] == [("hosts", ["a b", "c"]), ("port", 9090)]
    assert "hosts" in here("facts", "keys", *project).out
    missing = here("facts", "get", "portt", *project, "--namespace", "Net")
    assert (missing.code, missing.out) == (1, "")
    [nobody, _] = missing.err.splitlines()
    assert nobody == "Nothing has project:apollo."
    assert here("facts", "set", "a key", "x", *project).code == 2
    for value in ("1", "2", "3"):
        assert here("facts", "set", "hosts", value, "--agent", "coding").code == 0
    seen = here("stats", "--patterns")
    assert seen.out.startswith("disagrees: Net/port\n    Agent coding in default says “9090”; ")
    assert "It changed 3 times in 90 days: “[a b, c]” → “1” → “2” → “3”." in seen.out
    [_, often] = here("stats", "--patterns", "--json").document["patterns"]
    assert [one["record"]["metadata"]["value"] for one in often["versions"]] == [
        ["a b", "c"], 1, 2, 3,
    ]  # fmt: skip
    assert here("stats", "--patterns", "--by", "agent").code == 2


def test_a_fact_whose_key_is_there_changes_it(here: Run, tmp_path: Path) -> None:
    set_to = ("facts", "set", "deploy_branch", "main", "--project", "web", "--namespace", "Project")
    assert "Stored in" in here(*set_to).err
    for add in (("facts", "add"), ("note", "--kind", "fact")):
        said = here(*add, "deploy_branch: release", "--project", "web").err
        assert "Changed “deploy_branch: main” in" in said
        assert here("undo").code == 0
    file = tmp_path / "in.md"
    file.write_text("- deploy_branch: x\n- tests: pytest\n")
    dry, done = (
        here("facts", "import", str(file), "--project", "web", *more).out.splitlines()
        for more in (["--dry-run"], [])
    )
    assert dry[0] == "1: would be changed from deploy_branch: main: deploy_branch: x"
    assert done[0] == "1: changed from deploy_branch: main: deploy_branch: x"
    assert done[-1] == "1 added, 1 changed, 0 skipped, 0 refused"
    assert here("facts", "get", "deploy_branch", "--project", "web").out == "x\n"


@pytest.mark.parametrize("provider", ["facts", "vault"])
def test_a_note_counts_where_only_facts_are_kept(
    here: Run, monkeypatch: pytest.MonkeyPatch, provider: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMTUI_FACT_MAX_COUNT", "1")
    assert here("bindings", "add", "kept", provider).code == 0
    into = ("--subject", "ana", "--binding", "kept")
    assert here("note", "Likes tea", *into).code == 0
    file = tmp_path / "notes.json"
    file.write_text('["Likes jam"]')
    codes = [here("note", "Likes ham", *into).code, here("note", "--file", str(file), *into).code]
    assert codes == ([2, 1] if provider == "facts" else [0, 0])
