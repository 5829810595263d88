from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memtui.importing.importer import Import, ImportReport
from memtui.service import Caller, MemoryService, Operation

Log = Callable[..., Awaitable[ImportReport]]
"""Import files into `theirs`; keyword arguments as of `Import` and of `Import.run`."""


@pytest.fixture
def load(service: MemoryService, caller: Caller) -> Log:
    async def run(
        *files: Path,
        maps: Mapping[str, str] | None = None,
        where: str | None = None,
        timezone: str | None = None,
        company: str = "theirs",
        form: Any = None,
        **how: Any,
    ) -> ImportReport:
        work = Import(files, company, maps or {}, where=where, timezone=timezone, form=form)
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
    return {"started_at": "2026-03-01T10:00:00Z", "operation_type": "query", **values}
