"""Run an app on a listener until the process is told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from memtui.doors.http.listening import Listener
from memtui.doors.http.patience import Patience, PatientProtocol

_STOP_SECONDS = 10
_IDLE_SECONDS = 75
"""A client's pool drops an idle connection sooner, so it does not meet one that is just closed."""


class Server(uvicorn.Server):
    """A server whose stop by SIGINT or SIGTERM is an ordinary end, not a death by signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the signals, and again at once at a second SIGINT."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for one in signals:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)


def make_server(app: ASGIApp, patience: Patience | None = None) -> Server:
    """Return a server of an app. It writes nothing to stdout: warnings go to the log file."""
    style = app.state.style if isinstance(app, FastAPI) else None
    protocol = partial(PatientProtocol, patience=patience or Patience(), style=style)
    config = uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    return Server(config)


async def run(app: ASGIApp, listener: Listener) -> None:
    """Serve until SIGINT or SIGTERM, then answer what is under way and return."""
    await make_server(app).serve(sockets=[listener.socket])
