"""`mcp`: an MCP server for agents."""

from __future__ import annotations

import asyncio
import shlex
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.clients import (
    ClientAgent,
    YesTo,
    answer_clients,
    carried_out,
    client_argument,
    own_command,
    project_words,
)
from memtui.channels.cli.options import FromFolder, UseBinding, WorksIn, complete_name
from memtui.channels.cli.session import FirstSession, Invocation, Session
from memtui.channels.clients import ClientPlan, find_client
from memtui.channels.listening import on_port
from memtui.contract import Invalid
from memtui.importing.projects import project_of
from memtui.wording import require_extra

if TYPE_CHECKING:
    from memtui.channels.mcp.clients import McpClient
    from memtui.channels.mcp.over_http import HttpServer

HOST = "127.0.0.1"
PORT = 8766

AllowDestructive = Annotated[
    bool,
    typer.Option(
        "--allow-destructive",
        help="Also offer the tools that change and remove memories; undo brings them back.",
    ),
]
SearchesAll = Annotated[
    bool,
    typer.Option("--all-bindings", help="Let agents search every binding, not only their own."),
]


WrapServer = Annotated[
    str | None,
    typer.Option("--wrap", metavar="NAME", help="The client's server of this name."),
]


async def mcp_serve(
    session: FirstSession,
    *,
    agent: Annotated[str | None, typer.Option(autocompletion=complete_name("agent"))] = None,
    project: WorksIn = None,
    project_from_folder: FromFolder = False,
    run: str | None = None,
    binding: UseBinding = None,
    allow_destructive: AllowDestructive = False,
    all_bindings: SearchesAll = False,
    http: bool = False,
    host: str = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535)] = PORT,
) -> None:
    """Serve memories to agents as an MCP server.

    It serves the client that starts it over stdio until that client ends, or with --http every
    client that has a token. Over stdio the agent acts for you. Agents may read and add memories;
    with --allow-destructive they may also change and remove them.

    Args:
        agent: The agent's name in the log and for roles; left out: assistant. Over HTTP the token
            names the agent.
        run: The run's id; left out: each MCP session is a run.
        http: Serve streamable HTTP to clients with tokens, instead of stdio.
        host: Listen on this address, with --http.
        port: Listen on this port, with --http.
    """
    require_extra("The MCP server", "mcp", "mcp", "fastapi")
    if all_bindings and binding is not None:
        raise Invalid("--binding is for one binding and --all-bindings for all; leave one out.")
    if http:
        from memtui.channels.mcp.over_http import HttpServer

        if agent is not None or run is not None:
            raise Invalid("Over HTTP the token says who calls; leave --agent and --run out.")
        if project_from_folder:
            raise Invalid("Over HTTP clients work in folders of their own; name a --project.")
        served = HttpServer(
            session.service,
            session.company.company_id,
            run_id=_new_run(),
            project_id=project,
            binding_key=binding,
            may_destroy=allow_destructive,
            asks_all=all_bindings,
        )
        await _serve_http(session, served, host, port)
        return
    from memtui.channels.agent import agent_of
    from memtui.channels.hooks.joining import client_process, noted
    from memtui.channels.mcp.server import DOOR, serve_stdio

    if project_from_folder:
        project = project or project_of(Path(), str(Path.cwd()))
    own = session.caller
    caller = await agent_of(
        session.service,
        own,
        DOOR,
        name=agent or own.agent_id or "assistant",
        project_id=project,
        run_id=run or _new_run(),
        binding_key=binding,
        may_destroy=allow_destructive,
        asks_all=all_bindings,
    )
    client = await asyncio.to_thread(client_process)

    def run_of_client() -> str | None:
        note = noted(session.paths, client)
        return None if note is None else note.run_id

    await serve_stdio(caller, run_of_client)


ClientKey = Annotated[str, client_argument("mcp")]


def mcp_clients(invocation: Invocation) -> None:
    """List the MCP clients that memtui knows, which of them use memtui, and what goes past it.

    Of each client's other memory servers it says which are wrapped, so that memtui logs their
    calls, and which go past memtui.
    """
    from memtui.channels.mcp.clients import CLIENTS
    from memtui.channels.mcp.wrapping import servers_past

    home = Path.home()
    answer_clients(invocation, CLIENTS, lambda client: servers_past(client, home))


