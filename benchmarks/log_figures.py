"""Rollups and the dashboard against the same questions asked of raw DuckDB and of SQLite."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.generated_log import COMPANY, copy_rows, make_rows
from benchmarks.table import Line, best, limited, reached
from memtui.analytics.daily import LATENCY_ERROR
from memtui.analytics.engine import opened
from memtui.analytics.figures import Bucket, Figures, HitSign
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.rows import LogDatabase
from memtui.analytics.stats import Dashboard, Rollups
from memtui.store.database import Database

MOST_IN_SQLITE = 1_000_000
_GOAL_FROM = 10_000_000
"""The dashboard's time hardly grows with the log, so its goal is about long ones."""
_CHUNK = 250_000
_MEMORY = "512MB"
_COUNTED = """
    count(*), count(*) FILTER (WHERE operation_type = 'query'),
    count(*) FILTER (WHERE operation_type = 'write'),
    count(*) FILTER (WHERE operation_type = 'correct' AND status = 'ok'
        AND principal NOT LIKE 'agent:%'),
    count(*) FILTER (WHERE status = 'ok'),
    sum(input_tokens), sum(output_tokens), sum(embedding_tokens), coalesce(sum(cost_pico), 0),
    sum(usage_count), sum(unpriced_count),
    count(*) FILTER (WHERE operation_type = 'query' AND status = 'ok'),
    count(*) FILTER (WHERE operation_type = 'query' AND status = 'ok' AND result_count = 0)
"""
_SCORED = "count(*) FILTER (WHERE operation_type = 'query' AND status = 'ok' AND best_score >= 0.5)"
_LATENCY = "quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
_DIMENSIONS = {
    "agent": "agent_id",
    "project": "project_id",
    "binding": "binding_key",
    "type": "operation_type",
    "status": "status",
    "source_kind": "source_kind",
    "channel": "channel",
    "principal": "principal",
}


