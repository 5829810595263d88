"""A text that lies over the screen: help, an explanation, a history."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.contract import MemtuiError
from memtui.widgets.background import Background, Work
from memtui.widgets.display import BAD, DIM, STRONG, display
from memtui.widgets.panes import Fitted

Drawn = Content | Callable[[int], Content]
READING = display("… reading", style=DIM)
_AROUND = 8
"""Lines of frame, title and keys."""


class Sheet(ModalScreen[None]):
    """Show a content that scrolls, as it is or as it is drawn for a width in cells.

    `read` brings another content in its place, so that the sheet is there at once. `esc`, `q` and
    `?` close it, and so does a click beside it.
    """

    BINDINGS = [
        ("escape,q,question_mark,f1", "close", "close"),
        ("j,down", "scroll(1)", "down"),
        ("k,up", "scroll(-1)", "up"),
        ("ctrl+d,pagedown,space", "scroll(10)", "down"),
        ("ctrl+u,pageup", "scroll(-10)", "up"),
        ("g,home", "scroll(-100000)", "top"),
        ("G,end", "scroll(100000)", "bottom"),
    ]

    def __init__(self, title: str, content: Drawn, *, read: Work[Drawn] | None = None) -> None:
        super().__init__()
        self._title = title
        self._content = content
        self._read = read
        self._reading = Background(self, "sheet")

    def compose(self) -> ComposeResult:
        """Lay out title, text and how to leave."""
        with Vertical(classes="dialog dialog-sheet"):
            yield Static(display(self._title, limit=200, style=STRONG), classes="dialog-title")
            with VerticalScroll(can_focus=False):
                yield Fitted(id="sheet-text")
            yield Static(display("↑↓ scroll   esc close", style=DIM))

    def on_mount(self) -> None:
        """Lay the text out, and read what is still to come."""
        self._draw(self._content)
        if self._read is not None:
            self._reading.latest(self._read, self._draw, self._failed)

    def _failed(self, error: MemtuiError) -> None:
        self._draw(display(f"✗ {error}", limit=600, style=BAD))

    def _draw(self, content: Drawn) -> None:
        draw = (lambda _: content) if isinstance(content, Content) else content
        self.query_one(Fitted).fit(draw)

    def on_resize(self) -> None:
        """Be as high as the text, and leave room for what is around it where it is long."""
        highest = self.size.height * 9 // 10 - _AROUND
        self.query_one(VerticalScroll).styles.max_height = max(1, highest)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss(None)

    def action_scroll(self, by: int) -> None:
        """Scroll by some lines."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def on_click(self, event: Click) -> None:
        """Close the sheet for a click beside it."""
        if event.widget is self:
            self.action_close()
