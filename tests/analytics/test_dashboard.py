from __future__ import annotations

import shutil
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analytics.archive import recover
from memtui.analytics.daily import LATENCY_ERROR
from memtui.analytics.figures import Bucket, FigureGroup, Figures, HitSign
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.rows import LogDatabase
from memtui.analytics.stats import Dashboard, Rollups
from memtui.contract import Filter, Invalid
from memtui.store.database import Database
from memtui.store.operation import OperationDraft
from tests.analytics.logs import NOW, append, draft, fill
from tests.analytics.logs import seal_unlogged as seal

THRESHOLDS = {"mem0": 0.8}
BERLIN = ZoneInfo("Europe/Berlin")


class LongRollups(Rollups):
    """Adds every log up by day, as only a long one is."""

    short = 0


def same(painted: Figures, exact: Figures, *, latency: bool = True) -> None:
    names = set(Figures.model_fields) - {"latency_ms"}
    assert {name: getattr(painted, name) for name in names} == {
        name: getattr(exact, name) for name in names
    }
    if latency:
        for share in ("p50", "p95", "p99"):
            assert getattr(painted.latency_ms, share) == pytest.approx(
                getattr(exact.latency_ms, share), rel=LATENCY_ERROR * 1.0001
            )


def same_groups(
    painted: tuple[FigureGroup, ...], exact: tuple[FigureGroup, ...], *, latency: bool = True
) -> None:
    assert [(group.keys, group.begins, group.ends) for group in painted] == [
        (group.keys, group.begins, group.ends) for group in exact
    ]
    for ours, theirs in zip(painted, exact, strict=True):
        same(ours, theirs, latency=latency)


def check(rollups: Rollups, sign: HitSign, bucket: Bucket = Bucket.DAY) -> Dashboard:
    painted = rollups.dashboard(bucket, hit_sign=sign)
    exact = rollups.stats(Filter(), hit_sign=sign, bucket=bucket)
    same(painted.stats, exact)
    assert painted.stats.left_out_count == exact.left_out_count
    same_groups(painted.stats.bindings, exact.bindings)
    same_groups(painted.stats.groups, exact.groups)
    spent = rollups.stats(Filter(), by=["provider"], bucket=bucket).groups
    assert [
        (group.begins, group.keys, group.cost_usd, group.input_tokens, group.unpriced_count)
        for group in painted.spending
    ] == [
        (group.begins, group.keys, group.cost_usd, group.input_tokens, group.unpriced_count)
        for group in spent
        if group.usage_count
    ]
    return painted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sign", "zone", "stages"),
    [
        (
            HitSign.USED,
            "America/Sao_Paulo",
            [(0, Bucket.DAY), (40, Bucket.WEEK), (200, Bucket.MONTH)],
        ),
        (HitSign.SCORE, "UTC", [(130, Bucket.DAY), (200, Bucket.WEEK), (200, Bucket.DAY)]),
    ],
)
def test_the_dashboard_equals_the_figures_at_every_stage_of_sealing(
    database: Database, root: Path, sign: HitSign, zone: str, stages: list[tuple[int, Bucket]]
) -> None:
    rollups = LongRollups(LogDatabase(database, root, "acme"), zone=zone, thresholds=THRESHOLDS)
    started = [NOW + timedelta(hours=5 * n) for n in range(1, 201)]
    channels = ["tui" if n % 11 == 0 else "test" for n in range(1, 201)]
    both = enumerate(zip(started, channels, strict=True), 1)
    append(database, [draft(n, started_at=at, channel=channel) for n, (at, channel) in both])
    assert rollups.dashboard().stats.left_out_count > 0
    for through, bucket in stages:
        cut = NOW + timedelta(hours=5 * (through + 1))
        seal(database, root, "acme", before=cut, segment_rows=35)
        assert check(rollups, sign, bucket).stats.hit_count > 0
    rollups.log.close()


def test_what_was_kept_is_used_and_can_be_deleted(database: Database, root: Path) -> None:
    fill(database, 100)
    seal(database, root, "acme", segment_rows=30)
    rollups = LongRollups(LogDatabase(database, root, "acme"))
    rollups.prepare()
    folder = ArchiveFolder(root, "acme").path
    [kept] = folder.glob("daily-*/*")
    before = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    check(rollups, HitSign.USED)
    recover(database, root, "acme")
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in (kept, *kept.iterdir()))
    shutil.rmtree(kept.parent)
    check(rollups, HitSign.USED)
    assert kept.is_dir()
    rollups.log.close()


def test_a_short_log_is_added_up_exactly_and_nothing_is_kept(
    database: Database, root: Path
) -> None:
    fill(database, 100)
    seal(database, root, "acme", before=draft(60).started_at, segment_rows=30)
    rollups = Rollups(LogDatabase(database, root, "acme"))
    rollups.short = 100
    rollups.prepare()
    painted = check(rollups, HitSign.USED)
    assert painted.stats.latency_error == 0
    assert not list(ArchiveFolder(root, "acme").path.glob("daily-*"))
    append(database, [draft(101)])
    assert check(rollups, HitSign.USED).stats.latency_error == LATENCY_ERROR
    rollups.log.close()


