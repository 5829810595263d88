from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import (
    Comparison,
    Filter,
    Invalid,
    Measure,
    OperationStatus,
    OperationType,
    SourceKind,
    Term,
    Use,
    UseTest,
)
from memtui.filters import (
    FIELDS,
    MEASURES,
    SUPPORTED,
    USES,
    WORD_OF,
    FilterTarget,
    build_filter,
    format_filter,
    parse_ahead,
    parse_expiry,
    parse_filter,
    parse_when,
    refuse_unsupported,
    span_words,
    supported_by,
    unsupported,
)
from memtui.presenters.filter_words import completions, understood
from memtui.store.conditions import condition, conditions

NOW = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")

foreign = st.text(min_size=1, max_size=12)
tricky = st.text(alphabet="ab:/'\"\\ -agent\n", min_size=1, max_size=14) | st.text(
    alphabet="cost<>=.5$s'\"", min_size=1, max_size=9
)
commas = st.text(alphabet="a,'\" ", min_size=1, max_size=6)
asking = st.sampled_from(["read:", "stale:", "cost:", "dup://x"])
values = st.none() | foreign | tricky | commas | asking
moments = st.none() | st.integers(-(10**15), 10**16).map(
    lambda micros: NOW + timedelta(microseconds=micros)
)
texts = st.lists(values, max_size=4).map(
    lambda parts: " ".join(" ".join(part for part in parts if part).split()) or None
)
comparisons = st.builds(
    Comparison,
    measure=st.sampled_from([Measure.COST, Measure.LATENCY, Measure.SCORE]),
    sign=st.sampled_from(["<", "<=", "=", ">=", ">"]),
    value=st.decimals(-9_000_000, 9_000_000, places=12),
) | st.builds(
    Comparison,
    measure=st.sampled_from([Measure.TOKENS, Measure.RESULTS]),
    sign=st.sampled_from(["<", "<=", "=", ">=", ">"]),
    value=st.integers(-(10**15), 10**15).map(Decimal),
)
kinds = {"source_kind": SourceKind, "operation_type": OperationType, "status": OperationStatus}
words_left_out = [
    st.builds(
        Term,
        field=st.just(field),
        values=st.lists(foreign | tricky, min_size=1, max_size=3).map(tuple),
        excluded=st.just(value=True),
    )
    for field in ("text", "fuzzy")
]
of_fields = [
    st.builds(
        Term,
        field=st.just(field),
        values=st.lists(
            st.sampled_from(kinds[field]).map(str) if field in kinds else foreign | tricky | commas,
            min_size=2, max_size=3, unique=True,
        ).map(tuple),
        excluded=st.booleans(),
    )
    for field in FIELDS.values()
    if field not in {"since", "until"}
]  # fmt: skip
terms = st.lists(
    st.one_of(*of_fields, *words_left_out),
    max_size=3,
    unique_by=lambda term: (term.field, term.excluded),
).map(tuple)


seconds = st.integers(0, 10**6) | st.integers(0, 9_999).map(lambda days: days * 86_400)
uses = (
    st.builds(UseTest, use=st.sampled_from([Use.READ, Use.DUP]), excluded=st.booleans())
    | st.builds(
        UseTest,
        use=st.just(Use.READ),
        sign=st.sampled_from("<>"),
        value=seconds,
        excluded=st.booleans(),
    )
    | st.builds(
        UseTest,
        use=st.just(Use.COST),
        sign=st.sampled_from(["<", "<=", ">=", ">"]),
        value=st.integers(0, 10**6),
        excluded=st.booleans(),
    )
)


def either(chosen: Filter) -> Filter:
    """A field has one value, or any of several."""
    several: dict[str, None] = {one.field: None for one in chosen.terms if not one.excluded}
    return chosen.model_copy(update=several)


filters = st.builds(
    Filter,
    **{
        field: values
        for field in FIELDS.values()
        if field not in {"source_kind", "operation_type", "status", "since", "until"}
    },
    source_kind=st.none() | st.sampled_from(SourceKind),
    operation_type=st.none() | st.sampled_from(OperationType),
    status=st.none() | st.sampled_from(OperationStatus),
    since=moments,
    until=moments,
    text=texts,
    fuzzy=st.lists(foreign | tricky, max_size=2).map(tuple),
    comparisons=st.lists(comparisons, max_size=3, unique=True).map(tuple),
    terms=terms,
    uses=st.lists(uses, max_size=3, unique=True).map(tuple),
).map(either)


