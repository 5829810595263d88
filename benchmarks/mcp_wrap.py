"""What `memtui mcp wrap` adds to a call: `python -m benchmarks.mcp_wrap [CALLS]`.

An agent asks a server that sends each line back, over a bare pair of pipes, through a process that
copies bytes and does nothing else, and through `memtui mcp wrap` with its log. All take turns, call
by call, so that a busy moment harms all of them. The wrap may take at most 1 ms or 5 % more than
the bare process at the median, whichever is more, and 5 ms more at the 99th percentile. Every
answer is compared with what was sent, byte by byte.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.table import Line, environment, show

ECHO = "import os\nwhile c := os.read(0, 65536):\n while c: c = c[os.write(1, c):]"
BARE = """
import os, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def copy(source, target):
    while chunk := os.read(source, 65536):
        while chunk: chunk = chunk[os.write(target, chunk):]
    os.close(target)
threading.Thread(target=copy, args=(0, server.stdin.fileno()), daemon=True).start()
copy(server.stdout.fileno(), 1)
"""
SERVER = [sys.executable, "-c", ECHO]
SMALL, LARGE, LARGE_EVERY = 200, 5_000_000, 500
MOST_MS, MOST_SHARE, MOST_MS_P99 = 1.0, 0.05, 5.0
KEY = "echo"


class Way:
    """One way to the server, and how long each call took."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(MEMTUI_HOME=str(home)),
        )  # fmt: skip
        self.ms: list[float] = []

    def call(self, line: bytes) -> None:
        """Send a line and wait for the whole answer."""
        sent, got = self.process.stdin, self.process.stdout
        assert sent is not None
        assert got is not None
        began = time.perf_counter()
        answer = exchanged(sent, got, line)
        self.ms.append((time.perf_counter() - began) * 1_000)
        assert answer == line, "a byte was changed"

    def at(self, share: float) -> float:
        """Return the time that this share of the calls was within."""
        return sorted(self.ms)[min(len(self.ms) - 1, int(share * len(self.ms)))]

    def large(self) -> str:
        """Return in words how long the long lines took."""
        found = self.ms[LARGE_EVERY - 1 :: LARGE_EVERY]
        return f", 5 MB p50 {median(found):.1f} ms" if found else ""

    def end(self) -> int:
        """End it; return the exit code."""
        self.process.communicate()
        return self.process.returncode


def exchanged(sent: IO[bytes], got: IO[bytes], line: bytes) -> bytes:
    """Write a line, and read as much; a long line does not fit into the pipes at once."""
    parts, left, at = [], len(line), 0
    while left:
        part = line[at : at + 32_768]
        if part:
            os.write(sent.fileno(), part)
            at += len(part)
        if at == len(line) or at - (len(line) - left) > 65_536:
            parts.append(os.read(got.fileno(), 65_536))
            left -= len(parts[-1])
    return b"".join(parts)


def line(rng: random.Random, number: int, size: int) -> bytes:
    """Return a call of a tool with a text of a size."""
    text = rng.choice(["plain ", "ü\u2028 ", 'a\\" '])
    params = {"name": "keep", "arguments": {"text": text * (size // len(text))}}
    said = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(said, ensure_ascii=rng.random() < 0.5).encode() + b"\n"


def main() -> None:
    """Print the table; exit 1 where a limit is passed."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    memtui = [sys.executable, "-m", "memtui"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        graph = Path(folder, "graph.jsonl")
        graph.touch()
        adding = [*memtui, "bindings", "add", KEY, "mcp-memory", "--set", f"path={graph}"]
        subprocess.run(
            adding, env=environment(MEMTUI_HOME=str(home)), check=True, capture_output=True
        )
        ways = {
            "pipes alone": Way(SERVER, home),
            "a bare process": Way([sys.executable, "-c", BARE, *SERVER], home),
            "memtui mcp wrap": Way([*memtui, "mcp", "wrap", KEY, "--", *SERVER], home),
        }
        rng = random.Random(5)
        for way in ways.values():
            way.call(line(rng, 0, 20))  # begun, and its rules known
            way.ms.clear()
        for number in range(1, calls + 1):
            said = line(rng, number, LARGE if number % LARGE_EVERY == 0 else SMALL)
            for way in ways.values():
                way.call(said)
        code = ways["memtui mcp wrap"].end()
        for way in ways.values():
            way.end()
    lines = compared(ways)
    show(f"memtui mcp wrap, {calls:,} calls, no byte changed, exit code {code}", lines)
    sys.exit(not all(one.met is not False for one in lines))


def compared(ways: dict[str, Way]) -> list[Line]:
    """Return the lines of the table."""
    found = [
        Line(way, f"p50 {median(of.ms):.3f} ms, p99 {of.at(0.99):.3f} ms{of.large()}")
        for way, of in ways.items()
    ]
    bare, wrap = ways["a bare process"], ways["memtui mcp wrap"]
    more, more_p99 = median(wrap.ms) - median(bare.ms), wrap.at(0.99) - bare.at(0.99)
    most = max(MOST_MS, MOST_SHARE * median(bare.ms))
    return [
        *found,
        Line("more at the median", f"{more:.3f} ms", f"<= {most:.2f}", met=more <= most),
        Line("more at p99", f"{more_p99:.3f} ms", f"<= {MOST_MS_P99:g}",
             met=more_p99 <= MOST_MS_P99),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
