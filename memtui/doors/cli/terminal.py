"""Open the terminal app, where there is a terminal."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memtui.doors.cli.session import Invocation


def open_app(invocation: Invocation) -> int:
    """Open the terminal app and return its exit code.

    Raises:
        Invalid: there is no terminal, or a setting does not fit.
    """
    require_terminal()
    with keys_kept() as attributes:
        from memtui.app import run_app

        return run_app(
            invocation.paths(),
            invocation.settings,
            company=invocation.company,
            terminal=attributes,
        )


@contextmanager
def keys_kept() -> Iterator[list[Any]]:
    """Have the terminal keep each key as it is, unseen, until the app reads it.

    Until then it would show it, wait for a whole line, and take enter for ctrl+j. Yields what the
    terminal's attributes were, and sets them again.
    """
    before = termios.tcgetattr(sys.stdin)
    now = list(before)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
    try:
        yield before
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def require_terminal() -> None:
    """Raise `Invalid` unless input, output and errors are a terminal: it paints on stderr."""
    if not _is_terminal():
        from memtui.contract import Invalid

        raise Invalid("The terminal app needs a terminal; give a command, or see memtui --help.")


def _is_terminal() -> bool:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def open_at_once(arguments: Sequence[str]) -> int | None:
    """Open the terminal app without importing the parser of all commands, and return its exit code.

    None where a command is given, and where anything is wrong: the parser says what.
    """
    invocation = global_options(arguments)
    if invocation is None or not _is_terminal():
        return None
    errors_of_terminal: Any = sys.stderr
    errors_of_terminal.reconfigure(errors="backslashreplace")
    try:
        return open_app(invocation)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the outermost boundary: nobody sees a traceback
        from memtui.doors.cli import errors

        return errors.report(error, invocation, as_json=False)


def global_options(arguments: Sequence[str]) -> Invocation | None:
    """Return the options before a command, as `memtui.doors.cli.main.start` takes them.

    None where there is anything else.
    """
    found = Invocation()
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--read-only":
            found.read_only = True
            continue
        if name not in {"--home", "--company", "--principal", "--acts-for"}:
            return None
        value = value if equals else next(words, "")
        if not value or value.startswith("-") or not _is_utf8(value):
            return None
        if name != "--home":
            setattr(found, name.removeprefix("--").replace("-", "_"), value)
        elif not _can_be_home(Path(value)):
            return None
        else:
            found.home = Path(value)
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _can_be_home(folder: Path) -> bool:
    try:
        return not folder.exists() or (folder.is_dir() and os.access(folder, os.R_OK))
    except OSError:
        return False