def compared(measure: str, sign: str, value: str) -> Comparison:
    return Comparison.model_validate({"measure": measure, "sign": sign, "value": value})


def left_in(field: Any, *values: str) -> Term:
    return Term(field=field, values=values)


def left_out(field: Any, *values: str) -> Term:
    return Term(field=field, values=values, excluded=True)


@given(filters)
def test_what_is_formatted_parses_to_the_same(chosen: Filter) -> None:
    assert parse_filter(format_filter(chosen), now=NOW) == chosen


@given(st.text() | tricky)
def test_any_line_is_a_filter_or_a_sentence(line: str) -> None:
    try:
        chosen = parse_filter(line, now=NOW)
    except Invalid:
        return
    assert parse_filter(format_filter(chosen), now=NOW) == chosen


def test_every_field_of_the_filter_can_be_typed() -> None:
    typed = {*FIELDS.values(), "text", "fuzzy", "comparisons", "terms", "uses", "alternatives"}
    assert set(USES.values()) == set(Use)
    assert typed == set(Filter.model_fields) - {"internal"}  # a channel says it
    assert set(MEASURES.values()) == set(Measure)


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("", Filter()),
        ("   ", Filter()),
        ("agent:coding", Filter(agent_id="coding")),
        ("project:mech issue:ISS-1 run:r9 user:u", Filter(
            project_id="mech", issue_id="ISS-1", run_id="r9", subject_id="u")),
        ("source:issue_comment type:write status:unknown", Filter(
            source_kind="issue_comment", operation_type="write", status="unknown")),
        ("topic:deploy tag:ci kind:fact binding:mem0 channel:mcp by:user:ana", Filter(
            topic="deploy", tag="ci", kind="fact", binding_key="mem0", channel="mcp",
            principal="user:ana")),
        ("by:'ana'", Filter(principal="ana")),
        ("by:agent", Filter(principal="agent:")),
        ("by:'agent'", Filter(principal="agent")),
        ("-by:user,plugin", Filter(terms=(Term(
            field="principal", values=("user:", "plugin:"), excluded=True),))),
        ("-by:ana,plugin:x", Filter(terms=(Term(
            field="principal", values=("ana", "user:ana", "agent:ana", "plugin:x"),
            excluded=True),))),
        ("since:2026-03-01 until:2026-03-02T14:30Z", Filter(
            since=datetime(2026, 3, 1, tzinfo=UTC),
            until=datetime(2026, 3, 2, 14, 30, tzinfo=UTC))),
        ("deploy  branch", Filter(text="deploy branch")),
        ("~dply branch ~'a b'", Filter(text="branch", fuzzy=("dply", "a b"))),
        ("~''/notes", Filter(fuzzy=("/notes",))),
        ("~/notes '~dply' a~b", Filter(text="~/notes ~dply a~b")),
        ("deploy agent:coding branch", Filter(agent_id="coding", text="deploy branch")),
        ("project:'mech fighters'", Filter(project_id="mech fighters")),
        ('project:"mech \\"x\\" fighters"', Filter(project_id='mech "x" fighters')),
        ("project:mech\\ fighters", Filter(project_id="mech fighters")),
        ("agent:a/b topic:/x/y issue://z", Filter(agent_id="a/b", topic="/x/y", issue_id="//z")),
        ("https://example.com/a?b=c", Filter(text="https://example.com/a?b=c")),
        ("see http://x agent:a", Filter(agent_id="a", text="see http://x")),
        ("note: buy milk", Filter(text="note: buy milk")),
        ("TODO: 12:30 a:", Filter(text="TODO: 12:30 a:")),
        ("'agent:coding'", Filter(text="agent:coding")),
        ('"typo:x" "" y', Filter(text="typo:x  y")),
        ("cost>0.010 cost<=$1", Filter(comparisons=(
            compared("cost", ">", "0.01"), compared("cost", "<=", "1")))),
        ("latency>200 latency>=1.5s took<2min", Filter(comparisons=(
            compared("latency", ">", "200"), compared("latency", ">=", "1500"),
            compared("latency", "<", "120000")))),
        ("took>2 s latency<1.5 min cost>1 s", Filter(text="s", comparisons=(
            compared("latency", ">", "2000"), compared("latency", "<", "90000"),
            compared("cost", ">", "1")))),
        ("took>2 's'", Filter(text="s", comparisons=(compared("latency", ">", "2"),))),
        ("status:held for review deploy", Filter(status="pending", text="deploy")),
        ("-status:ok,Unknown Outcome", Filter(terms=(left_out("status", "ok", "unknown"),))),
        ("status:pending 'for' review", Filter(status="pending", text="for review")),
        ("status:pending for", Filter(status="pending", text="for")),
        ("status:failed,'Held for review'", Filter(terms=(left_in("status", "error", "pending"),))),
        ("results=0 tokens>1000 score<.3 deploy", Filter(text="deploy", comparisons=(
            compared("results", "=", "0"), compared("tokens", ">", "1000"),
            compared("score", "<", "0.3")))),
        ("cost>1 cost>1", Filter(comparisons=(compared("cost", ">", "1"),))),
        ("'cost>1' a=b x>y x=1 costly>much", Filter(text="cost>1 a=b x>y x=1 costly>much")),
        ("agent:coding,ops -type:query,browse -type:get", Filter(terms=(
            left_in("agent_id", "coding", "ops"),
            left_out("operation_type", "query", "browse", "get")))),
        ("agent:'a,b','c d' topic:'x,y'", Filter(topic="x,y", terms=(
            left_in("agent_id", "a,b", "c d"),))),
        ("deploy -draft -'two words' -~dply -~/notes -'agent:x'", Filter(text="deploy", terms=(
            left_out("fuzzy", "dply"),
            left_out("text", "draft", "two words", "~/notes", "agent:x")))),
        ("agent:a,a -agent:b --json - -https://x", Filter(agent_id="a", text="--json -", terms=(
            left_out("agent_id", "b"), left_out("text", "https://x")))),
        ("read:never -read:<2w stale:>1m cost:>20 dup:no", Filter(uses=(
            UseTest(use=Use.READ),
            UseTest(use=Use.READ, sign="<", value=14 * 86_400, excluded=True),
            UseTest(use=Use.READ, sign=">", value=30 * 86_400),
            UseTest(use=Use.COST, sign=">", value=20),
            UseTest(use=Use.DUP, excluded=True)))),
        ("run 4411 branch", Filter(text="branch", terms=(
            left_in("run_id", "4411", "run-4411"),))),
        ("issue 31", Filter(issue_id="31")),
        ("ISS-31 comment 2", Filter(issue_id="ISS-31", terms=(
            left_in("comment_id", "2", "comment-2"),))),
        ("'run' 4411", Filter(text="run 4411")),
        ("long run comment on ISS-31", Filter(text="long run comment on ISS-31")),
        ("развёртывание tag:日本", Filter(text="развёртывание", tag="日本")),
    ],
)  # fmt: skip
def test_lines(line: str, chosen: Filter) -> None:
    parsed = parse_filter(line, now=NOW)
    assert parsed.model_copy(update={"text": None}) == chosen.model_copy(update={"text": None})
    assert (parsed.text or "").split() == (chosen.text or "").split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("agnt:coding", "There is no filter field agnt; did you mean agent:?"),
        ("zzz:1", "There is no filter field zzz; the filter fields are agent:, project:"),
        ("agent:", "The filter field agent: needs a value"),
        ("agent:''", "needs a value"),
        ("project:'mech", "unclosed quote"),
        ("don't", "unclosed quote"),
        ("x \\", "unclosed quote"),
        ("type:wirte", "There is no type wirte; did you mean type:write?"),
        ("type:xyz", "The filter value 'xyz' for type does not fit"),
        ("source:nowhere", "for source does not fit"),
        ("since:soon", "is not a time"),
        ("since:7x", "is not a time"),
        ("cost>", "cost> needs a number, such as cost>0.01; quote it"),
        ("cost>much", "cost> needs a number"),
        ("cost>1s", "cost> needs a number"),
        ("took>2d", "took> needs a number, such as latency>200 or took>2s"),
        ("tokens>1.5", "tokens>1.5 does not fit: tokens are whole numbers"),
        ("cost>9000001", "cost goes up to 9,000,000 dollars"),
        ("score>0.0000000000001", "does not fit"),
        ("a ~", "~ needs a word after it, such as ~deploy; quote it"),
        ("~''", "~ needs a word after it"),
        (f"~{'x' * 33}", "A fuzzy word has at most 32 characters; remove the ~"),
        ("read:often", "write read:never, read:<30d or read:>30d"),
        ("stale:never", "write stale:>30d"),
        ("cost:>$5", "write cost:>20, which are tokens; dollars are cost>0.01"),
        ("cost:20", "write cost:>20"),
        ("dup:", "write dup:yes or dup:no"),
        ("raed:never", "did you mean read:?"),
        ("costs>1", "costs cannot be compared; did you mean cost>?"),
        (
            "word " * 1000,
            "word word…' for text does not fit: a filter takes at most 200 words or values",
        ),
        ("~word " * 1000, "for fuzzy does not fit: a filter takes at most 200 words"),
    ],
)
def test_a_line_that_makes_no_sense_says_why(line: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_filter(line, now=NOW)
    assert message in str(caught.value)


def test_a_bad_value_from_elsewhere_is_named_by_its_word() -> None:
    with pytest.raises(Invalid, match="for status does not fit"):
        build_filter(status="great", agent_id=None)


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("90s", timedelta(seconds=90)),
        ("30min", timedelta(minutes=30)),
        ("6h", timedelta(hours=6)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("3m", timedelta(days=90)),
        ("3mo", timedelta(days=90)),
        ("3 mo ago", timedelta(days=90)),
        ("1y", timedelta(days=365)),
        ("0d", timedelta(0)),
        ("now", timedelta(0)),
        ("3d ago", timedelta(days=3)),
        ("2 h ago", timedelta(hours=2)),
        ("3 weeks ago", timedelta(days=21)),
        ("An hour ago", timedelta(hours=1)),
        ("1 day ago", timedelta(days=1)),
    ],
)
def test_spans_reach_back_from_now(text: str, back: timedelta) -> None:
    assert parse_when(text, now=NOW) == NOW - back


