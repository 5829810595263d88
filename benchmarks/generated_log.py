"""Operation logs of any size for the benchmarks, the same every time.

An operation every ten seconds of 40 agents in 12 projects over 3 bindings: half of them queries
that return five records, the rest writes, openings, corrections and forgets; with the usage of
models, an unpriced tenth of it, and skewed latencies. DuckDB makes the rows, the sealing's own
writer puts them into segments, and `sqlite3` puts the newest into the hot tables of a real schema.
Digests link every operation to the one before it; that each also fits its operation, as the audit
demands, is computed where `exact` is asked for and takes Python 60 µs an operation.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memtui.analytics.engine import opened
from memtui.analytics.layout import TABLES, ArchiveFolder
from memtui.analytics.rows import fetch
from memtui.analytics.seal import SEGMENT_ROWS, Made, write_files
from memtui.analytics.source import HOT, SELECTS, columns_of, create_raw
from memtui.store.database import Database
from memtui.store.digest import GENESIS, digest_of

COMPANY = "acme"
FIRST = datetime(2023, 1, 1, tzinfo=UTC)
SECONDS_APART = 10

_COMPANY_SALT = bytes(16)
_MEMORY_MB = 1024
_BATCH = 10_000


def _pick(salt: int, *values: str) -> str:
    """SQL of one of some texts, chosen by the operation's number; an empty one is NULL."""
    listed = ", ".join(f"'{value}'" if value else "NULL" for value in values)
    return f"([{listed}])[1 + (hash(seq, {salt}) % {len(values)})::BIGINT]"


def _chance(salt: int) -> str:
    """SQL of a number from 0 to 1."""
    return f"((hash(seq, {salt}) % 1000003) / 1000003.0)"


_WORDS = ("deploy", "branch", "invoice", "release", "customer", "budget", "migration", "login",
          "latency", "backup", "contract", "review")  # fmt: skip
_OPERATION = {
    "company_id": f"'{COMPANY}'",
    "seq": "seq",
    "operation_id": "md5(seq::VARCHAR)",
    "operation_type": _pick(1, "query", "query", "query", "query", "write", "write", "get",
                            "correct", "forget", "query"),
    "status": _pick(2, *("ok",) * 18, "error", "denied"),
    "binding_key": _pick(3, "default", "default", "mem0", "team"),
    "provider_key": "'vault'",
    "binding_reason": "'company target'",
    "agent_id": "'agent-' || (hash(seq, 4) % 40)",
    "project_id": "'project-' || (hash(seq, 5) % 12)",
    "issue_id": "CASE WHEN hash(seq, 6) % 3 = 0 THEN 'ISS-' || (seq // 500) END",
    "run_id": "CASE WHEN hash(seq, 7) % 2 = 0 THEN 'run-' || (seq // 50) END",
    "source_kind": _pick(8, "", "", "run", "issue_comment"),
    "principal": "'agent:agent-' || (hash(seq, 4) % 40)",
    "channel": _pick(9, "http", "http", "mcp", "cli"),
    "request": "'{\"query\":\"' || " + " || ' ' || ".join(_pick(n, *_WORDS) for n in (10, 11, 12))
               + " || ' ' || seq || '\"}'",
    "error_kind": "CASE WHEN hash(seq, 2) % 20 = 18 THEN 'unavailable' END",
    "error_message": "CASE WHEN hash(seq, 2) % 20 = 18 THEN 'The provider did not answer.' END",
    "result_count": "0",
    "capped": "false",
    "started_at": f"{int(FIRST.timestamp())}000000 + seq * {SECONDS_APART}000000",
    "latency_ms": f"round(exp(2 + 5 * {_chance(13)}), 3)",
    "previous_digest": f"CASE WHEN seq = 1 THEN '{GENESIS}' ELSE sha256((seq - 1)::VARCHAR) END",
    "digest": "sha256(seq::VARCHAR)",
    "salt": "unhex(md5('salt' || seq))",
}  # fmt: skip
_USAGE = {
    "company_id": f"'{COMPANY}'",
    "seq": "seq",
    "ordinal": "place",
    "provider": "CASE place WHEN 0 THEN 'voyage' ELSE 'anthropic' END",
    "model": f"CASE place WHEN 0 THEN 'embed-3' ELSE {_pick(14, 'small', 'large')} END",
    "input_tokens": "CASE place WHEN 0 THEN 0 ELSE (hash(seq, 15) % 4000)::BIGINT END",
    "output_tokens": "CASE place WHEN 0 THEN 0 ELSE (hash(seq, 16) % 500)::BIGINT END",
    "embedding_tokens": "CASE place WHEN 0 THEN (hash(seq, 17) % 900)::BIGINT ELSE 0 END",
    "cost_usd": "CASE WHEN hash(seq, 18) % 10 > 0 THEN (hash(seq, 19) % 9000000000)::BIGINT END",
    "latency_ms": f"round(exp(1 + 4 * {_chance(20)}), 3)",
    "details": "'{}'",
}
_HANDLE = {
    "company_id": f"'{COMPANY}'",
    "seq": "seq",
    "rank": "place + 1",
    "binding_key": "binding_key",
    "operation_type": "operation_type",
    "provider_key": "'vault'",
    "provider_record_id": "'memory/' || (hash(seq, 21, place) % 20000) || '.md'",
    "score": "CASE WHEN operation_type = 'query' THEN "
             "(hash(seq, 22, place) % 1000003) / 1000003.0 END",
    "ghost": "false",
}  # fmt: skip
_SPENT = "CASE operation_type WHEN 'query' THEN 1 WHEN 'write' THEN 2 ELSE 0 END"
_TOUCHED = (
    "CASE WHEN status <> 'ok' THEN 0 WHEN operation_type <> 'query' THEN 1 "
    "WHEN hash(seq, 23) % 12 = 0 THEN 0 ELSE 5 END"
)


