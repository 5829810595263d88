"""What the prune review shows and marks, without an app."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memtui.contract import Filter, Record, RecordHandle, Scope, Use, UseTest
from memtui.presenters.risks import WORDS
from memtui.pruning.candidates import Reason, RetrievalTally, find_candidates
from memtui.pruning.plan import make_plan
from memtui.screens.prune import Heading, diff_columns, group_words, head_content, review_columns
from memtui.screens.prune_review import Narrowing, PlanPart, ReviewedPlans, Size, Sort
from memtui.widgets.columns import fit_cell
from memtui.widgets.record_names import RecordName
from tests.screens.hostile import HOSTILE, assert_harmless

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
SCOPE = Scope(company_id="local", project_id="mech")


def fact(name: str, text: str, **changes: object) -> Record:
    values: dict[str, object] = {
        "handle": RecordHandle(provider_key="vault", provider_record_id=name),
        "text": text,
        "scope": SCOPE,
        "kind": "fact",
        "created_at": NOW - timedelta(days=8),
    }
    return Record.model_validate(values | changes)


def review(*facts: Record, read: tuple[str, ...] = (), kept: str = "") -> ReviewedPlans:
    return ReviewedPlans([part("default", *facts, read=read, kept=kept)])


def part(key: str, *facts: Record, read: tuple[str, ...] = (), kept: str = "") -> PlanPart:
    retrievals = {
        one.handle: RetrievalTally(count=1, last_at=NOW)
        for one in facts
        if one.handle.provider_record_id in read
    }
    found = find_candidates(facts, now=NOW, tokens_of=len, retrievals=retrievals)
    plan = make_plan(facts, found, tokens_of=len, size_of=len, kept=lambda _record: kept,
                     last_read=lambda one: NOW if one.handle in retrievals else None)  # fmt: skip
    return PlanPart(key, plan)


DUPLICATES = (
    fact("a", "Deploy from main", created_at=NOW - timedelta(days=7)),
    fact("b", "deploy from main."),
    fact("c", "Deploy from MAIN"),
    fact("d", "Nobody asked for this"),
)


def named(found: ReviewedPlans) -> list[tuple[str, str, bool]]:
    return [(one.sort.value, one.text, found.is_marked(one)) for one in found.lines]


def marked(found: ReviewedPlans) -> list[str]:
    return [record.text for record in found.marked]


def test_candidates_stand_under_their_surest_reason_with_what_stays() -> None:
    found = review(*DUPLICATES, read=("a",))
    assert named(found) == [
        ("group", "same text apart from punctuation", True),
        ("stays", "Deploy from main", False),
        ("goes", "deploy from main.", True),
        ("goes", "Deploy from MAIN", True),
        ("group", "never read", False),
        ("goes", "Nobody asked for this", False),
    ]
    assert group_words(found.lines[0], found) == "same text apart from punctuation, 2 of 2 marked"


def test_what_contradicts_is_not_said_to_say_the_same() -> None:
    found = review(
        fact("a", "retention_days: 14"),
        fact("b", "retention_days: 30", created_at=NOW - timedelta(days=7)),
    )
    [stays] = [one for one in found.lines if one.sort is Sort.STAYS]
    assert (stays.text, stays.sentence) == ("retention_days: 30", "It stays, and says otherwise.")


def test_a_candidate_and_a_whole_reason_turn() -> None:
    found = review(*DUPLICATES, read=("a",))
    exact, stays, goes, _, never, _ = found.lines
    found.turn(goes)
    assert marked(found) == ["Deploy from MAIN"]
    assert found.chosen(exact.group) == (1, 2)
    found.turn(exact)
    found.turn(never)
    assert len(marked(found)) == 3
    found.turn(exact)
    found.turn(stays)
    assert marked(found) == ["Nobody asked for this"]
    found.mark_in_turn()
    assert len(marked(found)) > 2
    found.mark_in_turn()
    assert not marked(found)
    found.mark_in_turn()
    assert marked(found) == ["deploy from main.", "Deploy from MAIN"]


def test_a_person_chooses_which_copy_stays() -> None:
    found = review(*DUPLICATES, read=("a",))
    found.turn(found.lines[3])  # c, which is to go too, stays unmarked
    chosen = found.lines[2].name
    assert chosen is not None
    assert found.staying_for(found.lines[5].name) is None, "nothing says the same"
    assert [found.is_repeated(one.name) for one in found.lines[1:4]] == [True, False, False]
    found.let_stay(chosen)
    assert named(found)[:4] == [
        ("group", "same text apart from punctuation", False),
        ("stays", "deploy from main.", False),
        ("goes", "Deploy from main", True),
        ("goes", "Deploy from MAIN", False),
    ]
    assert marked(found) == ["Deploy from main"]
    assert [one.text for one in found.staying] == ["deploy from main."]
    assert found.lost == 0
    assert found.cluster(found.lines[2].cluster)[0].text == "deploy from main."
    again = review(*DUPLICATES, read=("a",))
    again.take_over(found)
    assert named(again) == named(found), "it stays so when the plan is made anew"
    found.mark_suggested()
    assert marked(found) == ["Deploy from main", "Deploy from MAIN"]


def test_what_is_pinned_is_not_marked_because_another_copy_is_to_stay() -> None:
    found = review(fact("a", "Deploy from main", pinned=True), fact("b", "deploy from main."))
    [name] = found.going
    found.let_stay(name)
    assert named(found)[1:] == [
        ("stays", "deploy from main.", False),
        ("goes", "Deploy from main", False),
    ]


def test_the_sums_follow_the_marks() -> None:
    found = review(*DUPLICATES, read=("a",))
    assert found.before == sum(len(one.text) for one in DUPLICATES)
    assert found.saved == len("deploy from main.") + len("Deploy from MAIN")
    found.mark_none()
    assert found.saved == 0


def test_a_section_over_its_budget_is_named_until_it_fits() -> None:
    def size_of(gone: frozenset[RecordName]) -> Size:
        tokens = 40 - 10 * len(gone)
        return Size(tokens, {"project": (tokens, 25), "company": (9, 9)})

    found = ReviewedPlans([part("default", *DUPLICATES, read=("a",))], size_of)
    heading = Heading("project mech", "")
    said = head_content(heading, found, 80).plain
    assert "project 40 → 20 tokens, within its budget of 25" in said
    found.turn(found.lines[2])
    said = head_content(heading, found, 80).plain
    assert "▲ project 40 → 30 tokens, over its budget of 25" in said
    assert "company" not in said


@pytest.mark.parametrize(
    ("unread", "to_come"),
    [
        (["table"], "4 of 4 records could go so far, reading table…"),
        (["table", "notes"], "4 of 4 records could go so far, reading 2 more bindings…"),
        ([], "4 of 4 records could go, still looking…"),
    ],
)
def test_the_figures_say_which_bindings_they_lack(unread: list[str], to_come: str) -> None:
    heading = Heading("everything you see", "looking", unread, of_context=False)
    assert to_come in head_content(heading, review(*DUPLICATES), 80).plain


def test_a_pinned_fact_is_only_marked_by_itself() -> None:
    pinned = fact("d", "Nobody asked for this", pinned=True)
    found = review(*DUPLICATES[:3], pinned, read=("a",))
    found.mark_all()
    assert "Nobody asked for this" not in marked(found)
    found.turn(found.lines[4])
    assert "Nobody asked for this" not in marked(found)
    found.turn(next(one for one in found.lines if one.record == pinned))
    assert "Nobody asked for this" in marked(found)


def test_marking_all_that_say_the_same_is_warned_of() -> None:
    found = review(*DUPLICATES)
    assert found.lost == 0
    found.mark_all()
    assert found.lost == 2


def test_marks_are_kept_only_on_what_is_as_it_was() -> None:
    before = review(*DUPLICATES, read=("a",))
    after = review(DUPLICATES[0], fact("b", "deploy from main.", revision="2"), *DUPLICATES[2:])
    after.take_over(before)
    assert marked(after) == ["Deploy from MAIN"]


def test_the_diff_shows_what_goes_and_what_stays() -> None:
    found = review(*DUPLICATES, read=("a",))
    assert [(one.sort.value, one.text) for one in found.diff()] == [
        ("stays", "Deploy from main"),
        ("goes", "deploy from main."),
        ("goes", "Deploy from MAIN"),
    ]
    found.mark_none()
    assert found.diff() == []


def test_a_cluster_is_found_whole() -> None:
    found = review(*DUPLICATES)
    cluster = next(one.cluster for one in found.lines if one.cluster)
    assert {one.text for one in found.cluster(cluster)} == {
        "Deploy from main",
        "deploy from main.",
        "Deploy from MAIN",
    }
    assert found.cluster("") == []


def test_every_reason_has_words() -> None:
    expired = fact("e", "old", expires_at=NOW - timedelta(days=1))
    long = fact("f", "x" * 201)
    lines = review(expired, long).lines
    assert [one.text for one in lines if one.sort is Sort.GROUP] == [
        "expired",
        "long, and never read",
    ]
    assert {*WORDS} == {*Reason}
    assert any("201 characters" in one.sentence for one in lines)


def test_hostile_facts_are_harmless() -> None:
    hostile = [fact(str(n), text[:5_000]) for n, text in enumerate(HOSTILE)]
    found = review(*hostile, *(fact(f"{n}x", one.text) for n, one in enumerate(hostile)))
    listed = review_columns(lambda: found)
    for columns, lines in ((listed, found.lines), (diff_columns(), found.diff())):
        assert lines
        for line in lines:
            for column in columns:
                assert_harmless(fit_cell(column.of(line).text, column.width))


OTHER = Scope(company_id="local", subject_id="ana")


def test_two_bindings_are_reviewed_as_one_and_narrowed_to_an_owner() -> None:
    of_ana = [one.model_copy(update={"scope": OTHER}) for one in DUPLICATES[:2]]
    found = ReviewedPlans([part("default", *DUPLICATES), part("table", *of_ana)])
    assert found.marks == {
        RecordName("default", "b"),
        RecordName("default", "c"),
        RecordName("table", "b"),
    }
    assert {one.binding_key for one in found.marked} == {"default", "table"}
    assert [(one.label, could, there) for one, could, there in found.parts()] == [
        ("", 6, 6),
        ("project mech", 4, 4),
        ("user ana", 2, 2),
        ("default", 4, 4),
        ("table", 2, 2),
    ]
    own = found.arranged(Narrowing(owner=OTHER), by_owner=True)
    assert [one.text for one in own.lines if one.sort is Sort.GROUP] == ["user ana"]
    assert own.going == {RecordName("table", "b")}
    assert own.saved == len("deploy from main.")
    own.mark_none()
    assert own.marks == {RecordName("default", "b"), RecordName("default", "c")}
    assert len(found.marks) == 3
    words = Narrowing(filter=Filter(text="nobody"))
    assert [one.text for one in found.arranged(words, by_owner=False).lines] == [
        "never read",
        "Nobody asked for this",
    ]


def test_a_filter_of_use_narrows_what_goes() -> None:
    found = review(*DUPLICATES, read=("a", "b"))
    unread = Narrowing(filter=Filter(uses=(UseTest(use=Use.READ),)), now=NOW)
    assert marked(found) == ["deploy from main.", "Deploy from MAIN"]
    assert marked(found.arranged(unread, by_owner=False)) == ["Deploy from MAIN"]


def test_what_comes_later_is_marked_as_suggested_and_the_rest_as_it_was() -> None:
    first = ReviewedPlans([part("default", *DUPLICATES)])
    first.turn(next(one for one in first.lines if one.name == RecordName("default", "b")))
    both = ReviewedPlans([part("default", *DUPLICATES), part("table", *DUPLICATES)])
    both.take_over(first)
    assert both.marks == {
        RecordName("default", "c"),
        RecordName("table", "b"),
        RecordName("table", "c"),
    }


def test_what_cannot_be_forgotten_is_shown_and_never_marked() -> None:
    found = review(*DUPLICATES, kept="The binding default is read-only.")
    found.mark_all()
    for shown in found.lines:
        found.turn(shown)
    assert not found.marks
    assert found.all_kept == "The binding default is read-only."
    assert {one.kept for one in found.lines if one.sort is Sort.GOES} == {found.all_kept}


def test_what_cannot_be_forgotten_is_not_counted_among_what_could_go() -> None:
    closed = "The binding table is read-only."
    of_ana = [one.model_copy(update={"scope": OTHER}) for one in DUPLICATES[:2]]
    found = ReviewedPlans([part("default", *DUPLICATES), part("table", *of_ana, kept=closed)])
    shown = head_content(Heading("everything you see", "", of_context=False), found, 120).plain
    assert "4 of 6 records could go   saves" in shown
    assert f"▲ 2 cannot be forgotten: {closed}" in shown
    assert [(one.label, could, there) for one, could, there in found.parts()] == [
        ("", 4, 6),
        ("project mech", 4, 4),
        ("user ana", 0, 2),
        ("default", 4, 4),
        ("table", 0, 2),
    ]
    own = found.arranged(Narrowing(binding_key="default"), by_owner=False)
    assert not own.must_stay