def test_a_span_is_true_time_even_over_a_clock_change() -> None:
    now = datetime(2026, 3, 29, 4, 0, tzinfo=BERLIN)
    assert now.astimezone(UTC) - parse_when("3h", now=now, zone=BERLIN) == timedelta(hours=3)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-28", "2026-03-27T23:00Z"),
        ("2026-03-29", "2026-03-28T23:00Z"),
        ("2026-03-30", "2026-03-29T22:00Z"),
        ("2026-03-29T01:59", "2026-03-29T00:59Z"),
        ("2026-03-29T03:01", "2026-03-29T01:01Z"),
        ("2026-03-29T03:01+00:00", "2026-03-29T03:01Z"),
        ("2026-10-25", "2026-10-24T22:00Z"),
        ("2026-10-26", "2026-10-25T23:00Z"),
        ("today", "2026-03-28T23:00Z"),
        ("yesterday", "2026-03-27T23:00Z"),
        ("last Saturday", "2026-03-27T23:00Z"),
        ("last sunday", "2026-03-21T23:00Z"),
        ("last monday", "2026-03-22T23:00Z"),
    ],
)
def test_a_day_begins_at_midnight_of_its_zone(text: str, moment: str) -> None:
    now = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
    parsed = parse_when(text, now=now, zone=BERLIN)
    assert parsed == datetime.fromisoformat(moment)
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("13:59", "2026-03-29T11:59Z"),
        ("14:00", "2026-03-29T12:00Z"),
        ("14:00:01", "2026-03-28T13:00:01Z"),
        ("1:30", "2026-03-29T00:30Z"),
        ("23:15", "2026-03-28T22:15Z"),
    ],
)
def test_a_clock_time_is_the_last_one_that_has_been(text: str, moment: str) -> None:
    now = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
    assert parse_when(text, now=now, zone=BERLIN) == datetime.fromisoformat(moment)


