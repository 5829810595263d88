"""`serve`: answer other programs over HTTP, and open the app in a browser."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.session import FirstSession, Invocation, Session
from memtui.channels.listening import Listener, on_port, on_socket
from memtui.contract import Invalid, Scope
from memtui.wording import require_extra

if TYPE_CHECKING:
    from fastapi import FastAPI


HOST = "127.0.0.1"
PORTS = {"facts": 8765, "plugin": 9100}
_RISKS = {
    "facts": "tokens and facts travel unencrypted; put a proxy with TLS in front.",
    "plugin": "a memory plugin asks for no login: whoever reaches it reads and changes everything "
    "in the binding; keep it on a private network.",
}
"""What other machines that reach a server of a contract mean."""


_Host = Annotated[str | None, typer.Option(help=f"Listen on this address; left out: {HOST}.")]
_Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Listen on this port; left out: {facts} for facts and {plugin} for a "
        "plugin.".format_map(PORTS),
    ),
]
_Uds = Annotated[Path | None, typer.Option(help="Listen on a unix socket of this path instead.")]


async def serve_facts(
    session: FirstSession, *, host: _Host = None, port: _Port = None, uds: _Uds = None
) -> None:
    """Serve facts of users and projects to programs with a token.

    It prints the address once it answers, and runs until ctrl+c or SIGTERM.
    """
    require_extra("The HTTP server", "server", "fastapi", "uvicorn")
    await require_tokens(session)
    with _listener(host, port, "facts", uds) as listener:
        from memtui.channels.http.app import Served
        from memtui.channels.http.facts import facts_app

        app = facts_app(Served(session.service, session.company.company_id), names=listener.names)
        await _run(session, "facts", app, listener, host)


async def serve_plugin(
    session: FirstSession,
    *,
    binding: str | None = None,
    host: _Host = None,
    port: _Port = None,
    uds: _Uds = None,
    principal: str | None = None,
) -> None:
    """Serve a binding as a memory plugin, which asks for no token.

    It prints the address once it answers, and runs until ctrl+c or SIGTERM.

    Args:
        binding: The binding to serve; left out: the company's.
        principal: Who calls the plugin, in the log and for roles; left out: plugin:anonymous.
    """
    require_extra("The HTTP server", "server", "fastapi", "uvicorn")
    with _listener(host, port, "plugin", uds) as listener:
        from memtui.channels.http.app import Served
        from memtui.channels.http.plugin import plugin_app

        served = Served(session.service, session.company.company_id)
        company = Scope(company_id=session.company.company_id)
        key = binding or (await session.service.resolve(session.caller, company)).binding_key
        app = await plugin_app(served, key, names=listener.names, principal=principal)
        await _run(session, "plugin", app, listener, host, key=key)


async def _run(
    session: Session,
    contract: str,
    app: FastAPI,
    listener: Listener,
    host: str | None,
    *,
    key: str | None = None,
) -> None:
    from memtui.channels.http.server import run

    warn_of_others(session, host, _RISKS[contract])
    _tell(session, contract, key, listener)
    await session.service.purging.due(session.caller)
    async with session.service.embedding.keeping_up(session.caller):
        await run(app, listener)


def _tell(session: Session, contract: str, key: str | None, listener: Listener) -> None:
    company_id = session.company.company_id
    socket = str(listener.path) if listener.path else None
    document: dict[str, str | None] = {"contract": contract, "company_id": company_id}
    if key is not None:
        document["binding_key"] = key
    what = f"{key} of {company_id} as a memory plugin" if key else f"{contract} of {company_id}"
    session.out.answer(
        {**document, "url": listener.url, "socket": socket},
        [f"Serving {what} at {socket or listener.url}"],
    )
    sys.stdout.flush()


def _listener(
    host: str | None, port: int | None, contract: str, uds: Path | None
) -> AbstractContextManager[Listener]:
    if uds is None:
        return on_port(host or HOST, PORTS[contract] if port is None else port)
    if host is not None or port is not None:
        raise Invalid("A server listens on a unix socket or on a port; leave one of them out.")
    return on_socket(uds)


def warn_of_others(session: Session, host: str | None, why: str) -> None:
    """Warn where other machines reach the server."""
    from memtui.provider_kit.servers import is_loopback

    if host is not None and not is_loopback(host):
        session.out.say(f"Warning: other machines reach {host}, and {why}")


async def require_tokens(session: Session) -> None:
    """Raise `Invalid` if the company has no tokens."""
    if not await session.service.tokens.all(session.caller):
        raise Invalid(
            f"{session.company.company_id} has no tokens, so nobody could connect; "
            "make one with `memtui companies tokens add`."
        )


async def serve_web(
    invocation: Invocation,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    read_only: bool = False,
) -> None:
    """Open the terminal app in a browser of this machine.

    It prints an address that works once, for one browser on this machine. It runs until you leave
    the app with q, its last tab has been closed for a minute, or ctrl+c.

    Args:
        port: Listen on this port; 0 takes a free one.
        read_only: Refuse every change, in the browser too.
    """
    require_extra("The app in a browser", "web", "textual_serve")
    from memtui.channels.cli.config import fitting_settings
    from memtui.channels.web.server import WebServer

    invocation.read_only = invocation.read_only or read_only
    settings = fitting_settings(invocation)
    with on_port(HOST, port) as listener:
        arguments = [sys.executable, "-m", "memtui.channels.web.tab", *invocation.words()]
        server = WebServer(arguments, listener)
        address = server.address
        invocation.out.answer(
            {"url": listener.url, "address": address, "read_only": settings.read_only},
            [address],
            "Open it in a browser of this machine; the address works once. ctrl+c ends it.",
        )
        sys.stdout.flush()
        await server.run()
