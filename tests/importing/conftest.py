from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memtui.importing.columns import ColumnMap, column_map
from memtui.importing.importer import Import, ImportReport
from memtui.service import Caller, MemoryService, Operation

Log = Callable[..., Awaitable[ImportReport]]
"""Import files into `theirs`; keyword arguments as of `map_of` and of `Import.run`."""


def map_of(
    *words: str,
    types: Mapping[str, str] | None = None,
    statuses: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    timezone: str | None = None,
) -> ColumnMap:
    return column_map(
        words,
        types=types or {},
        statuses=statuses or {},
        constants=constants or {},
        timezone=timezone,
    )


@pytest.fixture
def load(service: MemoryService, caller: Caller) -> Log:
    async def run(
        *files: Path,
        columns: ColumnMap | None = None,
        company: str = "theirs",
        form: Any = None,
        **how: Any,
    ) -> ImportReport:
        work = Import(files, company, columns or map_of(), form=form)
        try:
            return await work.run(service, caller, **how)
        finally:
            work.close()

    return run


def json_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


async def log_of(service: MemoryService, company: str = "theirs") -> tuple[Operation, ...]:
    """Return the operations of a company, oldest first."""
    reader = Caller(company_id=company, principal="user:ana", channel="test")
    return (await service.log.page(reader, limit=1000)).operations[::-1]


def row(**values: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-01T10:00:00Z", "action": "search", **values}
