"""`hook helper`: the resident process that makes hooks quick."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from memtui.channels.cli.session import Invocation
from memtui.channels.helper.wire import HelperSocket
from memtui.contract import Unavailable

_STOP_WITHIN_S = 5.0


def hook_helper(invocation: Invocation, *, stop: bool = False) -> None:
    """Show whether the helper of this home runs, or stop it.

    The helper is a process that has already imported what hooks need, so that they answer fast. A
    hook starts it, and it ends when no hook has called it for the seconds of the setting
    helper_idle_s.

    Args:
        stop: Stop it, once the hooks that run are answered.
    """
    place = HelperSocket.of(str(invocation.home or ""))
    idle_s = invocation.settings().helper_idle_s
    process = place.holder()
    if stop and process is not None:
        _stop(place, process)
        process = None
    answer = {"running": process is not None, "process": process, "idle_s": idle_s}
    invocation.out.answer(answer | {"socket": place.socket}, [_line(process, idle_s)])


def _line(process: int | None, idle_s: int) -> str:
    if process is not None:
        return f"The helper runs as process {process}."
    if not idle_s:
        return "No helper runs, and helper_idle_s is 0, so that none is started."
    return "No helper runs; the next hook starts one."


def _stop(place: HelperSocket, process: int) -> None:
    """End the helper and wait until it is gone. Raises `Unavailable`."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    until = time.monotonic() + _STOP_WITHIN_S
    while place.holder() == process:
        if time.monotonic() > until:
            raise Unavailable(f"The helper does not end; kill the process {process}.")
        time.sleep(0.02)
