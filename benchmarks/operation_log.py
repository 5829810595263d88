"""The operation log at any size: figures, views, filters, appending and sealing.

    python -m benchmarks.operation_log [--rows 1000000] [--home FOLDER]
        [--only figures views filters appends sealing]

Each line is a ratio of one run, or a plain figure where it says so, with its goal. The log is
generated (`benchmarks.generated_log`) under the temporary folder and deleted afterwards: 1,000,000
operations take 150 MB there, and the copy that SQLite is asked about another 700 MB. With `--home`
it is generated in that folder, once, and stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks import log_appends, log_figures, log_filters, log_views
from benchmarks.generated_log import COMPANY, add_hot, begin_like, generate
from benchmarks.table import Line, show
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.seal import seal
from memtui.store.database import Database

PARTS = ("figures", "views", "filters", "appends", "sealing")
HOT = 10_000
_LONG = 10_000_000
"""From here on, totals are compared with those of a tenth."""
_EXACT = 100_000
_SEALED = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    asked = parser.parse_args()
    parts = set(asked.only)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="memtui-benchmark-") as name:
        home = asked.home or Path(name)
        if parts & {"figures", "views", "filters"}:
            _generate(home / "log", asked.rows)
        if parts & {"views", "filters"}:
            _with_hot(home / "log", home / "viewed", asked.rows)
        if "figures" in parts:
            lines += _shown(
                "Rollups against raw DuckDB over the same Parquet, and SQLite",
                log_figures.measure(home / "log", asked.rows),
            )
        if "views" in parts:
            generate(Path(name) / "small", 500, 500)
            tenth = _tenth(home) if asked.rows >= _LONG else None
            lines += _shown(
                f"The log on screen, {asked.rows:,} operations sealed and {HOT:,} hot",
                log_views.compare(home / "viewed", Path(name) / "small", tenth),
            )
        if "filters" in parts:
            lines += _shown(
                f"Filters, {asked.rows:,} operations sealed and {HOT:,} hot",
                log_filters.of_sealed(home / "viewed"),
            )
            hot = min(log_filters.HOT, asked.rows)
            generate(Path(name) / "hot", 0, hot)
            lines += _shown(
                f"Filters, {hot:,} operations hot",
                log_filters.of_hot(Path(name) / "hot"),
            )
        if "appends" in parts:
            few, many = min(1_000, asked.rows // 20), min(20_000, asked.rows)
            measured = log_appends.measure(Path(name) / "appends", one_by_one=few, batched=many)
            lines += _shown("Appending", measured)
        if "sealing" in parts:
            count = min(_SEALED, asked.rows)
            lines += _shown(
                f"Sealing {count:,} operations", _sealing(Path(name) / "sealing", count)
            )
    return 1 if any(line.met is False for line in lines) else 0


def _generate(home: Path, rows: int) -> None:
    if (home / "memtui.db").exists():
        return
    home.mkdir(parents=True, exist_ok=True)
    began = perf_counter()
    exact = rows <= _EXACT
    generate(home, rows, exact=exact)
    digests = "valid" if exact else "linked, not of their operations"
    print(f"{rows:,} operations generated in {perf_counter() - began:,.0f} s; digests {digests}")


def _with_hot(home: Path, viewed: Path, rows: int) -> None:
    """Make another home with the same archive, and with rows hot."""
    if not viewed.exists():
        shutil.copytree(home / "archive", viewed / "archive", copy_function=os.link)
        shutil.copy(home / "memtui.db", viewed)
        add_hot(viewed, rows + 1, rows + HOT)


def _tenth(home: Path) -> Path:
    """Return the home of a log with the first tenth of the segments, and as many hot."""
    tenth, viewed = home / "tenth", home / "viewed"
    if not tenth.exists():
        segments = ArchiveFolder(viewed / "archive", COMPANY).read().segments
        last = begin_like(tenth, viewed, len(segments) // 10)
        add_hot(tenth, last + 1, last + HOT)
    return tenth


def _shown(title: str, lines: list[Line]) -> list[Line]:
    show(title, lines)
    return lines


def _sealing(home: Path, count: int) -> list[Line]:
    generate(home, 0, count, exact=True)
    database = Database.open(home / "memtui.db")
    began = perf_counter()
    report = seal(database, home / "archive", COMPANY)
    took = perf_counter() - began
    database.close()
    size = sum(segment.bytes for segment in report.segments) / report.operations
    rows = sum(file.rows for segment in report.segments for file in segment.files.values())
    return [
        Line("operations a second", f"{report.operations / took:,.0f} ({rows / took:,.0f} rows)"),
        Line("bytes an operation with its parts", f"{size:,.0f}"),
    ]


if __name__ == "__main__":
    sys.exit(main())
