from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.backends.vault.database import VERSION
from memtui.contract import BrowseRequest, ForgetRequest, Record, RecordHandle

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
    await open_vault(read_only=True)
    assert len(list(root.rglob(".memtui-*.tmp"))) == 1
    adapter = await open_vault()
    assert list(root.rglob(".memtui-*.tmp")) == []
    assert (await adapter.health()).records == 0


async def test_the_watcher_tells_what_hands_change(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    await note(adapter, "Before watching.")
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


async def test_a_busy_vault_is_unavailable(open_vault: Open, root: Path) -> None:
    import filelock

    from memtui.contract import Unavailable

    adapter = await open_vault(config={"lock_seconds": 0.05})
    written = await note(adapter, "First.")
    with filelock.FileLock(root / ".memtui.lock"):
        with pytest.raises(Unavailable):
            await note(adapter, "Second.")
        assert await adapter.get(written, SCOPE) is not None
    assert RecordHandle.model_validate(await note(adapter, "Third."))
