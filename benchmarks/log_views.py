"""How soon the operation log is on screen, and what it takes of memory, in a process of its own.

    python -m benchmarks.log_views HOME

prints one JSON document: milliseconds by what was done, and the peak memory of the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.generated_log import COMPANY
from benchmarks.table import Line, limited

SCREEN = 60
MEMORY_MB = 300
_ROUNDS = 5


def compare(home: Path, small: Path) -> list[Line]:
    """Ask for views of a log and of one with 1,000 operations, both with rows hot and sealed."""
    runs = [(_measured(home), _measured(small)) for _ in range(_ROUNDS)]
    ours, theirs = (
        {name: min(run[side][name] for run in runs) for name in runs[0][side]} for side in (0, 1)
    )
    first = "first rows"
    lines = [
        limited(
            "first rows, newest first, against 1,000",
            ours[first] / theirs[first],
            1.5,
            f"   {ours[first]:,.1f} ms, {theirs[first]:,.1f} ms",
        )
    ]
    for name, took in ours.items():
        if name not in {first, "memory"}:
            lines.append(Line(name, f"{took:,.1f} ms, of 1,000 {theirs[name]:,.1f} ms"))
    memory = max(run[0]["memory"] for run in runs)
    seen = f"{memory:,.0f} MB, of 1,000 {theirs['memory']:,.0f} MB"
    lines.append(Line("peak memory", seen, f"<= {MEMORY_MB} MB", memory <= MEMORY_MB))
    return lines


def _measured(home: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.log_views", str(home)]
    done = subprocess.run(command, capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def _once(home: Path) -> dict[str, float]:
    from memtui.analytics.reading import LogView
    from memtui.analytics.rows import LogDatabase
    from memtui.contract import Filter
    from memtui.store.database import Database

    database = Database.open(home / "memtui.db")
    log = LogDatabase(database, home / "archive", COMPANY)
    took: dict[str, float] = {}

    def timed(name: str, work: Callable[[], LogView]) -> LogView:
        began = perf_counter()
        view = work()
        took[name] = (perf_counter() - began) * 1000
        return view

    def opened(chosen: Filter | None = None, sort: str = "-seq") -> LogView:
        view = LogView(log, chosen, sort)
        view.window(0, SCREEN)
        return view

    def jumped(view: LogView, part: int = 2) -> LogView:
        view.window(view.count // part, SCREEN)
        return view

    whole = timed("first rows", opened)
    timed("jump to the middle, the first time", lambda: jumped(whole))
    timed("jump to a third", lambda: jumped(whole, 3))
    timed("filter by agent, the first time", lambda: opened(Filter(agent_id="agent-7"))).close()
    view = timed("filter by agent and type", lambda: opened(
        Filter(agent_id="agent-8", operation_type="query")
    ))  # fmt: skip
    timed("jump to the middle of what is filtered", lambda: jumped(view)).close()
    timed("filter by a word of the text", lambda: opened(Filter(text="invoice"))).close()
    timed("sort by cost, dearest first", lambda: opened(sort="-cost_usd")).close()
    timed("sort by latency, slowest first", lambda: opened(sort="-latency_ms")).close()
    log.close()
    database.close()
    took["memory"] = _peak_memory_mb()
    return took


def _peak_memory_mb() -> float:
    """Linux's own count of this program's: `ru_maxrss` has its parent's in it."""
    status = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )


if __name__ == "__main__":
    print(json.dumps(_once(Path(sys.argv[1]))))
