"""A vault and its Milvus collections, edited at random on both sides, with kills: are they in sync?

    python -m benchmarks.in_sync [--records 10000] [--rounds 3] [--kills 4]

Half of the records are facts, half notes. Each round changes, adds and forgets 4 % of them on
either side and some on both; the sync is killed at random moments and run again. At the end both
sides must hold the same but for the conflicts, which must be those that were made, with both
versions there. It prints how long each part took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.migration.endpoints import open_endpoints
from memtui.migration.syncing import sync
from memtui.service import Caller, MemoryService, open_service

CALLER = Caller(company_id="local", principal="user:bench", channel="benchmark")
COMPANY = Scope(company_id="local")
KEYS = ("default", "milvus")
CHANGED = 0.04
PROJECTS, HALF = 20, 2
Sides = tuple[dict[str, Record], dict[str, Record]]


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[MemoryService]:
    paths = find_paths(home)
    service = await open_service(
        paths, load_settings(paths, fact_max_count=0, provider_timeout_ms=60_000)
    )
    if "milvus" not in {one.key for one in await service.bindings.all(CALLER)}:
        await service.bindings.add(CALLER, "milvus", "milvus", {})
    yield service
    await service.close()


def named(text: str) -> str:
    return text.partition(":")[0]


async def write(service: MemoryService, side: int, number: int, text: str) -> None:
    await service.write(
        CALLER,
        WriteRequest(
            scope=Scope(company_id="local", project_id=f"p{number % PROJECTS}"),
            source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
            content=f"r{number}: {text}", binding_key=KEYS[side],
            kind="fact" if number % 4 < HALF else "note",
        ),
    )  # fmt: skip


async def held(service: MemoryService) -> Sides:
    found: Sides = ({}, {})
    for side, key in enumerate(KEYS):
        asked = BrowseRequest(scope=COMPANY, binding_key=key, sort="created_at")
        async for page in service.pages(CALLER, asked):
            for one in page.records:
                assert named(one.text) not in found[side], f"twice in {key}: {one.text}"
                found[side][named(one.text)] = one
    return found


async def fill(home: Path, records: int) -> None:
    """Write the files of a vault by hand, as they are where people begin."""
    async with opened(home):
        root = find_paths(home).data / "bindings/local/default/vault/projects"
    for project in range(PROJECTS):
        numbers = range(project, records, PROJECTS)
        folder = root / f"p{project}"
        (folder / "memory").mkdir(parents=True)
        facts = "".join(f"- r{number}: first\n" for number in numbers if number % 4 < HALF)
        (folder / "facts.md").write_text(f"# Facts\n\n{facts}")
        for number in numbers:
            if number % 4 >= HALF:
                (folder / f"memory/r{number}.md").write_text(f"r{number}: first\n")


async def edit(home: Path, turn: int, records: int) -> None:
    """Change both sides, and write down which records were changed on both."""
    chance = random.Random(turn)
    path = home / "conflicts.json"
    conflicts = set(json.loads(path.read_text()) if path.exists() else [])
    async with opened(home) as service:
        sides = await held(service)
        free = sorted(sides[0].keys() & sides[1].keys() - conflicts)
        for name in chance.sample(free, int(records * CHANGED)):
            both = chance.random() < 0.1
            side = chance.randrange(2)
            for one in (0, 1) if both else (side,):
                record = sides[one][name]
                if both or chance.random() < 0.8:
                    await service.correct(
                        CALLER,
                        CorrectRequest(
                            scope=record.scope, handle=record.handle, binding_key=KEYS[one],
                            text=f"{name}: turn {turn}, side {one}",
                        ),
                    )  # fmt: skip
                else:
                    request = ForgetRequest(
                        scope=record.scope, handles=(record.handle,), binding_key=KEYS[one]
                    )
                    await service.forget(CALLER, request)
            if both:
                conflicts.add(name)
        for number in range(int(records * CHANGED / 4)):
            await write(service, number % 2, records * (turn + 2) + number, f"new in turn {turn}")
    path.write_text(json.dumps(sorted(conflicts)))


async def bring_in_step(home: Path) -> None:
    async with opened(home) as service:
        print("ready", flush=True)
        ends = await open_endpoints(service, CALLER, *KEYS)
        done = await sync(ends, find_paths(home).data)
        print(
            f"done: {done.in_sync} in sync, written {done.written}, changed {done.changed}, "
            f"deleted {done.deleted}, {len(done.conflicts)} conflicts, {done.failed} failed, "
            f"held back {sum(len(one.record_ids) for one in done.held_back)}",
            flush=True,
        )


async def check(home: Path) -> None:
    """Compare both sides with each other and with what was written down."""
    wanted = set(json.loads((home / "conflicts.json").read_text()))
    async with opened(home) as service:
        left, right = await held(service)
        ends = await open_endpoints(service, CALLER, *KEYS)
        done = await sync(ends, find_paths(home).data, dry_run=True)
    told = {named(record.text) for one in done.conflicts for record in one.records if record}
    unequal = {
        name
        for name in left.keys() | right.keys()
        if name not in left or name not in right or left[name].text != right[name].text
    }
    assert told == wanted, f"told {len(told)}, made {len(wanted)}: {sorted(told ^ wanted)[:5]}"
    assert unequal == wanted, f"not in sync: {sorted(unequal ^ wanted)[:5]}"
    left_over = done.written, done.changed, done.deleted, done.held_back, done.failures
    assert not any(left_over), left_over
    print(f"in sync: {done.in_sync} records; {len(wanted)} conflicts, all told, both versions kept")


def run(home: Path, *words: str, kill_after: float | None = None) -> bool:
    """Run a part in a process of its own; returns whether it came to its end."""
    command = [sys.executable, "-m", "benchmarks.in_sync", "--home", str(home), *words]
    process = subprocess.Popen(command)
    try:
        code = process.wait(kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    if code:
        sys.exit(code)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--home", type=Path)
    parser.add_argument("part", nargs="*")
    given = parser.parse_args()
    if given.part:
        part, *rest = given.part
        work = {"fill": fill, "edit": edit, "sync": bring_in_step, "check": check}[part]
        asyncio.run(work(given.home, *map(int, rest)))  # type: ignore[operator]
        return
    with tempfile.TemporaryDirectory(prefix="memtui-in-step-") as folder:
        home, chance = Path(folder), random.Random(1)
        begun = time.monotonic()

        def timed(*words: str) -> None:
            since = time.monotonic()
            for _ in range(given.kills if words[0] == "sync" else 0):
                after = chance.uniform(2, 20)
                ended = run(home, *words, kill_after=after)
                print(f"  killed after {after:.0f} s" if not ended else "  ended before its kill")
            run(home, *words)
            print(f"{' '.join(words)}: {time.monotonic() - since:.0f} s", flush=True)

        timed("fill", str(given.records))
        timed("sync")
        for turn in range(given.rounds):
            timed("edit", str(turn), str(given.records))
            timed("sync")
        timed("check")
        print(f"all: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
