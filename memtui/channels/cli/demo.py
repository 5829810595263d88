"""`demo`: make a sample company, and open it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING

from memtui.channels.cli.output import Line, fields, ticker
from memtui.channels.cli.session import Invocation, logging_to, open_app, require_terminal
from memtui.config import Paths
from memtui.paths import HOME_VARIABLE

if TYPE_CHECKING:
    from memtui.demo.making import DemoSummary


def demo(invocation: Invocation, *, no_tui: bool = False, reset: bool = False) -> int:
    """Make a sample company, the same every time, and open it.

    It lives in MEMTUI_HOME, or in its own folder; your memories are not touched.

    Args:
        no_tui: Make it and stop; do not open it.
        reset: Make it again from the start.
    """
    from memtui.demo.making import COMPANY, build_demo, can_open, demo_paths

    if not no_tui:
        require_terminal()
    given = {HOME_VARIABLE: str(invocation.home)} if invocation.home else os.environ
    paths = demo_paths(given)
    invocation.home = paths.data
    settings = invocation.settings()
    if no_tui:
        with logging_to(paths.log_file), ticker(on_terminal_only=True) as show:
            summary = build_demo(
                paths,
                settings,
                reset=reset,
                progress=lambda doing, done, total: show(f"{doing} {100 * done // (total or 1)}%"),
            )
        invocation.out.answer(summary, _lines(summary))
        return 0
    if (not can_open(paths, settings) or reset) and (code := _begin(paths, reset=reset)):
        return code
    invocation.company = invocation.company or COMPANY
    return open_app(invocation)


def _begin(paths: Paths, *, reset: bool) -> int:
    """Make the demo in another process, and wait until there is something to look at.

    That process completes the demo even if this one ends. Returns its exit code if it failed, else
    0.
    """
    import subprocess
    import tempfile
    from importlib import import_module

    from memtui.demo.making import is_begun

    command = [sys.executable, "-m", "memtui", "demo", "--no-tui", *(["--reset"] if reset else [])]
    with tempfile.TemporaryFile() as said:
        maker = subprocess.Popen(  # noqa: S603 — our own command
            command,
            env=os.environ | {HOME_VARIABLE: str(paths.data)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        import_module("memtui.app")  # meanwhile
        while (code := maker.poll()) is None and not is_begun(paths):
            sleep(0.02)
        said.seek(0)
        if code:
            sys.stderr.write(said.read().decode(errors="replace"))
        return code or 0


def _lines(summary: DemoSummary) -> Iterator[Line]:
    yield from fields(
        ("home", summary.home),
        ("company", f"{summary.name} ({summary.company})"),
        ("projects", ", ".join(summary.projects)),
        ("agents", ", ".join(summary.agents)),
        ("bindings", ", ".join(summary.bindings)),
        ("records", f"{summary.records:,}"),
        ("operations", f"{summary.operations:,}"),
    )
    yield "Try:"
    for command in summary.commands:
        yield f"  {command}"
