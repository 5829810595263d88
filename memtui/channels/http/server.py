"""Serves an app on a listener until the process is told to stop, with time-outs for slow clients.

uvicorn waits indefinitely for a request's head, its body and a client that does not read the reply,
so one client with a thousand half-sent requests could occupy every connection.
"""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from memtui.channels.http.app import ErrorStyle
from memtui.channels.listening import Listener


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits, in seconds, for each whole part of an exchange."""

    head: float = 15.0
    """From the connection, or a request's first byte, to the end of its head."""
    body: float = 30.0
    """From there to the end of its body."""
    answer: float = 30.0
    """While a client reads nothing of a pending reply."""


class PatientProtocol(H11Protocol):
    """Closes a connection whose client takes too long; an unfinished request gets a 408."""

    def __init__(
        self, *arguments: Any, patience: Patience, style: ErrorStyle | None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._patience = patience
        self._style = style
        self._awaited: float | None = None
        """The time limit of the part that is awaited now."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for a head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received data, and set the timer for the next part."""
        super().handle_events()
        self._watch()

    def pause_writing(self) -> None:
        """Start the timer for the client to read some of the reply."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._patience.answer, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer for the client to read."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _watch(self) -> None:
        awaited = None
        if self.transport.is_closing():
            pass
        elif self.conn.their_state is h11.SEND_BODY:
            awaited = self._patience.body
        elif self.conn.their_state is h11.IDLE and (self.cycle is None or self._has_begun()):
            awaited = self._patience.head
        if awaited == self._awaited:
            return  # receiving a little of a part does not extend its time
        self._stop()
        if awaited is not None:
            self._awaited, self._timer = awaited, self.loop.call_later(awaited, self._give_up)

    def _has_begun(self) -> bool:
        """Whether the next request has begun; an idle connection has another timer."""
        return bool(self.conn.trailing_data[0])

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._awaited = None

    def _give_up(self) -> None:
        self._stop()
        if self.conn.their_state is h11.SEND_BODY or self._has_begun():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive.")
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP, in the contract's form of refusals."""
        del msg
        self._refuse(HTTPStatus.BAD_REQUEST, "This is not HTTP/1.1, or its head is too long.")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Reply in place of the app, unless its reply has begun, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self._say(status, message)
        self.transport.close()

    def _say(self, status: HTTPStatus, message: str) -> None:
        body = b"" if self._style is None else bytes(self._style.reply(status, message).body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


_STOP_SECONDS = 10
_IDLE_SECONDS = 75
"""Longer than clients' pools keep idle connections, so they do not reuse one just closed here."""


class Server(uvicorn.Server):
    """A server for which SIGINT or SIGTERM is a normal end, not a death by signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the signals; a second SIGINT stops at once."""
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
    """Serve until SIGINT or SIGTERM, then finish running requests and return."""
    await make_server(app).serve(sockets=[listener.socket])
