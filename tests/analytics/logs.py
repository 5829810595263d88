"""Operation logs to seal, read and count: plain ones and hostile ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import text

from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.seal import SealReport, seal
from memtui.contract import EVERYTHING, Scope, SourceRef, Usage
from memtui.store import appending
from memtui.store.database import Database
from memtui.store.log import OperationStore
from memtui.store.operation import Operation, OperationDraft, OperationHandle

NOW = datetime(2026, 3, 9, 12, 0, 0, 123456, tzinfo=UTC)
HOSTILE = "é\x00\ud800\ue000'; DROP TABLE x; --\x1b[2J"


def draft(number: int, company: str = "acme", **changes: object) -> OperationDraft:
    chance = random.Random(number)
    kind = chance.choice(["query", "query", "write", "correct", "get", "forget"])
    usage = tuple(
        Usage(
            provider=chance.choice(["openai", "mem0"]),
            model=chance.choice([None, "small", "large"]),
            input_tokens=chance.randrange(1000),
            output_tokens=chance.randrange(100),
            embedding_tokens=chance.randrange(500),
            cost_usd=chance.choice([None, Decimal(chance.randrange(10**12)).scaleb(-12)]),
            latency_ms=chance.choice([None, chance.random() * 100]),
            details={"n": number, "x": chance.choice([None, HOSTILE])},
        )
        for _ in range(chance.randrange(3))
    )
    handles = tuple(
        OperationHandle(
            rank=rank,
            provider_key="mem0",
            provider_record_id=f"r{chance.randrange(30)}",
            score=chance.choice([None, chance.random()]) if kind == "query" else None,
        )
        for rank in range(1, chance.randrange(5))
    )
    values: dict[str, object] = {
        "operation_id": f"{company}-{number:05}",
        "operation_type": kind,
        "status": chance.choice(["ok", "ok", "error", "denied", "cancelled"]),
        "scope": Scope(
            company_id=company,
            agent_id=chance.choice([None, "coding", "reviewer"]),
            project_id=chance.choice([None, "p", HOSTILE]),
            issue_id=None if number % 3 else "ISS-2",
            run_id=chance.choice([None, "run-1", "run-2"]),
        ),
        "source": chance.choice(
            [None, SourceRef(kind="run", company_id=company, issue_id="ISS-1", run_id="run-3")]
        ),
        "binding_key": chance.choice([None, "default", "mem0"]),
        "principal": chance.choice(["user:ana", "agent:bob"]),
        "channel": "test",
        "request": {"query": chance.choice(["deploy branch", "РАЗВЁРТЫВАНИЕ", HOSTILE])},
        "result_count": len(handles),
        "handles": handles,
        "usage": usage,
        "started_at": NOW + timedelta(seconds=number * 61),
        "latency_ms": chance.choice([None, 0.0, 1.5, chance.random() * 4000]),
    }
    return OperationDraft.model_validate(values | changes)


def append(database: Database, drafts: Sequence[OperationDraft]) -> None:
    with database.write(durable=False) as connection:
        for one in drafts:
            appending.append(connection, one)


def fill(database: Database, count: int, company: str = "acme", start: int = 1) -> None:
    append(database, [draft(number, company) for number in range(start, start + count)])


def fill_looked_at(database: Database, count: int) -> None:
    """Fill a log of which the app did every third operation, and every fifth was to show one."""
    drafts = (
        draft(one, channel="test" if one % 3 else "tui", to_show=None if one % 5 else True)
        for one in range(1, count + 1)
    )
    append(database, list(drafts))


def seal_unlogged(database: Database, root: Path, company: str, **how: Any) -> SealReport:
    """Seal, and take what that appends out of the log: numbers go on as if nothing was sealed."""
    done = seal(database, root, company, **how)
    with database.write() as connection:
        seals = (
            "FROM memory_operations WHERE company_id = :company AND operation_type = 'seal' "
            "AND seq > :last"
        )
        found = connection.execute(
            text(
                "SELECT seq, digest FROM memory_operations WHERE company_id = :company "
                "AND operation_type <> 'seal' ORDER BY seq DESC LIMIT 1"
            ),
            {"company": company},
        ).one_or_none()
        kept = ArchiveFolder(root, company).read()
        last, digest = found or (kept.sealed_through, kept.last_digest)
        chosen = {"company": company, "last": last}
        connection.execute(text(f"DELETE {seals}"), chosen)
        connection.execute(
            text(
                "UPDATE memory_log_heads SET seq = :last, digest = :digest "
                "WHERE company_id = :company"
            ),
            chosen | {"digest": digest},
        )
    return done


def hot(database: Database, company: str = "acme", *, seals: bool = False) -> tuple[Operation, ...]:
    """Return the operations of the hot table, oldest first; those of sealing only if asked for."""
    with database.read() as connection:
        found = OperationStore(connection, company).page(EVERYTHING, limit=100_000).operations[::-1]
    return tuple(one for one in found if seals or one.operation_type != "seal")
