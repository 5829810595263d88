"""What a person is asked on the terminal, and what comes on stdin."""

from __future__ import annotations

import codecs
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


def read_stdin(most: int | None = None) -> str:
    """Return all of stdin.

    With `most`, at most so many bytes: the rest of what is longer is read and dropped, so that
    whoever writes it is not cut off. Nobody at a terminal is waited for then.

    A byte order mark of UTF-16 is believed. With `most`, what is not UTF-8 becomes U+FFFD.

    Raises:
        Invalid: it is not UTF-8, or longer than `most`.
    """
    stream = sys.stdin.buffer
    if most is not None and sys.stdin.isatty():
        return ""
    content = stream.read() if most is None else stream.read(most + 1)
    if most is not None and len(content) > most:
        while stream.read(1 << 20):
            pass
        raise Invalid(f"What came on stdin is longer than {most >> 20} MiB.")
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode(
            "utf-16" if is_wide else "utf-8", "strict" if most is None else "replace"
        )
    except UnicodeDecodeError as error:
        raise Invalid("What came on stdin is not UTF-8 text.") from error
