"""Which files of memtui an operation enters: `python benchmarks/files_entered.py [-v]`.

A file counts where a function of it runs; what is only imported does not. Limits: a query through
the service 18, a write 22, `memtui query` 35.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import memtui
from memtui.config import find_paths, load_settings
from memtui.contract import QueryRequest, Scope, SourceKind, SourceRef, WriteRequest

ROOT = f"{Path(memtui.__file__).parent}{os.sep}"
LIMITS = {"query": 18, "write": 22, "memtui query": 35}


class Watch:
    """The files that are entered while it is on."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note the file of a call, unless it is part of an import."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and name not in self.files:
            caller: FrameType | None = frame
            while caller is not None:
                if caller.f_code.co_name == "<module>" and caller.f_code.co_filename != __file__:
                    return
                caller = caller.f_back
            self.files.add(name)


@contextlib.contextmanager
def watched(found: dict[str, set[str]], name: str) -> Iterator[None]:
    """Keep under `name` what the block enters, in threads that were begun with `idle` too."""
    watch = Watch()
    _watch[:] = [watch]
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        _watch.clear()
        found[name] = {file.removeprefix(ROOT) for file in watch.files}


_watch: list[Watch] = []


def _in_thread(frame: FrameType, event: str, argument: Any) -> None:
    for watch in _watch:
        watch(frame, event, argument)


async def through_the_service(found: dict[str, set[str]]) -> None:
    """Query and write twice each: the first of each also opens what the others use."""
    from memtui.service import Caller, open_service

    paths = find_paths()
    service = await open_service(paths, load_settings(paths))
    caller = Caller(company_id="local", principal="user:me", channel="benchmark")
    scope = Scope(company_id="local")
    source = SourceRef(kind=SourceKind.ISSUE_COMMENT, company_id="local", run_id="r", issue_id="i")
    for _ in range(2):
        with watched(found, "query"):
            await service.query(caller, QueryRequest(scope=scope, query="deploy"))
        request = WriteRequest(scope=scope, content="We deploy from main.", source=source)
        with watched(found, "write"):
            await service.write(caller, request)
    await service.close()


def on_the_command_line(found: dict[str, set[str]]) -> None:
    """Run `memtui query` in this process."""
    from memtui.__main__ import main as run

    sys.argv = ["memtui", "query", "deploy"]
    with (
        watched(found, "memtui query"),
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(StringIO()),
        contextlib.redirect_stderr(StringIO()),
    ):
        run()


def main() -> None:
    """Print how many, and with `-v` which; exit 1 where a limit is passed."""
    found: dict[str, set[str]] = {}
    verbose = "-v" in sys.argv
    threading.setprofile(_in_thread)
    with tempfile.TemporaryDirectory() as home:
        os.environ["MEMTUI_HOME"] = home
        asyncio.run(through_the_service(found))
        on_the_command_line(found)
    for name, files in found.items():
        print(f"{name:14} {len(files):3} files, limit {LIMITS[name]}")
        if verbose:
            print("   ", *sorted(files))
    sys.exit(any(len(files) > LIMITS[name] for name, files in found.items()))


if __name__ == "__main__":
    main()