def generate(
    home: Path,
    sealed: int,
    hot: int = 0,
    *,
    exact: bool = False,
    plant: Callable[[Any, int, int], None] = lambda _duck, _first, _last: None,
) -> None:
    """Make a database and an archive under `home` with operations 1 to `sealed` + `hot`.

    Args:
        home: The folder; `memtui.db` and `archive` are made in it.
        sealed: How many operations are in segments.
        hot: How many are in the database.
        exact: Every digest fits its operation.
        plant: Changes the rows that were made, of the operations between two numbers.
    """
    Database.open(home / "memtui.db").close()
    folder = ArchiveFolder(home / "archive", COMPANY)
    folder.create()
    manifest = folder.read()
    while manifest.sealed_through < sealed:
        first = manifest.sealed_through + 1
        last = min(sealed, manifest.sealed_through + SEGMENT_ROWS)
        with opened(memory_mb=_MEMORY_MB) as duck:
            _make_rows(duck, first, last, manifest.last_digest if exact else None)
            plant(duck, first, last)
            work = folder.path / ".new-segment"
            segment = write_files(duck, work, manifest, (first, last), Made(FIRST, "benchmark"))
        work.rename(folder.segment(segment))
        manifest = manifest.with_segment(segment)
    folder.write(manifest)
    _put_head(home, sealed, manifest.last_digest)
    if hot:
        add_hot(home, sealed + 1, sealed + hot, exact=exact, plant=plant)


def begin_like(home: Path, source: Path, segments: int) -> int:
    """Make a log of the first segments of another; return its last operation's number.

    The files are hard links.
    """
    Database.open(home / "memtui.db").close()
    whole, folder = (ArchiveFolder(one / "archive", COMPANY) for one in (source, home))
    folder.create()
    found = whole.read()
    manifest = found.model_copy(update={"segments": found.segments[:segments]})
    for one in manifest.segments:
        shutil.copytree(whole.segment(one), folder.segment(one), copy_function=os.link)
    folder.write(manifest)
    _put_head(home, manifest.sealed_through, manifest.last_digest)
    return manifest.sealed_through


