"""OpenClaw's memories: files as OpenClaw 2026.9.6 writes them, and OpenClaw itself where it is
installed in the cache of the person who tests (`npm install openclaw@2026.9.6 node@24` there)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from platformdirs import user_cache_path

from memtui.backends.openclaw import OpenclawAdapter, blocks_of
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Invalid,
    QueryRequest,
    Record,
    Unavailable,
)
from memtui.provider_kit.files.entries import FileEntry, _Content
from memtui.service.home.survey import PurgeRequest
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.one_binding import SCOPE, by_text

INSTALLED = user_cache_path("memtui-tests") / "openclaw-2026.9.6" / "node_modules"

MEMORY = """\
# Long-Term Memory

<!-- what a person wrote about this file -->

- Deploys leave from the main branch. <!-- trigger: deploy, release --> <!-- importance: 7 -->
- Tests run with pytest,
  and never on Fridays.

## Promoted From Short-Term Memory (2026-11-01)

<!-- openclaw-memory-lineage:router -->
<!-- openclaw-memory-promotion:memory:memory/2026-10-31.md:3:3 -->
- The router uses vlan forty. [score=0.812 signals=3 recalls=3 avg=0.800 \
source=memory/2026-10-31.md:3-3] <!-- trigger: router --> <!-- importance: 8 -->

"""
USER = """\
# USER.md - User Model

<!-- observed: 2026-05-10 | status: superseded -->

- Prefer detailed explanations.

<!-- observed: 2026-07-27 | status: active -->

- Prefer concise summaries.
"""
DAY = """\
# 2026-11-28

Bought a walnut desk.

## Light Sleep
<!-- openclaw:dreaming:light:start -->
- Candidate: the desk is walnut.
<!-- openclaw:dreaming:light:end -->
"""
DREAMS = """\
# Dream Diary

<!-- openclaw:dreaming:diary:start -->

---

*November 28, 2026, 3:00 AM UTC*

I wandered through walnut woods.

<!-- openclaw:dreaming:diary:end -->
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with OpenClaw's default workspace."""
    place = tmp_path / "home"
    workspace = place / ".openclaw" / "workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text(MEMORY)
    (workspace / "USER.md").write_text(USER)
    (workspace / "memory" / "2026-11-28.md").write_text(DAY)
    (workspace / "DREAMS.md").write_text(DREAMS)
    return place


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".openclaw" / "workspace"


async def bound(service: MemoryService, caller: Caller, folder: Path) -> None:
    config = {"path": str(folder), "state": str(folder.parent), "settle_ms": 0}
    await service.bindings.add(caller, "claw", "openclaw", config)


listed = partial(by_text, key="claw")
note = partial(one_binding.note, key="claw")


def corrected(record: Record, text: str, **fields: Any) -> CorrectRequest:
    return CorrectRequest(
        binding_key="claw", scope=SCOPE, handle=record.handle, text=text,
        **{"revision": record.revision, **fields},
    )  # fmt: skip


forgetting = partial(one_binding.forgetting, key="claw")


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*.md")}


async def test_what_the_files_hold(service: MemoryService, caller: Caller, folder: Path) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert {text: one.kind for text, one in found.items()} == {
        "Deploys leave from the main branch.": "note",
        "Tests run with pytest,\nand never on Fridays.": "note",
        "The router uses vlan forty.": "note",
        "Prefer detailed explanations.": "user",
        "Prefer concise summaries.": "user",
        "Bought a walnut desk.": "daily",
        "Candidate: the desk is walnut.": "daily",
        "*November 28, 2026, 3:00 AM UTC*": "dream",
        "I wandered through walnut woods.": "dream",
    }
    router = found["The router uses vlan forty."]
    assert router.metadata == {
        "openclaw-memory-lineage": "router",
        "openclaw-memory-promotion": "memory:memory/2026-10-31.md:3:3",
        "trigger": "router", "importance": 8,
        "headings": ["Long-Term Memory", "Promoted From Short-Term Memory (2026-11-01)"],
    }  # fmt: skip
    assert found["Prefer detailed explanations."].metadata["status"] == "superseded"
    desk = found["Bought a walnut desk."]
    assert desk.created_at is not None
    assert desk.created_at.astimezone().date().isoformat() == "2026-11-28"
    asked = QueryRequest(
        binding_key="claw", scope=SCOPE, query="from which branch do deploys leave"
    )
    assert (await service.query(caller, asked)).snippets[0].text.startswith("Deploys")


