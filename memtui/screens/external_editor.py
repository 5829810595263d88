"""The person's own editor: a file at its line, or one text through a private temporary file."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from memtui.contract import Invalid, Location, Unavailable

_GOTO_FLAG = frozenset({"code", "code-insiders", "codium", "cursor", "windsurf"})
_COLON = frozenset({"subl", "zed", "hx", "helix"})


def editor_words(setting: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the editor's command: the setting, else $VISUAL, else $EDITOR, else vi.

    Raises:
        Invalid: the command has an unclosed quote or names no program that is installed.
    """
    command = (
        setting.strip()
        or environment.get("VISUAL", "").strip()
        or environment.get("EDITOR", "").strip()
        or "vi"
    )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"The editor command {command!r} has an unclosed quote.") from error
    if not words or shutil.which(words[0]) is None:
        raise Invalid(
            f"The editor {words[0] if words else command!r} is not installed; "
            "set editor in the settings, or $EDITOR."
        )
    return words


def command_at(editor: Sequence[str], location: Location) -> list[str]:
    """Return the command that opens a file at its line, in the way this editor takes it."""
    path = str(Path(location.path).absolute())
    name = Path(editor[0]).name
    if name in _GOTO_FLAG:
        return [*editor, "--goto", f"{path}:{location.line}"]
    if name in _COLON:
        return [*editor, f"{path}:{location.line}"]
    return [*editor, f"+{location.line}", path]


def run_in_terminal(app: App[Any], command: Sequence[str]) -> int:
    """Give the terminal to a program until it ends; return its exit code.

    The event loop stands still meanwhile, or the app would paint over the program.

    Raises:
        Invalid: the program cannot be started, or the terminal cannot be handed over.
    """
    try:
        with app.suspend(), _interrupts_left_to_the_program():
            return subprocess.run(list(command), check=False).returncode  # noqa: S603 - its own editor
    except SuspendNotSupported as error:
        raise Invalid("This terminal cannot be handed to an editor; use e instead.") from error
    except OSError as error:
        raise Invalid(f"The editor {command[0]} does not start: {error.strerror}.") from error


@contextmanager
def _interrupts_left_to_the_program() -> Iterator[None]:
    """Ignore ctrl+c here; unlike an ignored signal, a handler is not inherited by the program."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def edit_text(app: App[Any], text: str, setting: str) -> str | None:
    """Let the person edit a text in their editor; None where it was left unchanged.

    The text lies in a file with mode 0600 in a folder of its own, which is removed afterwards. A
    line end that the editor put behind the last line is taken off again.

    Raises:
        Invalid: there is no editor, it failed, or what it left is no UTF-8; nothing is to be
            written then.
    """
    words = editor_words(setting)
    folder = Path(tempfile.mkdtemp(prefix="memtui-"))
    try:
        file = folder / "record.md"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(text.encode("utf-8", "surrogatepass"))
        code = run_in_terminal(app, [*words, str(file)])
        if code != 0:
            raise Invalid(f"The editor ended with code {code}; nothing was written.")
        edited = _read_back(file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not text.endswith("\n") and edited.endswith("\n"):
        edited = edited[:-1]
    return None if edited == text else edited


def _read_back(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Invalid("What the editor saved is not UTF-8; nothing was written.") from error
    except OSError as error:
        raise Invalid("The editor left no file behind; nothing was written.") from error


def show_file(app: App[Any], location: Location, setting: str) -> None:
    """Open a file at its line in the person's editor.

    Raises:
        Invalid: there is no editor, or it does not start.
        Unavailable: it ended with an error.
    """
    code = run_in_terminal(app, command_at(editor_words(setting), location))
    if code != 0:
        raise Unavailable(f"The editor ended with code {code}.")
