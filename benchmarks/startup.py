"""What a command costs, next to importing Textual: `python -m benchmarks.startup [RUNS]`.

Each command is a process of its own; they take turns, so that a busy moment harms all of them. The
medians of wall time and of CPU count, and what matters is their ratio to `import textual.app`: at
most LIMITS. The last query is asked in the demo's home, of some hundred memories, and the last line
is making that: `memtui demo` opens as soon as its first days are there.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import environment

YARDSTICK = "import textual.app"
MEMTUI = ["-m", "memtui"]
COMMANDS = {
    "pass": ["-c", "pass"],
    YARDSTICK: ["-c", "import textual.app"],
    "import memtui.contract": ["-c", "import memtui.contract"],
    "import memtui.service": ["-c", "import memtui.service"],
    "memtui --help": [*MEMTUI, "--help"],
    "memtui ops list --help": [*MEMTUI, "ops", "list", "--help"],
    "memtui bindings list": [*MEMTUI, "bindings", "list"],
    "memtui budget list": [*MEMTUI, "budget", "list"],
    "memtui query deploy": [*MEMTUI, "query", "deploy"],
    "memtui note TEXT": [*MEMTUI, "note", "We deploy on Thursdays."],
    "memtui query deploy, in the demo": [*MEMTUI, "query", "deploy", "--project", "mech-fighters"],
}
LIMITS = {
    "memtui --help": 0.5,
    "memtui bindings list": 2.2,
    "memtui budget list": 2.2,
    "memtui query deploy": 2.2,
    "memtui query deploy, in the demo": 2.2,
}


class Cost(NamedTuple):
    """What one process took, in milliseconds."""

    wall: float
    cpu: float


def run(arguments: list[str], home: str) -> Cost:
    """Run a Python process to its end, its output thrown away."""
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    started = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        environment(MEMTUI_HOME=home),
        file_actions=quiet,
    )
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - started
    if status:
        sys.exit(f"{' '.join(arguments)} failed")
    return Cost(wall * 1000, (used.ru_utime + used.ru_stime) * 1000)


def main() -> None:
    """Print the table; exit 1 where a limit is passed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: str(Path(folder, "demo" if "demo" in name else "new")) for name in COMMANDS}
        demo = run([*MEMTUI, "demo", "--no-tui"], str(Path(folder, "demo")))
        run(COMMANDS["memtui note TEXT"], str(Path(folder, "new")))  # it makes the home
        costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
        for _ in range(runs + 1):
            for name, arguments in COMMANDS.items():
                costs[name].append(run(arguments, homes[name]))
    found = {
        # The first run made the home, and read every file from the disk.
        name: Cost(*(statistics.median(part) for part in zip(*each[1:], strict=True)))
        for name, each in costs.items()
    }
    found["memtui demo, made once"] = demo
    base = found[YARDSTICK]
    late = False
    print(f"{'':34} {'wall ms':>8} {'ratio':>6} {'CPU ms':>8} {'ratio':>6} {'limit':>6}")
    for name, cost in found.items():
        ratios = Cost(cost.wall / base.wall, cost.cpu / base.cpu)
        limit = LIMITS.get(name)
        late |= limit is not None and max(ratios) > limit
        print(
            f"{name:34} {cost.wall:8.0f} {ratios.wall:6.2f} {cost.cpu:8.0f} {ratios.cpu:6.2f} "
            f"{limit or '':>6}"
        )
    sys.exit(late)


if __name__ == "__main__":
    main()
