"""The proof of the log from screen 2: checked, stopped, and written to a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from textual.widgets import Input

from memtui.analytics import audit
from memtui.config import Paths, Settings
from memtui.screens.operations.proof import Proof
from memtui.service import Caller, MemoryService
from memtui.store.digest import is_intact
from memtui.store.operation import Operation
from tests.analytics.logs import fill
from tests.analytics.test_audit import alter
from tests.screens.hostile import screen_text
from tests.screens.piloting import act, running, toasts, until


async def test_the_log_is_proved_and_an_alteration_is_found(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    fill(service._runtime.database, 30, "local", start=1_000)
    target = tmp_path / "log.jsonl"
    target.write_text("another's")
    async with running(paths, settings, "operations", (80, 24)) as (app, pilot):
        await act(pilot, "operations.verify")
        await until(pilot, lambda: "✓ Nothing was altered" in screen_text(app))
        assert "note this" in screen_text(app)
        await pilot.press("y", "escape")
        seq, _, digest = app.clipboard.partition(":")
        operation = await service.log.get(caller, seq)
        assert operation.digest == digest
        await act(pilot, "operations.export_proof")
        await until(pilot, lambda: app.screen.query(Input))
        app.screen.query_one(Input).value = str(target)
        await pilot.press("enter")
        await until(pilot, lambda: "Overwrite it?" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: any("docs/audit.md verifies it" in one for one in toasts(app)))
        assert len(target.read_text().splitlines()) >= int(seq)
        alter(
            service._runtime.database,
            "UPDATE memory_operations SET principal = 'eve' WHERE seq = 5",
        )
        await act(pilot, "operations.verify")
        await until(pilot, lambda: "✗ Operation 5 was altered" in screen_text(app))
        assert screen_text(app).count("docs/recovery.md") == 1
        await pilot.press("escape")
        alter(
            service._runtime.database, "UPDATE memory_operations SET latency_ms = 'x' WHERE seq = 4"
        )
        await act(pilot, "operations.verify")
        await until(pilot, lambda: "✗ Operation 4 is damaged" in screen_text(app))
        assert screen_text(app).count("docs/recovery.md") == 1


async def test_a_check_tells_how_far_it_is_and_stops(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "_WATCHED_EVERY", 10)
    fill(service._runtime.database, 200, "local", start=1_000)
    told: list[tuple[int, int]] = []
    found = await service.analysis.verify_chain(caller, lambda *far: told.append(far))
    assert told[0] == (10, found.seq)
    assert [checked for checked, _ in told] == list(range(10, found.seq + 1, 10))

    checked: list[int] = []
    held, go, ended = Event(), Event(), Event()

    def holding(operation: Operation, salt: bytes) -> bool:
        checked.append(operation.seq)
        held.set()
        assert go.wait(60)
        return is_intact(operation, salt)

    def verify(*arguments: Any, **named: Any) -> audit.AuditCheck:
        try:
            return verified(*arguments, **named)
        finally:
            ended.set()

    verified = audit.verify
    monkeypatch.setattr(audit, "verify", verify)
    monkeypatch.setattr(audit, "is_intact", holding)
    async with running(paths, settings, "operations", (80, 24)) as (app, pilot):
        await act(pilot, "operations.verify")
        await until(pilot, held.is_set)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Proof))
        go.set()
        await asyncio.to_thread(ended.wait, 60)
    assert checked == list(range(1, 10))
