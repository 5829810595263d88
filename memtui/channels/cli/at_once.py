"""Opens the terminal app without importing the parser of all commands."""

import sys
from collections.abc import Sequence
from typing import Any

from memtui.channels.cli.session import global_options, is_terminal, open_app


def open_at_once(arguments: Sequence[str]) -> int | None:
    """Open the terminal app and return its exit code.

    None: a command is given, an option is wrong, or there is no terminal; the parser handles that.
    """
    invocation = global_options(arguments)
    if invocation is None or not is_terminal():
        return None
    errors_of_terminal: Any = sys.stderr
    errors_of_terminal.reconfigure(errors="backslashreplace")
    try:
        return open_app(invocation)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the outermost boundary: nobody sees a traceback
        from memtui.channels.cli import errors

        return errors.report(error, invocation, as_json=False)
