"""What a command costs, next to importing Textual: `python -m benchmarks.startup [RUNS]`.

Each command is a process of its own; they take turns, so that a busy moment harms all of them. The
medians of wall time and of CPU count, and what matters is their ratio to `import textual.app`: at
most LIMITS. Commands share a home with one memory, but `note` has its own, as it makes it grow. The
last query is asked in the demo's home, of some hundred memories, and the last line is making that:
`memtui demo` opens as soon as its first days are there.

With `--peer PROGRAM` the `recall` of atmem takes turns too (installed in an environment of its own;
`atmem` on the PATH is found), and what a query costs is compared with it: at most PEER_LIMIT of its
CPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import environment

YARDSTICK = "import textual.app"
MEMTUI = ["-m", "memtui"]
QUERY, NOTE = "memtui query deploy", "memtui note TEXT"
DEMO_QUERY = f"{QUERY}, in the demo"
PEER, PEER_LIMIT = "atmem recall", 1.0
COMMANDS = {
    "pass": ["-c", "pass"],
    YARDSTICK: ["-c", "import textual.app"],
    "import memtui.contract": ["-c", "import memtui.contract"],
    "import memtui.service": ["-c", "import memtui.service"],
    "memtui --help": [*MEMTUI, "--help"],
    "memtui ops list --help": [*MEMTUI, "ops", "list", "--help"],
    "memtui bindings list": [*MEMTUI, "bindings", "list"],
    "memtui budget list": [*MEMTUI, "budget", "list"],
    QUERY: [*MEMTUI, "query", "deploy"],
    NOTE: [*MEMTUI, "note", "We deploy on Thursdays."],
    DEMO_QUERY: [*MEMTUI, "query", "deploy", "--project", "mech-fighters"],
}
LIMITS = {
    "memtui --help": 0.5,
    "memtui bindings list": 2.2,
    "memtui budget list": 2.2,
    QUERY: 2.2,
    DEMO_QUERY: 2.2,
}


class Cost(NamedTuple):
    """What one process took, in milliseconds."""

    wall: float
    cpu: float


def run(arguments: list[str], home: str, program: str = sys.executable) -> Cost:
    """Run a process of Python, or of another program, to its end, its output thrown away."""
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    started = time.perf_counter()
    pid = os.posix_spawn(
        program,
        [program, *arguments],
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
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=int, nargs="?", default=15)
    parser.add_argument("--peer", default=shutil.which("atmem"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = {DEMO_QUERY: "demo", NOTE: "growing"}
        homes = {name: str(Path(folder, places.get(name, "new"))) for name in COMMANDS}
        demo = run([*MEMTUI, "demo", "--no-tui"], homes[DEMO_QUERY])
        run(COMMANDS[NOTE], homes[QUERY])  # it makes the home
        costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
        memories = str(Path(folder, "peer.db"))
        if given.peer:
            text = "We deploy on Thursdays."
            run(["remember", memories, "ana", text], folder, given.peer)
            costs[PEER] = []
        for _ in range(given.runs + 1):
            for name, arguments in COMMANDS.items():
                costs[name].append(run(arguments, homes[name]))
            if given.peer:
                recall = ["recall", memories, "ana", "deploy"]
                costs[PEER].append(run(recall, folder, given.peer))
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
    if given.peer:
        ratio = found[QUERY].cpu / found[PEER].cpu
        late |= ratio > PEER_LIMIT
        print(f"{QUERY}: {ratio:.2f} of the CPU of {PEER}, limit {PEER_LIMIT:g}")
    else:
        print(f"{PEER} is not compared: install atmem in an environment of its own; see --peer.")
    sys.exit(late)


if __name__ == "__main__":
    main()
