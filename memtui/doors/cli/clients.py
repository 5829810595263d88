"""What `mcp install` and `hook install` share: what is shown, the yes to it, and how it is done."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.contract import Conflict, Invalid
from memtui.doors.cli.input import confirm
from memtui.doors.cli.session import Invocation
from memtui.wording import nothing_yet

if TYPE_CHECKING:
    from memtui.doors.clients import Plan

YesTo = Annotated[
    str | None,
    typer.Option("--yes", metavar="CODE", help="Do it without asking; the code is shown before."),
]


def own_command(invocation: Invocation) -> list[str]:
    """Return the command that starts this memtui, in this home and company, from anywhere."""
    beside = Path(sys.executable).with_name("memtui")
    program = [str(beside)] if beside.exists() else [sys.executable, "-m", "memtui"]
    paths = invocation.paths()
    if invocation.names_home and not paths.is_begun:
        invocation.out.say(str(nothing_yet(paths.data)))
    return [
        *program,
        *(["--home", str(paths.data.resolve())] if invocation.names_home else []),
        *(["--company", invocation.company] if invocation.company else []),
    ]


def project_words(project: str | None, *, from_folder: bool) -> list[str]:
    """Return the options that say in which project a client's agent works.

    Raises:
        Invalid: two ways are given, or an id that cannot be one, such as that of an empty variable.
    """
    from memtui.service.core import check_target_id

    if project is not None and from_folder:
        raise Invalid("Give --project or --project-from-folder, not both.")
    named = [] if project is None else ["--project", check_target_id("project", project)]
    return ["--project-from-folder"] if from_folder else named


def carried_out(invocation: Invocation, plan: Plan, yes: str | None, done: str, then: str) -> int:
    """Show a plan, carry it out if a yes was given to just this one, and return the exit code."""
    out = invocation.out
    document: dict[str, Any] = {
        "command": plan.command,
        "changes": [{"file": str(one.path), "diff": one.lines()} for one in plan.changes],
        "code": plan.token,
        "done": False,
    }
    if plan.command is None and not plan.changes:
        out.answer({**document, "done": True}, [f"{done} already."])
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
            return 1
        for line in plan.lines():
            out.say(line)
        confirm("Do this?")
    plan.carry_out()
    out.answer({**document, "done": True}, [f"{done}; {then}."])
    return 0
