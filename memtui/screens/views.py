"""The dialog of saved views: save, use, rename and delete them."""

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TypeVar

from memtui.contract import Invalid
from memtui.screens.base import MemtuiScreen, ServiceScreen
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.kept import (
    NamedItem,
    SavedView,
    checked_name,
    delete_named,
    load_named,
    rename_named,
    save_named,
)
from memtui.screens.state import ViewChosen, ViewsChanged

N = TypeVar("N", bound=NamedItem)


class ChooseView(Choose[tuple[str, SavedView]]):
    """Choose a saved view and an action for it."""

    NOTHING = "No view is saved yet."


async def choose_view(screen: MemtuiScreen) -> None:
    """Offer the saved views, and to save the present one under a typed name."""
    path = screen.state.paths.views_file
    kept = await screen.wait(
        "reading the saved views", partial(asyncio.to_thread, load_named, path, SavedView)
    )
    screen.post_message(ViewsChanged(kept))

    def offer(text: str) -> list[Choice[tuple[str, SavedView]]]:
        try:
            view = screen.as_view(checked_name(text))
        except Invalid:
            return []
        return [Choice(("save", view), view.name, "save as")]

    chooser = ChooseView(
        "Saved views",
        [
            Choice((what, view), view.name, f"{what}, {view.screen}")
            for what in ("use", "rename", "delete")
            for view in kept
        ],
        placeholder="type a name to save what is shown",
        offer=offer,
    )
    what, view = await screen.ask(chooser) or ("", None)
    if view is None:
        return
    views, names = None, {one.name for one in kept}
    if what == "use":
        screen.post_message(ViewChosen(view))
    elif what == "rename":
        views = await rename(screen, path, view, names)
    elif what == "delete":
        views = await delete(screen, path, view)
    elif view.name not in names or await screen.ask(
        Confirm(f"Replace the view {view.name}?", verb="replace it", final=True)
    ):
        views = await screen.change(partial(asyncio.to_thread, save_named, path, view))
        screen.toast(f"Kept the view {view.name}.")
    if views is not None:
        screen.post_message(ViewsChanged(views))


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
