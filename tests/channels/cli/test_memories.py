"""query, note, get, correct, forget, browse, history and undo over a provider in memory."""

from __future__ import annotations

from decimal import Decimal

import pytest

from memtui.contract import Unavailable, Usage
from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless
from tests.service.fake import FakeAdapter, down

pytestmark = pytest.mark.usefixtures("fake")


def write(here: Run, text: str = "we deploy from release", *more: str) -> str:
    ran = here("note", text, *more)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_a_note_prints_its_id_and_a_query_finds_it(here: Run) -> None:
    record_id = write(here, "we deploy from release", "--project", "p", "--run", "7",
                      "--source", "run")  # fmt: skip
    found = here("query", "deploy", "--project", "p", "--json").document
    snippet = found["snippets"][0]
    assert snippet["handle"] == {"provider_key": "fake", "provider_record_id": record_id}
    assert (snippet["source"]["kind"], snippet["source"]["run_id"]) == ("run", "7")
    assert snippet["text"] == "we deploy from release"
    assert snippet["score"] == 1.0
    [asked] = found["bindings"]
    assert (asked["binding_key"], asked["status"]) == ("default", "ok")
    assert asked["binding_reason"] == "company default"
    assert asked["usage"] == []
    assert len(asked["operation_ids"][0]) == 32


def test_a_note_carries_every_option(here: Run, fake: type[FakeAdapter]) -> None:
    options = {
        "--project": "p", "--agent": "a", "--subject": "s", "--issue": "i", "--run": "r",
        "--source": "issue_comment", "--issue-id": "I", "--comment-id": "C",
        "--document-key": "D", "--run-id": "R", "--activity-id": "A", "--external-ref": "x:1",
        "--kind": "fact", "--topic": "deploy", "--title": "T", "--record-id": "mine",
        "--mode": "upsert", "--metadata": '{"team": "red"}', "--expires": "2030-01-01T00:00:00Z",
    }  # fmt: skip
    words = [word for pair in options.items() for word in pair]
    assert write(here, "text", *words, "--tag", "x", "--tag", "y", "--pin") == "mine"
    request = fake.received[-1].model_dump(mode="json")
    assert request["scope"] == {
        "company_id": "local", "project_id": "p", "agent_id": "a", "subject_id": "s",
        "issue_id": "i", "run_id": "r",
    }  # fmt: skip
    assert request["source"] == {
        "kind": "issue_comment", "company_id": "local", "issue_id": "I", "comment_id": "C",
        "document_key": "D", "run_id": "R", "activity_id": "A", "external_ref": "x:1",
    }  # fmt: skip
    assert request["metadata"] == {"team": "red"}
    assert (request["kind"], request["topic"], request["title"]) == ("fact", "deploy", "T")
    assert (request["tags"], request["pinned"], request["mode"]) == (["x", "y"], True, "upsert")
    assert request["expires_at"] == "2030-01-01T00:00:00Z"


def test_a_note_comes_from_stdin(here: Run) -> None:
    ran = here("note", "-", stdin="zwei\nZeilen ✓\n".encode())
    assert here("get", ran.out.strip(), "--json").document["record"]["text"] == "zwei\nZeilen ✓\n"


@pytest.mark.parametrize("stdin", [b"", b"\xff\xfe"])
def test_bad_stdin_is_wrong_usage(here: Run, stdin: bytes) -> None:
    ran = here("note", "-", stdin=stdin)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def test_a_query_is_read_by_a_person(here: Run) -> None:
    record_id = write(here, "we deploy\nfrom release", "--source", "run", "--run-id", "run-7")
    ran = here("query", "deploy")
    first, second, origin = ran.out.splitlines()
    assert (first.split(), second.strip()) == (["1", "?", "1.000", "we", "deploy"], "from release")
    assert "run 7" in origin
    assert record_id in origin
    assert "1 snippet from default (company default)" in ran.err


def test_nothing_found_is_done(here: Run) -> None:
    ran = here("query", "zebra")
    assert (ran.code, ran.out) == (0, "")
    assert "0 snippets" in ran.err


def test_get_shows_text_source_and_link(here: Run) -> None:
    record_id = write(here, "deploy text", "--source", "run", "--run-id", "7")
    here("query", "deploy", "--run", "r-8")
    ran = here("get", record_id, "--provenance")
    assert ran.out.startswith("deploy text\n")
    assert "https://x.test/r/7" in ran.out
    assert "returned by 1 query\n" in ran.out
    assert " in r-8  deploy\n" in ran.out
    document = here("get", record_id, "--provenance", "--json").document
    assert document["record"]["handle"]["provider_record_id"] == record_id
    assert document["provenance"]["retrieval_count"] == 1
    assert document["provenance"]["retrievals"][0]["run_id"] == "r-8"
    assert document["provenance"]["written"]["operation_type"] == "write"
    assert "provenance" not in here("get", record_id, "--json").document