def test_today_begins_at_the_first_of_two_midnights() -> None:
    havana = ZoneInfo("America/Havana")
    now = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert now.astimezone(havana).fold == 1
    assert parse_when("today", now=now, zone=havana) == datetime(2026, 11, 1, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("999999y", UTC),
        ("999999w", UTC),
        ("0001-01-01", timezone(timedelta(hours=5))),
        ("9999-12-31T23:59", timezone(-timedelta(hours=8))),
        ("0001-01-01T00:00+14:00", UTC),
    ],
)
def test_a_time_outside_of_the_calendar_is_refused(text: str, zone) -> None:
    with pytest.raises(Invalid, match="outside of the calendar"):
        parse_when(text, now=NOW, zone=zone)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(1, "1s"), (59, "59s"), (60, "1min"), (61, "61s"), (3_540, "59min"), (3_600, "1h"),
     (3_660, "61min"), (21_600, "6h"), (82_800, "23h"), (86_400, "1d"), (90_000, "25h"),
     (172_800, "2d")],
)  # fmt: skip
def test_a_span_is_written_in_its_largest_whole_unit(seconds: int, written: str) -> None:
    assert span_words(seconds) == written
    assert NOW - parse_when(written, now=NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize("line", ["read:>400y", "-stale:>99999999d", "read:<999999999y"])
def test_a_use_further_back_than_can_be_asked_for_is_refused(line: str) -> None:
    with pytest.raises(Invalid, match="beyond the 300 years"):
        parse_filter(line, now=NOW)


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(2026, 3, 28, 23, tzinfo=UTC), "since:2026-03-29"),
        (datetime(2026, 3, 29, 12, 30, tzinfo=UTC), "since:2026-03-29T14:30"),
        (datetime(2026, 3, 29, 12, 30, 0, 5, tzinfo=UTC), "since:2026-03-29T14:30:00.000005"),
        (datetime(2026, 10, 25, 1, tzinfo=UTC), "since:2026-10-25T01:00:00+00:00"),
    ],
)
def test_a_moment_is_short_in_a_zone_and_the_same_when_it_is_read(
    moment: datetime, written: str
) -> None:
    assert format_filter(Filter(since=moment), BERLIN) == written
    assert parse_filter(written, now=NOW, zone=BERLIN).since == moment


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not type:query", "-type:query excludes"),
        ("NOT agent:bob", "remove “NOT”"),
        ("agent:a or", "“or” needs a term on both sides"),
        ("or -draft", "“or” needs a term on both sides"),
        ("agent:a or or type:write", "“or” needs a term on both sides"),
        ("status:ok and -type:write", "remove “and”"),
        ("deploy not cost>0.1", "remove “not”"),
        ("agent:a and -draft", "remove “and”"),
        ("!agent:bob", "a - before it: -agent:bob"),
        ("-cost>1", "cannot be excluded; remove the -"),
        ("-since:7d", "since: takes one time and no -; use until:"),
        ("until:7d,3d", "until: takes one time"),
        ("agent:a,", "needs a value before and after each comma"),
        ("agent:,a", "before and after each comma"),
        ("agent:a,''", "before and after each comma"),
        ("-type:write,wrote", "There is no type wrote; did you mean type:write?"),
        ("-agnt:a", "did you mean agent:?"),
        ("-''", "- needs a word or a field after it"),
        ("-~", "~ needs a word after it"),
    ],
)
def test_what_leaves_out_or_chooses_in_another_way_is_told_how(line: str, told: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_filter(line, now=NOW)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "'not' type:query", "not found", "type:query not found", "rock and roll", "--rf",
        "'-type:query'", "or",
    ],
)  # fmt: skip
def test_a_joining_word_that_joins_nothing_is_a_word(line: str) -> None:
    assert parse_filter(line, now=NOW).text is not None


