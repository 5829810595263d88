"""Write what a screen shows into a file of the person's choice."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from memtui.contract import Conflict, Invalid, MemtuiError
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Confirm, Prompt
from memtui.widgets.background import Background


class Writer(Protocol):
    """Writes to the file that was chosen."""

    def __call__(self, *, overwrite: bool) -> Coroutine[Any, Any, str]:
        """Write, and return what to say of it; raises `Conflict` for a file in the way."""


class Exports:
    """The dialogs of an export; the name's ending chooses the form."""

    def __init__(self, screen: MemtuiScreen) -> None:
        self._screen = screen
        self._writing = Background(screen, "export")

    def ask(
        self, title: str, name: str, kinds: Sequence[str], writer: Callable[[Path], Writer]
    ) -> None:
        """Ask for a file, and write it.

        Args:
            title: The question.
            name: The file that is offered.
            kinds: The endings there are.
            writer: Returns what writes to a path.
        """

        def export(text: str | None) -> None:
            if text is not None:
                try:
                    path = path_of(text, kinds)
                    self._write(path, writer(path))
                except MemtuiError as error:
                    self._screen.fail(error)

        prompt = Prompt(
            title,
            value=name,
            hint=f"{', '.join('.' + kind for kind in kinds)}   enter write   esc go back",
            check=lambda text: path_of(text, kinds),
        )
        self._screen.app.push_screen(prompt, export)

    def _write(self, path: Path, write: Writer, *, overwrite: bool = False) -> None:
        def failed(error: MemtuiError) -> None:
            if not isinstance(error, Conflict):
                self._screen.fail(error)
                return

            def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
                if yes:
                    self._write(path, write, overwrite=True)

            question = Confirm(f"{path} is there already. Overwrite it?", verb="overwrite it")
            self._screen.app.push_screen(question, answered)

        self._writing.every(lambda: write(overwrite=overwrite), self._screen.toast, failed)


def path_of(text: str, kinds: Sequence[str]) -> Path:
    """Return the file that a person named.

    Raises:
        Invalid: there is no name, or its extension is none of `kinds`.
    """
    try:
        path = Path(text.strip()).expanduser().absolute()
    except (RuntimeError, ValueError) as error:
        raise Invalid("That is no file name; give one such as figures.csv.") from error
    if not text.strip() or "\0" in text:
        raise Invalid("That is no file name; give one such as figures.csv.")
    if path.suffix.lower().removeprefix(".") not in kinds:
        *others, last = kinds
        raise Invalid(f"The name ends in {', '.join(others)} or {last}, which chooses the form.")
    return path
