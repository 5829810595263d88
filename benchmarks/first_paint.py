"""How soon memtui paints, next to a bare Textual app: `python -m benchmarks.first_paint [RUNS]`.

Each app is started in a terminal of 120x40, in turns; what counts is when its tabs are painted, and
what that took of the processor. memtui takes at most 1.3 times as long as the bare app.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.table import environment

BARE_APP = """
from textual.app import App
from textual.widgets import Header, Label

class Bare(App):
    def compose(self):
        yield Header()
        yield Label("Records")

Bare().run()
"""
PAINTED = b"Records"


def first_paint(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return milliseconds, of the wall and of the processor, until a Python app has painted."""
    started = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    painted = b""
    while PAINTED not in painted:
        painted += os.read(terminal, 65536)
    wall = time.perf_counter() - started
    fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return wall * 1000, ticks * 1000 / os.sysconf("SC_CLK_TCK")


def show_first_paint(variables: dict[str, str], turns: int) -> None:
    """Print the medians of runs that take turns."""
    apps = {"a bare Textual app": ["-c", BARE_APP], "memtui": ["-m", "memtui"]}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in apps}
    for _ in range(turns):
        for name, arguments in apps.items():
            runs[name].append(first_paint(arguments, variables))
    bare, ours = (
        [statistics.median(column) for column in zip(*taken, strict=True)]
        for taken in runs.values()
    )
    for what, least, seen in zip(("wall", "processor"), bare, ours, strict=True):
        print(f"first paint, {what:19} {seen:7.0f} ms {seen / least:7.2f} (bare {least:.0f} ms)")


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as home:
        show_first_paint(environment(MEMTUI_HOME=home, TERM="xterm-256color"), runs)


if __name__ == "__main__":
    main()
