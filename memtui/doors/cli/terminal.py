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
    """Raise `Invalid` unless stdin and stdout are a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from memtui.contract import Invalid

        raise Invalid("The terminal app needs a terminal; give a command, or see memtui --help.")
