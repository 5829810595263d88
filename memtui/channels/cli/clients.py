"""Shared by `mcp install` and `hook install`: show a plan, ask, carry it out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import complete_from
from memtui.channels.cli.output import columns, table
from memtui.channels.cli.session import Invocation
from memtui.contract import Conflict, Invalid
from memtui.paths import make_private, replacing

if TYPE_CHECKING:
    from memtui.channels.clients import ClientPlan, ClientT

YesTo = Annotated[
    str | None,
    typer.Option(
        "--yes", metavar="CODE", help="Do it without asking; a run without --yes shows the code."
    ),
]


def client_argument(group: str) -> Any:
    """Return the argument that names one of the clients of `hook` or of `mcp`."""
    folder = {"hook": "hooks"}.get(group, group)

    def keys() -> list[str]:
        return [one.key for one in import_module(f"memtui.channels.{folder}.clients").CLIENTS]

    words = f"The client; `memtui {group} clients` lists them."
    return typer.Argument(metavar="CLIENT", help=words, autocompletion=complete_from(keys))


ClientAgent = Annotated[
    str | None, typer.Option(help="The agent's name in the log; left out: the client's name.")
]


def answer_clients(
    invocation: Invocation,
    clients: Sequence[ClientT],
    more: Callable[[ClientT], dict[str, list[str]]] = lambda _: {},
) -> None:
    """Print clients: whether each is installed and has memtui, and lists of `more` about it."""
    found, rows, home = [], [], Path.home()
    for client in clients:
        file, there, others = str(client.file(home)), client.is_there(home), more(client)
        try:
            installed: bool | None = client.has_memtui(home)
        except Invalid:
            installed = None
        state = {True: "installed", False: "", None: "cannot be read"}[installed]
        seen, lists = "" if there else "not found", map(", ".join, others.values())
        rows.append([client.key, client.name, seen, state, file, *lists])
        named = {"client": client.key, "name": client.name, "file": file}
        found.append({**named, **others, "there": there, "installed": installed})
    more_titles = (f"{name.replace('_', ' ')}*" for name in more(clients[0]))
    titles = columns("client", "name", "", "", "file", *more_titles)
    invocation.out.answer({"clients": found}, table(titles, rows))


def own_command(invocation: Invocation) -> list[str]:
    """Return the command that starts this memtui with its home and company, from any folder."""
    beside = Path(sys.executable).with_name("memtui")
    program = [str(beside)] if beside.exists() else [sys.executable, "-m", "memtui"]
    home = str(invocation.paths().data.resolve())
    return [
        *program,
        *(["--home", home] if invocation.names_home else []),
        *(["--company", invocation.company] if invocation.company else []),
    ]


def project_words(project: str | None, *, from_folder: bool) -> list[str]:
    """Return the options that set the project of a client's agent.

    Raises:
        Invalid: both options are given, or an invalid id, such as an empty one.
    """
    from memtui.service.runtime import check_target_id

    if project is not None and from_folder:
        raise Invalid("Give --project or --project-from-folder, not both.")
    named = [] if project is None else ["--project", check_target_id("project", project)]
    return ["--project-from-folder"] if from_folder else named


def carried_out(
    invocation: Invocation, plan: ClientPlan, yes: str | None, done: str, then: str
) -> int:
    """Show a plan, carry it out after a yes to exactly this plan, and return the exit code."""
    out = invocation.out
    document: dict[str, Any] = {
        "command": plan.command,
        "changes": [{"file": str(one.path), "diff": one.lines()} for one in plan.changes],
        "code": plan.token,
        "done": False,
    }
    if plan.command is None and not plan.changes:
        out.answer({**document, "done": True}, [f"Nothing to do: {done}."])
        return 0
    if yes is not None and yes != plan.token:
        raise Conflict(
            f"The code {yes} is of another change; look at what is to be done now, and give "
            f"--yes {plan.token}."
        )
    if yes is None:
        if invocation.as_json or not sys.stdin.isatty():
            out.answer(
                document, plan.lines(), f"Nothing was done; to do it give --yes {plan.token}."
            )
            return 2  # nobody could be asked
        for line in plan.lines():
            out.say(line)
        confirm("Do this?")
    with _made_folders(invocation) as made:
        plan.carry_out(made)
    out.answer({**document, "done": True}, [f"{done}; {then}."])
    return 0


@contextmanager
def _made_folders(invocation: Invocation) -> Iterator[set[Path]]:
    """Yield the folders made for other programs' files; uninstalling removes them once empty.

    Changes are saved in the home, unless the home is read-only, or was named and does not exist.
    """
    file = invocation.paths().folders_file
    try:
        before = {Path(one) for one in json.loads(file.read_bytes())}
    except (OSError, ValueError, TypeError):
        before = set()
    made = set(before)
    try:
        yield made
    finally:
        may_write = file.parent.is_dir() or not invocation.names_home
        if made != before and may_write and not invocation.read_only:
            try:
                make_private(file.parent)
                with replacing(file) as fresh:
                    fresh.write_text(json.dumps(sorted(map(str, made))), encoding="utf-8")
            except OSError as error:
                invocation.out.say(
                    f"{file} cannot be written ({error.strerror}), so folders that were made stay."
                )
