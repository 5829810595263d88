from __future__ import annotations

import operator as op
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.analytics.company_log import CompanyLog
from memtui.analytics.engine import DuckDb, Interrupted, Stop
from memtui.analytics.reading import LogView
from memtui.analytics.rows import LogDatabase
from memtui.analytics.seal import seal as logged_seal
from memtui.analytics.sealed import Archive
from memtui.contract import (
    EVERYTHING,
    Comparison,
    Filter,
    Invalid,
    Measure,
    Term,
    Unavailable,
    Usage,
)
from memtui.store.conditions import SORTS
from memtui.store.database import Database
from memtui.store.digest import is_intact
from memtui.store.log import OperationStore
from memtui.store.operation import Operation
from memtui.widgets.detail_lines import actor
from tests.analytics.logs import HOSTILE, NOW, append, draft, fill, fill_looked_at, hot
from tests.analytics.logs import seal_unlogged as seal
from tests.databases import ON_BOTH

COUNT = 120


@pytest.fixture
def operations(database: Database, root: Path) -> Iterator[LogDatabase]:
    opened = LogDatabase(database, root, "acme")
    yield opened
    opened.close()


def seqs(found: tuple[Operation, ...] | list[Operation]) -> list[int]:
    return [operation.seq for operation in found]


@ON_BOTH
def test_what_is_read_is_what_was_written_sealed_or_not(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, COUNT)
    written = hot(database)
    for through in (0, 70, COUNT):
        cut = NOW + timedelta(seconds=61 * (through + 1))
        seal(database, root, "acme", before=cut, segment_rows=30)
        for chosen in (None, Filter(since=NOW)):
            view = LogView(operations, chosen, "seq")
            assert view.window(0, 1000) == written
            view.close()
    assert all(is_intact(operation) for operation in LogView(operations).window(0, COUNT))


def test_windows_of_the_whole_log_are_newest_first(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, COUNT)
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 71), segment_rows=30)
    view = LogView(operations)
    assert view.count == COUNT
    assert seqs(view.window(0, 5)) == [120, 119, 118, 117, 116]
    assert seqs(view.window(48, 4)) == [72, 71, 70, 69]
    assert seqs(view.window(118, 10)) == [2, 1]
    assert view.window(120, 10) == ()
    assert LogView(operations, sort="seq").window(0, 2)[1].seq == 2


FILTERS = [
    Filter(),
    Filter(internal=True),
    Filter(channel="tui"),
    Filter(agent_id="coding"),
    Filter(project_id=HOSTILE),
    Filter(issue_id="ISS-1"),
    Filter(run_id="run-1"),
    Filter(source_kind="issue"),
    Filter(operation_type="query", status="ok"),
    Filter(binding_key="mem0", principal="user:ana", channel="test"),
    Filter(since=NOW + timedelta(seconds=61 * 40), until=NOW + timedelta(seconds=61 * 90)),
    Filter(terms=(Term(field="principal", values=("user:", "agent:bo")),)),
    Filter(terms=(Term(field="principal", values=("user:",), excluded=True),)),
    Filter(text="DEPLOY branch"),
    Filter(text="развёртывание"),
    Filter(text="drop %"),
    Filter(subject_id="'; --"),
    Filter(terms=(Term(field="agent_id", values=("coding", HOSTILE)),)),
    Filter(
        terms=(
            Term(field="agent_id", values=("coding",), excluded=True),
            Term(field="issue_id", values=("ISS-1", HOSTILE), excluded=True),
            Term(field="operation_type", values=("query", "get")),
        )
    ),
    Filter(terms=(Term(field="text", values=("drop", "развёртывание"), excluded=True),)),
    Filter(terms=(Term(field="fuzzy", values=("dply",), excluded=True),)),
    Filter(alternatives=(Filter(agent_id="coding", status="ok"), Filter(text="drop"))),
    Filter(alternatives=(Filter(run_id="r"), Filter(channel="app"))),
    Filter(status="ok", alternatives=(Filter(operation_type="write"), Filter(text="deploy"))),
]


