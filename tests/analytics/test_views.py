"""Views of which a part is found: a search that is ended, and the first of another order."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from memtui.analytics import reading
from memtui.analytics.engine import Interrupted, Stop
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.reading import LogView, Progress
from memtui.analytics.rows import LogDatabase
from memtui.analytics.seal import rewrite
from memtui.contract import Filter
from memtui.store.conditions import SORTS
from memtui.store.database import Database
from memtui.store.operation import LogFilter
from memtui.store.visibility import Visibility
from tests.analytics.logs import NOW, append, draft, fill_looked_at
from tests.analytics.logs import seal_unlogged as seal
from tests.analytics.test_folding import random_log
from tests.analytics.test_reading import in_order
from tests.databases import ON_BOTH

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few operations be many."""
    monkeypatch.setattr(reading, "_RECENT", 10)
    monkeypatch.setattr(reading, "_AT_ONCE", 1)
    monkeypatch.setattr(reading, "_FIRST", 25)


def _end(stop: Stop, told: list[Progress], progress: Progress) -> None:
    told.append(progress)
    if progress.searched > 0.5:
        stop.search_ended = True


def _interrupt(stop: Stop, _progress: Progress) -> None:
    stop.stop()


@ON_BOTH
@pytest.mark.parametrize("sight", [None, Visibility("user:ana", frozenset({"ana"}))])
def test_an_ended_search_goes_on_where_it_ended(
    database: Database, root: Path, sight: Visibility | None
) -> None:
    append(database, random_log(7, 120))
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 81), segment_rows=10)
    operations = LogDatabase(database, root, "acme", visibility=sight)
    for chosen in (Filter(agent_id="coding"), LogFilter(agent_id="coding", folded=True)):
        whole = LogView(operations, chosen, "seq")
        expected = whole.window(0, 200)
        stop, told = Stop(), list[Progress]()
        view = LogView(operations, chosen, "seq", early=partial(_end, stop, told), stop=stop)
        assert 1 < view.searched_from < 80
        found = [one for one in expected if one.seq >= view.searched_from]
        assert list(view.window(0, 200)) == found
        assert told[-1].matches == view.count == len(found) < len(expected)

        # Stopped, its rows stay, and what was searched meanwhile is not searched again.
        stop = Stop()
        with pytest.raises(Interrupted):
            view.search_on(stop, partial(_interrupt, stop))
        assert list(view.window(0, 200)) == found
        append(database, [draft(150 + view.last)])
        seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 91), segment_rows=10)
        view.search_on(Stop())
        assert list(view.window(0, 200)) == found
        view.update()
        assert view.searched_from == 1
        assert view.window(0, 200) == expected
        assert view.count == whole.count
        assert view.left_out == whole.left_out
        assert view.logged == whole.logged
        assert [one.seq for one in view.tail(view.last).operations] == [
            one.seq for one in whole.tail(whole.last).operations
        ]
        for one in expected:
            assert view.find(one.seq) == whole.find(one.seq)
        view.close()
        whole.close()
    operations.close()


@ON_BOTH
@pytest.mark.parametrize("sealed", [0, 71, 120])
def test_the_first_of_an_order_are_those_of_all(
    database: Database, root: Path, sealed: int
) -> None:
    fill_looked_at(database, 120)
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * sealed + 1), segment_rows=13)
    operations = LogDatabase(database, root, "acme")
    for chosen in (None, Filter()):
        listed = LogView(operations, chosen, "seq").window(0, 200)
        for name in SORTS.keys() - {"seq"}:
            for sign in ("", "-"):
                expected = in_order(listed, sign + name)
                view = LogView(operations, chosen, sign + name)
                assert view.count == len(listed) == view.logged
                assert view.left_out == 120 - len(listed)
                assert view._table is None
                for start, n in ((0, 9), (9, 16), (24, 2), (0, 9), (60, 200)):
                    assert list(view.window(start, n)) == expected[start : start + n], sign + name
                assert [view.find(one.seq) for one in expected[::17]] == [
                    *range(0, len(expected), 17)
                ]
                view.close()
    operations.close()


def test_the_rest_of_an_order_comes_after_a_rewriting_a_seal_and_new_operations(
    database: Database, root: Path
) -> None:
    append(database, [draft(number) for number in range(1, 121)])
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * 71), segment_rows=13)
    operations = LogDatabase(database, root, "acme")
    expected = in_order(LogView(operations).window(0, 200), "-latency_ms")
    view = LogView(operations, sort="-latency_ms")
    assert list(view.window(0, 25)) == expected[:25]

    folder = ArchiveFolder(root, "acme")
    manifest = folder.read()
    erased = {one.seq: ["request.query"] for one in expected}
    done = rewrite(folder, manifest, manifest.segments[2], erased, bytes.fromhex(manifest.salt))
    assert done is not None
    folder.write(manifest.with_segment(done.segment))
    append(database, [draft(number, latency_ms=1e6) for number in range(121, 125)])
    seal(database, root, "acme", segment_rows=13)

    assert [one.seq for one in view.window(0, 200)] == [one.seq for one in expected]
    assert view.window(30, 1)[0].digest == expected[30].digest
    assert LogView(operations, sort="-latency_ms").window(0, 1)[0].seq == 124
    operations.close()
