from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.backends.vault import VaultAdapter, files
from memtui.backends.vault.index import VERSION
from memtui.contract import BrowseRequest, ForgetRequest, Record, RecordHandle
from tests.backends.watching import give_up_a_watch

from .conftest import COMPANY, SCOPE, Open, ask, contents, fact, note, put, upsert


async def everything(adapter: VaultAdapter) -> list[Record]:
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=1000, sort="title"))
    return list(page.records)


async def fill(adapter: VaultAdapter, root: Path) -> None:
    await note(adapter, "A note about geckos.", tags=("x",), metadata={"a": [1]}, topic="t")
    await upsert(adapter, "gecko: green", topic="Project")
    await upsert(adapter, "gecko: blue", topic="Project")
    await fact(adapter, "geckos climb")
    put(root, "by hand.md", "Geckos by hand.")


def delete(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def scribble(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)


def age(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()


@pytest.mark.parametrize("harm", [delete, scribble, age])
async def test_a_lost_index_is_rebuilt_the_same(
    open_vault: Open, root: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    adapter = await open_vault()
    await fill(adapter, root)
    before, texts = await everything(adapter), await ask(adapter, "gecko", scope=COMPANY)
    files = contents(root)
    await adapter.close()
    harm(tmp_path / "data/index/vault.sqlite3")
    again = await open_vault()
    assert await everything(again) == before
    assert await ask(again, "gecko", scope=COMPANY) == texts
    assert contents(root) == files
    assert (tmp_path / "data/index/vault.sqlite3").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("harm", [delete, scribble])
async def test_an_index_harmed_while_it_is_open(
    open_vault: Open, root: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    adapter = await open_vault()
    await fill(adapter, root)
    before = await everything(adapter)
    harm(tmp_path / "data/index/vault.sqlite3")
    assert await everything(adapter) == before


async def test_edits_made_outside_are_seen(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    path = put(root, "a.md", "First newt.")
    assert await ask(adapter, "newt", scope=COMPANY) == ["First newt."]
    time = path.stat().st_mtime_ns
    path.write_text("Other newt.")
    os.utime(path, ns=(time, time))
    assert await ask(adapter, "newt", scope=COMPANY) == ["Other newt."]
    put(root, "projects/web/facts.md", "- newt: 1\n")
    assert await ask(adapter, "newt", scope=COMPANY) == ["newt: 1", "Other newt."]
    path.rename(root / "b.md")
    found = await everything(adapter)
    assert "b.md" in {record.handle.provider_record_id for record in found}
    (root / "b.md").unlink()
    (root / "projects/web/facts.md").unlink()
    assert await ask(adapter, "newt", scope=COMPANY) == []
    assert (await adapter.health()).records == 0


async def test_two_adapters_over_one_vault(open_vault: Open) -> None:
    slow = {"refresh_seconds": 3600}
    one, two = await open_vault(config=slow), await open_vault(config=slow)
    written = await note(one, "Shared axolotl.")
    assert await ask(two, "axolotl") == ["Shared axolotl."]
    await two.forget(ForgetRequest(scope=SCOPE, handles=(written,)))
    assert await ask(one, "axolotl") == []
    apart = await open_vault(data="elsewhere")
    await note(one, "Shared salamander.")
    assert await ask(apart, "salamander") == ["Shared salamander."]


async def test_sync_counts(open_vault: Open, root: Path) -> None:
    adapter = await open_vault(config={"refresh_seconds": 3600})
    put(root, "a.md", "One.")
    put(root, "b.md", "Two.")
    reply = await adapter.sync()
    assert (reply.seen, reply.changed, reply.removed) == (2, 2, 0)
    put(root, "a.md", "Changed.")
    (root / "b.md").unlink()
    reply = await adapter.sync()
    assert (reply.seen, reply.changed, reply.removed) == (1, 1, 1)


async def test_leftovers_of_a_killed_writer_are_cleared(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/memory/.memtui-0011223344556677.tmp", "half a no")
    (root / ".memtui-8899aabbccddeeff.tmp").mkdir()
    await open_vault(read_only=True)
    assert len(list(root.rglob(".memtui-*.tmp"))) == 2
    adapter = await open_vault()
    assert list(root.rglob(".memtui-*.tmp")) == []
    assert (await adapter.health()).records == 0


async def test_the_watcher_tells_what_hands_change(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    await note(adapter, "Before watching.")
    await give_up_a_watch(adapter)
    put(root, "projects/web/facts.md", "- moth: 1\n- bee: 2\n")
    assert await ask(adapter, "moth") == ["moth: 1"]
    seen: list[str] = []
    changed = asyncio.Event()

    async def follow() -> None:
        async for handles in adapter.watch():
            seen.extend(handle.provider_record_id for handle in handles)
            changed.set()

    task = asyncio.create_task(follow())
    number = 0
    while not changed.is_set():
        number += 1
        put(root, "by-hand.md", f"Edit {number}")
        await note(adapter, f"Our own {number}.")
        await asyncio.wait([asyncio.create_task(changed.wait())], timeout=0.3)
    assert set(seen) == {"by-hand.md"}
    changed.clear()
    put(root, "projects/web/facts.md", "- moth: 7\n- bee: 2\n")
    await asyncio.wait_for(changed.wait(), 30)
    assert set(seen) == {"by-hand.md", "projects/web/facts.md#/moth"}
    await adapter.close()
    await asyncio.wait_for(task, 30)


@pytest.mark.parametrize("locks_folders", [True, False])
async def test_a_busy_vault_is_unavailable(
    open_vault: Open, root: Path, locks_folders: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    from memtui.contract import Unavailable

    def flock(held: int, how: int, real: Callable[[int, int], None] = fcntl.flock) -> None:
        if not locks_folders and stat.S_ISDIR(os.fstat(held).st_mode):
            raise OSError(errno.EBADF, "as NFS says")
        real(held, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    adapter = await open_vault(config={"lock_seconds": 0.05})
    written = await note(adapter, "First.")
    lock = root / ".memtui.lock"
    assert lock.exists() is not locks_folders
    held = os.open(root if locks_folders else lock, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(Unavailable):
        await note(adapter, "Second.")
    assert await adapter.get(written, SCOPE) is not None
    os.close(held)
    assert RecordHandle.model_validate(await note(adapter, "Third."))


async def test_a_vault_that_another_one_replaces_is_locked_itself(
    open_vault: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    waits, replaced = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        waits.set()
        replaced.wait()

    adapter = await open_vault(config={"lock_seconds": 5})
    await note(adapter, "First.")
    held = os.open(root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    waiting = asyncio.create_task(note(adapter, "Second."))
    await asyncio.to_thread(waits.wait, 60)
    shutil.move(root, tmp_path / "old")
    root.mkdir()
    os.close(held)
    replaced.set()
    written = await waiting
    assert (root / written.provider_record_id).is_file()
    assert [path.name for path in root.iterdir()] == ["projects"]


def damage(path: Path) -> None:
    """Overwrite every page but the first, which still says that it is a database."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


async def test_damage_that_a_scan_meets_is_mended_by_reading_the_files_again(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    adapter = await open_vault()
    await fill(adapter, root)
    before = await everything(adapter)
    damage(tmp_path / "data/index/vault.sqlite3")
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(everything(adapter) for _ in range(8)))
    assert all(one == before for one in found)
    assert (await adapter.health()).status == "ok"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KB, or a skip where none can be mounted."""
    folder = tmp_path / "data"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_on_a_full_disk_the_files_themselves_are_read(
    open_vault: Open, root: Path, small_disk: Path
) -> None:
    adapter = await open_vault()
    await note(adapter, "Written while there was room.")
    index = small_disk / "index/vault.sqlite3"
    for number in range(40):
        put(root, f"n{number}.md", f"Newt number {number}. " + "A long tail. " * 2000)
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(ask(adapter, "newt", scope=COMPANY) for _ in range(8)))
    assert all(len(one) == 10 for one in found)
    assert index.stat().st_size > 0, "a full disk is not damage"
    health = await adapter.health()
    assert health.status == "degraded"
    assert "the files themselves are read" in health.message
    assert "full" in health.message
    await note(adapter, "Written on a full disk.")
    assert await ask(adapter, "full disk") == ["Written on a full disk."]
    for number in range(40):
        (root / f"n{number}.md").unlink()
    await adapter.sync()
    assert (await adapter.health()).status == "ok"


async def test_an_index_that_cannot_be_written_is_left_alone(
    open_vault: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await open_vault()
    await fill(adapter, root)
    before = await everything(adapter)
    await adapter.close()
    index = tmp_path / "data/index/vault.sqlite3"
    kept = index.read_bytes()
    opened: Callable[..., sqlite3.Connection] = sqlite3.connect

    def only_reads(path: object, **rest: Any) -> sqlite3.Connection:
        if path == ":memory:":
            return opened(":memory:", **rest)
        return opened(f"file:{path}?mode=ro", uri=True, **rest)

    monkeypatch.setattr(sqlite3, "connect", only_reads)
    put(root, "new.md", "A new gecko.")
    again = await open_vault()
    assert len(await everything(again)) == len(before) + 1
    assert "readonly" in (await again.health()).message
    assert index.read_bytes() == kept


async def test_another_process_begins_the_index_anew(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    slow = {"refresh_seconds": 3600}
    one, two = await open_vault(config=slow), await open_vault(config=slow)
    await fill(one, root)
    damage(tmp_path / "data/index/vault.sqlite3")
    async with asyncio.timeout(30):
        asked = [everything(one), everything(two), note(two, "Gecko number nine."), everything(one)]
        await asyncio.gather(*asked)
    assert len(await everything(one)) == len(await everything(two)) == 5