@ON_BOTH
@pytest.mark.slow
def test_a_filter_finds_the_same_as_in_the_hot_table(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill_looked_at(database, COUNT)
    with database.read() as connection:
        reader = OperationStore(connection, "acme")
        pages = [reader.page(chosen, limit=1000) for chosen in FILTERS]
        everything = [reader.page(chosen.with_internal(), limit=1000) for chosen in FILTERS]
        logged = reader.page(EVERYTHING, limit=1000).operations
    expected = [page.operations for page in pages]
    assert sum(map(len, expected)) > COUNT
    for chosen, page, whole in zip(FILTERS, pages, everything, strict=True):
        internal = [one for one in whole.operations if one.internal and chosen.excludes_internal]
        assert page.operations == tuple(one for one in whole.operations if one not in internal)
        assert (page.total, page.left_out) == (len(page.operations), len(internal))
    assert pages[0].left_out > 0
    if database.dialect == "sqlite":  # what is sealed is filtered in DuckDB
        seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 71), segment_rows=30)
    for chosen, found, page in zip(FILTERS, expected, pages, strict=True):
        view = LogView(operations, chosen)
        assert (view.count, view.window(0, 1000)) == (len(found), found), chosen
        assert view.left_out == page.left_out, chosen
        shown = [one.seq for one in logged if not (one.internal and chosen.excludes_internal)]
        assert view.logged == len(shown), chosen
        tail = view.tail(60)
        assert tail.last == logged[0].seq, chosen
        assert tail.logged == sum(seq > 60 for seq in shown), chosen
        assert tail.operations == tuple(one for one in found[::-1] if one.seq > 60)
        assert view.window(3, 4) == found[3:7]
        view.close()
    for chosen, whole in zip(FILTERS, everything, strict=True):
        by_then = [one for one in whole.operations if one.internal and one.seq <= COUNT // 2]
        assert (
            operations.log.left_out(chosen, COUNT // 2) == len(by_then) * chosen.excludes_internal
        )


def _placed(name: str, operation: Operation) -> tuple[Any, int]:
    return _value(operation, name), operation.seq


def _value(operation: Operation, name: str) -> object:
    sums = {
        part: sum(getattr(usage, part) for usage in operation.usage)
        for part in ("input_tokens", "output_tokens", "embedding_tokens")
    }
    scores = [handle.score for handle in operation.handles if handle.score is not None]
    source_kind = operation.source.kind if operation.source else None
    derived = {
        **sums,
        "tokens": sum(sums.values()),
        "best_score": max(scores, default=None),
        "source_kind": source_kind,
        "actor": actor(operation),
        "what": operation.request["query"].lower(),
    }
    if name in derived:
        return derived[name]
    return getattr(operation.scope if hasattr(operation.scope, name) else operation, name)


def in_order(found: Sequence[Operation], sort: str) -> list[Operation]:
    """The model: those without a value come last."""
    name, is_falling = sort.removeprefix("-"), sort.startswith("-")
    valued = [one for one in found if _value(one, name) is not None]
    bare = [one for one in found if _value(one, name) is None]
    valued.sort(key=partial(_placed, name), reverse=is_falling)
    bare.sort(key=lambda one: one.seq, reverse=is_falling)
    return valued + bare


@pytest.mark.slow
def test_every_column_sorts(database: Database, root: Path, operations: LogDatabase) -> None:
    fill(database, COUNT)
    written = hot(database)
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 71), segment_rows=30)
    for name in SORTS:
        for sign in ("", "-"):
            view = LogView(operations, Filter(channel="test"), sign + name)
            expected = in_order(written, sign + name)
            assert seqs(view.window(0, 1000)) == seqs(expected), sign + name
            view.close()


def test_a_column_that_is_none_cannot_sort(operations: LogDatabase) -> None:
    with pytest.raises(Invalid, match="cannot be sorted by seq; DROP"):
        LogView(operations, sort="seq; DROP")


def test_a_view_stands_still_and_its_tail_goes_on(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, 20)
    whole, filtered = LogView(operations), LogView(operations, Filter(channel="test"))
    fill(database, 5, start=21)
    assert (whole.count, filtered.count) == (20, 20)
    for view in (whole, filtered):
        assert seqs(view.tail(20).operations) == [21, 22, 23, 24, 25]
        assert seqs(view.window(0, 2)) == [20, 19]
    seal(database, root, "acme")
    fill(database, 2, start=26)
    for view in (whole, filtered):
        assert seqs(view.window(0, 100)) == list(range(20, 0, -1))
        assert seqs(view.tail(20).operations) == list(range(21, 28))
        assert view.tail(27).operations == ()


def test_an_empty_log_has_an_empty_view(operations: LogDatabase) -> None:
    for chosen in (None, Filter(text="x")):
        view = LogView(operations, chosen)
        assert (view.count, view.window(0, 10), view.tail(0).operations) == (0, (), ())


def test_another_companys_operations_are_not_seen(
    database: Database, root: Path, operations: LogDatabase, whole_log: CompanyLog
) -> None:
    fill(database, 10)
    fill(database, 7, "other")
    seal(database, root, "other")
    assert LogView(operations, Filter(channel="test")).count == 10
    assert not whole_log.by_id("other-00003")


@pytest.fixture
def whole_log(database: Database, root: Path) -> Iterator[CompanyLog]:
    archive = Archive(root, DuckDb())
    yield CompanyLog(database, archive, "acme")
    archive.close()


