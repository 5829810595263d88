"""A process that writes notes and facts into a vault, and says the id of each that it wrote."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from memtui.backends.vault import VaultAdapter
from memtui.contract import BindingContext, SourceKind, SourceRef, WriteRequest
from tests.backends.vault.conftest import SCOPE


def write(root: Path, data: Path, name: str, count: int, told: Connection) -> None:
    """Write so many records, a note and a fact in turn."""
    asyncio.run(_write(root, data, name, count, told))


async def _write(root: Path, data: Path, name: str, count: int, told: Connection) -> None:
    context = BindingContext(
        company_id="acme",
        binding_key="v",
        config={"path": str(root), "lock_seconds": 60},
        data_dir=data,
    )
    adapter = await VaultAdapter.open(context)
    source = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id=name)
    for number in range(count):
        kind = ("note", "fact")[number % 2]
        text = f"{name}_{number}: " + "word " * (1 if kind == "fact" else 2000)
        request = WriteRequest(
            scope=SCOPE, source=source, content=text.strip(), kind=kind, topic=f"T{number % 4}"
        )
        reply = await adapter.write(request)
        told.send(reply.records[0].provider_record_id)
    await adapter.close()