def test_a_field_is_known_in_any_case_and_what_is_none_is_a_word() -> None:
    assert parse_filter("Agent:a Error:x", now=NOW) == Filter(agent_id="a", text="Error:x")


def test_or_beside_a_term_separates_alternatives() -> None:
    line = "agent:a cost>0.01 OR run 4411 or draft"
    chosen = parse_filter(line, now=NOW)
    costly = Filter(agent_id="a", comparisons=parse_filter("cost>0.01", now=NOW).comparisons)
    of_run = Filter(terms=(Term(field="run_id", values=("4411", "run-4411")),))
    assert chosen == Filter(alternatives=(costly, of_run, Filter(text="draft")))
    words = Filter(alternatives=(Filter(text="red fish"), Filter(text="blue")))
    assert parse_filter("red fish or blue", now=NOW) == words
    assert parse_filter("red 'or' blue", now=NOW).text == "red or blue"
    assert format_filter(chosen) == "agent:a cost>0.01 or run:4411,run-4411 or draft"
    narrowed = chosen.model_copy(update={"topic": "ci"})
    assert parse_filter(format_filter(narrowed), now=NOW).alternatives[0].topic == "ci"


def test_a_term_that_narrows_nothing_stops_all_alternatives() -> None:
    chosen = parse_filter("type:write or agent:a", now=NOW)
    assert unsupported(chosen, FilterTarget.RECORDS) == ["type:"]
    assert supported_by(chosen, FilterTarget.RECORDS) == Filter()
    with pytest.raises(Invalid, match="binding: beside “or” cannot narrow records"):
        refuse_unsupported(parse_filter("binding:a or tag:b", now=NOW), FilterTarget.RECORDS)
    with pytest.raises(Invalid, match=r"read: beside “or” cannot (?!.* read: )"):
        refuse_unsupported(parse_filter("read:never or tag:b", now=NOW), FilterTarget.FACTS)
    chosen = parse_filter("binding:a or tag:b", now=NOW)
    assert unsupported(chosen, FilterTarget.QUESTIONS) == ["or"]


