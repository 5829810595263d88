"""The resident process: it waits for hooks and forks a child for each.

A hook's process starts it as
`python -P -m memtui.channels.helper.server CODE HOME DATA CONFIG_FILE IDLE_S MODEL`: requests must
name the same CODE and HOME; DATA is the home's folder, CONFIG_FILE its settings.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memtui.channels.helper.child import serve
from memtui.channels.helper.wire import OUTDATED, HelperSocket, peer
from memtui.channels.helper.words import EVENTS

if TYPE_CHECKING:
    from memtui.contract import Model

WARM = (
    "email.utils", "filelock", "getpass", "memtui.analytics.sealed", "memtui.backends.vault",
    "memtui.channels.agent", "memtui.channels.hooks.calls", "memtui.channels.hooks.capture",
    "memtui.channels.hooks.joining", "memtui.importing.projects", "memtui.log_file",
    "memtui.service.home.companies", "memtui.service.context.contexts",
    "memtui.service.history.log", "memtui.service.spending", "memtui.service.home.members",
    "platformdirs", "typer._adapters", "typer._click.decorators", "yaml",
)  # fmt: skip
"""Modules whose import covers most needs of hooks; a hook imports any others itself."""
AT_ONCE = max(4, 2 * (os.cpu_count() or 1))
"""Most hooks that run at the same time; others wait."""

_LOOK_S = 30.0
"""How often an idle helper checks that its home still exists."""


class HelperTerms(NamedTuple):
    """The arguments that a helper was started with."""

    code: str
    home: str
    data: Path
    config_file: Path
    idle_s: int
    model: str
    """The model whose tokens contexts are counted in."""


class Helper:
    """The socket that hooks connect to, and the children that run them."""

    def __init__(self, terms: HelperTerms, place: HelperSocket, lock: int) -> None:
        """Listen on the socket; the caller holds its lock. Raises `OSError`."""
        self._terms = terms
        self._place = place
        self._children: dict[int, socket.socket] = {}
        """Connections of the clients, by the child's process id."""
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        files = (str(terms.config_file), *filter(None, modules))
        self._made_from = {path: _stamp(path) for path in files}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(place.socket).unlink(missing_ok=True)  # left by a killed helper: we hold the lock
        self._listener.bind(place.socket)
        self._listener.listen(64)
        self._listener.settimeout(0)
        self._poll = select.poll()
        self._woken, wake = os.pipe()
        self._own = (lock, self._woken, wake)
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(self._woken, select.POLLIN)

    def serve(self) -> None:
        """Answer hooks until idle for `idle_s`, or until the code, settings or home changed."""
        last = monotonic()
        try:
            while self._children or monotonic() - last < self._terms.idle_s:
                is_asked = self._wait(min(_LOOK_S, self._terms.idle_s))
                if (is_asked or not self._children) and not self._is_current():
                    return
                if is_asked:
                    last = monotonic()
                    self._accept()
        finally:
            self._place.leave()

    def _wait(self, seconds: float) -> bool:
        """Wait for an event; return whether a hook asks."""
        has_room = len(self._children) < AT_ONCE
        self._poll.register(self._listener, select.POLLIN if has_room else 0)
        events = dict(self._poll.poll(seconds * 1000))
        asks = events.pop(self._listener.fileno(), 0)
        if events.pop(self._woken, 0):
            os.read(self._woken, 4096)
        self._reap()
        for pid, connection in self._children.items():
            if connection.fileno() in events:  # its client is gone
                self._poll.unregister(connection)
                os.kill(pid, signal.SIGTERM)
        return bool(asks & select.POLLIN)

    def _reap(self) -> None:
        for pid, connection in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                with suppress(KeyError):
                    self._poll.unregister(connection)
                connection.close()
                if os.waitstatus_to_exitcode(status) == OUTDATED:
                    _end()

    def _accept(self) -> None:
        """Accept a hook's connection and fork a child for it."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # the client is gone
            return
        try:
            pid = os.fork() if peer(connection)[1] == os.geteuid() else None
        except OSError:  # the client is gone, or no process can be made
            pid = None
        if pid is None:
            connection.close()
            return
        if not pid:
            self._become_child(connection)
        self._children[pid] = connection
        self._poll.register(connection, 0)

    def _become_child(self, connection: socket.socket) -> NoReturn:
        """Close the helper's descriptors and signal handlers, and run the hook."""
        try:
            signal.set_wakeup_fd(-1)
            for one in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
                signal.signal(one, signal.SIG_DFL)
            for other in (self._listener, *self._children.values()):
                other.close()
            for own in self._own:
                os.close(own)
            with _logged(self._terms):
                os._exit(serve(connection, self._terms.code, self._terms.home))
        finally:
            os._exit(1)

    def _is_current(self) -> bool:
        """Whether the home exists and settings and code are unchanged since the start."""
        made = self._made_from.items()
        return self._terms.data.is_dir() and all(_stamp(path) == seen for path, seen in made)


def _stamp(path: str) -> tuple[int, int] | None:
    """Return a file's modification time and size; None: there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a thousand of them for each hook
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _end(*_: object) -> NoReturn:
    sys.exit()


def main(arguments: Sequence[str]) -> None:
    """Run the helper of a home until it is idle; return at once if one runs already."""
    code, home, data, config_file, idle_s, model = arguments
    terms = HelperTerms(code, home, Path(data), Path(config_file), int(idle_s), model)
    os.chdir("/")
    os.umask(0o077)
    place = HelperSocket(home, os.environ)
    lock = place.take()
    if lock is None:
        return
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with _logged(terms):
        warm(terms.model)
        gc.collect()
        gc.freeze()
        Helper(terms, place, lock).serve()


def warm(model: str) -> None:
    """Import modules and build objects that every hook needs and that no caller affects."""
    for module in WARM:
        import_module(module)
    from memtui.channels.cli.main import command_line
    from memtui.context.cost import TokenCounter
    from memtui.contract import Model
    from memtui.service.providers import own_providers

    TokenCounter(model).tokens("")
    own_providers()
    for kind in _below(Model):
        kind.model_rebuild(raise_errors=False)
    hooks = command_line().commands["hook"]
    for event in EVENTS:
        hooks.get_command(None, event).make_context(event, [], resilient_parsing=True)


def _below(kind: type[Model]) -> Iterator[type[Model]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


@contextmanager
def _logged(terms: HelperTerms) -> Iterator[None]:
    """Log errors: a helper has no terminal to report them on."""
    try:
        yield
    except Exception:
        import logging

        from memtui.channels.cli.session import logging_to

        with logging_to(terms.data / "memtui.log"):
            logging.getLogger("memtui.channels.helper").exception("The helper failed")
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