def mcp_install(
    invocation: Invocation,
    client: ClientKey,
    *,
    agent: ClientAgent = None,
    project: WorksIn = None,
    project_from_folder: FromFolder = False,
    allow_destructive: AllowDestructive = False,
    all_bindings: SearchesAll = False,
    wrap: WrapServer = None,
    binding: UseBinding = None,
    yes: YesTo = None,
) -> int:
    """Add memtui to an MCP client, with a guide when to use it, or wrap another server of it.

    It runs the client's own command if there is one. Otherwise it shows the change to the client's
    file and makes it after a yes; everything else in the file stays. Exit 2 if nobody could be
    asked. With --wrap the client's server of that name runs behind `memtui mcp wrap`, as the
    binding of --binding, else of the same name.
    """
    from memtui.channels.mcp.clients import CLIENTS, plan_install
    from memtui.channels.mcp.guide import skill

    chosen = find_client(client, CLIENTS)
    works_in = project_words(project, from_folder=project_from_folder)
    if wrap is not None:
        if allow_destructive or all_bindings:
            raise Invalid("--wrap offers no tools of memtui; leave the other options out.")
        command = [
            *own_command(invocation),
            *["mcp", "wrap", binding or wrap, "--agent", agent or chosen.key],
            *works_in,
        ]
        asyncio.run(_require_binding(invocation, binding or wrap))
        return _wrap_server(invocation, chosen, wrap, command, yes)
    if binding is not None:
        raise Invalid("--binding goes with --wrap; `memtui mcp --binding` serves one binding.")
    require_extra("The MCP server", "mcp", "mcp", "fastapi")
    command = [
        *own_command(invocation),
        *["mcp", "--agent", agent or chosen.key],
        *works_in,
        *(["--allow-destructive"] if allow_destructive else []),
        *(["--all-bindings"] if all_bindings else []),
    ]
    plan = plan_install(chosen, Path.home(), command, skill(may_destroy=allow_destructive))
    then = f"restart it{_hooks_too(chosen.key, works_in)}"
    paths = invocation.paths()
    if invocation.names_home and not paths.is_begun:
        then += f". There is no home in {paths.data} yet: its first start makes one"
    return carried_out(invocation, plan, yes, f"{chosen.name} has memtui", then)


def _hooks_too(key: str, works_in: list[str]) -> str:
    """Return the hint to install hooks as well; empty: the client has none."""
    from memtui.channels.hooks.clients import CLIENTS

    if all(one.key != key for one in CLIENTS):
        return ""
    hook = shlex.join(["memtui", "hook", "install", key, *works_in])
    return f". `{hook}` also tells it what is remembered at each session's start"


def _wrap_server(
    invocation: Invocation,
    client: McpClient,
    name: str,
    command: list[str],
    yes: str | None,
) -> int:
    from memtui.channels.mcp.wrapping import wrapped

    change = wrapped(client, client.file(Path.home()), name, command)
    plan = ClientPlan(None, (change,) if change.before != change.after else ())
    done = f"{client.name}'s server {name} runs behind memtui"
    return carried_out(invocation, plan, yes, done, "restart the client")


async def _require_binding(invocation: Invocation, key: str) -> None:
    async with invocation.session() as session:
        await session.service.passed.terms(session.caller, key)


def mcp_uninstall(
    invocation: Invocation, client: ClientKey, *, wrap: WrapServer = None, yes: YesTo = None
) -> int:
    """Remove memtui from an MCP client, or with --wrap only from one of its servers.

    Exit 2 if nobody could be asked.
    """
    from memtui.channels.mcp.clients import CLIENTS, plan_uninstall

    chosen = find_client(client, CLIENTS)
    if wrap is not None:
        from memtui.channels.mcp.wrapping import taken_back

        plan = ClientPlan(None, (taken_back(chosen, chosen.file(Path.home()), wrap),))
        done = f"{chosen.name}'s server {wrap} no longer runs behind memtui"
        return carried_out(invocation, plan, yes, done, "restart the client")
    plan = plan_uninstall(chosen, Path.home())
    return carried_out(invocation, plan, yes, f"{chosen.name} no longer has memtui", "restart it")


async def _serve_http(session: Session, served: HttpServer, host: str, port: int) -> None:
    from memtui.channels.cli.serve import require_tokens, warn_of_others
    from memtui.channels.http.server import run
    from memtui.channels.mcp.over_http import PATH

    await require_tokens(session)
    unencrypted = "tokens and memories travel unencrypted; put a proxy with TLS in front."
    warn_of_others(session, host, unencrypted)
    with on_port(host, port) as listener:
        async with served.app(listener.names) as app:
            url = listener.url + PATH
            document = {"company_id": served.company_id, "url": url}
            notice = f"Serving {served.company_id} to agents at {url}"
            session.out.answer(document, [notice])
            sys.stdout.flush()
            async with session.service.embedding.keeping_up(session.caller):
                await run(app, listener)


def _new_run() -> str:
    return f"mcp-{uuid.uuid4().hex[:12]}"
