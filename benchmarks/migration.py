"""How fast a migration is, and whether its memory stays flat.

Run it with `python -m benchmarks.migration [records ...]`, by default 10,000 and 100,000. Each size
runs in a process of its own: the source makes its records on demand and the destination keeps its
in a SQLite file, so that the peak is memtui's. It prints the rate of apply, of a second apply that
finds everything there, and of verify, and the peak resident memory after each, of one run on this
machine.
"""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import ClassVar, Self

from memtui.config import find_paths, load_settings
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    ContextBundle,
    ForgetReply,
    ForgetRequest,
    Model,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteReply,
    WriteRequest,
)
from memtui.migration.endpoints import Endpoints, open_endpoints
from memtui.migration.moving import apply
from memtui.migration.verifying import verify
from memtui.service import Caller, open_service

_CALLER = Caller(company_id="acme", principal="user:ana", channel="benchmark")
_SIZES = ("10000", "100000")
_START = datetime(2026, 1, 1, tzinfo=UTC)


class _Base(Adapter):
    """What neither side is asked for."""

    capabilities: Capabilities = Capabilities(browse=True, keeps_ids=True, expiry=True, pin=True)

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Find nothing."""
        del request
        return ContextBundle()

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Forget nothing."""
        return ForgetReply(missing=request.handles)


class _SourceConfig(Model):
    records: int


class SourceAdapter(_Base):
    """Makes record number N whenever it is asked for."""

    key: ClassVar[str] = "made"
    config_model = _SourceConfig

    def __init__(self, records: int) -> None:
        self._records = records

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the provider."""
        return cls(_SourceConfig.model_validate(context.config).records)

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store nothing."""
        del request
        return WriteReply()

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return nothing."""
        del handle, scope
        return None

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return the records from the cursor's number on."""
        start = int(request.cursor or 0)
        stop = min(start + request.limit, self._records)
        return BrowsePage(
            records=tuple(_record(number) for number in range(start, stop)),
            next_cursor=str(stop) if stop < self._records else None,
            total=self._records,
        )


def _record(number: int) -> Record:
    return Record(
        handle=RecordHandle(provider_key="made", provider_record_id=f"note-{number}"),
        text=f"Observation {number}: the team deploys from release, and checks the queue first.",
        scope=Scope(company_id="acme", project_id=f"p{number % 50}"),
        source=SourceRef(kind=SourceKind.RUN, company_id="acme", run_id=f"r-{number % 900}"),
        tags=("deploy",),
        created_at=_START + timedelta(seconds=number),
        created_by="agent:coding",
        metadata={"turns": [f"D{number}:1"]},
    )


class _NoConfig(Model):
    """The provider takes no settings."""


class FileAdapter(_Base):
    """Keeps records in a SQLite file, so that they take no memory."""

    key: ClassVar[str] = "file"
    config_model = _NoConfig

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS record (number INTEGER PRIMARY KEY, id TEXT UNIQUE, "
            "json TEXT)"
        )

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the file."""
        return cls(context.data_dir / "records.sqlite3")

    async def close(self) -> None:
        """Close the file."""
        self._database.close()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record under its id."""
        assert request.record_id is not None
        handle = RecordHandle(provider_key=self.key, provider_record_id=request.record_id)
        same = {"text": request.content, "handle": handle}
        names = Record.model_fields.keys() & WriteRequest.model_fields.keys()
        record = Record(**{name: getattr(request, name) for name in names}, **same)
        try:
            self._database.execute(
                "INSERT INTO record (id, json) VALUES (?, ?)",
                (request.record_id, record.model_dump_json()),
            )
        except sqlite3.IntegrityError as error:
            raise Conflict(f"There is already a record {request.record_id}.") from error
        return WriteReply(records=(handle,))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record."""
        del scope
        row = self._database.execute(
            "SELECT json FROM record WHERE id = ?", (handle.provider_record_id,)
        ).fetchone()
        return Record.model_validate_json(row[0]) if row else None

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page in the order of writing."""
        rows = self._database.execute(
            "SELECT number, json FROM record WHERE number > ? ORDER BY number LIMIT ?",
            (int(request.cursor or 0), request.limit),
        ).fetchall()
        return BrowsePage(
            records=tuple(Record.model_validate_json(text) for _, text in rows),
            next_cursor=str(rows[-1][0]) if len(rows) == request.limit else None,
        )


async def measure(records: int, home: Path) -> None:
    """Measure one size and print."""
    paths = find_paths(home)
    service = await open_service(
        paths,
        load_settings(paths),
        providers={"made": SourceAdapter, "file": FileAdapter},
        first_company=False,
    )
    await service.companies.add(_CALLER, "Acme")
    await service.bindings.add(_CALLER, "from", "made", {"records": records})
    await service.bindings.add(_CALLER, "to", "file", {})
    ends: Endpoints = await open_endpoints(service, _CALLER, "from", "to")

    async def moved() -> None:
        done = await apply(ends, paths.data)
        assert (done.written, done.failed) == (records, 0), done

    async def found() -> None:
        done = await apply(ends, paths.data)
        assert (done.unchanged, done.failed) == (records, 0), done

    async def proven() -> None:
        answer = await verify(ends, paths.data)
        assert answer.passed, answer
        assert answer.matched == records, answer

    for name, step in (("apply", moved), ("apply again", found), ("verify", proven)):
        await _timed(name, step, records)
    await service.close()


async def _timed(name: str, step: Callable[[], Awaitable[None]], records: int) -> None:
    started = perf_counter()
    await step()
    taken = perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{records:9,}  {name:12} {taken:8.1f} s  {records / taken:9,.0f} records/s"
        f"  peak {peak:6.0f} MiB",
        flush=True,
    )


def main(sizes: list[str]) -> None:
    """Measure each size in a process of its own."""
    for size in sizes:
        subprocess.run([sys.executable, "-m", "benchmarks.migration", "--one", size], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(int(sys.argv[2]), Path(folder) / "home"))
    else:
        main(sys.argv[1:] or list(_SIZES))