def test_a_field_is_asked_for_once() -> None:
    assert parse_filter("agent:a agent:a", now=NOW).agent_id == "a"
    with pytest.raises(Invalid, match="nothing can be both; agent:a,b lets either through"):
        parse_filter("agent:a agent:b", now=NOW)
    with pytest.raises(Invalid, match="since: twice"):
        parse_filter("since:7d since:3d", now=NOW)


def test_what_chooses_where_to_look_has_one_value() -> None:
    chosen = parse_filter("project:a,b -binding:x words", now=NOW)
    assert (
        unsupported(chosen, FilterTarget.OPERATIONS)
        == unsupported(chosen, FilterTarget.RECORDS)
        == []
    )
    assert unsupported(chosen, FilterTarget.FACTS) == ["-binding:x"]
    assert supported_by(chosen, FilterTarget.FACTS).terms == chosen.terms[1:]
    with pytest.raises(Invalid, match=r"-binding:x and project:a,b cannot .* each take one value"):
        refuse_unsupported(chosen, FilterTarget.BUDGET)


def only(field: str) -> Filter:
    """Return a filter with one field set."""
    one_each = {
        "source_kind": "issue", "operation_type": "write", "status": "ok", "since": NOW,
        "until": NOW, "fuzzy": ("x",),
        "comparisons": (Comparison(measure=Measure.COST, sign=">", value=Decimal(1)),),
        "uses": (UseTest(use=Use.READ),),
        "alternatives": (Filter(agent_id="a"), Filter(text="x")),
    }  # fmt: skip
    if field == Use.RISK:
        return Filter(uses=(UseTest(use=Use.RISK, among=("any",)),))
    field = "uses" if field == Use.READ else field
    return Filter.model_validate({field: one_each.get(field, "x"), "internal": True})


@pytest.mark.parametrize("field", sorted(set(Filter.model_fields) - {"terms", "internal"}))
def test_the_log_reads_what_it_supports_and_refuses_the_rest(field: str) -> None:
    chosen = only(field)
    is_refused = unsupported(chosen, FilterTarget.OPERATIONS) != []
    if field == "uses":
        assert is_refused
        with pytest.raises(Invalid, match="read: cannot narrow operations here"):
            condition(chosen)
        return
    assert bool(condition(chosen)) != is_refused
    assert bool(conditions("sqlite", "acme", chosen, None)) != is_refused


def test_every_term_is_held_or_refused_as_the_document_says() -> None:
    page = Path("docs/filter.md").read_text("utf-8")
    header, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.partition("## What can be narrowed")[2].splitlines()
        if line.startswith("|") and "---" not in line
    ]
    assert header == ["Term", *FilterTarget]
    terms = {
        **{f"`{word}:`": field for field, word in WORD_OF.items()},
        "`read:` `cost:` …": Use.READ,
        "`risk:`": Use.RISK,
        "`cost>` …": "comparisons",
        "words": "text",
        "`~words`": "fuzzy",
        "`or`": "alternatives",
    }
    assert [row[0] for row in rows] == list(terms)
    for name, *marks in rows:
        field = terms[name]
        chosen = only(field)
        for taker, mark in zip(FilterTarget, marks, strict=True):
            assert (field in SUPPORTED[taker]) == (mark == "✓"), (name, taker)
            assert (unsupported(chosen, taker) == []) == (mark == "✓"), (name, taker)
            if not mark:
                with pytest.raises(Invalid, match="cannot narrow"):
                    refuse_unsupported(chosen, taker)


