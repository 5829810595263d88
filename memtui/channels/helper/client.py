"""The hook's side: ask the helper to run the command line, and start a helper."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from memtui.channels.helper.wire import (
    GO,
    MAX_REQUEST_BYTES,
    READY,
    READY_WITHIN_S,
    HelperSocket,
    code_key,
    home_key,
    is_private,
    peer,
    request_bytes,
)
from memtui.channels.helper.words import home_of_hook

_INTERRUPTED = 130
_NEVER = "MEMTUI_HELPER_IDLE_S", "0"


class HelperCall:
    """One hook's command line, and the helper that may run it."""

    def __init__(self, arguments: Sequence[str], home: str) -> None:
        self._arguments = arguments
        self._home = home
        self._code, self._key = code_key(os.environ), home_key(home, os.environ)
        self._place = HelperSocket(self._key, os.environ)

    @classmethod
    def of(cls, arguments: Sequence[str]) -> HelperCall | None:
        """Return the call for a command line; None: no helper may run it."""
        home = home_of_hook(arguments)
        if home is None or os.environ.get(_NEVER[0]) == _NEVER[1] or not _is_plain():
            return None
        return cls(arguments, home)

    def answer(self) -> int | None:
        """Have the helper run the hook and return the exit code; None: nothing was run.

        A hook never fails an agent: the code is 0 where the helper's child dies midway, and the log
        file says so.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                if not self._begin(connection):
                    return None
                code = _read_code(connection)
            except OSError:
                return None
            except KeyboardInterrupt:
                return _INTERRUPTED
        if code is None:
            self._log_death()
        return code or 0

    def _begin(self, connection: socket.socket) -> bool:
        """Send the request and start it; False: the helper refused. Raises `OSError`."""
        if not is_private(self._place.folder):
            return False
        umask = os.umask(0o077)
        os.umask(umask)
        request = request_bytes(self._code, self._key, self._arguments, umask)
        if len(request) > MAX_REQUEST_BYTES:
            return False
        connection.settimeout(READY_WITHIN_S)
        connection.connect(self._place.socket)
        if peer(connection)[1] != os.geteuid():
            return False
        connection.sendall(request)
        if connection.recv(1) != READY:
            return False
        socket.send_fds(connection, [GO], [0, 1, 2])
        return True

    def start_helper(self) -> None:
        """Start a helper for later hooks, unless one runs or the settings turn it off."""
        from pathlib import Path

        from memtui.config import find_paths, load_settings
        from memtui.contract import MemtuiError

        if not self._place.is_usable() or self._place.holder() is not None:
            return
        try:
            paths = find_paths(Path(self._home) if self._home else None)
            settings = load_settings(paths)
        except MemtuiError:
            return  # running a command reports it
        if not settings.helper_idle_s or not paths.is_begun:
            return
        places = str(paths.data), str(paths.config_file)
        terms = (
            self._code, self._key, *places, str(settings.helper_idle_s), settings.context_model,
        )  # fmt: skip
        command = [sys.executable, "-P", "-m", "memtui.channels.helper.server", *terms]
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)
        ]
        actions += [(os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()]
        with suppress(OSError, NotImplementedError):
            os.posix_spawn(
                sys.executable,
                command,
                os.environ,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
            )

    def _log_death(self) -> None:
        import logging
        from pathlib import Path

        from memtui.channels.cli.session import logging_to
        from memtui.config import find_paths

        paths = find_paths(Path(self._home) if self._home else None)
        with logging_to(paths.log_file):
            logging.getLogger("memtui").error(
                "The helper's process for `memtui %s` ended before it had answered; "
                "an operation that it had begun shows as unknown.",
                " ".join(self._arguments),
            )


def _read_code(connection: socket.socket) -> int | None:
    """Wait for the exit code; None: the child ended without sending it."""
    connection.settimeout(None)
    try:
        found = connection.recv(1)
    except OSError:
        return None
    return found[0] if found else None


def _is_plain() -> bool:
    """Whether a helper's child can replace this process: same user, encodings and flags."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return (
        hasattr(os, "fork")
        and not sys.flags.ignore_environment
        and os.getuid() == os.geteuid()
        and sys.getfilesystemencoding() == "utf-8"
        and all(one is not None and one.encoding.lower() == "utf-8" for one in streams)
    )


def _inheritable() -> list[int]:
    """Return the inheritable descriptors other than the standard streams."""
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - as names
        with suppress(OSError):  # the listing's descriptor is closed by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found
