"""`compare`: the table, one question, JSON, consent and exit codes."""

from __future__ import annotations

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless
from tests.service.fake import FakeAdapter, down

TEXT = "We deploy the blue pipeline every Monday"


@pytest.fixture
def asked(here: Run) -> Run:
    """A company with two vaults, and a question in the log."""
    assert here("bindings", "add", "other", "vault").code == 0
    for key in ("default", "other"):
        assert here("note", TEXT, "--project", "apollo", "--binding", key).code == 0
    assert here("query", "when deploy pipeline", "--project", "apollo").code == 0
    return here


def test_a_table_a_page_and_json(asked: Run) -> None:
    ran = asked("compare", "default", "other")
    assert ran.code == 0
    assert "100.0% of the records alike" in ran.err
    assert "default found more hits in 0 of 1, other in 0: no difference shown" in ran.err
    assert ran.out.splitlines()[-1].endswith("when deploy pipeline")
    number = ran.out.splitlines()[-1].split()[0]
    page = asked("compare", "default", "other", "--question", number)
    assert page.code == 0
    assert page.out.splitlines()[0] == f"#{number}  when deploy pipeline"
    assert page.out.count(TEXT) == 2
    ran = asked("compare", "default", "other", "--json")
    assert ran.document["bindings"] == ["default", "other"]
    assert (ran.document["agreement"], ran.document["interval"]) == (1.0, [0.0, 1.0])
    assert [one["seq"] for one in ran.document["questions"]] == [int(number)]


def test_hits_come_with_whom_they_speak_for(asked: Run) -> None:
    assert asked("bindings", "add", "empty", "vault").code == 0
    found = asked("query", "when deploy pipeline", "--project", "apollo", "--json").document
    record = found["snippets"][0]["handle"]["provider_record_id"]
    assert "What helped" not in asked("compare", "default", "empty").err
    operation = found["bindings"][0]["operation_ids"][0]
    assert asked("ops", "feedback", operation, record, "--helped").code == 0
    ran = asked("compare", "default", "empty")
    assert "default found more hits in 1 of 1, empty in 0: no difference shown" in ran.err
    assert "speaks for the memory that answered at the time" in ran.err


def test_no_question_and_bad_input_say_so(here: Run) -> None:
    assert here("bindings", "add", "other", "vault").code == 0
    none = here("compare", "default", "other")
    assert (none.code, none.out, len(none.err.splitlines())) == (1, "", 1)
    assert "no question in the log" in none.err
    assert here("compare", "default", "default").code == 2
    assert here("compare", "default", "other", "--last", "0").code == 2


def test_nothing_is_asked_without_a_yes(here: Run, fake: type[FakeAdapter]) -> None:
    assert here("bindings", "add", "vault", "vault").code == 0
    assert here("query", "when deploy", "--binding", "vault").code == 0
    ran = here("compare", "vault", "default")
    assert (ran.code, ran.out) == (2, "")
    assert "1 question, without secrets, may leave this machine, to default (fake)" in ran.err
    assert "count or bill" in ran.err
    assert "--yes" in ran.err
    fake.fault = down()
    ran = here("compare", "vault", "default", "--yes")
    assert ran.code == 0
    assert "default failed: The provider is down" in ran.err
    assert "0 questions answered by both" in ran.err


def test_hostile_texts_are_shown_and_not_obeyed(asked: Run) -> None:
    for key in ("default", "other"):
        asked("note", f"pipeline {HOSTILE}", "--project", "apollo", "--binding", key)
    assert asked("query", f"pipeline {HOSTILE}", "--project", "apollo").code == 0
    ran = asked("compare", "default", "other")
    assert_harmless(ran.out)
    number = next(line.split()[0] for line in ran.out.splitlines()[1:] if "pipeline" in line)
    assert_harmless(asked("compare", "default", "other", "--question", number).out)