def add_hot(
    home: Path,
    first: int,
    last: int,
    *,
    exact: bool = False,
    plant: Callable[[Any, int, int], None] = lambda _duck, _first, _last: None,
) -> None:
    """Put operations with these numbers, ends included, behind those that are there."""
    with closing(sqlite3.connect(home / "memtui.db")) as database:
        [(previous,)] = database.execute("SELECT digest FROM memory_log_heads").fetchall()
    for start in range(first, last + 1, SEGMENT_ROWS):
        end = min(start + SEGMENT_ROWS - 1, last)
        with opened(memory_mb=_MEMORY_MB) as duck:
            previous = _make_rows(duck, start, end, previous if exact else None)
            plant(duck, start, end)
            copy_rows(duck, home / "memtui.db")
    _put_head(home, last, previous)


def copy_rows(duck: Any, path: Path) -> None:
    """Insert the rows that were made into the tables of a SQLite database, in one transaction."""
    with closing(sqlite3.connect(path)) as database, database:
        for table in TABLES:
            names = tuple(columns_of(table))
            marks = ", ".join("?" * len(names))
            rows = duck.execute(f"SELECT {', '.join(names)} FROM raw_{table} ORDER BY seq")
            for batch in _batches(rows):
                database.executemany(f"INSERT INTO {HOT[table].name} VALUES ({marks})", batch)


def make_rows(duck: Any, first: int, last: int) -> None:
    """Make the rows of operations in `raw_operations`, `raw_usage` and `raw_handles`."""
    _make_rows(duck, first, last, None)


def _make_rows(duck: Any, first: int, last: int, exact_after: str | None) -> str:
    """As `make_rows`; with a digest to be chained to, every digest fits. Returns the last one."""
    create_raw(duck)
    duck.execute(
        f"INSERT INTO raw_operations SELECT {_listed('operations', _OPERATION)} "
        f"FROM (SELECT unnest(range({first}, {last + 1})) AS seq)"
    )
    for table, columns, count in (("usage", _USAGE, _SPENT), ("handles", _HANDLE, _TOUCHED)):
        duck.execute(
            f"INSERT INTO raw_{table} SELECT {_listed(table, columns)} FROM ("
            f"SELECT *, unnest(range({count})) AS place FROM raw_operations)"
        )
    duck.execute(f"UPDATE raw_operations SET result_count = {_TOUCHED}")
    if exact_after is not None:
        _make_digests_fit(duck, exact_after)
    [found] = duck.execute(f"SELECT digest FROM raw_operations WHERE seq = {last}").fetchone()
    return str(found)


def _make_digests_fit(duck: Any, previous: str) -> None:
    duck.execute("CREATE OR REPLACE TABLE chain (seq BIGINT, before VARCHAR, own VARCHAR)")
    arrived = {table: f"({SELECTS[table]})" for table in TABLES}
    links = []
    for one in fetch(duck, arrived, "true").values():
        own = digest_of(
            one, seq=one.seq, previous_digest=previous, salt=one.salt, company=_COMPANY_SALT
        )
        links.append((one.seq, previous, own))
        previous = own
    with duck.appender("chain") as appender:
        appender.append_rows(links)
    duck.execute(
        "UPDATE raw_operations SET previous_digest = before, digest = own "
        "FROM chain WHERE chain.seq = raw_operations.seq"
    )


def _listed(table: str, columns: dict[str, str]) -> str:
    return ", ".join(columns.get(name, "NULL") for name in columns_of(table))


def _batches(rows: Any) -> Iterator[list[tuple[Any, ...]]]:
    while batch := rows.fetchmany(_BATCH):
        yield batch


def _put_head(home: Path, seq: int, digest: str) -> None:
    with closing(sqlite3.connect(home / "memtui.db")) as database, database:
        database.execute("DELETE FROM memory_log_heads WHERE company_id = ?", (COMPANY,))
        head = (COMPANY, seq, digest, _COMPANY_SALT)
        database.execute("INSERT INTO memory_log_heads VALUES (?, ?, ?, ?)", head)
