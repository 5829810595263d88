"""What the operation log on screen takes of the processor and of memory, in a process of its own.

    python -m benchmarks.log_views HOME

prints one JSON document: milliseconds of processor time by what was done, and the peak memory of
the process. Time on the wall tells little on a machine with other work; with two idle cores, a
filter or an order takes about half of what is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time

from benchmarks.generated_log import COMPANY
from benchmarks.table import Line, limited

SCREEN = 60
MEMORY_MB = 360
_ROUNDS, _ROUNDS_OF_LONG = 5, 2
_FIRST = ("first rows", "first rows on screen")
_EARLY = "filter by a word, the first rows"
_WORD, _COST = "filter by a word", "sort by cost"
_ALL = "sort by cost, to its end"
_TOTALS = ("filter by agent", "filter by agent and type", _WORD, _COST, "sort by latency", _ALL)


def compare(home: Path, small: Path, tenth: Path | None) -> list[Line]:
    """Ask for views of a log, of one with 1,000 operations, and of a tenth of a long one."""
    homes = (home, small, tenth or small)
    runs = [[*map(_measured, homes)] for _ in range(_ROUNDS_OF_LONG if tenth else _ROUNDS)]
    ours, theirs, part = (
        {name: min(run[side][name] for run in runs) for name in runs[0][side]} for side in range(3)
    )
    lines = [
        limited(f"{name}, against 1,000", ours[name] / theirs[name], 1.5, _details(ours, name))
        for name in _FIRST
    ]
    lines += [
        Line(name, f"{took:,.1f} ms, of 1,000 {theirs[name]:,.1f} ms")
        for name, took in ours.items()
        if name not in {*_FIRST, "memory"}
    ]
    memory = max(run[0]["memory"] for run in runs)
    seen = f"{memory:,.0f} MB, of 1,000 {theirs['memory']:,.0f} MB"
    lines.append(Line("peak memory", seen, f"<= {MEMORY_MB} MB", memory <= MEMORY_MB))
    if tenth:
        lines += [
            limited("a filter's first rows, of all", ours[_EARLY] / ours[_WORD], 0.1),
            limited("an order's first page, of all", ours[_COST] / ours[_ALL], 0.25),
            *(limited(f"{name}, against 10 tenths", ours[name] / part[name] / 10, 1.1)
              for name in _TOTALS),
        ]  # fmt: skip
    return lines


def _details(ours: dict[str, float], name: str) -> str:
    return f"   {ours[name]:,.1f} ms"


def _measured(home: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.log_views", str(home)]
    done = subprocess.run(command, capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def _once(home: Path) -> dict[str, float]:
    from memtui.analytics.reading import LogView, Progress
    from memtui.analytics.rows import LogDatabase
    from memtui.contract import Filter
    from memtui.store.database import Database
    from memtui.store.operation import LogFilter

    database = Database.open(home / "memtui.db")
    log = LogDatabase(database, home / "archive", COMPANY)
    took: dict[str, float] = {}
    began = 0.0

    def timed(name: str, work: Callable[[], object]) -> None:
        nonlocal began
        began = process_time()
        work()
        took[name] = (process_time() - began) * 1000

    def told(name: str, _progress: Progress) -> None:
        took.setdefault(name, (process_time() - began) * 1000)

    def opened(
        chosen: Filter | None = None, sort: str = "-seq", *, first: str = "", place: float = 0
    ) -> None:
        view = LogView(log, chosen, sort, early=partial(told, first) if first else None)
        view.window(int(view.count * place), SCREEN)
        view.close()

    timed("first rows", opened)
    whole = LogFilter(folded=True)
    timed("all of the log, folded", lambda: opened(whole, "seq", first="first rows on screen"))
    timed("jump to the middle, the first time", lambda: opened(place=0.5))
    timed("jump to a third", lambda: opened(place=0.3))
    timed("filter by agent", lambda: opened(Filter(agent_id="agent-7")))
    both = Filter(agent_id="agent-8", operation_type="query")
    timed("filter by agent and type", lambda: opened(both))
    timed(_WORD, lambda: opened(Filter(text="invoice"), first=_EARLY))
    timed(_COST, lambda: opened(sort="-cost_usd"))
    timed("sort by latency", lambda: opened(sort="-latency_ms"))
    timed(_ALL, lambda: opened(sort="-cost_usd", place=0.5))
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