def test_the_life_of_a_record(here: Run) -> None:
    record_id = write(here, "first", "--project", "p")
    assert here("correct", record_id, "second", "--project", "p").out.strip() == record_id
    history = here("get", record_id, "--history", "--project", "p")
    assert "- first" in history.out
    assert "+ second" in history.out
    changes = here("get", record_id, "--history", "--json").document["changes"]
    assert [change["operation"]["operation_type"] for change in changes] == ["correct", "write"]
    assert here("forget", record_id, "--yes", "--project", "p").code == 0
    assert here("get", record_id).code == 1
    back = here("undo", "--json").document
    assert back["records"][0]["text"] == "second"
    assert here("get", record_id, "--json").document["record"]["text"] == "second"
    assert here("undo", back["operation_id"]).code == 0
    assert here("get", record_id).code == 1


def test_undo_within_a_scope_leaves_others_alone(here: Run) -> None:
    mine = write(here, "mine", "--project", "p")
    other = write(here, "other", "--project", "q")
    assert here("undo", "--project", "p").code == 0
    assert here("get", mine).code == 1
    assert here("get", other).code == 0
    assert here("undo", "--project", "nowhere").code == 1
    listed = here("undo", "--list", "--json").document["undoable"]
    assert [entry["operation"]["scope"]["project_id"] for entry in listed] == ["q"]
    assert "write" in here("undo", "--list").out


def test_what_somebody_else_did_last_is_not_undone_unasked(here: Run) -> None:
    here("note", "mine", "--project", "p")
    here("--principal", "user:eve", "note", "hers", "--project", "p")
    refused = here("undo")
    assert refused.code == 2
    last = here("undo", "--list", "--json").document["undoable"][0]["operation"]["operation_id"]
    assert refused.err.endswith(f"by user:eve. memtui undo {last} undoes it.\n")
    assert len(here("browse", "--project", "p", "--json").document["records"]) == 2
    assert here("undo", last).code == 0


def test_a_stale_revision_is_a_conflict_with_both_versions(here: Run) -> None:
    record_id = write(here, "first")
    here("correct", record_id, "theirs")
    ran = here("correct", record_id, "mine", "--revision", "1")
    assert (ran.code, ran.out) == (5, "")
    assert "--- current\ntheirs\n--- proposed\nmine\n" in ran.err
    ran = here("correct", record_id, "mine", "--revision", "1", "--json")
    assert ran.code == 5
    error = ran.document["error"]
    assert (error["kind"], error["proposed"]) == ("conflict", "mine")
    assert error["current"]["text"] == "theirs"


def test_forget_asks_on_a_terminal_only(here: Run) -> None:
    record_id = write(here)
    refused = here("forget", record_id)
    assert refused.code == 2
    assert "add --yes" in refused.err
    kept = here("forget", record_id, stdin=b"n\n", terminal=True)
    assert kept.code == 1
    assert "Forget 1 record from default?" in kept.err
    assert here("get", record_id).code == 0
    assert here("forget", record_id, stdin=b"y\n", terminal=True).code == 0
    assert here("get", record_id).code == 1


def test_forget_asks_for_nothing_that_is_not_there(here: Run) -> None:
    gone = here("forget", "nothing", "neither")
    assert (gone.code, "There is no record nothing" in gone.err) == (1, True)
    assert "add --yes" not in gone.err
    record_id = write(here)
    asked = here("forget", "nothing", record_id, stdin=b"n\n", terminal=True)
    assert "There is no record nothing" in asked.err
    assert "Forget 1 record from default?" in asked.err
    partly = here("forget", "nothing", record_id, stdin=b"y\n", terminal=True)
    assert partly.code == 1
    assert here("get", record_id).code == 1


def test_a_dry_run_changes_nothing(here: Run) -> None:
    record_id = write(here)
    ran = here("forget", record_id, "gone", "--dry-run")
    assert ran.code == 1
    assert "we deploy from release" in ran.out
    assert "There is no record gone." in ran.err
    document = here("forget", record_id, "--dry-run", "--json").document
    assert document["dry_run"] is True
    assert here("get", record_id).code == 0


def test_forget_reads_ids_from_stdin(here: Run) -> None:
    first, second = write(here, "one"), write(here, "two")
    ran = here("forget", "-", "--yes", "--json", stdin=f"{first}\n{second}\n\n".encode())
    handles = ran.document["handles"]
    assert [handle["provider_record_id"] for handle in handles] == [first, second]
    assert here("forget", "-", "--yes").code == 2


