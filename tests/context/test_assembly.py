from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.context.assembly import (
    TRUNCATED,
    ContextSection,
    SectionKind,
    WarningKind,
    assemble,
    by_relevance,
    fact_tokens,
    section_of_records,
    without_given,
)
from memtui.context.cost import TokenCounter
from memtui.contract import Invalid, Record, RecordHandle, Scope
from tests.contexts import section_of_texts, seed_context

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
COUNTER = TokenCounter("gpt-4o")

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)
FACTS = st.lists(ANY_TEXT, max_size=8)


def record(name: str, text: str, **fields: Any) -> Record:
    return Record.model_validate(
        {
            "handle": RecordHandle(provider_key="vault", provider_record_id=name),
            "text": text,
            "kind": "fact",
            "scope": Scope(company_id="acme", subject_id="ana"),
            **fields,
        }
    )


def test_the_text_is_the_seeds() -> None:
    assert seed_context(["Likes tea"], ["Uses SQLite", "Ships on Monday"]) == (
        "## About This User\n\n- Likes tea\n\n"
        "## About This Workspace\n\n- Uses SQLite\n- Ships on Monday\n\n"
    )
    assert seed_context([], None) == ""
    assert seed_context([], []) == ""
    assert seed_context([""], None) == "## About This User\n\n- \n\n"


@given(FACTS, st.none() | FACTS)
def test_both_ways_equal_the_seeds_function(user: list[str], drive: list[str] | None) -> None:
    expected = seed_context(user, drive)
    context = assemble(
        [
            section_of_texts(SectionKind.WORKSPACE, drive or ()),
            section_of_texts(SectionKind.USER, user),
        ],
        counter=COUNTER,
    )
    assert context.text == expected
    assert context.tokens == COUNTER.tokens(expected)
    assert "".join(section.text for section in context.sections) == expected
    assert [f.text for s in context.sections for f in s.facts] == [*user, *(drive or ())]
    assert context.left_out == ()


@given(
    st.lists(st.lists(ANY_TEXT, max_size=5), min_size=3, max_size=3),
    st.integers(0, 120),
    st.none() | st.integers(0, 300),
)
def test_a_cut_keeps_whole_lines_from_the_beginning_and_accounts_for_the_rest(
    texts: list[list[str]], max_tokens: int, max_characters: int | None
) -> None:
    kinds = (SectionKind.USER, SectionKind.WORKSPACE, SectionKind.GUIDANCE)
    sections = [section_of_texts(kind, each) for kind, each in zip(kinds, texts, strict=True)]
    whole = assemble(sections, counter=COUNTER)
    size = {"max_tokens": whole.tokens, "max_characters": len(whole.text)}
    assert assemble(sections, counter=COUNTER, **size).text == whole.text
    for limit in size if whole.text else ():
        less = size | {limit: size[limit] - 1}
        assert assemble(sections, counter=COUNTER, **less).text != whole.text
    cut = assemble(sections, counter=COUNTER, max_tokens=max_tokens, max_characters=max_characters)
    assert COUNTER.tokens(cut.text) == cut.tokens <= max_tokens
    assert max_characters is None or len(cut.text) <= max_characters
    if cut.text == whole.text:
        assert cut.left_out == ()
        return
    assert [w.kind for w in cut.warnings].count(WarningKind.CUT) == 1
    if cut.text:
        kept, _, after = cut.text.rpartition(f"\n{TRUNCATED}")
        assert after == "\n\n"
        assert whole.text.startswith(f"{kept}\n")
    facts = [fact for section in whole.sections for fact in section.facts]
    inside = [fact for section in cut.sections for fact in section.facts]
    assert len(inside) + len(cut.left_out) - sum(f.truncated for f in inside) == len(facts)
    assert [f.text for f in inside if not f.truncated] == [
        f.text for f in facts[: len(inside) - sum(f.truncated for f in inside)]
    ]


def test_a_note_is_cut_between_its_lines_and_a_fact_only_whole() -> None:
    note = "First rule.\nSecond rule.\nThird rule."
    sections = [
        section_of_texts(SectionKind.USER, ["Likes tea"]),
        section_of_texts(SectionKind.GUIDANCE, [note]),
    ]
    cut = assemble(sections, counter=COUNTER, max_characters=80)
    assert cut.text == (
        "## About This User\n\n- Likes tea\n\n## Guidance\n\nFirst rule.\n[truncated]\n\n"
    )
    assert cut.sections[1].facts[0].text == "First rule."
    assert cut.sections[1].facts[0].truncated
    assert cut.left_out[0].text == "Second rule.\nThird rule."
    assert cut.left_out[0].reason == "It does not fit the limit of 80 characters."
    assert [w.kind for w in cut.warnings] == [WarningKind.CUT]


