"""Serve an app where a listener listens, until the process is told to stop.

uvicorn waits for ever for a request's head, its body and a client that reads nothing of our answer,
so one client with a thousand half-sent requests would take every connection there is.
"""

from __future__ import annotations

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
    """Seconds that each part may take in all, however it trickles in."""

    head: float = 15.0
    """From the connection, or a request's first byte, to the end of its head."""
    body: float = 30.0
    """From there to the end of its body."""
    answer: float = 30.0
    """How long a client may read nothing of an answer that waits for it."""


class PatientProtocol(H11Protocol):
    """Closes a connection whose client takes too long; one that began a request is told (408)."""

    def __init__(
        self, *arguments: Any, patience: Patience, style: ErrorStyle | None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._patience = patience
        self._style = style
        self._awaited: float | None = None
        """The time that what is waited for now may take."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what came, and wait for what is to come next."""
        super().handle_events()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait until the client has read some of the answer."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._patience.answer, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no more for the client to read."""
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
            return  # what trickles in gets no more time
        self._stop()
        if awaited is not None:
            self._awaited, self._timer = awaited, self.loop.call_later(awaited, self._give_up)

    def _has_begun(self) -> bool:
        """Whether a part of the next request is there; an idle connection has its own timer."""
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
        """Refuse what is not HTTP, in the form that the contract gives to refusals."""
        del msg
        self._refuse(HTTPStatus.BAD_REQUEST, "This is not HTTP/1.1, or its head is too long.")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer in the app's place, unless it has begun to, and close."""
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
