"""A vault whose folder is taken away says so, and is not made anew half empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import BrowseRequest, ForgetRequest, QueryRequest, RecordHandle, Unavailable

from .conftest import SCOPE, Open, note


def operations(
    adapter: VaultAdapter, handle: RecordHandle
) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: note(adapter, "More."),
        lambda: note(adapter, "colour: red", kind="fact"),
        lambda: adapter.get(handle, SCOPE),
        lambda: adapter.browse(BrowseRequest(scope=SCOPE)),
        lambda: adapter.query(QueryRequest(scope=SCOPE, query="kept")),
        lambda: adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,))),
        adapter.namespaces,
        adapter.sync,
    ]


async def test_a_vault_that_is_gone(open_vault: Open, root: Path, tmp_path: Path) -> None:
    adapter = await open_vault(config={"refresh_seconds": 60})
    handle = await note(adapter, "Kept for later.")
    aside = root.rename(tmp_path / "aside")
    for operation in operations(adapter, handle):
        with pytest.raises(Unavailable, match=r"vault is gone; put the folder back"):
            await operation()
    health = await adapter.health()
    assert (health.status, "is gone" in health.message) == ("down", True)
    with pytest.raises(Unavailable, match="is gone"):
        await open_vault()
    assert not root.exists()
    aside.rename(root)
    record = await adapter.get(handle, SCOPE)
    assert record is not None
    assert (await adapter.health()).records == 1


async def test_an_empty_folder_begins_anew(open_vault: Open, root: Path, tmp_path: Path) -> None:
    adapter = await open_vault()
    await note(adapter, "Kept for later.")
    root.rename(tmp_path / "aside")
    root.mkdir()
    assert (await adapter.health()).records == 0
    assert await note(adapter, "New.")


async def test_who_watches_is_told(open_vault: Open, root: Path, tmp_path: Path) -> None:
    adapter = await open_vault()
    await note(adapter, "Kept for later.")

    async def watching() -> None:
        async for _ in adapter.watch():
            pass

    task = asyncio.create_task(watching())
    while not adapter._index.is_watched:
        await asyncio.sleep(0.01)
    root.rename(tmp_path / "aside")
    with pytest.raises(Unavailable, match="is gone"):
        await asyncio.wait_for(task, 20)
