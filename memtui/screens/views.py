"""Saved views, a screen with its filter, order and columns under a name: kept, used, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from memtui.contract import Invalid
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.kept import (
    SavedView,
    checked_name,
    delete_named,
    load_named,
    rename_named,
    save_named,
)
from memtui.screens.state import ViewChosen, ViewsChanged


class ChooseView(Choose[tuple[str, SavedView]]):
    """Choose what to do with which saved view."""

    NOTHING = "No view is saved yet."


async def choose_view(screen: MemtuiScreen) -> None:
    """Offer the saved views, and to keep what is shown under the name that is typed."""
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
    if what == "use":
        screen.post_message(ViewChosen(view))
    elif what == "rename":
        await _rename(screen, view, {one.name for one in kept})
    elif what == "delete":
        question = Confirm(f"Delete the view {view.name}?", verb="delete it", final=True)
        if await screen.ask(question):
            gone = partial(delete_named, path, SavedView, view.name)
            await _keep(screen, gone, f"Deleted the view {view.name}.")
    elif view.name not in {one.name for one in kept} or await screen.ask(
        Confirm(f"Replace the view {view.name}?", verb="replace it", final=True)
    ):
        await _keep(screen, partial(save_named, path, view), f"Kept the view {view.name}.")


async def _rename(screen: MemtuiScreen, view: SavedView, taken: set[str]) -> None:
    def check(text: str) -> str:
        name = checked_name(text)
        if name != view.name and name in taken:
            raise Invalid(f"There is a view {name} already; give another name.")
        return name

    title = f"Another name for the view {view.name}"
    text = await screen.ask(Prompt(title, value=view.name, go="rename", check=check))
    if text is not None:
        path = screen.state.paths.views_file
        write = partial(rename_named, path, view, text)
        await _keep(screen, write, f"Kept the view {checked_name(text)}.")


async def _keep(
    screen: MemtuiScreen, write: Callable[[], tuple[SavedView, ...]], said: str
) -> None:
    views = await screen.change(lambda: asyncio.to_thread(write))
    screen.post_message(ViewsChanged(views))
    screen.toast(said)
