"""Which files and functions an operation enters: `python -m benchmarks.files_entered [-v]`.

A file counts where a function of it runs; what is only imported does not. Functions are those on
the thread of the event loop. The limits are what was reached, and CI holds them; wanted are 18
files and 40 functions for a query through the service, 20 and 50 for a write, and 32 files for
`memtui query`.
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
LIMITS = {"query": (24, 41), "write": (29, 54), "memtui query": (53, 177)}
"""Files and functions."""


Found = dict[str, tuple[set[str], ...]]
"""By operation: its files, and its functions."""


class Watch:
    """The files that are entered while it is on, and the functions on the thread that made it."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[str] = set()
        self._thread = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note the file of a call, unless it is part of an import."""
        name = frame.f_code.co_filename
        function = f"{name}:{frame.f_code.co_qualname}"
        is_here = threading.get_ident() == self._thread
        known = function in self.functions or (not is_here and name in self.files)
        if event == "call" and name.startswith(ROOT) and not known:
            caller: FrameType | None = frame
            while caller is not None:
                if caller.f_code.co_name == "<module>" and caller.f_code.co_filename != __file__:
                    return
                caller = caller.f_back
            self.files.add(name)
            if is_here and "<" not in frame.f_code.co_name:
                self.functions.add(function)


@contextlib.contextmanager
def watched(found: Found, name: str) -> Iterator[None]:
    """Keep under `name` what the block enters, in threads that were begun with `idle` too."""
    watch = Watch()
    _watch[:] = [watch]
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        _watch.clear()
        entered = watch.files, watch.functions
        found[name] = tuple({one.removeprefix(ROOT) for one in some} for some in entered)


_watch: list[Watch] = []


def _in_thread(frame: FrameType, event: str, argument: Any) -> None:
    for watch in _watch:
        watch(frame, event, argument)


async def through_the_service(found: Found) -> None:
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


def on_the_command_line(found: Found) -> None:
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
    found: Found = {}
    verbose = "-v" in sys.argv
    threading.setprofile(_in_thread)
    with tempfile.TemporaryDirectory() as home:
        os.environ["MEMTUI_HOME"] = home
        asyncio.run(through_the_service(found))
        on_the_command_line(found)
    passed = False
    for name, entered in found.items():
        sizes = [len(one) for one in entered]
        passed |= any(size > limit for size, limit in zip(sizes, LIMITS[name], strict=True))
        print(f"{name:14} {sizes[0]:3} files and {sizes[1]:3} functions, at most {LIMITS[name]}")
        if verbose:
            for one in entered:
                print("   ", *sorted(one))
    sys.exit(passed)


if __name__ == "__main__":
    main()