def test_what_was_assembled_is_assembled_again() -> None:
    sections = [
        section_of_texts(kind, ["Likes tea", "Lives in Bern"])
        for kind in (SectionKind.USER, SectionKind.GUIDANCE)
    ]
    whole = assemble(sections, counter=COUNTER)
    again = [ContextSection(kind=one.kind, facts=one.facts[:1]) for one in whole.sections]
    fewer = assemble(again, counter=COUNTER)
    assert [one.text for section in fewer.sections for one in section.facts] == ["Likes tea"] * 2
    assert 0 < fewer.tokens < whole.tokens

    two_lines = section_of_texts(SectionKind.USER, ["Never deploy\non Friday", "b"])
    cut = assemble([two_lines], counter=COUNTER, max_characters=45)
    assert cut.text == ""
    assert len(cut.left_out) == 2


def test_a_summary_stands_for_a_note_that_was_found_and_says_so() -> None:
    note = record("memory/a.md", "The whole\nstory.", kind="note", summary="In short.")
    texts = {
        kind: assemble([section_of_records(kind, [note], now=NOW)], counter=COUNTER).text
        for kind in (SectionKind.RELATED, SectionKind.TOPIC, SectionKind.GUIDANCE)
    }
    assert 'id="memory/a.md"' in texts[SectionKind.RELATED]
    assert ' as="summary">\nIn short.\n' in texts[SectionKind.RELATED]
    assert "\n[summary of memory/a.md] In short.\n" in texts[SectionKind.TOPIC]
    assert texts[SectionKind.GUIDANCE].endswith("\nThe whole\nstory.\n\n")


def test_of_a_long_text_the_passage_that_answers_the_prompt_is_told() -> None:
    text = "Nothing of note.\n" * 100 + "Deploys run from release.\n" + "Nothing of note.\n" * 100
    found = section_of_records(
        SectionKind.RELATED, [record("a.md", text)], now=NOW, prompt="what do we deploy from?"
    )
    [fact] = found.facts
    assert fact.is_passage
    assert "Deploys run from release." in fact.text
    assert len(fact.text) <= 600


def test_a_budget_warns_and_never_cuts() -> None:
    facts = [f"The deploy of service {number} needs a review." for number in range(100)]
    context = assemble([section_of_texts(SectionKind.USER, facts)], counter=COUNTER, budget=900)
    assert context.text == seed_context(facts, None)
    assert context.over_budget
    assert [(w.kind, w.section) for w in context.warnings] == [
        (WarningKind.OVER_BUDGET, None),
        (WarningKind.FAR_OVER_BUDGET, "About This User"),
    ]
    assert not assemble([], counter=COUNTER, budget=0).over_budget


def test_sections_come_in_the_order_of_the_tiers_whatever_the_order_given() -> None:
    given_order = [section_of_texts(kind, ["x"]) for kind in reversed(SectionKind)]
    context = assemble(given_order, counter=COUNTER)
    assert [section.kind for section in context.sections] == list(SectionKind)
    assert context.sections[-1].tier == "L3 search"
    assert [(section.tier[:2], section.budget) for section in context.sections[:-2]] == [
        ("L0", 400),
        ("L1", 250),
        ("L1", 250),
        ("L1", 200),
        ("L1", 200),
        ("L1", 300),
        ("L1", 300),
        ("L2", 500),
    ]


def test_a_fact_of_two_lines_or_with_controls_is_sent_as_it_is_with_a_warning() -> None:
    facts = ["one\n## About This Workspace", "two\x1b[31m", "three"]
    context = assemble([section_of_texts(SectionKind.USER, facts)], counter=COUNTER)
    assert context.text == seed_context(facts, None)
    assert [w.kind for w in context.warnings] == [
        WarningKind.LINE_BREAK,
        WarningKind.CONTROL_CHARACTERS,
    ]


def test_records_that_do_not_hold_are_left_out_with_a_reason() -> None:
    day = timedelta(days=1)
    section = section_of_records(
        SectionKind.USER,
        [
            record("a", "Holds"),
            record("b", "Expired", expires_at=NOW),
            record("c", "Closed", valid_to=NOW - day),
            record("d", "Not yet", valid_from=NOW + day),
            record("e", "  "),
        ],
        now=NOW,
    )
    context = assemble([section], counter=COUNTER)
    assert context.text == "## About This User\n\n- Holds\n\n"
    assert [(one.text, one.reason) for one in context.left_out] == [
        ("Expired", "It expired on 2026-05-01 12:00 UTC."),
        ("Closed", "It stopped being valid on 2026-04-30 12:00 UTC."),
        ("Not yet", "It is not valid before 2026-05-02 12:00 UTC."),
        ("  ", "It has no text."),
    ]
    assert all(one.handle is not None for one in context.left_out)


