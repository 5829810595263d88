"""Questions on the terminal, and reading stdin."""

import codecs
import sys

import typer

from memtui.contract import Invalid
from memtui.visible import visible


def confirm(question: str) -> None:
    """Ask a yes-or-no question on the terminal.

    Raises:
        Invalid: stdin is no terminal.
        typer.Abort: the answer was no.
    """
    if not sys.stdin.isatty():
        raise Invalid(f"{question} Nobody can answer here, so add --yes.")
    typer.confirm(visible(question), abort=True, err=True)


def confirm_name(name: str, given: str | None, warning: str, option: str) -> None:
    """Let the person type the name of what is to be removed, unless it was `given`.

    Raises:
        Invalid: it is another name, or stdin is no terminal.
    """
    if given is None and not sys.stdin.isatty():
        raise Invalid(f"{warning} Nobody can type {name} here, so add {option} {name}.")
    if given is None:
        given = str(typer.prompt(visible(f"{warning} Type {name} to do it"), err=True))
    if given.strip() != name:
        raise Invalid(f"{given!r} is not {name!r}, so nothing was removed.")


def read_stdin(most: int | None = None) -> str:
    """Return all of stdin.

    With `most`, more bytes are refused, but read to the end, so that the writer is not cut off; and
    a terminal counts as empty.

    Text with a UTF-16 byte order mark is decoded as such. With `most`, invalid UTF-8 becomes
    U+FFFD.

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
        raise Invalid(f"The input on stdin is longer than {most >> 20} MiB.")
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode(
            "utf-16" if is_wide else "utf-8", "strict" if most is None else "replace"
        )
    except UnicodeDecodeError as error:
        raise Invalid("The input on stdin is not UTF-8 text.") from error
