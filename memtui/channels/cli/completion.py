"""`config completion`: let a shell complete commands, options, bindings and runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.channels.cli.clients import YesTo, carried_out
from memtui.channels.cli.main import PROGRAM
from memtui.channels.cli.session import ASKED_BY_SHELL, Invocation
from memtui.contract import Invalid

if TYPE_CHECKING:
    from memtui.channels.clients import FileChange

_SHELLS = ("bash", "zsh", "fish")
_NOTE = f"  # {PROGRAM} completion"

Shell = Annotated[
    Literal["bash", "zsh", "fish"] | None,
    typer.Argument(metavar="SHELL", help="bash, zsh or fish; left out: the one of $SHELL."),
]


def config_completion_show(invocation: Invocation, shell: Shell = None) -> None:
    """Print the completion script of a shell, to install it by hand."""
    chosen = _chosen(shell)
    script = _script(chosen)
    invocation.out.answer({"shell": chosen, "script": script}, script.splitlines())


def config_completion_install(
    invocation: Invocation, shell: Shell = None, *, yes: YesTo = None
) -> int:
    """Let a shell complete memtui's commands from its next start on.

    It first shows which files it would write and change. Exit 2 if nobody could be asked.
    """
    from memtui.channels.clients import ClientPlan, FileChange, read

    chosen = _chosen(shell)
    place, line = _places(chosen)
    script = f"{_script(chosen)}\n".encode()
    changes = [FileChange(place, read(place), script)]
    if line is not None:
        changes.append(_with_line(*line))
    plan = ClientPlan(None, _real(changes))
    done = f"{chosen} completes memtui"
    return carried_out(invocation, plan, yes, done, "start a new shell to use it")


def config_completion_remove(
    invocation: Invocation, shell: Shell = None, *, yes: YesTo = None
) -> int:
    """Remove what `config completion install` wrote. Exit 2 if nobody could be asked."""
    from memtui.channels.clients import ClientPlan, FileChange, read

    chosen = _chosen(shell)
    place, line = _places(chosen)
    changes = [FileChange(place, read(place), None)]
    if line is not None:
        changes.append(_without_line(*line))
    plan = ClientPlan(None, _real(changes))
    done = f"{chosen} does not complete memtui"
    return carried_out(invocation, plan, yes, done, "a shell that runs keeps it until it ends")


def _chosen(shell: str | None) -> str:
    found = shell or Path(os.environ.get("SHELL", "")).name
    if found not in _SHELLS:
        raise Invalid("The shell is not known; name it: bash, zsh or fish.")
    return found


def _script(shell: str) -> str:
    from typer.completion import get_completion_script

    return get_completion_script(prog_name=PROGRAM, complete_var=ASKED_BY_SHELL, shell=shell)


def _places(shell: str) -> tuple[Path, tuple[Path, str] | None]:
    """Return the file of a shell's script, and the line that its startup file needs, if any."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if shell == "fish":
        return config / "fish" / "completions" / f"{PROGRAM}.fish", None
    if shell == "zsh":
        place = data / "zsh" / "site-functions" / f"_{PROGRAM}"
        started = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
        ready = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }; "
    else:
        place = data / "bash-completion" / "completions" / PROGRAM
        started, ready = home / ".bashrc", ""
    return place, (started, f"{ready}source {shlex.quote(str(place))}{_NOTE}")


def _with_line(path: Path, line: str) -> FileChange:
    """Return the change that appends a line to a file, unless it contains the line."""
    from memtui.channels.clients import FileChange, read

    before = read(path)
    content = before or b""
    if line.encode() in content.splitlines():
        return FileChange(path, before, before)
    gap = b"" if content.endswith(b"\n") or not content else b"\n"
    return FileChange(path, before, content + gap + line.encode() + b"\n")


def _without_line(path: Path, line: str) -> FileChange:
    """Return the change that removes a line from a file; a file without other content goes."""
    from memtui.channels.clients import FileChange, read

    before = read(path)
    lines = (before or b"").splitlines(keepends=True)
    rest = b"".join(one for one in lines if one.rstrip(b"\r\n") != line.encode())
    stays = rest or before == b"" or path.is_symlink()  # removing a link would keep its target
    return FileChange(path, before, rest if stays else None)


def _real(changes: list[FileChange]) -> tuple[FileChange, ...]:
    return tuple(one for one in changes if one.before != one.after)
