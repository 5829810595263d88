"""Whatever is in a program's files, a change undone leaves the same bytes, and nothing is lost."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.gemini import GeminiAdapter
from memtui.backends.memsearch import MemsearchAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    MemtuiError,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit.files.adapter import FilesAdapter
from tests.backends.files.odd import KEPT, ODD, Kept, made

SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
_SENTENCE = re.compile(r"[^\n]{10,600}[.)]")

Adapter = FilesAdapter[Any]
pytestmark = pytest.mark.slow  # some two hundred folders, each changed a dozen times


@asynccontextmanager
async def opened(kept: Kept, path: Path, data: Path) -> AsyncIterator[Adapter]:
    context = BindingContext(
        company_id="local", binding_key="m", config={"path": str(path), **kept.config},
        data_dir=data,
    )  # fmt: skip
    adapter = await kept.kind.open(context)
    try:
        yield adapter
    finally:
        await adapter.close()


async def listed(adapter: Adapter) -> list[Record]:
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    return list(page.records)


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and mode of each file of the program, of a link its own mode."""
    return {
        str(one.relative_to(folder)): (
            one.read_bytes() if os.access(one, os.R_OK) else b"",
            one.lstat().st_mode,
        )
        for one in sorted(folder.rglob("*"))
        if one.is_file() and ".git" not in one.parts and one.suffix != ".lock"
    }


def texts(records: Iterable[Record]) -> Counter[str]:
    return Counter(one.text for one in records)


async def both_ways(
    adapter: Adapter, folder: Path, names: list[RecordHandle],
    change: Callable[[], Awaitable[Any]],
) -> str | None:  # fmt: skip
    """Make a change, undo it, redo it and undo that; return why it was refused, if it was.

    Each undo leaves the same bytes and modes, and so does a refusal.
    """
    before, records = state(folder), await listed(adapter)
    refusal, reply = "", None
    try:
        taken = list(await adapter.snapshot(names, SCOPE))
        reply = await change()
    except MemtuiError as error:
        refusal = str(error)
    if reply is None:
        assert _SENTENCE.fullmatch(refusal), refusal
        assert state(folder) == before, f"refused, and yet changed: {refusal}"
        return refusal
    if refused := getattr(reply, "refused", None):
        assert state(folder) == before
        return str(next(iter(refused.values())))
    new = list(getattr(reply, "records", ())) or [getattr(reply, "handle", names[0])]
    taken += [Snapshot(handle=one, record=None) for one in new if one not in names]
    taken = list(getattr(reply, "before", ())) or taken
    after, changed = state(folder), await listed(adapter)
    assert after != before
    again = list(await adapter.snapshot([one.handle for one in taken], SCOPE))
    await adapter.restore(taken, SCOPE)
    assert state(folder) == before, "undone"
    assert {one.handle for one in await listed(adapter)} == {one.handle for one in records}
    await adapter.restore(again, SCOPE)
    assert state(folder) == after, "done again"
    assert texts(await listed(adapter)) == texts(changed)
    await adapter.restore(taken, SCOPE)
    assert state(folder) == before, "undone at last"
    return None


_UNDER_GIT = {"as it is", "a mark and line ends of Windows", "a NUL", "nothing"}
"""Each change is some commands of git there."""
CASES = [(name, odd) for name in KEPT for odd in ODD if "git" not in name or odd in _UNDER_GIT]