def test_forgetting_what_is_not_there_fails_the_check(here: Run) -> None:
    ran = here("forget", "nothing", "--yes")
    assert ran.code == 1
    assert "nothing" in ran.err
    record_id = write(here)
    partly = here("forget", "nothing", record_id, "--yes")
    assert partly.code == 1
    assert "There was no record nothing." in partly.err
    assert "Forgot 1 record" in partly.err


def test_a_ghost_is_named(here: Run, fake: type[FakeAdapter]) -> None:
    record_id = write(here)
    fake.haunted = True
    ran = here("forget", record_id, "--yes")
    assert ran.code == 1
    assert "ghost" in ran.err


def test_revisions_go_with_one_record(here: Run) -> None:
    assert here("forget", "a", "b", "--yes", "--revision", "1").code == 2


def test_a_provider_that_is_down_exits_3(here: Run, fake: type[FakeAdapter]) -> None:
    fake.fault = down()
    for arguments in (["query", "x"], ["note", "x"], ["browse"], ["get", "x"]):
        ran = here(*arguments, "--json")
        assert ran.code == 3, arguments
        assert ran.document["error"]["kind"] == "unavailable"
        assert ran.err.count("\n") == 1


def test_read_only_exits_4(here: Run) -> None:
    record_id = write(here)
    for arguments in (
        ["note", "x"],
        ["correct", record_id, "x"],
        ["forget", record_id, "--yes"],
        ["undo"],
        ["bindings", "disable", "default"],
    ):
        ran = here("--read-only", *arguments)
        assert ran.code == 4, arguments
        assert "read-only" in ran.err
    assert here("--read-only", "get", record_id).code == 0


def test_browse_pages_as_a_table_and_as_json(here: Run) -> None:
    write(here, "text one", "--source", "issue_comment", "--issue-id", "I-3", "--comment-id", "2")
    ran = here("browse", "--limit", "5", "--sort", "title", "topic:x", "--text", "y")
    assert "I-3 comment 2" in ran.out
    assert "1 of 1 in default" in ran.err
    document = here("browse", "--json", "--limit", "5").document
    assert set(document) >= {"records", "next_cursor", "total", "at_least", "bindings"}


def test_explain_is_refused_where_the_provider_cannot(here: Run) -> None:
    ran = here("query", "x", "--explain")
    assert ran.code == 2
    assert "explain" in ran.err


def test_usage_and_secrets_are_told(here: Run, fake: type[FakeAdapter]) -> None:
    fake.usage = (Usage(provider="fake", input_tokens=3),)
    ran = here("note", "key AKIAABCDEFGHIJKLMNOP", "--json")
    assert ran.document["usage"][0]["input_tokens"] == 3
    assert ran.document["redacted"]
    assert "Taken out before it was stored" in here("note", "key AKIAABCDEFGHIJKLMNOP").err


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_in_every_command(here: Run, terminal: bool) -> None:
    record_id = write(here, f"{HOSTILE} deploy", "--source", "external_document",
                      "--external-ref", HOSTILE, "--metadata", '{"k": "\\u001b[2J"}')  # fmt: skip
    here("correct", record_id, f"{HOSTILE} deploy two")
    for arguments in (
        ["query", "deploy"],
        ["get", record_id, "--provenance"],
        ["browse"],
        ["get", record_id, "--history"],
        ["ops", "list"],
        ["ops", "show", "2"],
        ["undo", "--list"],
        ["forget", record_id, "--dry-run"],
        ["correct", record_id, HOSTILE, "--revision", "0"],
        ["query", HOSTILE, "--binding", HOSTILE],
        ["bindings", "show", HOSTILE],
        [HOSTILE],
        ["query", f"--{HOSTILE}"],
        ["--company", HOSTILE, "browse"],
    ):
        ran = here(*arguments, terminal=terminal)
        ours = ran.out.replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert_harmless(ours + ran.err)
        assert "Traceback" not in ran.err
        assert ran.code != 70, arguments
    assert here("get", record_id, "--json").document["record"]["text"] == f"{HOSTILE} deploy two"


@pytest.mark.parametrize("option", ["--project", "--topic", "--record-id", "--metadata"])
def test_bytes_that_are_no_utf8_are_wrong_usage(here: Run, option: str) -> None:
    for arguments in (["note", "x", option, "a\udc80b"], ["note", "a\udc80b"]):
        ran = here(*arguments, "--json")
        assert ran.code == 2
        assert ran.document["error"]["kind"] == "invalid"


