"""How long a trial of a prune takes: 500 logged queries over 20,000 notes, asked twice each.

    python benchmarks/impact.py [--notes 20000] [--queries 500] [--check]

It is held against the time that the same queries took when an agent asked them, once each, through
the service and into the log. Times are of CPU, this process's threads together; `--check` fails
where a limit is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from benchmarks.table import Line, limited, show
from benchmarks.vault_search import make_notes
from memtui.config import find_paths, load_settings
from memtui.contract import BrowseRequest, QueryRequest, Scope
from memtui.service import Caller, open_service
from memtui.service.context.impact import ImpactRequest

COMPANY = Scope(company_id="local")
GOING = 12
LIMIT = 2.5
"""Two answers to each question, and the copies that they come from."""


async def run(notes: int, queries: int) -> list[Line]:
    """Ask, then try what would change without a few notes."""
    chance = random.Random(11)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        vocabulary = make_notes(home / "notes", notes)
        paths = find_paths(home / "home")
        service = await open_service(paths, load_settings(paths))
        agent = Caller(company_id="local", principal="agent:x", channel="mcp")
        await service.bindings.add(agent, "big", "vault", {"path": str(home / "notes")})
        listed = BrowseRequest(scope=COMPANY, binding_key="big", limit=GOING)
        going = tuple(one.handle for one in (await service.browse(agent, listed)).records)

        began = time.process_time()
        for number in range(queries):
            words = " ".join(chance.sample(vocabulary[:2_000], chance.randint(2, 4)))
            project = f"p{number % 20}" if number % 2 else None
            scope = COMPANY.model_copy(update={"project_id": project})
            asked = QueryRequest(scope=scope, query=words, binding_key="big")
            await service.query(agent, asked)
        once = time.process_time() - began

        began, wall = time.process_time(), time.perf_counter()
        request = ImpactRequest(records={"big": going}, last=queries)
        found = await service.impact.of(agent, request)
        twice, wall = time.process_time() - began, time.perf_counter() - wall
        await service.close()
    print(f"{found.questions:,} questions, {found.differ:,} answers would differ")
    print(f"asked once: {once:.2f} s, tried: {twice:.2f} s of CPU in {wall:.2f} s")
    share = once * found.questions / queries
    return [limited("a trial, beside asking once", twice / share, LIMIT)]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    lines = asyncio.run(run(given.notes, given.queries))
    show("limits", lines)
    if given.check and not all(line.met for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