def test_another_threshold_is_another_dashboard(database: Database, root: Path) -> None:
    fill(database, 100)
    seal(database, root, "acme")
    hits = []
    for threshold in (0.1, 0.9):
        rollups = LongRollups(LogDatabase(database, root, "acme"), score_threshold=threshold)
        hits.append(check(rollups, HitSign.SCORE).stats.hit_count)
        rollups.log.close()
    assert hits[0] > hits[1]


def test_an_opening_counts_for_a_query_that_was_sealed_before_it(
    database: Database, root: Path
) -> None:
    handle = {"rank": 1, "provider_key": "x", "provider_record_id": "r"}
    opening: dict[str, Any] = {
        "operation_type": "get",
        "status": "ok",
        "handles": [handle],
        "binding_key": "b",
    }
    query = opening | {"operation_type": "query"}
    rollups = LongRollups(LogDatabase(database, root, "acme"))
    append(database, [draft(1, **query), draft(2, **query)])
    seal(database, root, "acme")
    assert rollups.dashboard(hit_sign=HitSign.USED).stats.hit_count == 0
    append(database, [draft(3, **opening)])
    assert check(rollups, HitSign.USED).stats.hit_count == 2
    seal(database, root, "acme")
    append(database, [draft(4, **opening), draft(5, **query)])
    assert check(rollups, HitSign.USED).stats.hit_count == 2
    seal(database, root, "acme")
    late = NOW + timedelta(seconds=61 * 5, hours=25)
    append(database, [draft(6, **opening | {"started_at": late})])
    assert check(rollups, HitSign.USED).stats.hit_count == 2
    rollups.log.close()


@pytest.mark.parametrize(("late", "hits"), [(0, 1), (1, 0)])
def test_an_opening_counts_to_the_last_moment(
    database: Database, root: Path, late: int, hits: int
) -> None:
    handle = {"rank": 1, "provider_key": "x", "provider_record_id": "r"}
    both: dict[str, Any] = {"status": "ok", "handles": [handle], "binding_key": "b"}
    rollups = LongRollups(LogDatabase(database, root, "acme"))
    append(database, [draft(1, operation_type="query", started_at=NOW, **both)])
    seal(database, root, "acme")
    at = NOW + timedelta(hours=24, microseconds=late)
    append(database, [draft(2, operation_type="get", started_at=at, **both)])
    for _ in ("hot", "sealed"):
        assert check(rollups, HitSign.USED).stats.hit_count == hits
        seal(database, root, "acme")
    rollups.log.close()


def test_a_state_lasts_though_all_of_it_is_sealed_meanwhile(database: Database, root: Path) -> None:
    fill(database, 20)
    log = LogDatabase(database, root, "acme")
    with log.reading() as (cursor, manifest, last):
        seal(database, root, "acme")
        log.refresh()
        rows = log.everything(manifest, "operations", "seq", last=last)
        assert cursor.execute(f"SELECT count(*) FROM ({rows})").fetchall() == [(20,)]
    log.close()


@pytest.mark.parametrize("kind", [Rollups, LongRollups])
def test_days_can_be_chosen(database: Database, root: Path, kind: type[Rollups]) -> None:
    append(database, [draft(n, started_at=NOW + timedelta(hours=7 * n)) for n in range(1, 60)])
    seal(database, root, "acme", before=NOW + timedelta(days=9))
    rollups = kind(LogDatabase(database, root, "acme"), zone="Europe/Berlin")
    painted = rollups.dashboard(since=date(2026, 3, 12), until=date(2026, 3, 20))
    exact = rollups.stats(
        Filter(since="2026-03-11T23:00:00Z", until="2026-03-19T23:00:00Z"), bucket=Bucket.DAY
    )
    same(painted.stats, exact)
    same_groups(painted.stats.groups, exact.groups)
    rollups.log.close()


def test_a_day_can_end_at_a_moment(database: Database, root: Path) -> None:
    append(database, [draft(n, started_at=NOW + timedelta(hours=n)) for n in range(1, 60)])
    rollups = LongRollups(LogDatabase(database, root, "acme"), zone="Europe/Berlin")
    moment = NOW + timedelta(hours=30)
    painted = rollups.dashboard(since=date(2026, 3, 1), before=moment)
    exact = rollups.stats(Filter(until=moment), bucket=Bucket.DAY)
    assert painted.stats.operation_count == 29
    same(painted.stats, exact)
    same_groups(painted.stats.groups, exact.groups)
    rollups.log.close()