def test_a_shadow_from_its_beginning_to_the_cut_over_and_back(asked: Run) -> None:
    assert "There is no shadow" in asked("compare", "shadow", "status").err
    made = asked("compare", "shadow", "start", "default", "other", "--share", "1", "--days", "2")
    assert (made.code, made.out) == (
        0, "other is asked what default is asked; nobody gets its answers\n",
    )  # fmt: skip
    for number in range(30):
        ran = asked("query", f"when deploy pipeline {number}", "--project", "apollo")
        assert ran.code == 0
    few = asked("compare", "cutover", "default", "other", "--yes", "--json")
    assert few.code == 1
    assert (
        few.document["objections"][0] == "Both answered 0 questions; a cut-over takes at least 30."
    )
    few = asked("compare", "cutover", "default", "other")
    assert "Both answered 0 questions; a cut-over takes at least 30." in few.err
    ran = asked("compare", "shadow", "ask", "--json")
    [state] = ran.document["shadows"]
    assert (state["calls"], state["waiting"], state["why_not"]) == (30, 0, "")
    assert state["shadow"]["principal"].startswith("user:")
    ran = asked("compare", "shadow", "status", "default", "other")
    assert "30 questions answered by both; 100.0% of the records alike." in ran.err
    assert ran.out.splitlines()[1].split() == ["answered", "30", "30"]
    assert "30 of 1,000" in asked("compare", "shadow", "status").out
    done = asked("compare", "cutover", "default", "other", "--yes")
    assert (done.code, done.out.splitlines()[0]) == (0, "company local is served by other")
    assert asked("undo").code == 0
    assert "served by default" not in asked("bindings", "list").out
    assert asked("compare", "shadow", "stop", "default", "other").code == 0
    assert "its time is over" in asked("compare", "shadow", "status").out
    assert asked("compare", "shadow", "stop", "default", "other", "--withdraw").code == 0
    assert "There is no shadow" in asked("compare", "shadow", "status").err


def test_a_shadow_of_an_unknown_project_is_said(asked: Run) -> None:
    start = "compare", "shadow", "start", "default", "other"
    assert "apolo" in asked(*start, "--project", "apolo").err
    assert asked(*start, "--project", "apollo").err == ""


@pytest.mark.usefixtures("fake")
def test_the_yes_is_asked_once(here: Run) -> None:
    assert here("bindings", "add", "vault", "vault").code == 0
    assert here("query", "when deploy", "--binding", "vault").code == 0
    start = "compare", "shadow", "start", "vault", "default"
    ran = here(*start)
    assert ran.code == 2
    assert "20.0% of the questions of everybody, without secrets, may leave this machine" in ran.err
    assert "The yes is stored, and good for `memtui compare` too." in ran.err
    assert here("compare", "vault", "default", "--yes").code == 0
    assert here("compare", "vault", "default").code == 0
    assert here("undo").code == 0
    assert here("compare", "vault", "default").code == 2


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("start", "default", "default"), 2, "name two"),
        (("start", "default", "nope"), 1, "no binding nope"),
        (("start", "default", "other", "--share", "2"), 2, "at most 1"),
        (("start", "default", "other", "--budget", "0"), 2, "more than 0"),
        (("start", "default", "other", "--calls", "0"), 2, "at least 1"),
        (("start", "default", "other", "--share", "nan"), 2, "share"),
        (("start", "default", "other", "--budget", "1e9"), 2, "it takes at most 1000000"),
        (("stop", "default", "other"), 1, "other is no shadow of default"),
        (("stop", "default", "other", "--withdraw"), 1, "Nobody said yes"),
        (("status", "default", "nope"), 1, "no binding nope"),
        (
            ("status", "default", "other"),
            1,
            "other is no shadow of default; `memtui compare shadow",
        ),
    ],
)
def test_bad_input_of_a_shadow_is_one_sentence(
    asked: Run, given: tuple[str, ...], code: int, said: str
) -> None:
    ran = asked("compare", "shadow", *given)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, "", 1)
    assert said in ran.err
