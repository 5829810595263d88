"""Where a server listens: a port of this machine, or a unix socket."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memtui.contract import Invalid, MemtuiError, Unavailable
from memtui.provider_kit.servers import is_loopback

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_WAITING = 128
_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Listener:
    """An open socket, the address that clients use, and the host names it answers to."""

    socket: socket.socket
    url: str
    names: frozenset[str] | None
    """None: any."""
    path: Path | None = None
    """The unix socket's file."""


@contextmanager
def on_port(host: str, port: int) -> Iterator[Listener]:
    """Listen on a port; 0 takes a free one.

    Raises:
        Invalid: there is no such host, or it is not this machine.
        Unavailable: the port is taken, or may not be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise Invalid(f"The host {host} was not found; give an address of this machine.") from error
    try:
        opened = socket.create_server(address[:2], family=family, backlog=_WAITING)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    # asyncio does this only where a socket names its protocol; without it an answer that is written
    # in two parts waits 40 ms for the client's acknowledgement.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    names = LOOPBACK_NAMES | {shown.lower()} if is_loopback(host) else None
    with opened:
        yield Listener(opened, f"http://{shown}:{opened.getsockname()[1]}", names)


def _cannot_listen(host: str, port: int, error: OSError) -> MemtuiError:
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            f"Another program listens on {host} port {port}; stop it, or choose a port with --port."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return Invalid(f"{host} is not an address of this machine; give one with --host.")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Unavailable(
        f"Cannot listen on {host} port {port} ({reason}); choose another with --port."
    )


@contextmanager
def on_socket(path: Path) -> Iterator[Listener]:
    """Listen on a unix socket of mode 0600; its file goes when the server stops.

    Raises:
        Invalid: the path cannot be a socket, or something else is there.
        Unavailable: another server listens on it.
    """
    _make_way(path)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with opened:
        before = os.umask(0o177)
        try:
            opened.bind(str(path))
        except OSError as error:
            raise Invalid(f"Cannot make the socket {path} ({_why(error)}).") from error
        finally:
            os.umask(before)
        opened.listen(_WAITING)
        own = path.stat()
        try:
            yield Listener(opened, "http://localhost", None, path)
        finally:
            _remove(path, own)


def _make_way(path: Path) -> None:
    """Remove the socket that a dead server left behind, and nothing else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Invalid(f"Cannot look at {path} ({_why(error)}).") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise Invalid(f"{path} exists and is not a socket; choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            _remove(path, found)
        except OSError as error:
            raise Unavailable(f"Cannot tell who uses {path} ({_why(error)}).") from error
        else:
            raise Unavailable(f"Another server listens on {path}; stop it, or name another path.")


def _remove(path: Path, own: os.stat_result) -> None:
    try:
        if os.path.samestat(path.lstat(), own):
            path.unlink()
    except FileNotFoundError:
        return


def _why(error: OSError) -> str:
    return error.strerror or str(error)
