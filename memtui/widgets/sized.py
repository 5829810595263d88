"""Screens that are styled for their size from the start."""

from __future__ import annotations

from textual.screen import Screen, ScreenResultType


class SizedScreen(Screen[ScreenResultType]):
    """A screen that has the classes of its size before it is laid out.

    Textual sets them after the first layout, and then styles and lays out everything again.
    """

    def on_mount(self) -> None:
        """Set the classes; Textual styles the whole screen next, as it becomes the active one."""
        size = self.app.size
        ways = ((size.width, self.HORIZONTAL_BREAKPOINTS), (size.height, self.VERTICAL_BREAKPOINTS))
        for cells, breakpoints in ways:
            classes = self._get_breakpoint_classes(cells, breakpoints or [])
            self.add_class(*classes, update=False)
