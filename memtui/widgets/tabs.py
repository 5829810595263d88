"""The numbered tabs; they come from the registry's list of screens."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from memtui.actions import SCREENS, ScreenTab
from memtui.widgets.display import DIM


class Tab(Static):
    """One tab."""

    class Pressed(Message):
        """The tab was clicked."""

        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode

    def __init__(self, tab: ScreenTab, *, active: bool) -> None:
        super().__init__(classes="-active" if active else "")
        self._tab = tab

    def on_mount(self) -> None:
        """Draw the title for the width there is."""
        self.show(short=False)

    def show(self, *, short: bool) -> None:
        """Draw the number and the long or the short title."""
        title = self._tab.short if short else self._tab.title
        style = "" if self.has_class("-active") else DIM
        self.update(Content.styled(f"{self._tab.number} ", style) + Content(title))

    def on_click(self) -> None:
        """Ask for this tab's screen."""
        self.post_message(self.Pressed(self._tab.mode))


class ScreenTabs(Horizontal):
    """The row of tabs, with the one of this screen lit."""

    def __init__(self, active: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._active = active

    def compose(self) -> ComposeResult:
        """Yield one tab for each screen there is."""
        for tab in SCREENS:
            yield Tab(tab, active=tab.mode == self._active)

    def on_resize(self) -> None:
        """Shorten the titles where columns are few."""
        for tab in self.query(Tab):
            tab.show(short=self.size.width < 60)
