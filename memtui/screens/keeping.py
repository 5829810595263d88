"""Questions about saved items that have names: renaming and deleting one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TypeVar

from memtui.contract import Invalid
from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.kept import NamedItem, checked_name, delete_named, rename_named

N = TypeVar("N", bound=NamedItem)


async def rename(
    screen: ServiceScreen, path: Path, one: N, taken: Collection[str]
) -> tuple[N, ...] | None:
    """Ask for another name and set it; return all saved items, None: the person went back."""

    def check(text: str) -> None:
        name = checked_name(text)
        if name != one.name and name in taken:
            raise Invalid(f"There is a {one.NOUN} {name} already; give another name.")

    title = f"Another name for the {one.NOUN} {one.name}"
    name = await screen.ask(Prompt(title, value=one.name, go="rename", check=check))
    if name is None:
        return None
    kept = await screen.change(partial(asyncio.to_thread, rename_named, path, one, name))
    screen.toast(f"Kept the {one.NOUN} {checked_name(name)}.")
    return kept


async def delete(screen: ServiceScreen, path: Path, one: N) -> tuple[N, ...] | None:
    """Delete an item after a yes; return the saved items left, None: the person went back."""
    question = Confirm(f"Delete the {one.NOUN} {one.name}?", verb="delete it", final=True)
    if not await screen.ask(question):
        return None
    gone = partial(delete_named, path, type(one), one.name)
    kept = await screen.change(partial(asyncio.to_thread, gone))
    screen.toast(f"Deleted the {one.NOUN} {one.name}.")
    return kept
