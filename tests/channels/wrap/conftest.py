"""`memtui mcp wrap` as a process, between a test and a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths
from memtui.contract import Filter
from memtui.service import Caller, MemoryService
from memtui.store.operation import Operation

HERE = Path(__file__).parent
TOY = [sys.executable, str(HERE / "toy_server.py")]
KEY = "toy"
GIVEN_UP_S = 60


class Wrap:
    """A wrapped server, and the test as its agent."""

    def __init__(self, paths: Paths, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memtui", "mcp", "wrap", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"MEMTUI_HOME": str(paths.data), "MEMTUI_PRINCIPAL": "user:ana"},
        )  # fmt: skip
        self._number = 0

    def say(self, said: Any) -> None:
        """Send a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(said).encode() + b"\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        """Return the next message of the server."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return the answer."""
        self._number += 1
        self.say({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        answer = self.heard()
        assert answer["id"] == self._number
        return answer.get("result") or answer["error"]

    def begin(self) -> None:
        """Begin as a client does."""
        info = {"name": "tester", "version": "3"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        self.ask("tools/list")

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool."""
        return self.ask("tools/call", name=tool, arguments=arguments)

    def children(self) -> dict[int, bytes]:
        """Return the command line of each process that it began."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(pid) for task in tasks for pid in task.read_text().split()]
        return {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}

    def end(self) -> tuple[int, str]:
        """End the input; return the exit code and what was said on stderr."""
        _, said = self.process.communicate(timeout=GIVEN_UP_S)
        return self.process.returncode, said.decode()


Begin = Callable[..., Wrap]


@pytest.fixture
async def bound(service: MemoryService, caller: Caller, tmp_path: Path) -> MemoryService:
    """A service with a binding that the tests wrap a server as."""
    (tmp_path / "graph.jsonl").touch()
    config = {"path": str(tmp_path / "graph.jsonl")}
    await service.bindings.add(caller, KEY, "mcp-memory", config)
    return service


@pytest.fixture
def wrap(paths: Paths, bound: MemoryService) -> Iterator[Begin]:
    """Wrap servers; the processes end with the test."""
    made: list[Wrap] = []

    def begin(*words: str) -> Wrap:
        made.append(Wrap(paths, *(words or (KEY, "--", *TOY))))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


Logged = Callable[[int], Awaitable[list[Operation]]]


@pytest.fixture
def logged(bound: MemoryService, caller: Caller) -> Logged:
    """Wait until so many calls are in the log, those of gaps too; gives the rows, oldest first."""

    async def look(count: int) -> list[Operation]:
        deadline = time.monotonic() + GIVEN_UP_S
        while True:
            page = await bound.log.page(caller, Filter(channel="wrap"), limit=1_000)
            if sum(one.request.get("calls") or 1 for one in page.operations) >= count:
                return [*reversed(page.operations)]
            assert time.monotonic() < deadline, [
                (one.operation_type.value, one.request.get("calls")) for one in page.operations
            ]
            time.sleep(0.05)

    return look