def test_a_provider_may_hold_lone_surrogates(here: Run, fake: type[FakeAdapter]) -> None:
    record_id = write(here)
    held = fake.records["local/default"]
    held[record_id] = held[record_id].model_copy(update={"text": "deploy \ud800 \ud83d"})
    exact = here("get", record_id, "--json")
    assert "\\ud800" in exact.out
    assert exact.document["record"]["text"] == "deploy \ud800 \ud83d"
    assert "deploy \\ud800" in here("query", "deploy").out


@pytest.mark.parametrize(
    ("arguments", "logged"),
    [
        (["note", "x"], "write"),
        (["get", "x"], "get"),
        (["correct", "x", "y"], "correct"),
        (["forget", "x", "--yes"], "forget"),
        (["forget", "x"], "forget"),
        (["get", "x", "--history"], "history"),
    ],
)
def test_what_cannot_be_resolved_is_logged_too(
    here: Run, arguments: list[str], logged: str
) -> None:
    ran = here(*arguments, "--binding", "nope", "--json")
    assert (ran.code, ran.document["error"]["kind"]) == (1, "not_found")
    newest = here("ops", "list", "--json").document["operations"][0]
    assert (newest["operation_type"], newest["status"]) == (logged, "error")


def test_an_unknown_outcome_is_found_and_checked(here: Run, fake: type[FakeAdapter]) -> None:
    fake.fault_after = Unavailable("The connection broke.", sent=True)
    assert here("note", "did it arrive", "--record-id", "x").code == 3
    fake.fault_after = None
    unknown = here("ops", "list", "--status", "unknown", "--json").document["operations"]
    assert [entry["operation_type"] for entry in unknown] == ["write"]
    doubt = {"name": "log local", "status": "warning"}.items()
    assert any(doubt <= one.items() for one in here("doctor", "--json").document["checks"])
    checked = here("ops", "check", unknown[0]["operation_id"][:8], "--json").document
    assert not any(doubt <= one.items() for one in here("doctor", "--json").document["checks"])
    assert checked["operation_id"] == unknown[0]["operation_id"]
    assert checked["sentence"] in here("ops", "show", str(unknown[0]["seq"])).out
    again = here("ops", "check", str(unknown[0]["seq"]))
    assert (again.code, again.out) == (
        0,
        f"{checked['sentence']} (found by {checked['check_id']})\n",
    )
    assert again.err == f"memtui undo {unknown[0]['operation_id']} undoes it.\n"
    assert here("undo").code == 0
    assert here("ops", "check", str(unknown[0]["seq"])).err == ""


def test_an_operation_is_shown_whole(here: Run, fake: type[FakeAdapter]) -> None:
    fake.usage = (Usage(provider="fake", input_tokens=3, cost_usd=Decimal("0.0001")),)
    record_id = write(here, "first", "--source", "run", "--run-id", "7")
    here("correct", record_id, "second")
    newest = here("ops", "list", "type:correct", "--json").document["operations"][0]
    shown = here("ops", "show", newest["operation_id"])
    assert "- first" in shown.out
    assert "+ second" in shown.out
    assert "company default" in shown.out
    document = here("ops", "show", str(newest["seq"]), "--json").document
    assert document["operation_id"] == newest["operation_id"]
    change = document["changes"][0]
    assert (change["before"]["text"], change["after"]["text"]) == ("first", "second")
    write_seq = here("ops", "list", "type:write", "--json").document["operations"][0]["seq"]
    written = here("ops", "show", str(write_seq)).out
    assert "https://x.test/r/7" in written
    assert "$0.0001" in written

    # An undo is told of what it took back, and of an undo that was taken back itself.
    assert document["undone_by"] is None
    asked = undo_id = newest["operation_id"]
    record_ids = [one["provider_record_id"] for one in newest["handles"]]
    for in_force in (True, False):
        undo_id = here("undo", undo_id, "--json").document["operation_id"]
        undo_seq = here("ops", "show", undo_id, "--json").document["seq"]
        first_line = here("ops", "show", asked).out.splitlines()[0]
        assert first_line.endswith(f"undone by #{undo_seq}") is in_force
        document = here("ops", "show", asked, "--json").document
        assert document["undone_by"] == (undo_id if in_force else None)
        assert document["undone_records"] == record_ids * in_force
        lists = here("ops", "list", "type:correct", "--json").document
        assert [one["by"] for one in lists["undone"].values()] == [undo_id] * in_force
        [line] = [one for one in here("ops", "list", "type:correct").out.splitlines() if "✓" in one]
        assert ("undone: " in line) is in_force
