"""The helper's socket, the check of its peer, and the protocol.

A hook's process imports this module first, so it imports only modules that load quickly.

The client sends one request: its size (four bytes, big-endian), then its parts separated by NUL.
The helper's child answers `READY` if it can run this request, or closes. It runs nothing before
the client sends `GO`, so a client that stops waiting can run its hook itself without a second run.
`GO` carries the client's standard streams as descriptors: sent earlier, they would stay open in the
queue, and their readers would wait for the helper. The last message is the exit code, one byte.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

import memtui

READY, GO = b"R", b"G"
READY_WITHIN_S = 2.0
"""How long a client waits for `READY` before it runs its hook itself."""
MAX_REQUEST_BYTES = 8_000_000
"""No system allows a longer environment and command line."""
HEADER = struct.Struct("!I")
OUTDATED = 3
"""Exit status of a helper's child whose client has another version or home."""

_MAX_RUNTIME_BYTES = 70
"""The path of a socket, 30 bytes longer, must be shorter than 104 on some systems."""
_INTERPRETED = ("PYTHON", "LD_", "DYLD_")
"""Prefixes of variables that only take effect when Python starts."""


def home_key(home: str, environ: Mapping[str, str]) -> str:
    """Return a key that identifies the home that `memtui.paths.find_paths` finds."""
    if chosen := home or environ.get("MEMTUI_HOME"):
        return os.path.abspath(os.path.expanduser(chosen))  # noqa: PTH100, PTH111 - pathlib is slow
    names = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return "\n".join(["~", *(environ.get(name, "") for name in names)])


def code_key(environ: Mapping[str, str]) -> str:
    """Return a key that identifies this version and copy of memtui, as it was started."""
    read = sorted(f"{k}={v}" for k, v in environ.items() if k.startswith(_INTERPRETED))
    variables = zlib.crc32(os.fsencode("\0".join(read)))  # command lines are public
    python = sys.version.partition(" ")[0]
    return f"{memtui.__version__} {memtui.__file__} {python} {sys.prefix} {variables:08x}"


def folder(environ: Mapping[str, str]) -> str:
    """Return the private folder for the sockets of this user's helpers."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    is_short = len(os.fsencode(runtime)) < _MAX_RUNTIME_BYTES
    if runtime.startswith("/") and is_short and is_private(runtime):
        return f"{runtime}/memtui"
    return f"/tmp/memtui-{os.geteuid()}"  # noqa: S108 - checked before use


def is_private(path: str) -> bool:
    """Whether a path is a folder (not a link) of this user that nobody else can enter."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    )


class HelperSocket:
    """The socket of a home's helper, and the lock that the helper holds while it lives."""

    def __init__(self, key: str, environ: Mapping[str, str]) -> None:
        """Take the `home_key`."""
        self.folder = folder(environ)
        name = f"{self.folder}/{zlib.crc32(os.fsencode(key)):08x}"
        self.socket, self._lock = f"{name}.sock", f"{name}.lock"

    def take(self) -> int | None:
        """Become the helper of this home and return the lock's descriptor; None: one exists.

        Raises `OSError` where the folder cannot be made or is not private. A child process does not
        inherit the lock.
        """
        try:
            os.mkdir(self.folder, 0o700)  # noqa: PTH102 - as above
        except FileExistsError:
            if not is_private(self.folder):
                raise
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino != os.stat(self._lock).st_ino:  # noqa: PTH116
                raise FileNotFoundError  # removed by a helper that just ended
        except OSError:
            os.close(lock)
            return None
        os.truncate(lock, 0)
        os.write(lock, b"%d" % os.getpid())
        return lock

    def leave(self) -> None:
        """Remove socket and lock; only the holder of the lock may call it."""
        for path in (self.socket, self._lock):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108

    @classmethod
    def of(cls, home: str) -> HelperSocket:
        """Return the socket of the home that a command line names; empty: the default home."""
        return cls(home_key(home, os.environ), os.environ)

    def is_usable(self) -> bool:
        """Whether the folder is private, or does not exist yet."""
        return is_private(self.folder) or not os.path.lexists(self.folder)

    def holder(self) -> int | None:
        """Return the process id of this home's helper; None: none runs."""
        if not is_private(self.folder):
            return None
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return int(os.read(lock, 20) or 0) or None
        else:
            return None
        finally:
            os.close(lock)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the effective user id at the other end. Raises `OSError`."""
    if sys.platform == "darwin":
        local, credentials, process = 0, 1, 2  # SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID
        found = connection.getsockopt(local, credentials, 76)
        return connection.getsockopt(local, process), struct.unpack_from("=II", found)[1]
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError("this system does not tell who is there")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return pid, uid


def request_bytes(code: str, home: str, arguments: Sequence[str], umask: int) -> bytes:
    """Return this process's request, as `read_request` reads it. Raises `OSError`."""
    parts = [
        os.fsencode(code),
        os.fsencode(home),
        os.getcwdb(),  # noqa: PTH109
        b"%o" % umask,
        b"%d" % os.getppid(),
        b"%d" % len(arguments),
        *map(os.fsencode, arguments),
        *(b"%s=%s" % (name, value) for name, value in os.environb.items() if name),
    ]
    content = b"\0".join(parts)
    return HEADER.pack(len(content)) + content