def test_by_id_finds_sealed_and_hot(database: Database, root: Path, whole_log: CompanyLog) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    fill(database, 10, start=11)
    for wanted, expected in [
        ("acme-00003", [3]),
        ("acme-00013", [13]),
        ("4", [4]),
        ("14", [14]),
        ("acme-0001", [10, 11]),
        ("none", []),
        ("", []),
        ("99", []),
    ]:
        found = sorted(seqs(tuple(whole_log.by_id(wanted))))
        assert len(found) == len(expected), wanted
        assert wanted == "acme-0001" or found == expected


def test_a_missing_file_is_one_sentence(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    next(root.rglob("operations.parquet")).unlink()
    for ask in (LogView(operations).window, lambda *_: LogView(operations, Filter(text="x"))):
        with pytest.raises(Unavailable, match="memtui ops archive verify") as caught:
            ask(0, 10)
        assert "\n" not in str(caught.value)


def test_a_stopped_opening_leaves_nothing_behind(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, 20)
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 11))
    for sort in ("-seq", "latency_ms"):
        stop = Stop()
        stop.stop()
        with pytest.raises(Interrupted):
            LogView(operations, Filter(channel="test"), sort, stop=stop)
        assert LogView(operations, Filter(channel="test"), sort).count == 20


def test_a_stop_reaches_a_question_that_runs(operations: LogDatabase) -> None:
    stop = Stop()

    def keep_stopping() -> None:
        while not finished.wait(0.01):
            stop.stop()

    def ask_for_ever() -> None:
        with operations.cursor() as cursor, stop.reaching(cursor):
            stopper.start()
            cursor.execute("SELECT count(*) FROM range(100000000000) a, range(100000) b").fetchall()

    finished = threading.Event()
    stopper = threading.Thread(target=keep_stopping)
    try:
        with pytest.raises(Interrupted):
            ask_for_ever()
    finally:
        finished.set()
        stopper.join()
    assert LogView(operations).count == 0


def _place(found: list[Operation], moment: datetime) -> int:
    """What `View.position` promises, in so many words."""
    begun = [one for one in found if one.started_at <= moment]
    if not begun:
        return found.index(min(found, key=lambda one: one.seq))
    return found.index(max(begun, key=lambda one: (one.started_at, one.seq)))


