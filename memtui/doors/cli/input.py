"""What a person is asked on the terminal, and what comes on stdin."""

from __future__ import annotations

import sys

import typer

from memtui.contract import Invalid
from memtui.visible import visible


def confirm(question: str) -> None:
    """Ask on the terminal.

    Raises:
        Invalid: nobody is there to ask.
        typer.Abort: the answer was no.
    """
    if not sys.stdin.isatty():
        raise Invalid(f"{question} Nobody can answer here, so add --yes.")
    typer.confirm(visible(question), abort=True, err=True)


def confirm_name(name: str, given: str | None, warning: str, option: str) -> None:
    """Have the name of what goes typed, unless it was `given` with the `option`.

    Raises:
        Invalid: it is another name, or nobody is there to type it.
    """
    if given is None and not sys.stdin.isatty():
        raise Invalid(f"{warning} Nobody can type {name} here, so add {option} {name}.")
    if given is None:
        given = str(typer.prompt(visible(f"{warning} Type {name} to do it"), err=True))
    if given.strip() != name:
        raise Invalid(f"{given!r} is not {name!r}, so nothing was removed.")


def read_stdin() -> str:
    """Return all of stdin.

    Raises:
        Invalid: it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid("What came on stdin is not UTF-8 text.") from error