class Raw:
    """DuckDB over the same Parquet, asked in plain SQL."""

    def __init__(self, home: Path) -> None:
        folder = ArchiveFolder(home / "archive", COMPANY)
        self._duck = duckdb.connect(
            config={"memory_limit": _MEMORY, "threads": 2, "temp_directory": str(home / "spill")}
        )
        self._duck.execute("SET TimeZone = 'UTC'")
        for table in ("operations", "usage", "handles"):
            files = [str(folder.file(segment, table)) for segment in folder.read().segments]
            self._duck.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files!r})")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows."""
        return self._duck.execute(sql).fetchall()

    def total(self, key: str = "") -> list[tuple[Any, ...]]:
        """Every figure, with a hit by score; in all, or by a key."""
        figures = f"{_COUNTED}, {_SCORED}, {_LATENCY} FROM operations"
        return self.ask(f"SELECT {key}, {figures} GROUP BY 1" if key else f"SELECT {figures}")

    def answer(self, key: str = "") -> None:
        """What one rollup answers: the figures in all, by binding and by a key."""
        for asked in dict.fromkeys(("", "binding_key", key)):
            self.total(asked)

    def by_usage(self, column: str) -> None:
        """The same by a column of what was consumed: an operation counts where it used."""
        self.answer()
        figures = f"{_COUNTED}, {_SCORED}, {_LATENCY}"
        self.ask(
            f"SELECT {column}, {figures} FROM (SELECT seq, operation_type, status, result_count, "
            "latency_ms, best_score, principal FROM operations) LEFT JOIN ("
            f"SELECT seq, {column}, sum(input_tokens) AS input_tokens, "
            "sum(output_tokens) AS output_tokens, sum(embedding_tokens) AS embedding_tokens, "
            "sum(cost_pico) AS cost_pico, count(*) AS usage_count, "
            "count(*) FILTER (cost_pico IS NULL) AS unpriced_count FROM usage GROUP BY ALL"
            ") USING (seq) GROUP BY 1"
        )

    def used(self) -> None:
        """In all and by binding, a hit being a query of which a record was opened within a day."""
        self.ask(
            "CREATE OR REPLACE TEMP TABLE used AS WITH touched AS ("
            "SELECT h.*, o.started_at FROM handles h JOIN operations o USING (seq) "
            "WHERE o.status = 'ok') SELECT DISTINCT q.seq FROM touched q JOIN touched u "
            "ON u.binding_key = q.binding_key AND u.provider_record_id = q.provider_record_id "
            "AND q.operation_type = 'query' AND u.operation_type IN ('get', 'history') "
            "AND u.seq > q.seq AND u.started_at BETWEEN q.started_at "
            "AND q.started_at + INTERVAL 24 HOURS"
        )
        hit = "operation_type = 'query' AND status = 'ok' AND seq IN (SELECT seq FROM used)"
        for key in ("", "binding_key,"):
            self.ask(
                f"SELECT {key} {_COUNTED}, count(*) FILTER (WHERE hit), {_LATENCY} "
                f"FROM (SELECT *, {hit} AS hit FROM operations) "
                f"{'GROUP BY 1' if key else ''}"
            )

    def dashboard(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that the dashboard shows, with a hit by score."""
        return {
            "total": self.total(),
            "binding": self.total("binding_key"),
            "day": self.total("started_at::DATE"),
            "spending": self.ask(
                "SELECT started_at::DATE, provider, sum(u.input_tokens), sum(u.output_tokens), "
                "sum(u.embedding_tokens), coalesce(sum(u.cost_pico), 0), count(*) "
                "FROM usage u JOIN operations USING (seq) GROUP BY ALL"
            ),
        }


def measure(home: Path, rows: int) -> list[Line]:
    """Ask everything; the log under `home` is all sealed."""
    database = Database.open(home / "memtui.db")
    raw, rollups = Raw(home), Rollups(LogDatabase(database, home / "archive", COMPANY))
    rollups.stats()
    score = HitSign.SCORE
    lines = [
        _compared(
            "in all and by binding, hits by use",
            lambda: rollups.stats(hit_sign=HitSign.USED),
            raw.used,
        ),
        _compared(
            "in all and by binding, hits by score",
            lambda: rollups.stats(hit_sign=score),
            raw.answer,
        ),
    ]
    asked: list[tuple[str, dict[str, Any], Callable[[], object]]] = [
        *((name, {"by": [name]}, partial(raw.answer, key)) for name, key in _DIMENSIONS.items()),
        *((name, {"by": [name]}, partial(raw.by_usage, name)) for name in ("provider", "model")),
        *(
            (bucket, {"bucket": bucket}, partial(raw.answer, f"date_trunc('{bucket}', started_at)"))
            for bucket in Bucket
        ),
    ]
    for name, cut, plain in asked:
        ours = partial(rollups.stats, hit_sign=score, **cut)
        lines.append(_compared(f"in all, by binding and by {name}", ours, plain))
    lines.extend(_of_dashboard(home, rollups, raw, rows))
    if rows <= MOST_IN_SQLITE:
        lines.extend(_of_sqlite(home, rows, rollups))
    else:
        lines.append(Line("against SQLite", f"not asked above {MOST_IN_SQLITE:,} operations"))
    rollups.log.close()
    database.close()
    return lines


def _compared(what: str, ours: Callable[[], object], raw: Callable[[], object]) -> Line:
    mine, theirs = best([ours, raw])
    details = f"   {mine * 1000:,.0f} ms, raw DuckDB {theirs * 1000:,.0f} ms"
    return limited(what, mine / theirs, 1.2, details)


def _of_dashboard(home: Path, rollups: Rollups, raw: Raw, rows: int) -> list[Line]:
    for made in home.glob("archive/*/daily-*"):
        shutil.rmtree(made)
    rollups.short = 0
    [prepared] = best([rollups.prepare], rounds=1)
    painted = rollups.dashboard(hit_sign=HitSign.SCORE)
    equal = _equal(painted, raw.dashboard())
    mine, theirs = best([lambda: rollups.dashboard(hit_sign=HitSign.SCORE), raw.dashboard])
    details = f"   {mine * 1000:,.0f} ms, raw DuckDB {theirs * 1000:,.0f} ms"
    what = "dashboard from partial figures"
    return [
        Line("dashboard: partial figures made once", f"{prepared:,.1f} s"),
        limited(what, mine / theirs, 0.1, details)
        if rows >= _GOAL_FROM
        else Line(what, f"{mine / theirs:.2f} x{details}"),
        Line("dashboard equals raw DuckDB", "yes" if equal else "no", "equal", equal),
    ]


def _equal(painted: Dashboard, raw: dict[str, list[tuple[Any, ...]]]) -> bool:
    """Every count and sum exactly, every percentile within the stated error."""
    stats = painted.stats
    exact = {group.keys["binding"]: group for group in stats.bindings}
    days = {group.begins and group.begins.date(): group for group in stats.groups}
    spent = {(g.begins and g.begins.date(), g.keys["provider"]): g for g in painted.spending}
    return (
        _same(stats, raw["total"][0])
        and (len(exact), len(days), len(spent))
        == tuple(len(raw[name]) for name in ("binding", "day", "spending"))
        and all(_same(exact[row[0]], row[1:]) for row in raw["binding"])
        and all(_same(days[row[0]], row[1:]) for row in raw["day"])
        and all(_sums(spent[row[:2]]) == tuple(map(int, row[2:])) for row in raw["spending"])
    )  # fmt: skip


def _counts(found: Figures) -> tuple[int, ...]:
    return (
        found.operation_count,
        found.query_count,
        found.write_count,
        found.correction_count,
        found.success_count,
        *_sums(found),
        found.unpriced_count,
        found.answered_count,
        found.empty_count,
        found.hit_count,
    )


def _sums(found: Figures) -> tuple[int, ...]:
    tokens = (found.input_tokens, found.output_tokens, found.embedding_tokens)
    return (*tokens, int(found.cost_usd.scaleb(12)), found.usage_count)


def _same(found: Figures, row: Sequence[Any]) -> bool:
    latency = found.latency_ms
    close = all(
        mine is not None and abs(mine - theirs) <= theirs * LATENCY_ERROR * 1.0001
        for mine, theirs in zip((latency.p50, latency.p95, latency.p99), row[-1], strict=True)
    )
    return close and _counts(found) == tuple(map(int, row[:-1]))


def _of_sqlite(home: Path, rows: int, rollups: Rollups) -> list[Line]:
    path = home / "plain" / "memtui.db"
    _fill_sqlite(path, rows)
    lines = []
    with closing(sqlite3.connect(path)) as database:
        for name, column in (("", "1"), ("agent", "agent_id"), ("binding", "binding_key")):
            ours = partial(rollups.stats, hit_sign=HitSign.SCORE, by=[name] if name else [])
            mine, theirs = best([ours, partial(_ask_sqlite, database, column)], rounds=2)
            details = f"   {mine * 1000:,.0f} ms, SQLite {theirs * 1000:,.0f} ms"
            what = f"SQLite, asked {f'by {name}' if name else 'in all'} alone"
            lines.append(reached(what, theirs / mine, 9, details))
    return lines


def _fill_sqlite(path: Path, rows: int) -> None:
    """The real tables; without the indexes, which a question about everything does not use."""
    Database.open(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        indexes = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        for (name,) in indexes:
            database.execute(f"DROP INDEX {name}")
    for first in range(1, rows + 1, _CHUNK):
        with opened(memory_mb=1024) as duck:
            make_rows(duck, first, min(rows, first + _CHUNK - 1))
            copy_rows(duck, path)


def _ask_sqlite(database: sqlite3.Connection, key: str) -> None:
    """The figures by one key; a rollup also answers in all and by binding."""
    database.execute(
        f"SELECT {key}, {_COUNTED}, {_SCORED} FROM memory_operations LEFT JOIN ("
        "SELECT seq, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, "
        "sum(embedding_tokens) AS embedding_tokens, sum(cost_usd) AS cost_pico, "
        "count(*) AS usage_count, count(*) - count(cost_usd) AS unpriced_count "
        "FROM memory_usage GROUP BY seq) USING (seq) LEFT JOIN ("
        "SELECT seq, max(score) AS best_score FROM memory_operation_handles GROUP BY seq"
        ") USING (seq) GROUP BY 1"
    ).fetchall()
    database.execute(
        "SELECT key, latency_ms FROM (SELECT key, latency_ms, n, row_number() OVER ("
        "PARTITION BY key ORDER BY latency_ms) AS place FROM ("
        f"SELECT {key} AS key, latency_ms, count(*) OVER (PARTITION BY {key}) AS n "
        "FROM memory_operations)) "
        "WHERE place IN (1 + n / 2, 1 + n * 95 / 100, 1 + n * 99 / 100)"
    ).fetchall()
