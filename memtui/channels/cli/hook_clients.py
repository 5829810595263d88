"""`hook clients`, `install`, `uninstall` and `helper`: who calls memtui's hooks, and quickly."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from memtui.channels.cli.clients import (
    ClientAgent,
    YesTo,
    answer_clients,
    carried_out,
    client_argument,
    own_command,
    project_words,
)
from memtui.channels.cli.options import FromFolder, WorksIn
from memtui.channels.cli.session import Invocation
from memtui.channels.helper.wire import HelperSocket
from memtui.contract import Unavailable

ClientKey = Annotated[str, client_argument("hook")]


def hook_clients(invocation: Invocation) -> None:
    """List the clients whose hooks memtui knows, and which of them call memtui."""
    from memtui.channels.hooks.clients import CLIENTS

    answer_clients(invocation, CLIENTS, lambda one: {"events": list(one.events)})


def hook_install(
    invocation: Invocation,
    client: ClientKey,
    *,
    agent: ClientAgent = None,
    project: WorksIn = None,
    project_from_folder: FromFolder = False,
    yes: YesTo = None,
) -> int:
    """Let a client call memtui when a session starts, at each prompt and after each answer.

    It shows the change to the client's file and makes it after a yes; everything else in the file
    stays. Exit 2 if nobody could be asked.
    """
    from memtui.channels.clients import ClientPlan, find_client
    from memtui.channels.hooks.clients import CLIENTS, EVENT, installing

    chosen = find_client(client, CLIENTS)
    command = [
        *own_command(invocation),
        *["hook", EVENT, "--client", chosen.key],
        *(["--agent", agent] if agent else []),
        *project_words(project, from_folder=project_from_folder),
    ]
    change = installing(
        chosen, chosen.file(Path.home()), command, invocation.settings().hook_timeout_ms
    )
    plan = ClientPlan(None, (change,) if change.before != change.after else ())
    notes = [chosen.then]
    if chosen.leaves_notes:
        notes.append("Runs leave notes where `memtui bindings capture KEY --post-run on` allows it")
    if not invocation.paths().data.is_dir():
        notes.append("There is no memory yet, and hooks do not create one: start `memtui` once")
    return carried_out(invocation, plan, yes, f"{chosen.name} calls memtui", ". ".join(notes))


def hook_uninstall(invocation: Invocation, client: ClientKey, *, yes: YesTo = None) -> int:
    """Remove memtui's hooks from a client. Exit 2 if nobody could be asked."""
    from memtui.channels.clients import ClientPlan, find_client
    from memtui.channels.hooks.clients import CLIENTS, uninstalling

    chosen = find_client(client, CLIENTS)
    plan = ClientPlan(None, (uninstalling(chosen, chosen.file(Path.home())),))
    done = f"{chosen.name} no longer calls memtui"
    return carried_out(invocation, plan, yes, done, "sessions that run now still may")


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
