"""`demo`: a sample company in a folder of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Invocation
from memtui.doors.cli.tables import facts

if TYPE_CHECKING:
    from memtui.demo import DemoSummary

_HOME_VARIABLE = "MEMTUI_HOME"


def demo(
    invocation: Invocation,
    *,
    no_tui: Annotated[
        bool, typer.Option("--no-tui", help="Make it and stop; do not open it.")
    ] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Make it anew.")] = False,
) -> int:
    """Make a sample company, the same every time, and open it.

    It lives in MEMTUI_HOME, or in a folder of its own; your memories are never in its way.
    """
    import asyncio

    from memtui.demo import build_demo, demo_paths
    from memtui.doors.cli.log import logging_to
    from memtui.doors.cli.terminal import open_app, require_terminal

    if not no_tui:
        require_terminal()
    given = {_HOME_VARIABLE: str(invocation.home)} if invocation.home else os.environ
    paths = demo_paths(given)
    invocation.home = paths.data
    settings = invocation.settings()
    with logging_to(paths.log_file):
        summary = asyncio.run(build_demo(paths, settings, reset=reset, progress=_show))
    if no_tui:
        invocation.out.answer(summary, lambda: _lines(summary))
        return 0
    invocation.company = invocation.company or summary.company
    return open_app(invocation)


def _show(doing: str, done: int, total: int) -> None:
    """Keep one line of progress up to date, on a terminal only."""
    if not sys.stderr.isatty():
        return
    percent = 100 * done // max(total, 1)
    sys.stderr.write(f"\r\x1b[K{doing} {percent} %" if done < total else "\r\x1b[K")
    sys.stderr.flush()


def _lines(summary: DemoSummary) -> Iterator[Line]:
    yield from facts(
        [
            ("home", summary.home),
            ("company", f"{summary.name} ({summary.company})"),
            ("projects", ", ".join(summary.projects)),
            ("agents", ", ".join(summary.agents)),
            ("bindings", ", ".join(summary.bindings)),
            ("records", f"{summary.records:,}"),
            ("operations", f"{summary.operations:,}"),
        ]
    )
    yield "Try:"
    for command in summary.commands:
        yield f"  {command}"
