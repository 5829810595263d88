"""Exports to a file that the person chooses."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from memtui.contract import Conflict, Invalid
from memtui.paths import check_target
from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import Confirm, Prompt


class Writer(Protocol):
    """Writes to the chosen file."""

    def __call__(self, path: Path, *, overwrite: bool) -> Coroutine[Any, Any, str]:
        """Write, and return a notice; without `overwrite`, raise `Conflict` if the file exists."""


async def export(
    screen: ServiceScreen, title: str, name: str, kinds: Sequence[str], write: Writer
) -> None:
    """Ask for a file in a conversation, and write it; the extension chooses the format.

    Args:
        screen: The screen that asks.
        title: The question.
        name: The default file name.
        kinds: The possible extensions.
        write: Writes the file.
    """
    hint = f"ends in {_forms(kinds)}   enter write   esc go back"
    prompt = Prompt(
        title,
        value=name,
        hint=hint,
        check=lambda text: path_of(text, kinds),
        look=lambda text: asyncio.to_thread(check_target, path_of(text, kinds), force=True),
    )
    if (text := await screen.ask(prompt)) is None:
        return
    path = path_of(text, kinds)
    try:
        said = await screen.change(lambda: write(path, overwrite=False))
    except Conflict:
        words = f"{path} is there already. Overwrite it?"
        question = Confirm(words, verb="overwrite it", final=True)
        if not await screen.ask(question):
            return
        said = await screen.change(lambda: write(path, overwrite=True))
    screen.toast(said)


def write_file(path: Path, write: Callable[[Path], object], *, overwrite: bool) -> None:
    """Write a file of mode 0600 atomically. Blocking.

    Raises:
        Conflict: the file exists and may not be overwritten.
        Invalid: it is a folder, its folder is missing, or it cannot be written.
    """
    from memtui.analytics.export import replacing

    with replacing(path, force=overwrite) as work:
        write(work)


def path_of(text: str, kinds: Sequence[str]) -> Path:
    """Return the file that a person named.

    Raises:
        Invalid: there is no name, or its extension is none of `kinds`.
    """
    try:
        path = Path(text.strip()).expanduser().absolute()
    except (RuntimeError, ValueError) as error:
        raise Invalid("That is not a file name; give one such as figures.csv.") from error
    if not text.strip() or "\0" in text:
        raise Invalid("That is not a file name; give one such as figures.csv.")
    if path.suffix.lower().removeprefix(".") not in kinds:
        raise Invalid(f"Give the file a name that ends in {_forms(kinds)}.")
    return path


def _forms(kinds: Sequence[str]) -> str:
    *others, last = (f".{kind}" for kind in kinds)
    return " or ".join(filter(None, [", ".join(others), last]))
