"""The dialog of saved views: save, use, rename and delete them."""

from __future__ import annotations

import asyncio
from functools import partial

from memtui.contract import Invalid
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Choice, Choose, Confirm
from memtui.screens.keeping import delete, rename
from memtui.screens.kept import SavedView, checked_name, load_named, save_named
from memtui.screens.state import ViewChosen, ViewsChanged


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
