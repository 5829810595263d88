"""How soon a filter of the operation log answers while a person types it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.generated_log import COMPANY
from benchmarks.table import Line, best, limited
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.reading import LogView, Progress
from memtui.analytics.rows import LogDatabase
from memtui.contract import Filter
from memtui.store.conditions import condition
from memtui.store.database import Database

HOT = 100_000
_ASKED = {
    "an agent": Filter(agent_id="agent-7"),
    "a word": Filter(text="invoice"),
    "a word that is nowhere": Filter(text="zebra"),
    "a fuzzy word": Filter(fuzzy=("invce",)),
}


def of_hot(home: Path) -> list[Line]:
    """Filter a log that is all hot; the first filter copies most of it."""
    with _opened(home) as log:
        [first] = best([partial(_filter, log, Filter(agent_id="agent-8"))], rounds=1)
        lines = [Line("the first filter, which copies them", f"{first * 1000:,.0f} ms")]
        for name, chosen in _ASKED.items():
            with log.cursor() as cursor:
                raw = partial(cursor.execute, _raw("hot_operations", chosen))
                again, theirs = best([partial(_filter, log, chosen), raw])
            details = f"   {again * 1000:,.0f} ms, raw DuckDB {theirs * 1000:,.0f} ms"
            lines.append(limited(f"{name}, against the first", again / first, 0.1, details))
    return lines


def of_sealed(home: Path) -> list[Line]:
    """Filter a log of which nearly all is sealed: the first rows, and all that match."""
    folder = ArchiveFolder(home / "archive", COMPANY)
    files = [str(folder.file(one, "operations")) for one in folder.read().segments]
    lines = []
    with _opened(home) as log:
        _filter(log, Filter(agent_id="agent-8"))
        for name, chosen in _ASKED.items():
            first, whole, count = _timed(log, chosen)
            with log.cursor() as cursor:
                raw = partial(cursor.execute, _raw(f"read_parquet({files!r})", chosen))
                ours, theirs = best([partial(_filter, log, chosen), raw], rounds=2)
            details = f"   first rows {first:,.0f} ms, all {whole:,.0f} ms, {count:,} match"
            lines.append(limited(f"{name}, against raw DuckDB", ours / theirs, 1.5, details))
    return lines


@contextmanager
def _opened(home: Path) -> Iterator[LogDatabase]:
    database = Database.open(home / "memtui.db")
    log = LogDatabase(database, home / "archive", COMPANY)
    yield log
    log.close()
    database.close()


def _timed(log: LogDatabase, chosen: Filter) -> tuple[float, float, int]:
    """Return when the first rows are known and when all, in milliseconds, and how many match."""
    told: list[float] = []

    def tell(progress: Progress) -> None:
        if progress.matches:
            told.append(perf_counter())

    began = perf_counter()
    view = LogView(log, chosen, early=tell)
    ended = perf_counter()
    view.close()
    return ((told or [ended])[0] - began) * 1000, (ended - began) * 1000, view.count


def _filter(log: LogDatabase, chosen: Filter) -> None:
    LogView(log, chosen).close()


def _raw(source: str, chosen: Filter) -> str:
    return (
        "CREATE OR REPLACE TEMP TABLE found AS "
        f"SELECT seq FROM {source} WHERE {condition(chosen)} ORDER BY seq"
    )
