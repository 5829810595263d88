"""Processes of their own for tests, which do not each import everything again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Self

from memtui.__main__ import main

_LOADED = [
    "alembic.command",
    "memtui.analytics.audit",
    "memtui.analytics.seal",
    "memtui.backends.vault",
    "memtui.channels.cli.serve",
    "memtui.channels.http.facts",
    "memtui.channels.http.plugin",
    "memtui.channels.http.server",
    "memtui.service.home.purge",
    "psycopg",
    "tests.backends.vault.writer",
    "tests.journeys.writer",
    "tests.migration.worker",
    "tests.service.hanging",
    "tests.service.test_fact_limit",
    "tests.store.test_database",
    "tests.store.test_log",
]


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
          "-p", "no:schemathesis", "-p", "no:langsmith_plugin"]  # fmt: skip
"""A run of pytest without the plugins that other packages bring, whose import takes a second."""


def prepared_processes() -> ForkServerContext:
    """Return what starts processes in which the modules of such tests are loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def speaking(
    target: Callable[..., object], *arguments: object
) -> tuple[ForkServerProcess, Connection]:
    """Start a process that is given these and a pipe to speak into; gives it, and what it says."""
    context = prepared_processes()
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, told), daemon=True)
    process.start()
    told.close()
    return process, heard


def heard_to_its_end(said: Connection) -> Iterator[Any]:
    """Return what a process still said whole."""
    with suppress(EOFError, OSError):  # an end within a word is an OSError
        while True:
            yield said.recv()


def killed_by_itself(target: Callable[..., object], *arguments: object) -> bool:
    """Run it in a process; whether that ended by a SIGKILL."""
    process = prepared_processes().Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL


class Forked:
    """A command of memtui in a process that is forked; used as a `subprocess.Popen` is."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        pipes = [os.pipe() for _ in range(2)]
        self.stdout, self.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in pipes)
        self._process = prepared_processes().Process(
            target=_run_memtui,
            args=(arguments, dict(environment), [_Inherited(write) for _, write in pipes]),
        )
        self._process.start()
        for _, write in pipes:
            os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self._process.join()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sign: signal.Signals) -> None:
        if self._process.is_alive():
            assert self._process.pid is not None
            os.kill(self._process.pid, sign)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        """Read to the end of what it says, and wait for its own."""
        with ThreadPoolExecutor(2) as threads:
            said = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
        self._process.join()
        return said[0].result(), said[1].result()


class _Inherited:
    """A descriptor on its way into a process that is started."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(sent: Any) -> int:
    return int(sent.detach())


def _run_memtui(arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["memtui", *arguments]
    main()


def is_running(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
