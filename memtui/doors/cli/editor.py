"""Edit a text in the person's own editor, without ever losing what they typed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from memtui.contract import Invalid
from memtui.doors.cli.output import say


class Draft:
    """A private file that holds a text while it is edited; kept where the change failed."""

    def __init__(self, folder: Path, text: str) -> None:
        self._text = text
        self._folder = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
        self._path = self._folder / "memory.md"
        self._write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del error, traceback
        if kind is not None and self._edited():
            say(f"Your text is kept in {self._path}.")
            return
        shutil.rmtree(self._folder)

    def edit(self, setting: str) -> str:
        """Open the editor and return the text when it ends.

        The newline that editors put at the end is taken off where the text had none.

        Raises:
            Invalid: the editor cannot be started, failed, or wrote no UTF-8 text.
        """
        from memtui.screens.external_editor import editor_words

        command = [*editor_words(setting), str(self._path)]
        try:
            with _interrupts_left_to_the_editor():
                status = subprocess.call(command)  # noqa: S603 - the person's own editor
        except OSError as error:
            raise Invalid(
                f"The editor {command[0]} cannot be started ({error.strerror}); set $EDITOR."
            ) from error
        if status:
            raise Invalid(f"The editor ended with status {status}, so nothing was changed.")
        edited = self._read()
        if edited.endswith("\n") and not self._text.endswith("\n"):
            edited = edited.removesuffix("\n")
        return edited

    def _edited(self) -> bool:
        return self._path.exists() and self._path.read_bytes() != _encoded(self._text)

    def _write(self, text: str) -> None:
        self._path.touch(mode=0o600)
        self._path.write_bytes(_encoded(text))

    def _read(self) -> str:
        try:
            return self._path.read_bytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Invalid(f"The edited text in {self._path} is not UTF-8.") from error
        except FileNotFoundError as error:
            raise Invalid("The editor removed the file, so nothing was changed.") from error


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@contextmanager
def _interrupts_left_to_the_editor() -> Iterator[None]:
    """Ignore ctrl+c here; unlike an ignored signal, a handler is not inherited by the editor."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
