"""What the service adds to a query: the adapter alone, through the service, its parts, bare SQLite.

Run it with `python -m benchmarks.service_overhead [calls]`; it prints medians in microseconds of
one run on this machine. The bare insert writes the rows that one query leaves in the log, in one
transaction of the standard library's `sqlite3` with the same durability.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import ClassVar, Self

from pydantic import BaseModel

from memtui.config import find_paths, load_settings
from memtui.contract import (
    Adapter,
    BindingContext,
    Capabilities,
    ContextBundle,
    ForgetReply,
    ForgetRequest,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    WriteReply,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.store import appending
from memtui.store.database import Database
from memtui.store.operation import OperationDraft

_SCOPE = Scope(company_id="acme", project_id="mech-fighters", agent_id="coding")
_REQUEST = QueryRequest(scope=_SCOPE, query="which branch do we deploy from")
_CALLER = Caller(company_id="acme", principal="agent:coding", channel="benchmark")
_SNIPPETS = 10
_WARM_UP = 20
_LOGGED = ("memory_operations", "memory_operation_handles")


class _NoConfig(BaseModel):
    """The provider takes no settings."""


class MemoryAdapter(Adapter):
    """A provider in memory that finds the same ten records whatever is asked."""

    key: ClassVar[str] = "memory"
    config_model: ClassVar[type[BaseModel]] = _NoConfig
    capabilities: Capabilities = Capabilities(full_text=True)

    def __init__(self) -> None:
        self._found = tuple(
            Snippet(
                handle=RecordHandle(provider_key=self.key, provider_record_id=f"note-{number}"),
                text=f"We deploy from release, says note {number}.",
                scope=_SCOPE,
                score=1 / (number + 1),
            )
            for number in range(_SNIPPETS)
        )

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the provider."""
        del context
        return cls()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store nothing."""
        del request
        return WriteReply()

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return the ten records."""
        return ContextBundle(snippets=self._found[: request.top_k])

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return nothing."""
        del handle, scope
        return None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Forget nothing."""
        del request
        return ForgetReply()


async def timed(call: Callable[[], Awaitable[object]], calls: int) -> float:
    """Return the median time of a call in microseconds."""
    taken = []
    for number in range(calls + _WARM_UP):
        started = perf_counter()
        await call()
        if number >= _WARM_UP:
            taken.append(perf_counter() - started)
    return median(taken) * 1e6


async def parts(service: MemoryService, database: Path, calls: int) -> tuple[float, float]:
    """Return the median times of choosing the binding and of logging, each from the event loop."""
    resolving = await timed(lambda: service.resolve(_CALLER, _SCOPE), calls)
    [newest] = (await service.log.page(_CALLER, limit=1)).operations
    draft = OperationDraft.model_construct(
        **{name: getattr(newest, name) for name in OperationDraft.model_fields}
    )
    opened_again = Database.open(database)

    def append() -> None:
        fresh = draft.model_copy(update={"operation_id": uuid.uuid4().hex})
        with opened_again.write(durable=False) as connection:
            appending.append(connection, fresh)

    logging = await timed(lambda: asyncio.to_thread(append), calls)
    opened_again.close()
    return resolving, logging


def bare_inserts(database: Path, calls: int) -> float:
    """Return the median time of inserting one query's rows with `sqlite3`, in microseconds."""
    source = sqlite3.connect(database)
    copy = sqlite3.connect(database.with_name("bare.db"), isolation_level=None)
    copy.execute("PRAGMA journal_mode = WAL")
    copy.execute("PRAGMA synchronous = NORMAL")
    statements: list[tuple[str, list[tuple[object, ...]], int]] = []
    for table in _LOGGED:
        for (definition,) in source.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type <> 'trigger' "
            "AND sql IS NOT NULL ORDER BY type DESC",
            (table,),
        ):
            copy.execute(definition)
        rows = source.execute(
            f"SELECT * FROM {table} WHERE seq = (SELECT max(seq) FROM memory_operations)"
        ).fetchall()
        columns = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
        insert = f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})"
        statements.append((insert, rows, columns.index("seq")))
    operation_id = [row[1] for row in source.execute("PRAGMA table_info(memory_operations)")].index(
        "operation_id"
    )
    taken = []
    for number in range(calls):
        started = perf_counter()
        copy.execute("BEGIN IMMEDIATE")
        for insert, rows, seq in statements:
            fresh = [(*row[:seq], number, *row[seq + 1 :]) for row in rows]
            if insert.startswith("INSERT INTO memory_operations "):
                fresh = [(*r[:operation_id], str(number), *r[operation_id + 1 :]) for r in fresh]
            copy.executemany(insert, fresh)
        copy.execute("COMMIT")
        taken.append(perf_counter() - started)
    copy.close()
    source.close()
    return median(taken) * 1e6


async def opened(home: Path) -> MemoryService:
    """Open the service under a fresh home, with the provider in memory as its default."""
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
    return service


async def main(calls: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        adapter = MemoryAdapter()
        service = await opened(Path(folder) / "home")
        alone = await timed(lambda: adapter.query(_REQUEST), calls)
        through = await timed(lambda: service.query(_CALLER, _REQUEST), calls)
        database = Path(folder) / "home" / "memtui.db"
        resolving, logging = await parts(service, database, calls)
        await service.close()
        bare = await asyncio.to_thread(bare_inserts, database, calls)
    print(f"query, {_SNIPPETS} snippets, median of {calls} calls")
    print(f"  adapter alone        {alone:9.1f} µs")
    print(f"  through the service  {through:9.1f} µs")
    print(f"  the service adds     {through - alone:9.1f} µs")
    print(f"    resolving          {resolving:9.1f} µs")
    print(f"    appending          {logging:9.1f} µs")
    print(f"  bare sqlite3 insert  {bare:9.1f} µs")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
