"""`mcp wrap`: an MCP server behind memtui, which logs what passes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from memtui.channels.cli.errors import KIND_CODES, UNLOGGED
from memtui.channels.cli.options import FromFolder, WorksIn, complete_name
from memtui.channels.cli.output import say
from memtui.channels.cli.session import Invocation
from memtui.contract import Invalid
from memtui.importing.projects import project_of

if TYPE_CHECKING:
    from memtui.channels.wrap.over_http import WrappedUrl
    from memtui.channels.wrap.passing import WrappedProcess
    from memtui.store.unlogged import UnloggedCalls


def mcp_wrap(
    invocation: Invocation,
    key: Annotated[str, typer.Argument(autocompletion=complete_name("binding"))],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...")] = None,
    *,
    url: str | None = None,
    header_secret: Annotated[list[str] | None, typer.Option(metavar="NAME=SECRET")] = None,
    mapping: str | None = None,
    agent: Annotated[str | None, typer.Option(autocompletion=complete_name("agent"))] = None,
    project: WorksIn = None,
    project_from_folder: FromFolder = False,
    run: str | None = None,
) -> int:
    """Start an MCP server, pass on what it and an agent say, and log it.

    What passes is not changed. Where the binding has rules of review, a write that one of them
    meets waits for a person. The exit code is the server's; 75 if it is 0 and not every call is
    in the log.

    Args:
        key: The binding that the server is in the log.
        command: What starts the server, after two dashes.
        url: The address of a server over streamable HTTP.
        header_secret: Send a header whose value is the secret of this name, from the environment or
            the keyring. Repeatable.
        mapping: What its tools do: a mapping's name or file; left out: the binding's.
        agent: The agent's name in the log; left out: assistant.
        run: The run's id; left out: the client's session, as its hook says.
    """
    from memtui.channels.wrap.passing import wrapped_process

    if bool(command) == (url is not None):
        raise Invalid(
            "Say what to wrap: a command, `memtui mcp wrap KEY -- COMMAND…`, or `--url URL`."
        )
    if header_secret and url is None:
        raise Invalid("--header-secret is for a server with --url; leave it out.")
    if mapping is not None:
        from memtui.mcp_mapping import load_mapping

        load_mapping(mapping)  # refused now, not by the process that logs
        mapping = str(Path(mapping).absolute()) if "/" in mapping else mapping
    if project_from_folder:
        project = project or project_of(Path(), str(Path.cwd()))
    paths = invocation.paths()
    note = paths.data / "wrapped" / quote(f"{invocation.company or '-'}.{key}", safe="")
    own = (invocation.principal or "").removeprefix("agent:")
    start: dict[str, Any] = {
        "words": invocation.words(),
        "binding": key,
        "note": str(note),
        "mapping": mapping,
        "agent": agent or (own if own != invocation.principal else None) or "assistant",
        "project": project,
        "run": run,
        "session": f"mcp-{uuid.uuid4().hex[:12]}",
    }
    server: WrappedProcess | WrappedUrl
    if url is not None:
        from memtui.channels.wrap.over_http import WrappedUrl

        server = WrappedUrl(url, _headers(header_secret or ()))
    else:
        server = wrapped_process(command or ())
    server.log.begin({**start, "server": server.pid}, note if paths.is_begun else None)
    code = server.wait()
    lost, state = server.log.end(), server.log.state
    if state.refusal:
        say(state.refusal)
        return KIND_CODES["not_found"]
    is_unlogged = lost is not None or state.has_rules is None
    if is_unlogged:
        say(_sentence(lost, state.trouble))
    return code or (UNLOGGED if is_unlogged else 0)


def _headers(named: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Return the headers with their secrets. Raises `Invalid` for one that is missing."""
    from memtui.service.connections import lookup_secret

    found = {}
    for one in named:
        name, equals, secret = one.partition("=")
        value = lookup_secret(secret) if equals and secret else None
        if not value:
            raise Invalid(
                f"There is no secret {secret or one}; write NAME=SECRET, and put the header's "
                "value into the keyring or the environment under the secret's name."
            )
        found[name] = value
    return found


def _sentence(lost: UnloggedCalls | None, trouble: str) -> str:
    """Return what is not in the log; no calls: the log was never opened."""
    why = f" ({trouble.rstrip('.')})" if trouble else ""
    if lost is None:
        return f"memtui: the log had not been opened when the server ended{why}."
    since, until = (datetime.fromtimestamp(one, UTC) for one in (lost.since, lost.until))
    return (
        f"memtui: {lost.calls:,} call{'s' * (lost.calls != 1)} between {since:%H:%M:%S} and "
        f"{until:%H:%M:%S} UTC passed and had not been logged when the server ended{why}."
    )
