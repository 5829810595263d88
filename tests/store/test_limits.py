"""Spending limits in the tables, and exact sums of what was spent."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.contract import Scope, Usage
from memtui.store import appending, limits
from memtui.store.database import Database
from memtui.store.operation import OperationDraft
from memtui.store.rows import SpendingLimitRow
from tests.analytics.logs import HOSTILE
from tests.databases import ON_BOTH

START = datetime(2026, 3, 1, tzinfo=UTC)
_companies = itertools.count()


def row(amount: int, **changes: str) -> SpendingLimitRow:
    place = {
        "company_id": "acme",
        "target_type": "agent",
        "target_id": "coding",
        "measure": "usd",
        "period": "day",
    }
    return SpendingLimitRow(amount=amount, **(place | changes))


@ON_BOTH
def test_a_limit_replaces_the_one_in_its_place(database: Database) -> None:
    others = [
        row(2, target_id=HOSTILE),
        row(3, measure="tokens"),
        row(4, period="month"),
        row(5, company_id="other"),
    ]
    with database.write() as connection:
        for one in (row(1), *others, row(2**63 - 1)):
            limits.set_spending_limit(connection, one)
        found = limits.spending_limits(connection, "acme")
        assert sorted(one.amount for one in found) == [2, 3, 4, 2**63 - 1]
        assert HOSTILE in {one.target_id for one in found}
        removed = limits.remove_spending_limits(
            connection, "acme", "agent", "coding", measure="usd", period="month"
        )
        assert [one.amount for one in removed] == [4]
        removed = limits.remove_spending_limits(connection, "acme", "agent", "coding")
        assert {one.amount for one in removed} == {3, 2**63 - 1}
        assert limits.remove_spending_limits(connection, "acme", "agent", "coding") == []
        assert [one.amount for one in limits.spending_limits(connection, "other")] == [5]


tokens = st.sampled_from([0, 1, 999_999_999, 10**9, 2**63 - 1]) | st.integers(0, 5_000)
dollars = st.none() | st.builds(
    lambda pico: Decimal(pico).scaleb(-12),
    st.sampled_from([0, 1, 10**9, 9 * 10**18]) | st.integers(0, 10**13),
)
usages = st.builds(
    Usage,
    provider=st.just("mem0"),
    input_tokens=tokens,
    output_tokens=tokens,
    embedding_tokens=tokens,
    cost_usd=dollars,
)
spendings = st.tuples(
    st.sampled_from([None, "coding", HOSTILE]),
    st.sampled_from([None, "p"]),
    st.sampled_from([None, "default"]),
    st.integers(-2, 12).map(lambda hours: START + timedelta(hours=hours)),
    st.lists(usages, max_size=3),
)


@ON_BOTH
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log_of=st.lists(spendings, max_size=8))
def test_the_sums_are_exact(database: Database, log_of) -> None:
    company = f"company-{next(_companies)}"
    until = START + timedelta(hours=10)
    sums: dict[str, Counter[object]] = {
        "tokens": Counter(),
        "pico": Counter(),
        "unpriced": Counter(),
    }
    with database.write(durable=False) as connection:
        for number, (agent, project, binding, at, used) in enumerate(log_of):
            for owner in (company, f"{company}-other"):
                appending.append(
                    connection,
                    OperationDraft(
                        operation_id=f"{owner}-{number}",
                        operation_type="query",
                        status="error",
                        scope=Scope(company_id=owner, agent_id=agent, project_id=project),
                        binding_key=binding,
                        principal="user:ana",
                        channel="test",
                        usage=tuple(used),
                        started_at=at,
                        latency_ms=0,
                    ),
                )
            if START <= at < until:
                key = (agent or "", project or "", binding or "")
                for one in used:
                    read_and_written = one.input_tokens + one.output_tokens
                    sums["tokens"][key] += read_and_written + one.embedding_tokens
                    sums["pico"][key] += int((one.cost_usd or Decimal(0)) * 10**12)
                    sums["unpriced"][key] += one.cost_usd is None
        assert limits.last_seq(connection, company) == len(log_of)
        found = limits.spent(connection, company, START, until)
    keys = [(one.agent_id, one.project_id, one.binding_key) for one in found]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {key for one in sums.values() for key, number in one.items() if number}
    for key, one in zip(keys, found, strict=True):
        expected = (sums["tokens"][key], sums["pico"][key], sums["unpriced"][key])
        assert (one.tokens, one.cost_pico, one.unpriced_count) == expected
