"""`python -m memtui`, the same as the command `memtui`."""

import gc
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_INTERRUPTED = 130
_ALLOCATIONS_A_COLLECTION = 100_000
"""More than a query makes: each collection looks at all that was imported, in vain."""


def main() -> None:
    """Run memtui's command line and end the process with its exit code."""
    try:
        code = _answer(sys.argv[1:])
        _keep_outcome(code)
    except KeyboardInterrupt:  # while the command was still imported
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        from contextlib import suppress

        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # A daemon thread may be in C++ code, which aborts when Python ends the thread.
        os._exit(code)
    if "duckdb" not in sys.modules:  # it reports frozen objects as leaked
        gc.freeze()  # else Python takes all modules apart as it ends, a quarter of a query's time
    sys.exit(code)


def _keep_outcome(code: int) -> None:
    """Let an interrupt end the process with the code of the command that is done."""
    import atexit
    import signal

    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    # Python takes its own handlers away before it has ended: the interrupt would kill it then.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _answer(arguments: Sequence[str]) -> int:
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)
    if "mcp" in arguments:
        from memtui.channels.mcp import stdio

        stdio.open_early(arguments)
        if "wrap" in arguments:
            from memtui.channels.wrap import passing

            passing.open_early(arguments)
    if "hook" not in arguments:
        return _run(arguments)
    from memtui.channels.helper.client import HelperCall

    call = HelperCall.of(arguments)
    code = call.answer() if call else None
    if code is None:
        code = _run(arguments)
        if call:
            call.start_helper()
    return code


def _run(arguments: Sequence[str]) -> int:
    # Searching for pydantic plugins reads the metadata of every installed package.
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__") == "__all__":
        # What searches imports `importlib.metadata`, which costs a tenth of a query's time.
        searching = ModuleType("pydantic.plugin._loader")
        vars(searching)["get_plugins"] = tuple
        sys.modules[searching.__name__] = searching
    from memtui.channels.cli.interrupts import end_at_once

    end_at_once()
    from memtui.channels.cli.at_once import open_at_once

    code = open_at_once(arguments)
    if code is None:
        from memtui.channels.cli.main import run

        code = run(arguments)
    return code


if __name__ == "__main__":
    main()
