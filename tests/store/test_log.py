from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from memtui.contract import (
    Filter,
    OperationStatus,
    OperationType,
    Scope,
    SourceRef,
    Term,
    Unavailable,
    Usage,
)
from memtui.store import appending
from memtui.store.database import Database
from memtui.store.digest import GENESIS, is_intact
from memtui.store.log import OperationStore
from memtui.store.operation import OperationDraft, OperationHandle
from tests.databases import ON_BOTH
from tests.processes import prepared_processes

pytestmark = ON_BOTH

NOW = datetime(2026, 3, 9, 12, 0, 0, 123456, tzinfo=UTC)
NUMBERS = itertools.count(1)


def draft(number: int, company: str = "acme", **changes: object) -> OperationDraft:
    values: dict[str, object] = {
        "operation_id": f"{company}-{number}",
        "operation_type": OperationType.QUERY,
        "status": OperationStatus.OK,
        "scope": Scope(company_id=company, project_id="p"),
        "principal": "user:ana",
        "channel": "test",
        "started_at": NOW + timedelta(seconds=number),
        "latency_ms": 1.5,
    }
    return OperationDraft.model_validate(values | changes)


def append(database: Database, *drafts: OperationDraft) -> None:
    for one in drafts:
        with database.write(durable=False) as connection:
            appending.append(connection, one)


def read(
    database: Database,
    company: str = "acme",
    chosen: Filter | None = None,
    limit: int = 1000,
    **how: Any,
):
    with database.read() as connection:
        return OperationStore(connection, company).page(chosen or Filter(), limit=limit, **how)


def test_a_failure_of_the_driver_is_one_of_ours_and_leaves_nothing_behind(
    database: Database,
) -> None:
    handle = OperationHandle(rank=1, provider_key="fake", provider_record_id="r")

    def fail() -> None:
        with database.write() as connection:
            appending.append(connection, draft(2))
            connection.exec_driver_sql("DROP TABLE memory_operation_handles")
            appending.append(connection, draft(3, handles=(handle,)))

    append(database, draft(1))
    with pytest.raises(Unavailable, match="made by another version of memtui"):
        fail()
    append(database, draft(4))
    assert [operation.operation_id for operation in read(database).operations] == [
        "acme-4",
        "acme-1",
    ]


def test_each_company_counts_from_one_and_chains(database: Database) -> None:
    append(database, draft(1), draft(1, "other"), draft(2), draft(3))
    operations = read(database).operations
    assert [operation.seq for operation in operations] == [3, 2, 1]
    assert operations[-1].previous_digest == GENESIS
    assert [one.previous_digest for one in operations[:-1]] == [
        one.digest for one in operations[1:]
    ]
    assert [operation.seq for operation in read(database, "other").operations] == [1]


def test_pages_go_back_and_forth(database: Database) -> None:
    append(database, *(draft(number) for number in range(1, 8)))
    first = read(database, limit=3)
    assert ([o.seq for o in first.operations], first.next_before, first.total) == ([7, 6, 5], 5, 7)
    second = read(database, limit=3, before=5)
    assert ([o.seq for o in second.operations], second.next_before) == ([4, 3, 2], 2)
    last = read(database, limit=3, before=2)
    assert ([o.seq for o in last.operations], last.next_before) == ([1], None)
    assert [o.seq for o in read(database, limit=2, after=4).operations] == [6, 5]
    for exact, before in ((7, None), (3, 4)):
        page = read(database, limit=exact, before=before)
        assert (len(page.operations), page.next_before) == (exact, None)


hostile = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(hostile, min_size=3, max_size=3),
    cost=st.none() | st.decimals(0, 1000, places=12, allow_nan=False),
    latency=st.floats(0, 1e6, allow_nan=False),
    score=st.sampled_from([None, -0.0]) | st.floats(allow_nan=False, allow_infinity=False),
    micros=st.integers(0, 10**15),
)
def test_what_is_read_is_what_was_written_and_its_digest_holds(
    tmp_path: Path, database: Database, ids, cost, latency, score, micros
) -> None:
    number = next(NUMBERS)
    written = draft(
        number,
        request={"query": ids[0], "nested": [ids[1], None, 1.25]},
        error_message=ids[1],
        source=SourceRef(kind="run", company_id="acme", run_id=ids[2], external_ref=ids[0]),
        usage=(Usage(provider="x", cost_usd=cost, details={"k": ids[0]}), Usage(provider="y")),
        handles=(
            OperationHandle(rank=1, provider_key="x", provider_record_id=ids[1], score=score),
        ),
        latency_ms=latency,
        started_at=datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros),
    )
    append(database, written)
    with database.read() as connection:
        [found] = OperationStore(connection, "acme").by_ids([written.operation_id])
    assert is_intact(found)
    assert (
        OperationDraft(**{name: getattr(found, name) for name in OperationDraft.model_fields})
        == written
    )