@pytest.mark.parametrize(("name", "odd"), CASES)
async def test_a_change_undone_leaves_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, odd: str
) -> None:
    kept = KEPT[name]
    folder = tmp_path / kept.inside
    path = made(kept, folder, ODD[odd](kept))
    for one in (GeminiAdapter, MemsearchAdapter):
        monkeypatch.setattr(one, "settle_seconds", 0.0)
    async with opened(kept, path, tmp_path / "data") as adapter:
        records = await listed(adapter)
        assert records or odd not in {"as it is", "line ends of Windows"}
        request = WriteRequest(scope=SCOPE, source=SOURCE, content="Deploys leave main.")

        async def write() -> Any:
            reply = await adapter.write(request)
            new = texts(await listed(adapter))
            assert texts(records) - new == Counter(), "a write loses what is there"
            assert new["Deploys leave main."] >= 1
            return reply

        refusals = [await both_ways(adapter, folder, [], write)]
        for record in {one.handle: one for one in (*records[:2], *records[-1:])}.values():

            async def correct(record: Record = record) -> Any:
                reply = await adapter.correct(CorrectRequest(
                    scope=SCOPE, handle=record.handle, revision=record.revision,
                    text=record.text + " indeed",
                ))  # fmt: skip
                now = await adapter.get(reply.handle, SCOPE)
                assert now is not None
                assert now.text == record.text + " indeed"
                gone = texts(records) - texts(await listed(adapter))
                assert gone == Counter({record.text: 1}), "a correction loses another"
                return reply

            async def forget(record: Record = record) -> Any:
                reply = await adapter.forget(ForgetRequest.of([record], SCOPE))
                gone = texts(records) - texts(await listed(adapter))
                assert gone == Counter({record.text: 1} if not reply.refused else {})
                return reply

            refusals.append(await both_ways(adapter, folder, [record.handle], correct))
            refusals.append(await both_ways(adapter, folder, [record.handle], forget))
        if odd == "as it is":
            assert [one for one in refusals if one and "read_only" not in one] == []


def _linked(target: Path, file: Path) -> None:
    file.rename(target)
    file.symlink_to(target)


def _instead(file: Path, make: Callable[[], object]) -> None:
    file.unlink()
    make()


PLACES: dict[str, Callable[[Path, Path], object]] = {
    "a link in the folder": lambda folder, file: _linked(folder / ".real", file),
    "a link out of the folder": lambda folder, file: _linked(folder.parent / "outside", file),
    "a link to nowhere": lambda _, file: _instead(file, partial(file.symlink_to, "nowhere")),
    "a link to itself": lambda _, file: _instead(file, partial(file.symlink_to, file)),
    "a folder": lambda _, file: _instead(file, file.mkdir),
    "a pipe": lambda _, file: _instead(file, partial(os.mkfifo, file)),
    "a read-only file": lambda _, file: file.chmod(0o444),
    "an unreadable file": lambda _, file: file.chmod(0),
    "a read-only folder": lambda _, file: file.parent.chmod(0o555),
    "no file": lambda _, file: file.unlink(),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [one for one in KEPT if "git" not in one])
async def test_an_odd_place_is_changed_and_comes_back_or_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    kept = KEPT[name]
    folder = tmp_path / kept.inside
    path = made(kept, folder, lambda content: content)
    for one in (GeminiAdapter, MemsearchAdapter):
        monkeypatch.setattr(one, "settle_seconds", 0.0)
    file = folder / kept.main
    parent, is_link = file.parent.stat().st_mode, place.startswith("a link")
    PLACES[place](folder, file)
    outside = tmp_path / "outside"
    before = outside.read_bytes() if outside.exists() else None
    try:
        await _changed_in_place(kept, path, folder, tmp_path / "data")
    finally:
        file.parent.chmod(parent)
    assert file.is_symlink() is is_link
    assert (outside.read_bytes() if outside.exists() else None) == before
    assert not [*folder.rglob(".memtui*")]


async def _changed_in_place(kept: Kept, path: Path, folder: Path, data: Path) -> None:
    request = WriteRequest(scope=SCOPE, source=SOURCE, content="Deploys leave main.")
    if kept.kind.holds == "file" and (not path.exists() or path.is_dir()):
        with pytest.raises(Unavailable):
            async with opened(kept, path, data) as adapter:
                await listed(adapter)
        return
    async with opened(kept, path, data) as adapter:
        await both_ways(adapter, folder, [], partial(adapter.write, request))
        for one in (await listed(adapter))[:3]:
            text = f"{one.text} indeed"
            corrected = CorrectRequest(scope=SCOPE, handle=one.handle, text=text)
            forgotten = ForgetRequest.of([one], SCOPE)
            await both_ways(adapter, folder, [one.handle], partial(adapter.correct, corrected))
            await both_ways(adapter, folder, [one.handle], partial(adapter.forget, forgotten))
        health = await adapter.health()
        assert all(_SENTENCE.fullmatch(one.message) for one in health.problems)
