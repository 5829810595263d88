"""A filter is held as it says or refused, and a value that nobody has is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run


@pytest.mark.parametrize(
    ("command", "term"),
    [
        (("ops", "list"), "topic:deploy"),
        (("ops", "list"), "tag:ci"),
        (("ops", "export", "--to", "-"), "topic:deploy"),
        (("stats",), "kind:fact"),
        (("browse",), "type:query"),
        (("browse",), "status:ok"),
        (("browse",), "cost>0.01"),
        (("facts", "list"), "kind:note"),
        (("facts", "list"), "channel:cli"),
        (("query", "deploy"), "type:write"),
    ],
)
def test_a_term_that_a_command_cannot_hold_is_refused(
    here: Run, command: tuple[str, ...], term: str
) -> None:
    done = here(*command, term)
    assert (done.code, done.out) == (2, "")
    name = "cost" if term.startswith("cost") else f"{term.partition(':')[0]}:"
    assert done.err.startswith(f"{name} cannot narrow ")


def test_a_refused_export_leaves_no_file(here: Run, tmp_path: Path) -> None:
    assert here("ops", "export", "topic:deploy", "--to", str(tmp_path / "x.csv")).code == 2
    assert list(tmp_path.iterdir()) == [] or not (tmp_path / "x.csv").exists()


def test_line_and_option_do_not_overrule_each_other(here: Run) -> None:
    done = here("ops", "list", "type:write", "--type", "query")
    assert (done.code, done.out) == (2, "")
    assert "type: in the filter and its option differ" in done.err
    assert here("ops", "list", "type:write", "--type", "write").code == 0


def test_the_first_memory_of_somebody_is_said_to_be_it(here: Run, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"text": "We release on Fridays"}')
    load = ("facts", "import", str(tmp_path / "one.jsonl"))

    def said(*command: str) -> str:
        done = here(*command)
        assert done.code == 0, done.err
        return next((one for one in done.err.splitlines() if "before this" in one), "")

    assert said("note", "We deploy from release") == ""
    nothing = "Nothing was remembered of {} before this{}."
    assert said("note", "A", "--project", "infra") == nothing.format("project infra", "")
    assert said("note", "Blue", "--project", "infra", "--agent", "coding") == ""
    known = nothing.format("project web", "; known projects: infra")
    assert said("facts", "add", "Red", "--project", "web", "--json") == known
    near = nothing.format("project infar", "; near is infra")
    assert said(*load, "--project", "infar", "--dry-run") == near
    assert said(*load, "--project", "infar") == near
    assert said(*load, "--project", "infar") == ""
    assert said("facts", "add", "Tea", "--subject", "ana") == nothing.format("user ana", "")
    assert "near is ana" in said("facts", "set", "drink", "tea", "--subject", "anna")
    here("query", "release", "--project", "docs")
    assert "before this" in said("note", "Green", "--project", "docs"), "to ask is not to remember"
    here("ops", "archive", "seal", "--all")
    assert said("note", "Grey", "--project", "infra") == ""


def test_a_value_that_nobody_has_is_named_with_what_is_near(here: Run) -> None:
    assert (
        here("note", "We deploy from release", "--agent", "coding", "--topic", "deploy").code == 0
    )
    done = here("ops", "list", "agent:codign")
    assert done.code == 0
    assert "Nothing has agent:codign; near is agent:coding." in done.err
    done = here("ops", "list", "agent:codign", "--json")
    assert done.document["operations"] == []
    assert "agent:coding" in done.err
    assert "Nothing has agent:codign" in here("stats", "agent:codign").err
    for command in (["ops", "list"], ["stats"]):
        done = here(*command, "xyzzy", "--agent", "coding")
        told = "No operation is found by agent:coding xyzzy; leave a part of it out.\n"
        assert (done.code, told in done.err) == (0, True)
        assert "leave a part" not in here(*command, "xyzzy", "--agent", "codign").err
    people, no_agents = (
        here("ops", "list", by, "--json").document["operations"] for by in ("by:user", "-by:agent")
    )
    assert people == no_agents != []
    assert "Nothing has by:agent." in here("ops", "list", "by:agent").err

    done = here("browse", "topic:deplyo", "agent:coding")
    assert done.code == 0
    assert "Nothing has topic:deplyo; near is topic:deploy." in done.err
    assert "agent:" not in done.err.partition("near is")[2]
    assert "Nothing has kind:notes; near is kind:note." in here("browse", "kind:notes").err
    assert "is named nope" in here("browse", "binding:default,nope").err
    assert "Nothing has" not in here("ops", "list", "type:forget", "agent:coding").err

    everywhere = ["query", "coffee", "--all-bindings"], ["browse", "--all-bindings"]
    for command in (
        ["query", "coffee"], ["context"], ["changes"], ["browse"], *everywhere, ["facts", "keys"],
        ["facts", "keys", "--all-bindings"], ["facts", "get", "drink"],
    ):  # fmt: skip
        done = here(*command, "--agent", "codign", "--project", "nope")
        named = "Nothing has project:nope.\nNothing has agent:codign; near is agent:coding."
        assert (done.code, named in done.err) == (int("get" in command), True), command
    assert here("note", "The kettle is blue", "--project", "web").code == 0
    done = here("query", "coffee", "--agent", "coding", "--project", "web")
    assert (done.code, "Nothing has" in done.err) == (0, False)

    for command in (
        ["query", "blue kettle"], ["query", "blue kettle", "--all-bindings"], ["facts", "stats"],
        ["context", "--subject", "ana"], ["facts", "keys"], ["facts", "get", "drink"],
    ):  # fmt: skip
        here("facts", "set", "drink", "tea")
        here("facts", "add", "We say hello", "--project", "web")
        assert here("facts", "add", "We test before", "--agent", "coding").code == 0
        done = here(*command, "--project", "nope")
        assert (done.code, "Nothing has project:nope.\n" in done.err) == (0, True), command

    browses = ("ops", "list", "type:browse", "--internal", "--json")
    before = here(*browses).document["total"]
    here("query", "coffee", "--agent", "coding", "--project", "web")
    assert here(*browses).document["total"] == before, "names that the log knows are not looked up"
    here("browse", "topic:none,deploy", "kind:none")
    assert here(*browses).document["total"] == before + 2

    here("--principal", "user:mei", "note", "We test before", "--subject", "ana")
    near = "Nothing has user:anna; near is user:ana."
    assert near in here("ops", "list", "subject:anna").err
    assert "Nothing has" not in here("ops", "list", "type:forget", "by:mei").err
    assert here("ops", "list", "by:MEI").err.count("Nothing has") == 1
    for who in ("user", "mei", "user:mei", "mei,bo", "agent"):
        by = here("ops", "list", f"by:{who}", "--json").document["total"]
        assert here("ops", "list", "--principal", who, "--json").document["total"] == by
        assert bool(by) == (who != "agent")
    assert here("ops", "list", "by:bo", "--principal", "mei").code == 2
    assert "by:mei,bo cannot narrow records" in here("browse", "by:mei,bo").err

    done = here("browse", "tag:nope", "--all-bindings")
    assert (done.code, done.out) == (0, "")
    assert "Nothing has tag:nope" in done.err
    done = here("query", "deploy", "--tag", "")
    assert (done.code, "The tag that is given is empty" in done.err) == (2, True)
    done = here("facts", "prune", "--project", "nope")
    assert (done.code, "default remembers nothing of project nope." in done.err) == (1, True)
    done = here("ops", "list", "yesterday", "type:write")
    assert "since:yesterday filters by time" in done.err
    assert "`memtui ops show 7` shows the operation" in here("ops", "list", "#7").err


def test_browse_takes_binding_issue_and_run_of_line_and_option(here: Run) -> None:
    assert here("note", "one", "--source", "issue", "--issue", "ISS-1").code == 0
    assert here("note", "two").code == 0
    assert len(here("browse", "--issue", "ISS-1", "--json").document["records"]) == 1
    assert len(here("browse", "issue:ISS-1", "--json").document["records"]) == 1
    assert here("browse", "binding:nowhere").code == 1


def test_a_question_is_narrowed_by_the_same_terms(here: Run) -> None:
    assert here("note", "We deploy from release", "--agent", "coding", "--tag", "ci").code == 0
    assert here("note", "We deploy on Mondays", "--agent", "review").code == 0
    for line, found in {
        ("agent:coding",): 1,
        ("tag:ci", "since:1d", "source:manual_note"): 1,
        ("until:1d",): 0,
        ("~relaese",): 1,
        ("kind:note",): 2,
    }.items():
        done = here("query", "deploy", *line, "--json")
        assert (done.code, len(done.document["snippets"])) == (0, found), line

    done = here("query", "deploy", "from", "release")
    assert (done.code, done.out) == (2, "")
    assert "put the whole query in quotes" in done.err
