from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.analytics.figures import DIMENSIONS, Bucket, Figures, HitSign, Stats
from memtui.analytics.rows import LogDatabase
from memtui.analytics.stats import Rollups
from memtui.contract import Filter, Invalid
from memtui.store.database import Database
from memtui.store.operation import Operation, OperationDraft
from tests.analytics.logs import HOSTILE, NOW, append, draft, fill, fill_looked_at, hot
from tests.analytics.logs import seal_unlogged as seal

THRESHOLDS = {"mem0": 0.8}


def percentile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    values = sorted(values)
    place = (len(values) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def threshold(operation: Operation) -> float:
    return THRESHOLDS.get(operation.binding_key or "", 0.5)


def is_hit(query: Operation, everything: Iterable[Operation], sign: HitSign) -> bool:
    if sign is HitSign.SCORE:
        return any((handle.score or -1) >= threshold(query) for handle in query.handles)
    returned = {
        (handle.binding_key or query.binding_key, handle.provider_record_id)
        for handle in query.handles
    }
    return any(
        use.operation_type in {"get", "history"}
        and not use.internal
        and use.status == "ok"
        and use.seq > query.seq
        and timedelta(0) <= use.started_at - query.started_at <= timedelta(hours=24)
        and returned
        & {
            (handle.binding_key or use.binding_key, handle.provider_record_id)
            for handle in use.handles
        }
        for use in everything
    )


def figures(
    chosen: list[Operation],
    everything: Iterable[Operation],
    sign: HitSign,
    usage_key: tuple[str, str | None] | None = None,
) -> dict[str, object]:
    """What the figures are, in plain Python; `usage_key` keeps one group of the usage only."""
    spent = [
        usage
        for operation in chosen
        for usage in operation.usage
        if usage_key is None or getattr(usage, usage_key[0]) == usage_key[1]
    ]
    answered = [o for o in chosen if o.operation_type == "query" and o.status == "ok"]
    latencies = [o.latency_ms for o in chosen if o.latency_ms is not None]
    kinds = [str(o.operation_type) for o in chosen]
    return {
        "operation_count": len(chosen),
        "query_count": kinds.count("query"),
        "write_count": kinds.count("write"),
        "correction_count": sum(
            o.operation_type == "correct" and o.status == "ok" and o.principal == "user:ana"
            for o in chosen
        ),
        "success_count": sum(o.status == "ok" for o in chosen),
        "failure_count": sum(o.status not in ("ok", "cancelled") for o in chosen),
        "cancelled_count": sum(o.status == "cancelled" for o in chosen),
        "input_tokens": sum(usage.input_tokens for usage in spent),
        "output_tokens": sum(usage.output_tokens for usage in spent),
        "embedding_tokens": sum(usage.embedding_tokens for usage in spent),
        "cost_usd": sum((usage.cost_usd or Decimal(0) for usage in spent), Decimal(0)),
        "usage_count": len(spent),
        "unpriced_count": sum(usage.cost_usd is None for usage in spent),
        "latency_ms": [percentile(latencies, share) for share in (0.5, 0.95, 0.99)],
        "answered_count": len(answered),
        "empty_count": sum(o.result_count == 0 for o in answered),
        "hit_count": sum(is_hit(o, everything, sign) for o in answered),
        "helped_count": 0,
        "not_helped_count": 0,
    }


def plain(found: Figures) -> dict[str, object]:
    values = {name: getattr(found, name) for name in Figures.model_fields}
    latency = found.latency_ms
    return values | {"latency_ms": [latency.p50, latency.p95, latency.p99]}


def agree(found: Figures, expected: dict[str, object]) -> None:
    ours = plain(found)
    assert ours.pop("latency_ms") == pytest.approx(expected["latency_ms"], rel=1e-12, abs=1e-12)
    assert ours == {name: value for name, value in expected.items() if name != "latency_ms"}
    is_priced = found.usage_count > found.unpriced_count
    assert found.priced_usd == (found.cost_usd if is_priced else None)
    answered = found.answered_count
    assert found.hit_rate == (found.hit_count / answered if answered else None)
    assert found.empty_query_rate == (found.empty_count / answered if answered else None)


def value_of(operation: Operation, name: str) -> str | None:
    column = DIMENSIONS[name]
    if name == "source_kind":
        return operation.source.kind if operation.source else None
    if name in {"issue", "run"}:
        named = (getattr(one, f"{name}_id", None) for one in (operation.scope, operation.source))
        return next(filter(None, named), None)
    held = operation.scope if hasattr(operation.scope, column) else operation
    value = getattr(held, column)
    return None if value is None else str(value)


@pytest.fixture
def rollups(database: Database, root: Path) -> Iterator[Rollups]:
    opened = Rollups(LogDatabase(database, root, "acme"), thresholds=THRESHOLDS)
    yield opened
    opened.log.close()


class Known(NamedTuple):
    """A log of which every operation is known."""

    rollups: Rollups
    written: list[Operation]


@pytest.fixture(scope="module")
def known(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    home = tmp_path_factory.mktemp("known")
    shutil.copy(empty_database, home / "memtui.db")
    database = Database.open(home / "memtui.db")
    fill_looked_at(database, 150)
    fill(database, 10, "other")
    written = list(hot(database))
    before = NOW + timedelta(seconds=61 * 90)
    seal(database, home / "archive", "acme", before=before, segment_rows=40)
    opened = Rollups(LogDatabase(database, home / "archive", "acme"), thresholds=THRESHOLDS)
    yield Known(opened, written)
    opened.log.close()
    database.close()


@pytest.mark.parametrize("sign", list(HitSign))
def test_every_figure_equals_plain_python(known: Known, sign: HitSign) -> None:
    rollups, written = known
    found = rollups.stats(hit_sign=sign)
    assert found.hit_count > 0
    assert found.unpriced_count > 0
    agree(found, figures(written, written, sign))
    for group in found.bindings:
        own = [o for o in written if o.binding_key == group.keys["binding"]]
        agree(group, figures(own, written, sign))
    assert [group.keys["binding"] for group in found.bindings] == ["default", "mem0", None]
    of_others = [o for o in written if not o.internal]
    found = rollups.stats(Filter(), hit_sign=sign)
    agree(found, figures(of_others, written, sign))
    assert found.left_out_count == len(written) - len(of_others) > 0


@pytest.mark.parametrize("name", list(DIMENSIONS))
def test_every_dimension(known: Known, name: str) -> None:
    rollups, written = known
    found = rollups.stats(by=[name])
    seen = set()
    for group in found.groups:
        key = group.keys[name]
        seen.add(key)
        if name in {"provider", "model"}:
            own = [
                o
                for o in written
                if any(getattr(usage, name) == key for usage in o.usage)
                or (key is None and not o.usage)
            ]
            agree(group, figures(own, written, found.hit_sign, (name, key)))
        else:
            own = [o for o in written if value_of(o, name) == key]
            agree(group, figures(own, written, found.hit_sign))
    if name in {"provider", "model"}:
        expected = {getattr(usage, name) for o in written for usage in o.usage} | {None}
    else:
        expected = {value_of(o, name) for o in written}
    assert seen == expected


def test_groups_by_two_dimensions_and_time(known: Known) -> None:
    rollups, written = known
    found = rollups.stats(by=["binding", "status"], bucket=Bucket.HOUR)
    assert sum(group.operation_count for group in found.groups) == len(written)
    for group in found.groups:
        assert group.begins is not None
        assert group.ends is not None
        own = [
            o
            for o in written
            if o.binding_key == group.keys["binding"]
            and str(o.status) == group.keys["status"]
            and group.begins <= o.started_at < group.ends
        ]
        agree(group, figures(own, written, found.hit_sign))


@pytest.mark.parametrize(
    "chosen",
    [
        Filter(agent_id="coding"),
        Filter(project_id=HOSTILE, status="ok"),
        Filter(operation_type="query"),
        Filter(since=NOW + timedelta(seconds=61 * 50), until=NOW + timedelta(seconds=61 * 100)),
        Filter(text="deploy"),
        Filter(text="nothing has this"),
    ],
    ids=range(6),
)
def test_the_filter_is_honoured(known: Known, chosen: Filter) -> None:
    rollups, written = known
    expected = {
        "agent_id": lambda o: o.scope.agent_id == chosen.agent_id,
        "project_id": lambda o: o.scope.project_id == chosen.project_id,
        "status": lambda o: o.status == chosen.status,
        "operation_type": lambda o: o.operation_type == chosen.operation_type,
        "since": lambda o: o.started_at >= chosen.since,
        "until": lambda o: o.started_at < chosen.until,
        "text": lambda o: str(chosen.text) in str(o.request),
    }
    asked = [test for name, test in expected.items() if getattr(chosen, name) is not None]
    own = [o for o in written if all(test(o) for test in asked) and not o.internal]
    found = rollups.stats(chosen, by=["provider"])
    agree(found, figures(own, written, found.hit_sign))


def test_a_long_log_is_cut_apart_with_the_same_figures(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> list[Stats]:
        return [
            known.rollups.stats(chosen, by=by, bucket=Bucket.DAY)
            for by in (["binding", "status"], ["provider"], ["model", "status", "provider"])
            for chosen in (Filter(), Filter(agent_id="coding"))
        ]

    together = asked()
    monkeypatch.setattr("memtui.analytics.stats.TOGETHER", 49)
    assert asked() == together


def test_an_empty_log_has_no_rates(rollups: Rollups) -> None:
    found = rollups.stats(bucket=Bucket.DAY)
    assert (found.operation_count, found.cost_usd) == (0, Decimal(0))
    assert (found.hit_rate, found.empty_query_rate, found.latency_ms.p50) == (None, None, None)
    assert found.groups == ()


def test_without_any_opening_a_hit_is_a_score(database: Database, rollups: Rollups) -> None:
    append(database, [draft(1, operation_type="query")])
    assert rollups.stats().hit_sign is HitSign.SCORE
    append(
        database,
        [
            draft(
                2,
                operation_type="get",
                handles=[{"rank": 1, "provider_key": "x", "provider_record_id": "r"}],
            )
        ],
    )
    assert rollups.stats().hit_sign is HitSign.USED


@pytest.mark.parametrize(("key", "limit"), [("default", 0.5), ("mem0", 0.8)])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_score_at_the_threshold_is_a_hit(
    database: Database, root: Path, rollups: Rollups, key: str, limit: float, is_sealed: bool
) -> None:
    handle = {"rank": 1, "provider_key": "x", "provider_record_id": "r"}
    scores = (limit, math.nextafter(limit, 0), math.nextafter(limit, 1))
    append(
        database,
        [
            draft(
                number,
                operation_type="query",
                status="ok",
                binding_key=key,
                handles=[handle | {"score": one}],
            )
            for number, one in enumerate(scores)
        ],
    )
    if is_sealed:
        seal(database, root, "acme")
    for bucket in (None, Bucket.DAY):
        found = rollups.stats(bucket=bucket, hit_sign=HitSign.SCORE)
        assert (found.answered_count, found.hit_count) == (3, 2)


def test_a_dimension_that_is_none_is_refused(rollups: Rollups) -> None:
    with pytest.raises(Invalid, match="no dimension seq; DROP"):
        rollups.stats(by=["seq; DROP"])


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo",
         "Pacific/Apia", "Africa/Cairo", "Asia/Kathmandu"]  # fmt: skip


def local_bucket(moment: datetime, bucket: Bucket, zone: ZoneInfo) -> date | datetime:
    local = moment.astimezone(zone)
    if bucket is Bucket.HOUR:
        into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return moment - into
    day = local.date()
    if bucket is Bucket.WEEK:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if bucket is Bucket.MONTH else day


@pytest.mark.parametrize("zone", ZONES)
def test_time_is_cut_in_the_zone_across_clock_changes(
    database: Database, root: Path, zone: str
) -> None:
    chance = random.Random(zone)
    changes = ["2011-12-30", "2018-11-04", "2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01",
               "2024-04-26", "2024-12-31"]  # fmt: skip
    moments = [
        datetime.fromisoformat(f"{chance.choice(changes)}T00:00:00+00:00")
        + timedelta(microseconds=chance.randrange(-86_400_000_000, 2 * 86_400_000_000))
        for _ in range(100)
    ]
    append(database, [draft(n, started_at=moment) for n, moment in enumerate(moments, 1)])
    rollups = Rollups(LogDatabase(database, root, "acme"), zone=zone)
    for bucket in Bucket:
        found = rollups.stats(bucket=bucket)
        expected: dict[date | datetime, int] = {}
        for moment in moments:
            key = local_bucket(moment, bucket, ZoneInfo(zone))
            expected[key] = expected.get(key, 0) + 1
        assert [group.operation_count for group in found.groups] == [
            count for _, count in sorted(expected.items())
        ]
        for group in found.groups:
            assert group.begins is not None
            assert group.ends is not None
            within = [m for m in moments if group.begins <= m < group.ends]
            assert len(within) == group.operation_count
    rollups.log.close()


def drafts_of(numbers: list[int], hours: list[int]) -> list[OperationDraft]:
    return [
        draft(number, operation_id=f"o{place}", started_at=NOW + timedelta(hours=hour))
        for place, (number, hour) in enumerate(zip(numbers, hours, strict=False))
    ]


@pytest.mark.slow
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    numbers=st.lists(st.integers(0, 10**6), max_size=25),
    hours=st.lists(st.integers(0, 100), min_size=25, max_size=25),
    sealed=st.integers(0, 100),
    sign=st.sampled_from(HitSign),
)
def test_random_logs(
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: Path,
    numbers: list[int],
    hours: list[int],
    sealed: int,
    sign: HitSign,
) -> None:
    home = tmp_path_factory.mktemp("random")
    shutil.copy(empty_database, home)
    database = Database.open(home / "memtui.db")
    append(database, drafts_of(numbers, hours))
    written = list(hot(database))
    seal(database, home / "archive", "acme", before=NOW + timedelta(hours=sealed), segment_rows=5)
    rollups = Rollups(LogDatabase(database, home / "archive", "acme"), thresholds=THRESHOLDS)
    found: Stats = rollups.stats(hit_sign=sign, bucket=Bucket.DAY, by=["agent"])
    agree(found, figures(written, written, sign))
    for group in found.groups:
        assert group.begins is not None
        assert group.ends is not None
        own = [
            o
            for o in written
            if o.scope.agent_id == group.keys["agent"] and group.begins <= o.started_at < group.ends
        ]
        agree(group, figures(own, written, sign))
    assert sum(group.operation_count for group in found.groups) == len(written)
    rollups.log.close()
    database.close()


def test_a_held_write_is_no_write(rollups: Rollups, database: Database) -> None:
    writes = [
        draft(number, operation_type="write", status=status)
        for number, status in enumerate(("ok", "pending", "error"), 1)
    ]
    append(database, writes)
    found = rollups.stats()
    assert (found.operation_count, found.write_count, found.failure_count) == (3, 2, 1)
