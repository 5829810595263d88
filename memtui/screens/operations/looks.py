"""Saved views of the log: keep what is shown under a name, use, rename or delete what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

from memtui.contract import Invalid
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.log_views import LogLook, checked_name, delete_look, save_look
from memtui.screens.state import LookChosen, LooksChanged
from memtui.widgets.background import Background


class _Wish(NamedTuple):
    """What a person wants with a view."""

    what: Literal["use", "save", "rename", "delete"]
    look: LogLook


class Looks:
    """The dialogs of the saved views; `shown` tells how the log is looked at now."""

    def __init__(self, screen: MemtuiScreen, shown: Callable[[], LogLook]) -> None:
        self._screen = screen
        self._shown = shown
        self._keeping = Background(screen, "looks")

    def ask(self) -> None:
        """Offer the saved views, and to keep what is shown under the name that is typed."""
        kept = self._screen.state.looks
        wishes = [_Wish("use", look) for look in kept]
        wishes += [_Wish("rename", look) for look in kept]
        wishes += [_Wish("delete", look) for look in kept]
        chooser: Choose[_Wish] = Choose(
            "Views of the log",
            [Choice(wish, wish.look.name, wish.what) for wish in wishes],
            placeholder="type a name to save what is shown",
            offer=self._offer,
        )
        self._screen.app.push_screen(chooser, self._do)

    def _offer(self, text: str) -> list[Choice[_Wish]]:
        try:
            look = self._shown().model_copy(update={"name": checked_name(text)})
        except Invalid:
            return []
        return [Choice(_Wish("save", look), look.name, "save as")]

    def _do(self, wish: _Wish | None) -> None:
        if wish is None:
            return
        if wish.what == "use":
            self._screen.post_message(LookChosen(wish.look))
        elif wish.what == "rename":
            self._rename(wish.look)
        elif wish.what == "delete":
            self._delete(wish.look)
        elif wish.look.name in self._names():
            self._ask(
                f"Replace the view {wish.look.name}?", "replace it", lambda: self._keep(wish.look)
            )
        else:
            self._keep(wish.look)

    def _names(self) -> set[str]:
        return {look.name for look in self._screen.state.looks}

    def _keep(self, look: LogLook, instead_of: str = "") -> None:
        path = self._screen.state.views_file
        self._change(
            lambda: save_look(path, look, instead_of=instead_of), f"Kept the view {look.name}."
        )

    def _rename(self, look: LogLook) -> None:
        def check(text: str) -> str:
            name = checked_name(text)
            if name in self._names() - {look.name}:
                raise Invalid(f"There is a view {name} already; give another name.")
            return name

        def rename(text: str | None) -> None:
            if text is not None:
                self._keep(look.model_copy(update={"name": check(text)}), look.name)

        self._screen.app.push_screen(
            Prompt(f"Another name for the view {look.name}", value=look.name, check=check), rename
        )

    def _delete(self, look: LogLook) -> None:
        path = self._screen.state.views_file
        self._ask(
            f"Delete the view {look.name}? No operation is touched.",
            "delete it",
            lambda: self._change(
                lambda: delete_look(path, look.name), f"Deleted the view {look.name}."
            ),
        )

    def _ask(self, question: str, verb: str, then: Callable[[], None]) -> None:
        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                then()

        self._screen.app.push_screen(Confirm(question, verb=verb), answered)

    def _change(self, change: Callable[[], tuple[LogLook, ...]], said: str) -> None:
        def changed(looks: tuple[LogLook, ...]) -> None:
            self._screen.post_message(LooksChanged(looks))
            self._screen.toast(said)

        self._keeping.every(lambda: asyncio.to_thread(change), changed, self._screen.fail)