def test_every_field_comes_back_from_its_own_column(database: Database) -> None:
    scope = {name: f"scope {name}" for name in Scope.model_fields if name != "company_id"}
    source = {name: f"source {name}" for name in SourceRef.model_fields}
    texts = (
        "operation_id binding_key provider_key binding_reason error_kind error_message undoes "
        "part_of"
    )
    written = draft(
        1,
        **{name: f"own {name}" for name in texts.split()},
        status="denied",
        scope=Scope(company_id="acme", **scope),
        source=SourceRef.model_validate(source | {"kind": "run", "company_id": "acme"}),
        request={"query": "q"},
        result_count=2,
        capped=True,
        usage=(
            Usage(
                provider="used",
                model="m",
                input_tokens=3,
                output_tokens=4,
                embedding_tokens=5,
                cost_usd=Decimal("0.6"),
                latency_ms=7,
                details={"eight": 8},
            ),
        ),
        handles=(
            OperationHandle(
                rank=9,
                provider_key="kept",
                provider_record_id="r",
                score=0.1,
                binding_key="else",
                ghost=True,
            ),
        ),
    )
    append(database, written)
    [found] = read(database).operations
    assert OperationDraft(**{name: getattr(found, name) for name in dict(written)}) == written


def test_money_is_exact_and_unpriced_is_not_zero(database: Database) -> None:
    tenth = Usage(provider="x", cost_usd=Decimal("0.1"))
    append(
        database,
        draft(1, usage=(tenth,) * 3),
        draft(2, usage=(Usage(provider="x"),)),
        draft(3, usage=(Usage(provider="x", cost_usd=Decimal(0)),)),
    )
    free, unpriced, priced = read(database).operations
    assert (priced.cost_usd, priced.unpriced) == (Decimal("0.3"), False)
    assert (unpriced.cost_usd, unpriced.unpriced) == (None, True)
    assert (free.cost_usd, free.unpriced) == (Decimal(0), False)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Filter(operation_type=OperationType.WRITE), [2]),
        (Filter(status=OperationStatus.DENIED), [3]),
        (Filter(agent_id="coding"), [2]),
        (Filter(issue_id="ISS-1"), [4]),
        (Filter(run_id="r9"), [5]),
        (Filter(source_kind="issue"), [4]),
        (Filter(since=NOW + timedelta(seconds=4)), [5, 4]),
        (Filter(until=NOW + timedelta(seconds=2)), [1]),
        (Filter(text="DEPLOY branch"), [1]),
        (Filter(text="развёртывание"), [3]),
        (Filter(text="100%"), []),
        (Filter(binding_key="mem0", principal="user:bob"), [5]),
        (Filter(principal="agent:"), [2]),
        (Filter(terms=(Term(field="principal", values=("agent:", "user:bob")),)), [5, 2]),
        (Filter(terms=(Term(field="principal", values=("user:",), excluded=True),)), [2]),
        (Filter(project_id="none"), []),
        (Filter(comment_id="7"), [4]),
        (Filter(text="iss-1"), [4]),
        (Filter(terms=(Term(field="status", values=("denied", "error")),)), [3]),
        (Filter(terms=(Term(field="agent_id", values=("coding",), excluded=True),)), [5, 4, 3, 1]),
        (Filter(terms=(Term(field="issue_id", values=("ISS-1",), excluded=True),)), [5, 3, 2, 1]),
        (Filter(terms=(Term(field="run_id", values=("r8", "r9")),)), [5]),
        (
            Filter(terms=(Term(field="text", values=("BRANCH", "mem0"), excluded=True),)),
            [5, 4, 3, 2],
        ),
        (Filter(terms=(Term(field="fuzzy", values=("brnch",), excluded=True),)), [5, 4, 3, 2]),
        (Filter(alternatives=(Filter(run_id="r9"), Filter(text="branch deploy"))), [5, 1]),
    ],
)
def test_filters(database: Database, chosen: Filter, expected: list[int]) -> None:
    comment = SourceRef(kind="issue", company_id="acme", issue_id="ISS-1", comment_id="7")
    append(
        database,
        draft(1, request={"query": "which branch do we deploy"}),
        draft(
            2,
            operation_type="write",
            scope=Scope(company_id="acme", agent_id="coding"),
            principal="agent:coding",
        ),
        draft(3, status="denied", request={"query": "РАЗВЁРТЫВАНИЕ"}),
        draft(4, source=comment),
        draft(
            5,
            scope=Scope(company_id="acme", run_id="r9"),
            binding_key="mem0",
            principal="user:bob",
        ),
    )
    assert [operation.seq for operation in read(database, chosen=chosen).operations] == expected


def test_the_database_refuses_to_alter_an_operation(database: Database) -> None:
    append(database, draft(1))
    with (
        pytest.raises((DBAPIError, Unavailable), match="append-only"),
        database.write() as connection,
    ):
        connection.exec_driver_sql("UPDATE memory_operations SET principal = 'user:eve'")
    assert read(database).operations[0].principal == "user:ana"


def test_a_changed_row_no_longer_fits_its_digest(database: Database) -> None:
    append(database, draft(1))
    [operation] = read(database).operations
    assert is_intact(operation)
    assert not is_intact(operation.model_copy(update={"principal": "user:eve"}))


def _append_many(path: Path, url: str, worker: int, count: int) -> None:
    database = Database.open(path, url)
    for number in range(count):
        append(database, draft(worker * 1000 + number))
    database.close()


@pytest.mark.slow
def test_eight_processes_leave_no_gap(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    workers = [
        prepared_processes().Process(
            target=_append_many, args=(tmp_path / "memtui.db", database_url, worker, 40)
        )
        for worker in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    operations = read(database).operations[::-1]
    assert [operation.seq for operation in operations] == list(range(1, 321))
    assert len({operation.operation_id for operation in operations}) == 320
    assert all(is_intact(operation) for operation in operations)
