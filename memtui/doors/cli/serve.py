"""`serve`: answer other programs over HTTP."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.doors.cli.session import Session

if TYPE_CHECKING:
    from memtui.doors.http.listening import Listener

HOST, PORT = "127.0.0.1", 8765


async def serve(
    session: Session,
    contract: Annotated[
        Literal["facts"], typer.Argument(help="What to serve: facts of users and drives.")
    ] = "facts",
    host: Annotated[
        str | None, typer.Option(help=f"Listen on this address; {HOST} where it is left out.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help=f"Listen on this port; {PORT} where it is left out."),
    ] = None,
    uds: Annotated[
        Path | None, typer.Option(help="Listen on a unix socket of this path instead.")
    ] = None,
) -> None:
    """Answer other programs over HTTP, with a token each.

    Prints the address once it answers, and runs until ctrl+c or SIGTERM.
    """
    _require_extra()
    await _require_token(session)
    with _listener(host, port, uds) as listener:
        _warn(session, host)
        from memtui.doors.http.app import Served
        from memtui.doors.http.facts_api import facts_app
        from memtui.doors.http.server import run

        served = Served(session.service, session.company.company_id)
        app = facts_app(served, names=listener.names)
        socket = str(listener.path) if listener.path else None
        session.out.answer(
            {
                "contract": contract,
                "company_id": served.company_id,
                "url": listener.url,
                "socket": socket,
            },
            lambda: [f"Serving {contract} of {served.company_id} at {socket or listener.url}"],
        )
        sys.stdout.flush()
        await run(app, listener)


def _listener(
    host: str | None, port: int | None, uds: Path | None
) -> AbstractContextManager[Listener]:
    from memtui.contract import Invalid
    from memtui.doors.http.listening import on_port, on_socket

    if uds is None:
        return on_port(host or HOST, PORT if port is None else port)
    if host is not None or port is not None:
        raise Invalid("A server listens on a unix socket or on a port; leave one of them out.")
    return on_socket(uds)


def _warn(session: Session, host: str | None) -> None:
    from memtui.doors.http.listening import is_loopback

    if host is not None and not is_loopback(host):
        session.out.say(
            f"Warning: other machines reach {host}, and tokens and facts travel unencrypted; "
            "put a proxy with TLS in front."
        )


def _require_extra() -> None:
    from memtui.contract import Invalid

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise Invalid("Serving needs more packages: pip install 'memtui[server]'.")


async def _require_token(session: Session) -> None:
    from memtui.contract import Invalid

    if not await session.service.tokens(session.caller):
        raise Invalid(
            f"There is no token in {session.company.company_id}, so nobody could be answered; "
            "make one with `memtui tokens add`."
        )
