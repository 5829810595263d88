"""A helper's child: it takes over a hook's environment and runs its command line."""

import locale
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memtui.channels.helper.wire import GO, HEADER, MAX_REQUEST_BYTES, OUTDATED, READY, peer
from memtui.channels.helper.words import home_of_hook
from memtui.paths import HOOK_PARENT

_AT_ONCE_BYTES = 1 << 20
_REQUEST_WITHIN_S = 2
_RUN_WITHIN_S = 120
"""A hook limits its own time; one that hangs nevertheless is killed."""


class NotForHelper(Exception):
    """The helper does not run this request; its client runs the hook itself."""


class Request(NamedTuple):
    """A client's request."""

    code: str
    home: str
    folder: bytes
    umask: int
    parent: int
    """Process id of the client's parent."""
    arguments: list[str]
    environment: dict[bytes, bytes]


def serve(connection: socket.socket, code: str, home: str) -> int:
    """Run the requested hook, and return the exit status of this process."""
    # A silent client ends this process: SIGALRM is not caught.
    signal.alarm(_REQUEST_WITHIN_S)
    try:
        request = read_request(connection)
        if home_of_hook(request.arguments) is None or _rights(peer(connection)[0]) != _rights():
            return 0
        if (request.code, request.home) != (code, home):
            return OUTDATED
        os.chdir(request.folder)
        connection.sendall(READY)
        said, streams, _, _ = socket.recv_fds(connection, len(GO), 3)
        if said != GO or len(streams) != 3:
            return 0
    except (OSError, NotForHelper):
        return 0
    signal.alarm(_RUN_WITHIN_S)
    _become(request, streams)
    from memtui.channels.cli.main import run

    answer = run(request.arguments)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent when the client is gone
    with suppress(OSError):
        connection.sendall(bytes([answer]))
    return 0


def read_request(connection: socket.socket) -> Request:
    """Read a client's request.

    Raises:
        OSError: the connection breaks.
        NotForHelper: it is not a request, or too large.
    """
    content = connection.recv(HEADER.size)
    if len(content) < HEADER.size:
        raise NotForHelper
    [size] = HEADER.unpack(content)
    if size > MAX_REQUEST_BYTES:
        raise NotForHelper
    parts: list[bytes] = []
    while size:
        parts.append(connection.recv(min(size, _AT_ONCE_BYTES)))
        size -= len(parts[-1])
        if not parts[-1]:
            raise NotForHelper
    try:
        code, home, folder, umask, parent, count, *rest = b"".join(parts).split(b"\0")
        arguments = [os.fsdecode(one) for one in rest[: int(count)]]
        environment = dict(one.split(b"=", 1) for one in rest[int(count) :])
        return Request(
            os.fsdecode(code), os.fsdecode(home), folder, int(umask, 8), int(parent),
            arguments, environment,
        )  # fmt: skip
    except ValueError as error:
        raise NotForHelper from error


def _become(request: Request, streams: Sequence[int]) -> None:
    """Take over the client's environment, umask and standard streams."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.umask(request.umask)
    os.environb.clear()
    os.environb.update(request.environment)
    os.environ[HOOK_PARENT] = str(request.parent)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    time.tzset()
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    sys.argv = ["memtui", *request.arguments]
    sys.stdin, sys.stdout, sys.stderr = map(_stream, (0, 1, 2), ("r", "w", "w"))


def _stream(place: int, mode: str) -> Any:
    """Open a standard stream as Python does at its start."""
    by_line = place == 2 or (place == 1 and os.isatty(place))
    errors = "backslashreplace" if place == 2 else "strict"
    return open(place, mode, 1 if by_line else -1, encoding="utf-8", errors=errors, closefd=False)


def _rights(process: int | str = "self") -> tuple[bytes, ...]:
    """Return a process's rights and namespaces from Linux's `/proc`; empty where unreadable.

    A helper serves only processes with equal rights: its child would not be in their sandbox.
    """
    own = Path(f"/proc/{process}")
    wanted = (b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp:")
    try:
        lines = (own / "status").read_bytes().splitlines()
        spaces = [*sorted((own / "ns").iterdir()), own / "root"]
        return (
            *(line for line in lines if line.startswith(wanted)),
            *(os.fsencode(path.readlink()) for path in spaces),
            _label(own),
        )
    except OSError:
        return ()


def _label(process: Path) -> bytes:
    """Return a process's AppArmor or SELinux label; empty where neither is used."""
    try:
        return (process / "attr" / "current").read_bytes()
    except OSError:
        return b""
