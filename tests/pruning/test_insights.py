"""What shows over an owner's memories, on each side of every edge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memtui.contract import Record, RecordHandle, Scope
from memtui.pruning.candidates import RetrievalTally
from memtui.pruning.insights import Insight, InsightKind, InsightRules, RatedRecord, find_insights

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY, INSTANT = timedelta(days=1), timedelta(microseconds=1)
ANA = Scope(company_id="acme", subject_id="ana")
BEN = Scope(company_id="acme", subject_id="ben")
RULES = InsightRules()


def known(
    name: str, *, tokens: int = 10, scope: Scope = ANA, use: Any = None, **fields: Any
) -> RatedRecord:
    handle = RecordHandle(provider_key="vault", provider_record_id=name)
    record = Record(handle=handle, text=name, scope=scope, **fields)
    return RatedRecord(record, tokens, use or RetrievalTally(count=1, agents=("a", "b")))


def found(kind: InsightKind, *records: RatedRecord) -> list[Insight]:
    return [one for one in find_insights(records, now=NOW) if one.kind is kind]


@pytest.mark.parametrize("field", ["valid_to", "expires_at"])
def test_what_has_ended_by_now_does_not_count(field: str) -> None:
    old: dict[str, Any] = {"created_at": NOW - 90 * DAY}
    for ends, count in ((NOW - INSTANT, 0), (NOW, 0), (NOW + INSTANT, 1)):
        one = known("a", use=RetrievalTally(count=0), **{**old, field: ends})
        assert len(found(InsightKind.NEVER_READ, one)) == count


def test_the_youngest_memory_says_how_long_nothing_changed() -> None:
    old, edge = NOW - 90 * DAY, NOW - RULES.still_days * DAY
    for last, days in ((edge, 30), (edge + INSTANT, None), (edge - DAY, 31)):
        for order in (1, -1):
            records = [known("a", created_at=old), known("b", created_at=old, updated_at=last),
                       known("c", created_at=old)][::order]  # fmt: skip
            told = found(InsightKind.NOT_UPDATED, *records)
            assert [f"for {days} days" in one.sentence for one in told] == [True] * (
                days is not None
            )
    undated = known("c")
    assert found(InsightKind.NOT_UPDATED, known("a", created_at=old), undated) == []


def test_a_memory_counts_as_unread_from_its_age_on() -> None:
    edge, never = NOW - RULES.unread_days * DAY, RetrievalTally(count=0)
    records = [
        known("at", created_at=edge, use=never, tokens=1),
        known("younger", created_at=edge + INSTANT, use=never, tokens=2),
        known("undated", use=never, tokens=4),
        known("read", created_at=edge, tokens=8),
    ]
    [one] = found(InsightKind.NEVER_READ, *records)
    assert (one.records, one.of, one.tokens) == (2, 4, 5)


def test_memories_of_one_agent_are_told_from_their_number_on() -> None:
    def alone(name: str, agent: str, scope: Scope = ANA) -> RatedRecord:
        return known(name, use=RetrievalTally(count=2, agents=(agent,)), scope=scope)

    pair = [alone(f"a{n}", "coding") for n in range(2)]
    several = [alone(f"b{n}", "writing") for n in range(3)]
    both = known("c", use=RetrievalTally(count=2, agents=("coding", "writing")))
    [one] = found(InsightKind.READ_BY_ONE, *pair, both, *several)
    assert (one.agent_id, one.records, one.of) == ("writing", 3, 6)
    two = found(InsightKind.READ_BY_ONE, *pair, alone("a3", "coding"), *several)
    assert {one.agent_id for one in two} == {"coding", "writing"}
    its_own = Scope(company_id="acme", agent_id="coding")
    assert (
        found(InsightKind.READ_BY_ONE, *[alone(f"d{n}", "coding", its_own) for n in range(3)]) == []
    )


@pytest.mark.parametrize(
    ("new", "before", "grows"),
    [(39, 0, False), (40, 0, True), (60, 160, False), (61, 160, True), (60, 159, True)],
)
def test_a_topic_grows_beyond_its_usual_week(new: int, before: int, grows: bool) -> None:
    week = 7 * DAY
    records = [
        known("new", topic="t", tokens=new, created_at=NOW - week + INSTANT),
        known("first", topic="t", tokens=before - before // 2, created_at=NOW - week),
        known("last", topic="t", tokens=before // 2, created_at=NOW - 5 * week + INSTANT),
        known("ancient", topic="t", tokens=10_000, created_at=NOW - 5 * week),
        known("other", topic="u", tokens=39, created_at=NOW - DAY),
    ]
    told = found(InsightKind.GROWING, *records)
    assert [(one.topic, one.records, one.tokens) for one in told] == [("t", 1, new)] * grows


def test_each_owner_stands_alone_and_the_most_tokens_come_first() -> None:
    never, old = RetrievalTally(count=0), NOW - 90 * DAY
    records = [
        known("a", use=never, created_at=old, tokens=5),
        known("b", use=never, created_at=old, tokens=50, scope=BEN),
        known("c", use=never, created_at=old, tokens=5),
    ]
    told = found(InsightKind.NEVER_READ, *records)
    assert [(one.scope, one.records, one.tokens) for one in told] == [(BEN, 1, 50), (ANA, 2, 10)]
    topics = [known(str(n), topic=f"t{n}", tokens=40 + n, created_at=NOW - DAY) for n in range(12)]
    growing = found(InsightKind.GROWING, *topics)
    assert [one.topic for one in growing] == [f"t{n}" for n in range(11, 1, -1)]
