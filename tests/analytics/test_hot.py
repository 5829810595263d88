"""The copy of the hot rows, the search from the newest on, and fuzzy words, hot and sealed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analytics import reading
from memtui.analytics import rows as copying
from memtui.analytics.engine import Interrupted, Stop
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.reading import LogView, Progress
from memtui.analytics.rows import LogDatabase
from memtui.analytics.stats import Rollups
from memtui.contract import Comparison, Filter, Measure
from memtui.fuzzy import pattern
from memtui.store.database import Database
from memtui.store.log import OperationStore
from memtui.store.operation import Operation
from memtui.store.tables import HANDLES, HEADS, OPERATIONS, USAGE
from tests.analytics.logs import HOSTILE, NOW, append, draft, fill, hot
from tests.analytics.logs import seal_unlogged as seal
from tests.databases import ON_BOTH

DEAR = Comparison(measure=Measure.COST, sign=">", value=Decimal("0.5"))
FILTERS: list[tuple[Filter, Callable[[Operation], bool]]] = [
    (Filter(agent_id="coding"), lambda one: one.scope.agent_id == "coding"),
    (Filter(text="DEPLOY branch"), lambda one: one.request["query"] == "deploy branch"),
    (Filter(fuzzy=("dply", "brnach")), lambda one: one.request["query"] == "deploy branch"),
    (Filter(comparisons=(DEAR,)), lambda one: (one.cost_usd or 0) > Decimal("0.5")),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few operations be many."""
    monkeypatch.setattr(reading, "_RECENT", 10)
    monkeypatch.setattr(copying, "BATCH", 7)


@pytest.fixture
def operations(database: Database, root: Path) -> Iterator[LogDatabase]:
    opened = LogDatabase(database, root, "acme")
    yield opened
    opened.close()


def answers(log: LogDatabase) -> dict[object, list[Operation]]:
    """What every filter, and the order by latency, answers."""
    found: dict[object, list[Operation]] = {}
    for place, (chosen, _) in enumerate(FILTERS):
        view = LogView(log, chosen, "seq")
        found[place] = list(view.window(0, 1000))
        view.close()
    view = LogView(log, sort="-latency_ms")
    found["order"] = list(view.window(0, 1000))
    view.close()
    return found


def expected(written: list[Operation]) -> dict[object, list[Operation]]:
    found: dict[object, list[Operation]] = {
        place: [one for one in written if fits(one)] for place, (_, fits) in enumerate(FILTERS)
    }
    found["order"] = sorted(
        written, key=lambda one: (one.latency_ms is None, -(one.latency_ms or 0), -one.seq)
    )
    return found


@ON_BOTH
@pytest.mark.slow
def test_the_copy_answers_as_the_log_does_after_every_change(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    written: list[Operation] = []

    def check() -> None:
        nonlocal written
        written = [*(one for one in written if one.seq <= sealed), *hot(database)]
        assert answers(operations) == expected(written)
        assert Rollups(operations).stats(Filter(internal=True)).operation_count == len(written)

    sealed = 0
    check()
    for through in (12, 40, 41, 90):
        fill(database, through - len(written), start=len(written) + 1)
        check()
    # What another program appends is found as well, an undoing like all else.
    with database.read() as connection:
        url = connection.alchemy.engine.url
    if database._sqlite is not None:
        other = Database.open(database._sqlite.path)
    else:
        other = Database.open(Path(), url.render_as_string(hide_password=False))
    append(other, [draft(91, undoes="acme-00090", operation_type="undo")])
    other.close()
    check()
    for sealed in (30, 85, 91):
        seal(database, root, "acme", before=NOW + timedelta(seconds=61 * (sealed + 1)))
        check()
    fill(database, 25, start=92)
    check()
    fresh = LogDatabase(database, root, "acme")
    assert answers(fresh) == expected(written)
    fresh.close()
    # What was sealed is not kept.
    [(held,)] = operations.connection.execute("SELECT count(*) FROM hot_operations").fetchall()
    assert held == 25


@pytest.mark.slow
def test_a_log_that_took_anothers_place_is_copied_anew(
    database: Database, root: Path, operations: LogDatabase
) -> None:
    fill(database, 60)
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 21))
    answers(operations)
    with database.write() as connection:
        for rows in (HANDLES, USAGE, HEADS, OPERATIONS):
            connection.execute(rows.delete().where(rows.c.company_id == "acme"))
    folder = ArchiveFolder(root, "acme").path
    folder.rename(folder.with_name("gone"))
    append(database, [draft(number + 500) for number in range(60)])
    assert answers(operations) == expected(list(hot(database)))