@pytest.mark.parametrize(
    ("field", "moves", "is_told"),
    [
        ("expires_at", -1, False), ("expires_at", 0, False), ("expires_at", 1, True),
        ("valid_to", -1, False), ("valid_to", 0, False), ("valid_to", 1, True),
        ("valid_from", -1, True), ("valid_from", 0, True), ("valid_from", 1, False),
    ],
)  # fmt: skip
def test_a_record_holds_from_its_beginning_to_just_before_its_end(
    field: str, moves: int, is_told: bool
) -> None:
    one = record("a", "Holds", **{field: NOW + timedelta(microseconds=moves)})
    section = section_of_records(SectionKind.USER, [one], now=NOW)
    assert (len(section.facts), len(section.left_out)) == ((1, 0) if is_told else (0, 1))


def test_a_budget_that_is_met_exactly_is_kept_to() -> None:
    texts = section_of_texts(SectionKind.USER, ["Likes tea", "Hates rain"])
    tokens = assemble([texts], counter=COUNTER).tokens
    far = WarningKind.FAR_OVER_BUDGET
    for budget, kinds in (
        (tokens, []), (tokens - 1, [WarningKind.OVER_BUDGET]),
        ((tokens + 1) // 2, [WarningKind.OVER_BUDGET]), ((tokens - 1) // 2, [far]),
    ):  # fmt: skip
        context = assemble([texts], counter=COUNTER, budget=budget)
        assert [one.kind for one in context.warnings] == kinds
        assert context.over_budget == (budget < tokens)
        assert context.text == assemble([texts], counter=COUNTER).text
    characters = len(assemble([texts], counter=COUNTER).text)
    for limits in ({"max_tokens": tokens}, {"max_characters": characters}):
        assert assemble([texts], counter=COUNTER, **limits).left_out == ()
        less = {name: most - 1 for name, most in limits.items()}
        assert [one.text for one in assemble([texts], counter=COUNTER, **less).left_out] == [
            "Hates rain"
        ]


def test_what_fills_a_budget_fits_it_exactly() -> None:
    found = [record(str(n), f"Note {n} says tea.", kind="note") for n in range(3)]
    whole = section_of_records(SectionKind.RELATED, found, now=NOW)
    user = section_of_texts(SectionKind.USER, ["Likes tea"])
    [other, all_of_it] = assemble([whole, user], counter=COUNTER, budget=10_000).sections
    heading = all_of_it.text.partition("<memory ")[0]
    room = COUNTER.tokens(heading) + sum(fact.tokens for fact in all_of_it.facts)
    texts = [one.text for one in found]
    for less, told in ((0, texts), (1, texts[:2])):
        budget = COUNTER.tokens(other.text) + room - less
        context = assemble([whole, user], counter=COUNTER, budget=budget)
        assert [fact.text for fact in context.sections[1].facts] == told
        assert [one.text for one in context.left_out] == texts[len(told) :]
        assert context.sections[1].budget == room - less


def test_a_warning_names_three_facts_and_counts_the_others() -> None:
    for number, more in ((3, ""), (4, " and 1 more"), (5, " and 2 more")):
        records = [record(f"r{n}", f"Fact\n{n}") for n in range(number)]
        section = section_of_records(SectionKind.USER, records, now=NOW, binding_key="main")
        [warning] = assemble([section], counter=COUNTER).warnings
        assert warning.kind is WarningKind.LINE_BREAK
        assert warning.where == f"See r0 in main, r1 in main, r2 in main{more}."
        assert [one.provider_record_id for one in warning.handles] == [
            f"r{n}" for n in range(number)
        ]


def test_what_was_left_out_before_stays_so_where_more_is() -> None:
    old = record("old", "Expired.", expires_at=NOW)
    section = section_of_records(
        SectionKind.USER, [record("a", "Likes tea"), old, record("b", "Hates rain")], now=NOW
    )
    given = [assemble([section_of_texts(SectionKind.USER, ["Likes tea"])], counter=COUNTER).text]
    left = without_given(section, ["", *given], logged=lambda text: text)
    assert [one.text for one in left.facts] == ["Hates rain"]
    assert [one.text for one in left.left_out] == ["Expired.", "Likes tea"]
    assert [one.handle and one.handle.provider_record_id for one in left.left_out] == ["old", "a"]


def test_pinned_records_lead_those_of_their_rank_and_then_the_oldest() -> None:
    def at(day: int) -> datetime:
        return NOW - timedelta(days=day)

    records = [
        record("new", "New", created_at=at(1)), record("undated", "Undated"),
        record("old", "Old", created_at=at(9)), record("pin", "Pin", created_at=at(1), pinned=True),
        record("tagged", "Tagged", created_at=at(0), tags=("x", "Style")),
        record("rule", "Rule", created_at=at(0), topic="RULES"),
    ]  # fmt: skip
    section = section_of_records(SectionKind.USER, records, now=NOW)
    told = [one.text for one in section.facts]
    assert told == ["Rule", "Tagged", "Pin", "Old", "New", "Undated"]


def test_no_memory_follows_one_that_was_cut() -> None:
    texts = ["First line of it.\n" + "a very long second line " * 12, "Tea.", "Ale.", "Milk."]
    cuts = 0
    for budget in range(40, 320, 5):
        found = section_of_texts(SectionKind.RELATED, texts)
        context = assemble([found], counter=COUNTER, budget=budget)
        told = [fact for section in context.sections for fact in section.facts]
        cut = [one.truncated for one in told]
        assert True not in cut[:-1], budget
        assert context.tokens <= budget
        left = [one.text for one in context.left_out]
        assert len(told) + len(left) == len(texts) + cut.count(True)
        cuts += cut.count(True)
    assert cuts


def test_rules_lead_then_style_then_bio_and_a_new_fact_comes_last() -> None:
    day = timedelta(days=1)
    records = [
        record("new", "New", created_at=NOW),
        record("old", "Old", created_at=NOW - day),
        record("bio", "Bio", tags=("bio",), created_at=NOW - day),
        record("style", "Style", topic="Style", created_at=NOW),
        record("rule", "Rule", tags=("rule",), created_at=NOW),
        record("pin", "Pinned", pinned=True, created_at=NOW),
    ]
    for order in (records, records[::-1]):
        section = section_of_records(SectionKind.USER, order, now=NOW)
        assert [fact.text for fact in section.facts] == [
            "Rule",
            "Style",
            "Bio",
            "Pinned",
            "Old",
            "New",
        ]
    assert section.facts[0].handle == records[4].handle


def test_a_facts_tokens_are_those_of_its_line() -> None:
    context = assemble([section_of_texts(SectionKind.USER, ["Likes tea"])], counter=COUNTER)
    assert context.sections[0].facts[0].tokens == COUNTER.tokens("- Likes tea\n")
    assert fact_tokens("Likes tea", COUNTER) == COUNTER.tokens("- Likes tea\n")


def test_ten_thousand_facts_assemble_with_their_counts() -> None:
    facts = [f"Decision {number}: keep module {number * 7} as it is." for number in range(10_000)]
    context = assemble([section_of_texts(SectionKind.USER, facts)], counter=COUNTER, max_tokens=500)
    assert context.tokens <= 500
    assert len(context.sections[0].facts) + len(context.left_out) == 10_000


@pytest.mark.parametrize("limits", [{"budget": -1}, {"max_tokens": -1}, {"max_characters": -5}])
def test_a_negative_limit_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(Invalid, match="cannot be below 0"):
        assemble([], counter=COUNTER, **limits)


def test_no_section_takes_the_room_of_another_for_facts_that_fit_the_prompt_better() -> None:
    user = section_of_texts(SectionKind.USER, ["Deploys are watched by Ana", "Tea is green"])
    many = [f"The branch number {number} deploys to a server of its own" for number in range(40)]
    sections = [user, section_of_texts(SectionKind.WORKSPACE, many)]
    found = by_relevance(
        sections, "which branch deploys where?", always={}, found=(), counter=COUNTER, budget=280
    )
    context = assemble(found, counter=COUNTER, budget=280)
    [own, drive] = context.sections
    assert context.tokens <= 280
    assert [(one.text, one.why) for one in own.facts] == [
        ("Deploys are watched by Ana", "the prompt says “deploys”")
    ]
    [least, most] = (min(drive.facts, key=lambda one: one.relevance or 0), own.facts[0])
    assert (least.relevance or 0) > (most.relevance or 0)  # and would have stayed in its place


def test_a_section_beyond_its_budget_has_what_the_others_leave() -> None:
    many = [f"The branch number {number} deploys to a server of its own" for number in range(40)]
    sections = [section_of_texts(SectionKind.WORKSPACE, many)]
    found = by_relevance(
        sections, "which branch deploys?", always={}, found=(), counter=COUNTER, budget=400
    )
    [drive] = assemble(found, counter=COUNTER, budget=400).sections
    assert drive.budget < drive.tokens <= 400