def test_dollars_of_records_are_answered_with_how_their_tokens_are_written() -> None:
    chosen = parse_filter("cost>20", now=NOW)
    with pytest.raises(Invalid, match="Tokens are cost:>20"):
        refuse_unsupported(chosen, FilterTarget.RECORDS)
    with pytest.raises(Invalid, match=r"cannot narrow a question; remove it\. These can: "):
        refuse_unsupported(chosen, FilterTarget.QUESTIONS)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30d", NOW + timedelta(days=30)),
        (" 6h ", NOW + timedelta(hours=6)),
        ("90min", NOW + timedelta(minutes=90)),
        ("45s", NOW + timedelta(seconds=45)),
        ("3mo", NOW + timedelta(days=90)),
        ("2y", NOW + timedelta(days=730)),
        ("in 3 weeks", NOW + timedelta(days=21)),
        ("In an hour", NOW + timedelta(hours=1)),
        ("2027-01-02", datetime(2027, 1, 2, tzinfo=UTC)),
        ("2027-01-02T03:04:05+01:00", datetime(2027, 1, 2, 2, 4, 5, tzinfo=UTC)),
    ],
)
def test_an_expiry_lies_ahead(text: str, moment: datetime) -> None:
    assert parse_ahead(text, now=NOW) == parse_expiry(text, now=NOW) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("tomorrow", "2026-03-28T23:00Z"),
        ("Next Week", "2026-03-29T22:00Z"),
        ("next monday", "2026-03-29T22:00Z"),
        ("next saturday", "2026-04-03T22:00Z"),
        ("13:00", "2026-03-29T11:00Z"),
        ("14:00", "2026-03-28T13:00Z"),
    ],
)
def test_a_day_ahead_begins_at_midnight_of_its_zone(text: str, moment: str) -> None:
    now = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    parsed = parse_expiry(text, now=now, zone=BERLIN)
    assert parsed == datetime.fromisoformat(moment)
    assert parsed.tzinfo is UTC


def test_what_a_refusal_says_to_try_is_taken() -> None:
    for parse in (parse_expiry, parse_when):
        with pytest.raises(Invalid) as refused:
            parse("soon", now=NOW)
        examples = str(refused.value).partition("try ")[2].removesuffix(".").replace(" or ", ", ")
        assert [parse(one, now=NOW) for one in examples.split(", ")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not a time; try 30d, in 3 weeks, tomorrow"),
        ("soon", "is not a time; try 30d, in 3 weeks, tomorrow"),
        ("-3d", "is not a time"),
        ("\x1b[31m", "is not a time"),
        ("999999y", "is outside of the calendar"),
        ("0d", "is past; give a time that is still to come"),
        ("3 weeks ago", "is past"),
        ("2020-01-01", "is past"),
    ],
)
def test_what_is_no_time_ahead_is_refused(text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        parse_expiry(text, now=NOW)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("risk:any", "risk:any"),
        ("-risk:Secret,order", "-risk:holds_secret,poisoned"),
        ("risk:duplicate", "risk:exact_duplicate,near_duplicate"),
        ("risk:none risk:unchecked", "risk:none risk:unchecked"),
    ],
)
def test_risks_have_short_names_and_unknown_ones_are_refused(line: str, written: str) -> None:
    found = parse_filter(line, now=NOW)
    assert format_filter(found) == written
    assert parse_filter(written, now=NOW) == found
    assert completions("risk:se", {}) == ["risk:secret"]
    assert understood(parse_filter("-risk:secret", now=NOW), UTC) == "risk is not holds secret"
    with pytest.raises(Invalid, match="did you mean secret"):
        parse_filter("risk:secrt", now=NOW)
    for target in FilterTarget:
        is_asked = target is not FilterTarget.QUESTIONS or not found.alternatives
        assert not is_asked or unsupported(found, target) == []