@pytest.mark.parametrize("sealed", [5, 13])
@pytest.mark.parametrize("kind", [Rollups, LongRollups])
def test_what_a_figure_counts_ends_at_its_edge(
    database: Database, root: Path, kind: type[Rollups], sealed: int
) -> None:
    def said(number: int, of: str, **fields: Any) -> OperationDraft:
        handles = [
            {"rank": rank, "provider_key": "x", "provider_record_id": name, "score": score}
            for rank, (name, score) in enumerate(fields.pop("records", {"r": None}).items(), 1)
        ]
        given: dict[str, Any] = {
            "operation_type": of, "status": "ok", "handles": handles, "binding_key": "b",
            "usage": (), "result_count": len(handles), "principal": "user:ana",
        }  # fmt: skip
        return draft(number, **given | fields)

    def at(**after: float) -> datetime:
        return NOW + timedelta(**after)

    log = [
        said(1, "query", records={"r": 0.5, "q": 0.1}, started_at=NOW),
        said(2, "query", records={"s": 0.7}, started_at=NOW, binding_key="c"),
        said(3, "query", records={"t": 0.8}, started_at=NOW, binding_key="d"),
        said(4, "query", records={"u": 0.1, "v": 0.9}, started_at=NOW, binding_key="e"),
        said(5, "query", records={}, started_at=at(hours=30)),
        said(6, "get", records={"q": None}, started_at=at(hours=24)),
        said(7, "get", records={"s": None}, started_at=at(hours=24, microseconds=1),
             binding_key="c"),
        said(8, "get", records={"t": None}, started_at=at(hours=1), binding_key="c"),
        said(9, "history", records={"v": None}, started_at=NOW, binding_key="e"),
    ]  # fmt: skip
    words = [
        ("1", "user:ana", "r", 1.0),
        ("1", "user:bo", "r", 0.0),
        ("1", "user:ana", "q", 1.0),
        ("2", "user:ana", "r", 1.0),
        ("1", "user:bo", "r", 1.0),
        ("1", "user:ana", "q", 0.0),
    ]
    log += [
        said(number, "feedback", principal=who, records={name: score}, started_at=at(hours=2),
             request={"operation_id": operation})
        for number, (operation, who, name, score) in enumerate(words, 10)
    ]  # fmt: skip
    append(database, log[:sealed])
    seal(database, root, "acme")
    append(database, log[sealed:])
    rollups = kind(
        LogDatabase(database, root, "acme"), zone="Europe/Berlin", score_threshold=0.5,
        thresholds={"c": 0.8, "d": 0.8, "e": 0.95},
    )  # fmt: skip
    used = check(rollups, HitSign.USED).stats
    assert (used.answered_count, used.empty_count) == (5, 1)
    hits = {one.keys["binding"]: one.hit_count for one in used.bindings}
    assert hits == {"b": 1, "c": 0, "d": 0, "e": 1}
    assert (used.helped_count, used.not_helped_count) == (3, 1)
    score = check(rollups, HitSign.SCORE).stats
    hits = {one.keys["binding"]: one.hit_count for one in score.bindings}
    assert hits == {"b": 1, "c": 0, "d": 1, "e": 0}
    for since, until in ((date(2026, 3, 9), date(2026, 3, 10)), (date(2026, 3, 10), None)):
        for before in (at(hours=2), at(hours=48)):
            told = rollups.dashboard(since=since, until=until, before=before).stats
            begins = datetime(since.year, since.month, since.day, tzinfo=BERLIN)
            ends = until and datetime(until.year, until.month, until.day, tzinfo=BERLIN)
            inside = [one for one in log if begins <= one.started_at < before
                      and (ends is None or one.started_at < ends)]  # fmt: skip
            assert told.operation_count == len(inside)
    rollups.log.close()


def test_an_empty_log_and_an_hour(database: Database, root: Path) -> None:
    rollups = LongRollups(LogDatabase(database, root, "acme"))
    painted = rollups.dashboard()
    assert (painted.stats.operation_count, painted.spending) == (0, ())
    assert painted.stats.latency_ms.p50 is None
    with pytest.raises(Invalid, match="days, weeks and months"):
        rollups.dashboard(Bucket.HOUR)
    rollups.log.close()


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(
    numbers=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 70)), max_size=25),
    cuts=st.lists(st.integers(0, 70), max_size=3).map(sorted),
    sign=st.sampled_from(HitSign),
)
def test_random_logs(
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: Path,
    numbers: list[tuple[int, int]],
    cuts: list[int],
    sign: HitSign,
) -> None:
    home = tmp_path_factory.mktemp("random")
    shutil.copy(empty_database, home)
    database = Database.open(home / "memtui.db")
    rollups = LongRollups(LogDatabase(database, home / "archive", "acme"), thresholds=THRESHOLDS)
    append(
        database,
        [
            draft(number, operation_id=f"o{place}", started_at=NOW + timedelta(hours=hour))
            for place, (number, hour) in enumerate(numbers)
        ],
    )
    for cut in cuts:
        before = NOW + timedelta(hours=cut)
        seal(database, home / "archive", "acme", before=before, segment_rows=5)
        check(rollups, sign)
    check(rollups, sign)
    rollups.log.close()
    database.close()
