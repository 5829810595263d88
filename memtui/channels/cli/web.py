"""`serve web`: the terminal app in a browser of this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memtui.channels.cli.session import Invocation
from memtui.wording import require_extra

HOST = "127.0.0.1"


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
    from memtui.channels.listening import on_port
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
            "Open it in a browser of this machine; it lets one in, once. ctrl+c ends it.",
        )
        sys.stdout.flush()
        await server.run()