def test_a_stopped_copying_goes_on_where_it_was(
    database: Database, operations: LogDatabase
) -> None:
    fill(database, 60)

    class After(Stop):
        left = 2

        def check(self) -> None:
            self.left -= 1
            if not self.left:
                self.stop()
            super().check()

    reached = []
    for asked in (6, 10):
        stop = After()
        stop.left = asked
        with pytest.raises(Interrupted):
            LogView(operations, Filter(channel="test"), "latency_ms", stop=stop)
        reached.append(operations.through)
    assert 0 < reached[0] < reached[1] < 60
    assert LogView(operations, Filter(channel="test"), "latency_ms").count == 60


def test_the_newest_are_told_of_before_all_are_found(
    database: Database, root: Path, operations: LogDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "EARLY", 25)
    append(database, [draft(n, channel="a" if n % 2 else "b") for n in range(1, 121)])
    cut = NOW + timedelta(seconds=61 * 81)
    seal(database, root, "acme", before=cut, segment_rows=10)
    monkeypatch.setattr(reading, "_AT_ONCE", 3)
    told: list[Progress] = []
    view = LogView(operations, Filter(channel="a"), early=told.append)
    newest = list(range(119, 0, -2))
    assert [one.seq for one in view.window(0, 100)] == newest
    shown = [[one.seq for one in progress.newest] for progress in told]
    assert shown == [newest[:5], newest[:20], newest[:25], newest[:25]]
    assert [one.matches for one in told] == [5, 20, 35, 50]
    assert [round(120 * one.searched) for one in told] == [10, 40, 70, 100]
    told.clear()
    LogView(operations, Filter(channel="c"), early=told.append)
    assert [len(one.newest) for one in told] == [0] * 9
    told.clear()
    LogView(operations, early=told.append)
    assert [[one.seq for one in progress.newest] for progress in told] == [[*range(120, 95, -1)]]


def searched(one: Operation) -> tuple[str | None, ...]:
    # A request that holds what is not Unicode is stored in ASCII.
    plain = HOSTILE not in one.request["query"]
    request = json.dumps(one.request, ensure_ascii=not plain, separators=(",", ":"))
    named = [place for place in (one.scope, one.source) if place is not None]
    ids = (name for place in named for name in (place.issue_id, place.run_id))
    return request, one.error_message, one.principal, *ids


words = st.text(alphabet="deploybranch-é7 ", min_size=1, max_size=8) | st.sampled_from(
    ["dply", "brnach", "развртвн", "развертывание", "acme", "ISS-1", "user:ana"]
)


@ON_BOTH
@pytest.mark.slow
def test_a_fuzzy_word_finds_the_same_everywhere(database: Database, root: Path) -> None:
    """In the database, and in DuckDB: in the copy of what is hot and in what is sealed."""
    for company in ("hot", "sealed"):
        fill(database, 60, company)
    written = hot(database, "hot")
    logs: list[LogDatabase] = []
    if database.dialect == "sqlite":
        seal(database, root, "sealed", segment_rows=40)
        logs += [LogDatabase(database, root, company) for company in ("hot", "sealed")]
    held = ["\n".join(filter(None, searched(one))) for one in written]

    @given(words)
    def compare(word: str) -> None:
        chosen = Filter(fuzzy=(word,))
        mentions = re.compile(pattern(word.lower())).search
        fitting = [
            one.seq for one, text in zip(written, held, strict=True) if mentions(text.lower())
        ]
        with database.read() as connection:
            stored = OperationStore(connection, "hot").seqs(chosen, 1, 60)
        assert list(stored) == fitting
        for log in logs:
            view = LogView(log, chosen, "seq")
            assert [one.seq for one in view.window(0, 100)] == fitting
            view.close()

    try:
        compare()
    finally:
        for log in logs:
            log.close()
