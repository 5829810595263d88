"""What an agent's hook costs, with the helper and without: `python -m benchmarks.hook [RUNS]`.

It is the whole process of `memtui hook pre-run` in the demo's company, as Claude Code calls it at a
session's start and at a prompt; bare Python stands beside it. All take turns, so that a busy moment
harms all of them. The medians of wall time and of CPU count, and what matters is their ratio to
bare Python: at most LIMIT with the helper, COLD_LIMIT without. One prompt is in a project whose
provider, a server, takes connections and never answers. The last line is the mean of what the
helper's child takes, which the hook's own process waits for.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import environment
from memtui.channels.helper.wire import HelperSocket

LIMIT, COLD_LIMIT = 12.0, 30.0
BARE = "python -c pass"
MEMTUI = ["-m", "memtui"]
HOOK = [*MEMTUI, "hook", "pre-run", "--client", "claude-code", "--project"]
PROJECT, STUCK = "mech-fighters", "stuck"
COLD = {"MEMTUI_HELPER_IDLE_S": "0"}


def event(name: str, **more: str) -> bytes:
    """Return what Claude Code says on stdin."""
    said = {"session_id": f"bench-{time.time_ns()}", "hook_event_name": name, "cwd": "/tmp"}
    return json.dumps(said | more).encode()


class Cost(NamedTuple):
    """What one process took, in milliseconds."""

    wall: float
    cpu: float


def run(arguments: list[str], stdin: bytes, **variables: str) -> Cost:
    """Run a Python process to its end."""
    with tempfile.TemporaryFile() as said:
        said.write(stdin)
        said.seek(0)
        began, before = time.perf_counter(), _used()
        subprocess.run(
            [sys.executable, *arguments],
            stdin=said,
            stdout=subprocess.DEVNULL,
            env=environment(**variables),
            check=True,
        )
        wall = time.perf_counter() - began
    return Cost(wall * 1000, (_used() - before) * 1000)


def _used() -> float:
    """Return the CPU time that the processes run so far took, in seconds."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def of_children(process: int) -> float:
    """Return the CPU time that a process's ended children took, in milliseconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table; exit 1 where the limit is passed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as home, socket.create_server(("127.0.0.1", 0)) as stuck:
        os.environ["MEMTUI_HOME"] = home
        run([*MEMTUI, "demo", "--no-tui"], b"")
        url = f"url=http://127.0.0.1:{stuck.getsockname()[1]}"
        run([*MEMTUI, "bindings", "add", STUCK, "plugin-v1", "--set", url], b"")
        run([*MEMTUI, "bindings", "target", "set", STUCK, "project", STUCK], b"")
        run([*HOOK, PROJECT], event("SessionStart", source="startup"))
        place = HelperSocket.of("")
        while (helper := place.holder()) is None or not Path(place.socket).exists():
            time.sleep(0.1)
        costs: dict[str, list[Cost]] = {}
        before = of_children(helper)
        for _ in range(runs + 1):
            start = event("SessionStart", source="startup")
            prompt = event("UserPromptSubmit", prompt="How do we deploy, and who reviews it?")
            for name, cost in (
                (BARE, run(["-c", "pass"], b"")),
                ("a session's start", run([*HOOK, PROJECT], start)),
                ("a prompt", run([*HOOK, PROJECT], prompt)),
                ("a session's start, without the helper", run([*HOOK, PROJECT], start, **COLD)),
                ("a prompt, without the helper", run([*HOOK, PROJECT], prompt, **COLD)),
            ):
                costs.setdefault(name, []).append(cost)
        child = (of_children(helper) - before) / (2 * (runs + 1))
        costs["a prompt, its provider stuck"] = [run([*HOOK, STUCK], prompt) for _ in range(4)]
        os.kill(helper, signal.SIGTERM)
    found = {
        # The first turn reads every file from the disk.
        name: Cost(*(statistics.median(part) for part in zip(*each[1:], strict=True)))
        for name, each in costs.items()
    }
    base, late = found[BARE], False
    print(f"{'':40} {'wall ms':>8} {'ratio':>6} {'CPU ms':>8} {'ratio':>6} {'limit':>6}")
    for name, cost in found.items():
        limit = LIMIT if name in {"a session's start", "a prompt"} else None
        if name.endswith("without the helper"):
            limit = COLD_LIMIT
        ratio = cost.wall / base.wall
        late |= limit is not None and ratio > limit
        print(
            f"{name:40} {cost.wall:8.0f} {ratio:6.1f} {cost.cpu:8.0f} {cost.cpu / base.cpu:6.1f} "
            f"{limit or '':>6}"
        )
    print(f"{'the helper for one of them':40} {'':15} {child:8.0f} {child / base.cpu:6.1f}")
    sys.exit(late)


if __name__ == "__main__":
    main()