@ON_BOTH
@pytest.mark.slow
def test_a_moment_has_its_place_in_every_view(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    chance = random.Random(5)
    late = [
        draft(n, started_at=NOW + timedelta(minutes=n - chance.choice([0, 0, 7])))
        for n in range(1, 61)
    ]
    append(database, late)
    moments = [NOW + timedelta(minutes=m) for m in (-90, 0, 7, 29.5, 30, 33, 59, 60, 90)]
    for through in (0, 31, 60) if database.dialect == "sqlite" else (0, 31):
        seal(database, root, "acme", before=NOW + timedelta(minutes=through), segment_rows=9)
        for agent, sort in (
            (None, "-seq"),
            (None, "-latency_ms"),
            ("coding", "seq"),
            ("coding", "-latency_ms"),
            ("nobody", "-seq"),
        ):
            view = LogView(operations, Filter(agent_id=agent), sort)
            found = list(view.window(0, 100))
            for moment in moments:
                expected = _place(found, moment) if found else 0
                assert view.position(moment) == expected, (through, agent, sort, moment)
            places = {one.seq: place for place, one in enumerate(found)}
            for seq in (0, 1, 8, 30, 31, 32, 60, 99):
                assert view.find(seq) == places.get(seq), (through, agent, sort, seq)
            view.close()


_HOT_ONLY = """
import sys
from pathlib import Path
from memtui.analytics.reading import LogView
from memtui.analytics.rows import LogDatabase
from memtui.contract import Filter
from memtui.store.database import Database
home = Path(sys.argv[1])
database = Database.open(home / "memtui.db")
operations = LogDatabase(database, home / "archive", "acme")
view = LogView(operations)
assert [one.seq for one in view.window(0, 30)] == list(range(90, 60, -1))
assert view.tail(88).operations[0].seq == 89
assert LogView(LogDatabase(database, home / "none", "nobody"), Filter(text="x")).count == 0
assert "duckdb" not in sys.modules, "too early"
assert view.window(30, 1)[0].seq == 60
assert "duckdb" in sys.modules
"""


def test_what_is_hot_is_read_without_duckdb(sealed_home: Path, tmp_path: Path) -> None:
    home = shutil.copytree(sealed_home, tmp_path / "home")
    ran = subprocess.run(
        [sys.executable, "-c", _HOT_ONLY, str(home)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


comparisons = st.lists(
    st.builds(
        Comparison,
        measure=st.just(Measure.COST),
        sign=st.sampled_from(["<", "<=", "=", ">=", ">"]),
        value=st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(-1), Decimal(9_000_000)])
        | st.decimals(0, 2, places=12),
    )
    | st.builds(
        Comparison,
        measure=st.sampled_from([Measure.LATENCY, Measure.SCORE]),
        sign=st.sampled_from(["<", "<=", "=", ">=", ">"]),
        value=st.sampled_from([Decimal(0), Decimal("1.5"), Decimal("0.1")])
        | st.decimals(0, 4000, places=2),
    )
    | st.builds(
        Comparison,
        measure=st.sampled_from([Measure.TOKENS, Measure.RESULTS]),
        sign=st.sampled_from(["<", "<=", "=", ">=", ">"]),
        value=st.integers(-1, 3000).map(Decimal) | st.sampled_from([Decimal(0), Decimal(10**15)]),
    ),
    min_size=1,
    max_size=2,
)


def _measured(operation: Operation, measure: Measure) -> Any:
    names = {
        Measure.COST: "cost_usd",
        Measure.LATENCY: "latency_ms",
        Measure.TOKENS: "tokens",
        Measure.RESULTS: "result_count",
        Measure.SCORE: "best_score",
    }
    return _value(operation, names[measure])


_COMPARE = {"<": op.lt, "<=": op.le, "=": op.eq, ">=": op.ge, ">": op.gt}


def _holds(operation: Operation, comparison: Comparison) -> bool:
    measured = _measured(operation, comparison.measure)
    value = float(comparison.value) if isinstance(measured, float) else comparison.value
    return measured is not None and bool(_COMPARE[comparison.sign](measured, value))


@ON_BOTH
@pytest.mark.slow
def test_comparisons_hold_the_same_hot_and_sealed(database: Database, root: Path) -> None:
    """What is hot is compared in the database, what is sealed in DuckDB."""
    rich = Usage(provider="p", input_tokens=2**62, output_tokens=2**62, cost_usd=Decimal(9_000_000))
    companies = ("hot", "sealed") if database.dialect == "sqlite" else ("hot",)
    for company in companies:
        fill(database, COUNT, company)
        append(database, [draft(COUNT + 1, company, usage=(rich, rich))])
    written = hot(database, "hot")
    if "sealed" in companies:
        seal(database, root, "sealed", segment_rows=50)
    halves = [LogDatabase(database, root, company) for company in companies]

    @given(comparisons)
    def compare(chosen: list[Comparison]) -> None:
        expected = [o.seq for o in written if all(_holds(o, one) for one in chosen)]
        for half in halves:
            view = LogView(half, Filter(comparisons=chosen), "seq")
            assert seqs(view.window(0, 1000)) == expected
            view.close()

    try:
        compare()
    finally:
        for half in halves:
            half.close()


@ON_BOTH
@pytest.mark.slow
def test_reading_and_sealing_at_once_shows_every_operation_once(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, 120)

    def keep_sealing() -> None:
        for through in range(20, 121, 20):
            cut = NOW + timedelta(seconds=61 * (through + 1))
            logged_seal(database, root, "acme", before=cut)

    with ThreadPoolExecutor(1) as pool:
        sealing = pool.submit(keep_sealing)
        while not sealing.done():
            _read_all(operations)
        sealing.result()
    assert hot(database) == ()


def _read_all(operations: LogDatabase) -> None:
    for chosen in (None, Filter(channel="test")):
        view = LogView(operations, chosen, "seq")
        found = [one for one in view.window(0, 300) if one.operation_type != "seal"]
        assert seqs(found) == list(range(1, 121))
        view.close()


foreign = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)


@pytest.mark.slow
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(foreign, min_size=3, max_size=3),
    cost=st.none() | st.decimals(0, 1000, places=12, allow_nan=False),
    latency=st.floats(0, 1e6, allow_nan=False),
    micros=st.integers(0, 10**15),
)
def test_sealing_alters_nothing(
    database: Database, root: Path, texts: list[str], cost: Decimal, latency: float, micros: int
) -> None:
    operations = LogDatabase(database, root, "acme")
    last = LogView(operations).count
    one = draft(
        last + 1,
        request={"query": texts[0], "nested": [texts[1], None, 1.25]},
        error_message=texts[1],
        source={"kind": "run", "company_id": "acme", "run_id": texts[2], "external_ref": texts[0]},
        usage=[{"provider": texts[2], "cost_usd": cost, "details": {"k": texts[0]}}],
        latency_ms=latency,
        started_at=NOW + timedelta(microseconds=micros),
    )
    append(database, [one])
    [written] = hot(database)
    seal(database, root, "acme")
    assert LogView(operations).window(0, 1) == (written,)
    operations.close()
