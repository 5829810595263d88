"""A home whose hooks have a helper, and hooks that wait in the middle until they may go on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memtui.channels.cli.main import run
from memtui.channels.helper.wire import HelperSocket, home_key
from memtui.config import Paths, find_paths
from tests.processes import Forked

FACT = "Deploys are on Thursdays — 木."
STARTS = b'{"session_id": "s-1", "hook_event_name": "SessionStart", "source": "startup"}'
"""What Claude Code says on stdin."""
PRE_RUN = ("hook", "pre-run", "--project", "apollo")


def wait_for(what: Callable[[], Any]) -> Any:
    """Wait until something is true, and return it; a test's own time limit is 30 s."""
    until = time.monotonic() + 30
    while not (found := what()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)
    return found


@dataclass
class Hooks:
    """The hooks of one home, as a client of agents calls them."""

    paths: Paths
    runtime: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = os.environ | {
            "MEMTUI_HOME": str(self.paths.data),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "MEMTUI_HELPER_IDLE_S": "600",
            "MEMTUI_HOOK_TIMEOUT_MS": "60000",  # a busy machine is not what these are about
        }

    @property
    def place(self) -> HelperSocket:
        return HelperSocket(home_key(str(self.paths.data), {}), self.environment)

    def call(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a hook; it waits for what comes on its stdin."""
        environment = self.environment | more.pop("env", {})
        return subprocess.Popen(
            [sys.executable, "-m", "memtui", *(arguments or PRE_RUN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            **more,
        )

    def run(self, *arguments: str, stdin: bytes = STARTS, **more: Any) -> tuple[int, bytes, bytes]:
        """Run a hook to its end; returns its exit code and what it printed."""
        hook = self.call(*arguments, **more)
        output, errors = hook.communicate(stdin, timeout=30)
        return hook.returncode, output, errors

    def run_cold(self, *arguments: str, stdin: bytes = STARTS) -> tuple[int, bytes, bytes]:
        """The same without a helper."""
        return self.run(*arguments, stdin=stdin, env={"MEMTUI_HELPER_IDLE_S": "0"})

    def forked(self, *arguments: str) -> str:
        """Run a command that is no hook's; returns what it printed."""
        with Forked([*arguments], self.environment) as command:
            return command.communicate()[0]

    def start(self) -> int:
        """Have a hook start the helper; returns its process id once it listens."""
        code, _, errors = self.run()
        assert code == 0, errors
        return self.helper()

    def helper(self) -> int:
        """Wait for a helper that listens; returns its process id."""
        wait_for(self._is_listened_to)
        process = self.place.holder()
        assert process is not None
        return process

    def _is_listened_to(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(self.place.socket)
            return True
        return False

    def begin(self, *arguments: str, **more: Any) -> tuple[subprocess.Popen[bytes], int | None]:
        """Start a hook and wait until it runs.

        Returns it with the helper's child that runs it, None where it runs itself.
        """
        hook = self.call(*arguments, **more)
        assert hook.stdin is not None
        pipe = f"pipe:[{os.fstat(hook.stdin.fileno()).st_ino}]"

        def runs() -> tuple[int | None] | None:
            if "pydantic_core" in _text(f"/proc/{hook.pid}/maps"):
                return (None,)
            helper = self.place.holder()
            for child in _text(f"/proc/{helper}/task/{helper}/children").split():
                with suppress(OSError):
                    if str(Path(f"/proc/{child}/fd/0").readlink()) == pipe:
                        return (int(child),)
            return None

        [child] = wait_for(runs)
        return hook, child

    def is_served(self, **more: Any) -> bool:
        """Run a hook to its good end, and tell whether the helper did it."""
        hook, child = self.begin(**more)
        _, errors = hook.communicate(STARTS, timeout=30)
        assert (hook.returncode, errors) == (0, b"")
        return child is not None

    def end(self) -> None:
        if (process := self.place.holder()) is not None:
            os.kill(process, signal.SIGKILL)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


@contextmanager
def hooks_of(paths: Paths) -> Iterator[Hooks]:
    """Give a home's hooks a folder for their helper that is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mt-") as folder:
        found = Hooks(paths, Path(folder))
        yield found
        found.end()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Paths:
    """A home with a fact, to copy."""
    paths = find_paths(tmp_path_factory.mktemp("made"))
    shutil.copy(empty_database, paths.database)
    assert run(["--home", str(paths.data), "facts", "add", FACT, "--project", "apollo"]) == 0
    return paths


@pytest.fixture
def hooks(made: Paths, new_paths: Paths) -> Iterator[Hooks]:
    """A home of its own, whose helper does not run yet."""
    shutil.copytree(made.data, new_paths.data)
    with hooks_of(new_paths) as found:
        yield found


@pytest.fixture(scope="module")
def served(made: Paths) -> Iterator[Hooks]:
    """A home whose helper runs, and still does when a test is over."""
    with hooks_of(made) as found:
        found.start()
        yield found
