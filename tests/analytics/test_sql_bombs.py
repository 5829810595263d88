"""Statements that would take all memory or all time, each stopped with one sentence.

They run in a process of their own: what other tests left in this one's memory would blur the
peak.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from memtui.analytics.sql import SqlConsole
from memtui.contract import Denied, Invalid
from memtui.store.database import Database

MEMORY_MB = 60
STATUS = Path("/proc/self/status")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STATUS.exists(), reason="the ceiling on memory needs /proc"),
]


def nested(function: str, times: int, text: str = "'aaaaaaaaaa'") -> str:
    """Return an SQL expression with a function around a function, so many times."""
    for _ in range(times):
        text = function.format(text)
    return text


REPLACED = nested("replace({}, 'a', 'aaaaaaaaaa')", 9)
TRIPLED = nested("concat({0}, {0}, {0})", 6, "request")
DOUBLED = "".join(
    f", c{n} AS (SELECT s||s||s||s||s||s||s||s AS s FROM c{n - 1})" for n in range(1, 10)
)
BOMBS = [
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "SELECT count(*) FROM range(1000000000000) a, range(1000000000000) b",
    "SELECT sum(a.seq * b.seq % 7) FROM operations a, operations b, usage c, usage d, usage e",
    "SELECT list(x) FROM range(100000000000) t(x)",
    "SELECT string_agg(a.request) FROM operations a, operations b, operations c, operations d",
    "WITH RECURSIVE t(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM t) SELECT max(len(n)) FROM t",
    "SELECT range(10000000000)",
    "SELECT * FROM range(100000000000) ORDER BY random()",
    f"SELECT length({REPLACED})",
    f"SELECT sum(length({TRIPLED})) FROM operations, range(100000000)",
    f"WITH c0 AS (SELECT 'xxxxxxxxxx' AS s){DOUBLED} SELECT length(s) FROM c9",
    "SELECT list_reduce(range(40)::VARCHAR[], lambda a, b: a || a)",
    "SELECT array_to_string(range(300000000), 'xxxxxxxx')",
    "SELECT list_aggregate(range(300000000), 'string_agg', ',')",
    "SELECT list_concat(range(100000000), range(100000000), range(100000000))",
    "SELECT list_transform(range(200000000), lambda x: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx' || x)",
    "SELECT bitstring('1', 2000000000)",
    "SELECT to_base64(array_to_string(range(300000000), '')::BLOB)",
    "SELECT json_group_array(a.request) FROM operations a, operations b, operations c, usage d",
]
COUNT = "SELECT count(*) FROM operations"


@dataclass(frozen=True)
class Fall:
    """What running a statement came to: what was said, and what it took."""

    message: str
    refused: bool
    """It did not run at all."""
    over_mb: float
    """What the peak was above all memory that the process had asked for before."""
    limits_restored: bool
    count_after: object


def megabytes(name: str) -> float:
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 1024


def drop(home: Path, sql: str) -> Fall:
    """Run a statement on the home's log and tell how it ended."""
    import resource

    database = Database.open(home / "memtui.db")
    console = SqlConsole(database, home / "archive", "acme", memory_mb=MEMORY_MB)
    try:
        console.run(COUNT)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = max(megabytes("VmData"), megabytes("VmRSS"))
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        refused = False
        try:
            console.run(sql, time_limit_s=0.3)
            message = ""
        except (Denied, Invalid) as error:
            message, refused = str(error), isinstance(error, Denied)
        return Fall(
            message,
            refused,
            megabytes("VmHWM") - before,
            resource.getrlimit(resource.RLIMIT_DATA) == limits,
            console.run(COUNT).rows,
        )
    finally:
        console.close()
        database.close()


@pytest.fixture(scope="module")
def own_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("sql", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_stopped_before_it_takes_the_memory(
    sealed_home: Path, own_process: ProcessPoolExecutor, sql: str
) -> None:
    fall = own_process.submit(drop, sealed_home, sql).result(timeout=60)
    stopped = ("was stopped", "more memory", "does not work")
    assert fall.refused or any(words in fall.message for words in stopped)
    assert fall.message
    assert "\n" not in fall.message
    assert fall.over_mb < MEMORY_MB * 5
    assert fall.limits_restored
    assert fall.count_after == ((90,),)