async def test_an_undo_leaves_the_same_bytes_and_a_redo_the_change(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    changes: list[Callable[[], Any]] = [
        lambda: service.write(caller, note("We ship on Mondays.")),
        lambda: service.write(caller, note("Two lines,\n\n- and a list.")),
        lambda: service.write(caller, note("Always answer in French.", kind="user")),
        lambda: service.write(caller, note("Today it rains.", kind="daily")),
        lambda: service.write(caller, note("After the diary.", kind="dream")),
        lambda: service.forget(caller, forgetting(*found.values())),
    ]
    for text, one in found.items():
        correction = corrected(one, f"{text} Indeed.")
        changes.append(partial(service.correct, caller, correction))
        changes.append(partial(service.forget, caller, forgetting(one)))
    before = files(folder)
    for change in changes:
        done = await change()
        after, texts = files(folder), {*await listed(service, caller)}
        assert after != before
        undone = await service.undo(caller, done.operation_id)
        assert files(folder) == before
        assert {*await listed(service, caller)} == {*found}
        await service.undo(caller, undone.operation_id)
        assert files(folder) == after
        assert {*await listed(service, caller)} == texts
        await service.undo(caller)
        assert files(folder) == before


async def test_what_belongs_to_an_entry_stays_with_it(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    router = found["The router uses vlan forty."]
    await service.correct(caller, corrected(router, "The router uses vlan fifty."))
    assert (folder / "MEMORY.md").read_text() == MEMORY.replace("forty", "fifty")
    await service.undo(caller)
    await service.forget(caller, forgetting(router))
    assert (folder / "MEMORY.md").read_text().rstrip() == MEMORY[
        : MEMORY.index("<!-- openclaw")
    ].rstrip()
    first = found["Deploys leave from the main branch."]
    await service.forget(caller, forgetting(first))
    left = (folder / "MEMORY.md").read_text()
    assert "<!-- what a person wrote about this file -->" in left
    assert "trigger" not in left
    assert "## Promoted From" in left


async def test_what_a_sweep_replaces_is_said_before_it_is_changed(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert {text for text, one in found.items() if one.caution} == {
        "The router uses vlan forty.", "Candidate: the desk is walnut.",
    }  # fmt: skip
    swept = found["Candidate: the desk is walnut."]
    before = files(folder)
    with pytest.raises(Conflict, match=r"next sweep replaces .* give its revision"):
        await service.correct(caller, corrected(swept, "It is oak.", revision=None))
    assert files(folder) == before
    await service.correct(caller, corrected(swept, "It is oak."))
    assert (
        b"- It is oak.\n<!-- openclaw:dreaming:light:end -->"
        in files(folder)["memory/2026-11-28.md"]
    )
    await service.write(caller, note("After the block.", kind="dream"))
    assert (folder / "DREAMS.md").read_text() == f"{DREAMS}- After the block.\n"


@pytest.mark.parametrize(
    "text", [" blank", "blank ", "x <!-- trigger: y -->", "a\r\nb", "<!-- x -->"]
)
async def test_what_openclaw_would_read_otherwise_is_refused(
    service: MemoryService, caller: Caller, folder: Path, text: str
) -> None:
    await bound(service, caller, folder)
    before = files(folder)
    with pytest.raises(Invalid, match="OpenClaw would read"):
        await service.write(caller, note(text))
    assert files(folder) == before


async def test_a_thousand_records(service: MemoryService, caller: Caller, folder: Path) -> None:
    day = folder / "memory" / "2026-01-01.md"
    day.write_text("# Day\n\n" + "".join(f"- Note {n}.\n" for n in range(1000)))
    (folder / "DREAMS.md").unlink()
    await bound(service, caller, folder)
    request = BrowseRequest(binding_key="claw", scope=SCOPE, limit=1000)
    page = await service.browse(caller, request)
    assert page.total == 1007
    found = {one.text: one for one in page.records}
    before = day.read_bytes()
    gone = [found[f"Note {n}."] for n in range(0, 900, 3) if f"Note {n}." in found]
    await service.forget(caller, forgetting(*gone))
    assert day.read_text().count("\n") == 1002 - len(gone)
    await service.undo(caller)
    assert day.read_bytes() == before


def lock_of(folder: Path) -> Path:
    named = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
    return folder.parent / "locks" / f"memory-promotion-{named}.lock"


async def opened(folder: Path, tmp_path: Path, **config: Any) -> OpenclawAdapter:
    return await OpenclawAdapter.open(BindingContext(
        company_id="local", binding_key="claw", data_dir=tmp_path / "data",
        config={"path": str(folder), "state": str(folder.parent), **config},
    ))  # fmt: skip


async def test_the_lock_of_a_sweep_is_waited_for_and_one_left_behind_is_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.provider_kit.files.lock_file._LOCK_SECONDS", 0.1)
    adapter = await opened(folder, tmp_path)
    lock = lock_of(folder)
    lock.parent.mkdir()
    for theirs in (
        "",
        "[]",
        '{"by": "memtui"}',
        '{"by": "memtui", "pid": "x"}',
        json.dumps({"pid": os.getpid(), "createdAt": "2026-11-30T00:00:00Z"}),
    ):
        lock.write_text(theirs)
        with pytest.raises(Unavailable, match="OpenClaw is changing"):
            await adapter.write(note("Now."))
        await adapter.write(note(f"Elsewhere {len(theirs)}.", kind="user"))
        assert lock.read_text() == theirs
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    lock.write_text(json.dumps({"pid": int(ended.stdout), "by": "memtui"}))
    await adapter.write(note("Now."))
    assert not lock.exists()
    await adapter.close()


async def test_neither_loses_what_the_other_writes_at_the_same_time(
    folder: Path, tmp_path: Path
) -> None:
    """The other reads, waits and writes all back, unless the file has changed, as a sweep does."""
    adapter = await opened(folder, tmp_path, settle_ms=50)
    file, stop, theirs = folder / "USER.md", threading.Event(), list[str]()

    def sweep() -> None:
        while not stop.is_set():
            text = f"- Theirs {len(theirs)}.\n"
            there = file.read_bytes()
            fresh = file.with_suffix(".tmp")
            fresh.write_bytes(there + text.encode())
            if file.read_bytes() == there:
                fresh.replace(file)
                theirs.append(text)
            stop.wait(0.05)

    sweeping = asyncio.create_task(asyncio.to_thread(sweep))
    ours = [f"Ours {n}." for n in range(6)]
    for text in ours:
        await adapter.write(note(text, kind="user"))
    stop.set()
    await sweeping
    left = file.read_text()
    assert all(text in left for text in theirs)
    assert all(f"- {text}\n" in f"{left}\n" for text in ours)
    await adapter.close()


_LINES = st.lists(
    st.sampled_from([
        "- one", "- two <!-- trigger: x -->", "  more", "text", "", "# Head", "```", "---",
        "<!-- openclaw-memory-promotion:k -->", "<!-- else -->", "* three\r", "1. four", "    code",
        "<!-- openclaw:dreaming:rem:start -->", "- <!-- importance: 3 -->", "\t- five", "§",
    ]),
    max_size=12,
)  # fmt: skip


@given(st.data(), _LINES)
def test_every_block_comes_back_into_the_same_bytes(data: st.DataObject, lines: list[str]) -> None:
    content = "\n".join(lines)

    def apart(content: str) -> _Content:
        found = [FileEntry(one.start, one.end, one.text) for one in blocks_of(content)]
        return _Content(content, found, "MEMORY.md", on_lines=True)

    there = apart(content)
    assert str(there) == content
    places = data.draw(st.lists(st.integers(0, len(there.parts) - 1), unique=True)
                       if there.parts else st.just([]))  # fmt: skip
    taken = {at: (there.parts[at], there.around(at)) for at in places}
    for at in sorted(places, reverse=True):
        there.remove(at)
    for line in lines:  # nothing that belongs to no entry goes with one
        if line in {"# Head", "<!-- else -->", "<!-- openclaw:dreaming:rem:start -->"}:
            assert str(there).count(line) <= content.count(line)
    for at, (part, around) in sorted(taken.items()):
        there.insert(at, part, around, "\n")
    assert str(there) == content


class RealOpenclaw:
    """OpenClaw's own program, with a home of the test."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run(self, *words: str) -> str:
        node = INSTALLED / "node" / "bin" / "node"
        program = INSTALLED / "openclaw" / "openclaw.mjs"
        ran = subprocess.run(
            [str(node), str(program), "memory", *words], capture_output=True, text=True,
            check=False, env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr + ran.stdout
        return ran.stdout

    def finds(self, query: str) -> str:
        """Return what OpenClaw's search finds after it has read the files anew."""
        self.run("index", "--force")
        found = json.loads(self.run("search", query, "--json"))
        return "\n".join(one["snippet"] for one in found["results"])


WITH_OPENCLAW = pytest.mark.skipif(
    not INSTALLED.exists(), reason=f"OpenClaw is not installed in {INSTALLED}"
)


@pytest.mark.slow
@WITH_OPENCLAW
async def test_openclaw_reads_each_change(
    service: MemoryService, caller: Caller, home: Path, folder: Path
) -> None:
    claw = RealOpenclaw(home)
    await bound(service, caller, folder)
    written = await service.write(caller, note("The kettle is in the attic."))
    assert "attic" in claw.finds("kettle attic")
    kettle = (await listed(service, caller))["The kettle is in the attic."]
    await service.correct(caller, corrected(kettle, "The kettle is in the cellar."))
    assert "cellar" in claw.finds("kettle cellar")
    await service.undo(caller)
    await service.undo(caller, written.operation_id)
    assert "kettle" not in claw.finds("kettle")


@pytest.mark.slow
@WITH_OPENCLAW
async def test_openclaw_waits_for_the_lock_and_what_it_promotes_is_read(
    service: MemoryService, caller: Caller, home: Path, folder: Path
) -> None:
    claw = RealOpenclaw(home)
    day = "memory/2026-11-27.md"
    (folder / day).write_text("# 2026-11-27\n\n- Sold the birch table.\n")
    await bound(service, caller, folder)
    before = {*await listed(service, caller)}
    claw.run("index", "--force")
    claw.run("search", "birch table")
    lowest = ("--min-score", "0", "--min-recall-count", "0", "--min-unique-queries", "0")
    lock = lock_of(folder)
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(json.dumps({"pid": os.getpid(), "by": "memtui"}))
    there = (folder / "MEMORY.md").read_bytes()
    promoting = asyncio.create_task(asyncio.to_thread(claw.run, "promote", "--apply", *lowest))
    done, _ = await asyncio.wait({promoting}, timeout=15)
    assert not done, promoting.result()
    assert (folder / "MEMORY.md").read_bytes() == there
    lock.unlink()
    await promoting
    assert f"openclaw-memory-promotion:memory:{day}" in (folder / "MEMORY.md").read_text()
    found = await listed(service, caller)
    [promoted] = [found[text] for text in found.keys() - before]
    assert promoted.caution is not None
    after = files(folder)
    await service.forget(caller, forgetting(promoted))
    assert "birch" not in (folder / "MEMORY.md").read_text()
    await service.undo(caller)
    assert files(folder) == after


async def test_what_a_sweep_promoted_goes_with_the_note_of_a_run(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    day = folder / "memory" / "2026-10-31.md"
    run = caller.model_copy(update={"run_id": "run-1"})
    await service.write(run, note("The router uses vlan forty.", kind="daily"))
    [written] = [one for one in day.parent.glob("*.md") if "vlan forty" in one.read_text()]
    promoted = (folder / "MEMORY.md").read_text().replace(day.name, written.name)
    (folder / "MEMORY.md").write_text(promoted)
    request = PurgeRequest(run_id="run-1", forget=True)
    plan = await service.purging.plan(caller, request)
    assert [(one.written, one.derived, one.stay) for one in plan.reached] == [(1, 1, 0)]
    assert any("openclaw-agent.sqlite" in one for one in plan.beyond)
    done = await service.purging.apply(caller, request)
    assert (done.left, done.forgotten) == ((), 2)
    assert "vlan forty" not in (folder / "MEMORY.md").read_text()
    assert "Deploys leave" in (folder / "MEMORY.md").read_text()
