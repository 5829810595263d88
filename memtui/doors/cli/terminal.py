"""Open the terminal app, where there is a terminal."""

from __future__ import annotations

import sys

from memtui.doors.cli.session import Invocation


def open_app(invocation: Invocation) -> int:
    """Open the terminal app and return its exit code.

    Raises:
        Invalid: there is no terminal, or a setting does not fit.
    """
    require_terminal()
    from memtui.app import run_app

    return run_app(invocation.paths(), invocation.settings())


def require_terminal() -> None:
    """Raise `Invalid` unless input, output and errors are a terminal: it paints on stderr."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        from memtui.contract import Invalid

        raise Invalid("The terminal app needs a terminal; give a command, or see memtui --help.")
