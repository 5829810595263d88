"""What memtui puts in place is on the disk first: a power cut leaves the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.analytics.export import format_of
from memtui.contract import CorrectRequest, Model, Scope, SourceKind, SourceRef, WriteRequest
from memtui.migration.endpoints import MigrationState, ProgressFile
from memtui.screens.drafts import KeptDraft, keep_draft
from memtui.screens.kept import save_document
from memtui.service import Caller, open_service
from memtui.service.home.backup import backup, restore
from memtui.service.home.repair import plan, repair
from memtui.store.database import Database
from tests.service.conftest import Lived
from tests.service.test_backup import NOW

ANA = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local")


class Disk:
    """Knows which files are on the disk, and which were put in place before they were."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._old = {path.stat().st_ino for path in root.rglob("*")}
        self._synced: dict[int, int] = {}
        self.moved: list[Path] = []
        self.too_early: list[Path] = []
        self.waiting: dict[int, Path] = {}
        """What was put in place since its folder was on the disk, by the folder."""
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            known = os.fstat(descriptor)
            self._synced[known.st_ino] = known.st_size
            self.waiting.pop(known.st_ino, None)

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("replace", "rename", "link"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name), root))

    def _watched(self, move: Callable[..., None], root: Path) -> Callable[..., None]:
        def watched(source: Any, target: Any, **options: Any) -> None:
            path = Path(source)
            for file in [path] if path.is_file() else path.rglob("*"):
                found = file.stat()
                if file.is_file() and found.st_size and found.st_ino not in self._old:
                    self.moved.append(Path(target))
                    if self._synced.get(found.st_ino) != found.st_size:
                        self.too_early.append(file)
            move(source, target, **options)
            if Path(target).is_relative_to(root):
                self.waiting[Path(target).parent.stat().st_ino] = Path(target)

        return watched


@pytest.fixture
def disk(lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


async def _write(lived: Lived, _: Path) -> None:
    service = await open_service(lived.paths, lived.settings)
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for kind in ("note", "fact"):
        request = WriteRequest(scope=SCOPE, source=source, content=f"A {kind}", kind=kind)
        [handle] = (await service.write(ANA, request)).handles
        await service.correct(ANA, CorrectRequest(scope=SCOPE, handle=handle, text=f"One {kind}"))
    await service.undo(ANA)
    await service.close()


async def _seal(lived: Lived, _: Path) -> None:
    await _write(lived, _)
    service = await open_service(lived.paths, lived.settings)
    await service.analysis.seal(ANA, everything=True)
    await service.close()


async def _prove(lived: Lived, folder: Path) -> None:
    service = await open_service(lived.paths, lived.settings)
    await service.analysis.export_proof(ANA, folder / "proof.jsonl")
    await service.close()


async def _export(lived: Lived, folder: Path) -> None:
    service = await open_service(lived.paths, lived.settings)
    await service.analysis.export(ANA, folder / "log.jsonl", format_of("log.jsonl"))
    await service.close()


async def _back_up(lived: Lived, folder: Path) -> None:
    file = folder / "home.zip"
    backup(lived.paths, lived.settings, file, outside=True, now=NOW)
    restore(file, type(lived.paths)(data=folder / "there", config=folder / "there"))


async def _repair(lived: Lived, _: Path) -> None:
    lived.paths.database.write_bytes(b"")
    wanted = plan(lived.paths, lived.settings, NOW)
    repair(lived.paths, lived.settings, wanted, principal="user:ana", now=NOW)


async def _migrate(lived: Lived, _: Path) -> None:
    ends: Any = SimpleNamespace(
        caller=ANA,
        source=SimpleNamespace(key="a", targets=()),
        destination=SimpleNamespace(key="b"),
    )
    ProgressFile(lived.paths.data, ends).write(MigrationState(begun_at=NOW))


async def _write_into_files(lived: Lived, folder: Path) -> None:
    graph, memory = folder / "memory.jsonl", folder / "memory"
    graph.touch()
    memory.mkdir()
    service = await open_service(lived.paths, lived.settings)
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for provider, path in (("mcp-memory", graph), ("claude-memory", memory)):
        await service.bindings.add(ANA, provider, provider, {"path": str(path)})
        request = WriteRequest(scope=SCOPE, source=source, content="A", binding_key=provider)
        await service.write(ANA, request)
    await service.close()


class _Document(Model):
    name: str = "kept"


async def _keep(_: Lived, folder: Path) -> None:
    save_document(folder / "kept.json", _Document())
    keep_draft(folder, KeptDraft(text="half a thought", pending_id="held-1"))


@pytest.mark.parametrize(
    "act", [_write, _write_into_files, _seal, _prove, _export, _back_up, _repair, _migrate, _keep]
)
async def test_a_file_is_on_the_disk_before_it_is_in_its_place(
    lived: Lived, tmp_path: Path, disk: Disk, act: Callable[[Lived, Path], Any]
) -> None:
    await act(lived, tmp_path)
    assert disk.moved
    assert disk.too_early == []
    if act in {_write, _seal}:
        assert disk.waiting == {}


def test_only_what_must_outlast_a_power_cut_waits_for_the_disk(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "memtui.db")
    found = []
    for durable in (True, False, True):
        with database.write(durable=durable) as connection:
            found += connection.exec_driver_sql("PRAGMA synchronous").fetchone()
    database.close()
    assert found == [2, 1, 2]
