"""Appending operations: through the service, raw, and plain `sqlite3` with the same inserts."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from time import perf_counter

from benchmarks.service_overhead import MemoryAdapter
from benchmarks.table import Line, reached
from memtui.config import find_paths, load_settings
from memtui.contract import QueryRequest, Scope, SourceRef, Usage, WriteRequest
from memtui.service import Caller, open_service
from memtui.store import appending
from memtui.store.database import Database
from memtui.store.operation import OperationDraft, OperationHandle

_BATCH = 1000
_SCOPE = Scope(company_id="acme", project_id="mech-fighters", agent_id="coding")
_CALLER = Caller(company_id="acme", principal="agent:coding", channel="benchmark")
_TABLES = ("memory_operations", "memory_usage", "memory_operation_handles")


def measure(home: Path, *, one_by_one: int = 1000, batched: int = 20_000) -> list[Line]:
    """Append so many operations in each way; an operation here has one usage and five records."""
    lines = []
    for what, count, size, durable, goal in (
        ("durable, one a transaction", one_by_one, 1, True, 0.59),
        ("not synced, one a transaction", one_by_one * 2, 1, False, 0.59),
        (f"durable, {_BATCH:,} a transaction", batched, _BATCH, True, 0.54),
    ):
        drafts = [_draft(number) for number in range(count)]
        ours, plain = 0.0, 0.0  # the best of the turns: what else runs makes both slower
        for turn in range(3):
            folder = home / f"{what.replace(' ', '-')}-{turn}"
            ours = max(ours, count / _raw(folder / "raw.db", drafts, size, durable=durable))
            plain = max(plain, count / _plain(folder, size, durable=durable))
        details = f"   {ours:,.0f} a second, sqlite3 {plain:,.0f}"
        lines.append(reached(f"raw, {what}", ours / plain, goal, details))
    lines.extend(asyncio.run(_through_the_service(home / "service")))
    return lines


def _draft(number: int) -> OperationDraft:
    return OperationDraft.model_validate(
        {
            "operation_id": uuid.uuid4().hex,
            "operation_type": "query",
            "status": "ok",
            "scope": _SCOPE,
            "binding_key": "default",
            "provider_key": "vault",
            "principal": "agent:coding",
            "channel": "benchmark",
            "request": {"query": f"which branch do we deploy from {number}"},
            "result_count": 5,
            "handles": tuple(
                OperationHandle(
                    rank=rank,
                    provider_key="vault",
                    provider_record_id=f"memory/{number * rank % 20_000}.md",
                    score=1 / rank,
                )
                for rank in range(1, 6)
            ),
            "usage": (Usage(provider="voyage", model="embed-3", embedding_tokens=9),),
            "started_at": "2026-01-01T00:00:00Z",
            "latency_ms": 1.5,
        }
    )


def _raw(path: Path, drafts: list[OperationDraft], size: int, *, durable: bool) -> float:
    """Seconds that `memtui.store.log` takes; leaves the database for `_plain`."""
    database = Database.open(path)
    began = perf_counter()
    for start in range(0, len(drafts), size):
        with database.write(durable=durable) as connection:
            if size == 1:
                appending.append(connection, drafts[start])
            else:
                appending.append_all(connection, drafts[start : start + size])
    took = perf_counter() - began
    database.close()
    return took


def _plain(folder: Path, size: int, *, durable: bool) -> float:
    """Seconds that inserting the rows of `raw.db` into the same schema takes, ready as they are.

    The rows of a transaction go in table by table, each with one `executemany`.
    """
    Database.open(folder / "plain.db").close()
    with closing(sqlite3.connect(folder / "raw.db")) as source:
        tables = [_rows_of(source, table, size) for table in _TABLES]
        heads = source.execute(
            "SELECT max(seq), digest FROM memory_operations GROUP BY (seq - 1) / ?", (size,)
        ).fetchall()
    with closing(sqlite3.connect(folder / "plain.db", isolation_level=None)) as target:
        target.execute("PRAGMA foreign_keys = ON")
        target.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        target.execute("INSERT INTO memory_log_heads VALUES ('acme', 0, '', x'00')")
        began = perf_counter()
        for batch, head in enumerate(heads):
            target.execute("BEGIN IMMEDIATE")
            for insert, batches in tables:
                target.executemany(insert, batches[batch])
            target.execute(
                "UPDATE memory_log_heads SET seq = ?, digest = ? WHERE company_id = 'acme'", head
            )
            target.execute("COMMIT")
        return perf_counter() - began


def _rows_of(
    source: sqlite3.Connection, table: str, size: int
) -> tuple[str, list[list[tuple[object, ...]]]]:
    """Return how a row is inserted, and the rows of each transaction of `size` operations."""
    rows = source.execute(f"SELECT * FROM {table} ORDER BY seq")
    names = [column[0] for column in rows.description]
    seq = names.index("seq")
    found: dict[int, list[tuple[object, ...]]] = {}
    for row in rows:
        found.setdefault((row[seq] - 1) // size, []).append(row)
    batches = [found[number] for number in sorted(found)]
    return f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", batches


async def _through_the_service(home: Path) -> list[Line]:
    """A provider that does nothing, so that what is counted is memtui's own work."""
    paths = find_paths(home)
    service = await open_service(
        paths,
        load_settings(paths, saves_per_hour=0),
        providers={"memory": MemoryAdapter},
        first_company=False,
    )
    await service.companies.add(_CALLER, "Acme")
    await service.bindings.add(_CALLER, "default", "memory", {})
    await service.bindings.set_target(_CALLER, "company", "acme", "default")
    query = QueryRequest(scope=_SCOPE, query="which branch do we deploy from", top_k=5)
    source = SourceRef(kind="run", company_id="acme", run_id="run-1")
    write = WriteRequest(scope=_SCOPE, source=source, content="We deploy from release.")
    lines = []
    for what, call in (
        ("query, one after the other", lambda: service.query(_CALLER, query)),
        ("write, durable with its intent", lambda: service.write(_CALLER, write)),
    ):
        count = 500
        began = perf_counter()
        for _ in range(count):
            await call()
        alone = count / (perf_counter() - began)
        began = perf_counter()
        for _ in range(count // 20):
            await asyncio.gather(*(call() for _ in range(20)))
        together = count // 20 * 20 / (perf_counter() - began)
        seen = f"{alone:,.0f} a second, 20 at once {together:,.0f}"
        lines.append(Line(f"service, {what}", seen))
    await service.close()
    return lines
