"""Screens that are styled for their size from the start, and again only if styles changed."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress

from textual.await_complete import AwaitComplete
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType

AT_ONCE_SECONDS = 0.1
"""A read that ends within this time gets no drawing of its own."""

_SETTLE_SECONDS = 0.005
"""Time that widgets take to request another layout after a layout."""
_LAYOUTS = 4
"""Most layouts in a row: enough for a screen that opens, and an end to endless requests."""


class RestingScreen(Screen[ScreenResultType]):
    """A screen that settles when the terminal changes its size several times at once."""

    def _screen_resized(self, size: Size) -> None:
        """Lay out for the app's size, not the size in the message, which may be outdated.

        Otherwise two queued sizes would cause each other again, in an endless loop of layouts.
        """
        del size
        super()._screen_resized(self.app.size)


class SizedScreen(RestingScreen[ScreenResultType]):
    """A screen that has the classes for its size before its widgets are composed.

    Textual sets them after the first layout, and then styles and lays out everything again. It also
    styles everything again whenever a screen is shown, as the theme may have changed.
    """

    _styled: Hashable = None
    """Theme and classes of the last styling; rules depend on nothing else of a screen."""

    def on_compose(self) -> None:
        """Set the classes before Textual composes the widgets."""
        size = self.app.size
        ways = ((size.width, self.HORIZONTAL_BREAKPOINTS), (size.height, self.VERTICAL_BREAKPOINTS))
        for cells, breakpoints in ways:
            self.add_class(*self._get_breakpoint_classes(cells, breakpoints or []), update=False)
        self.update_node_styles(animate=False)

    def update_node_styles(self, animate: bool = True) -> None:  # noqa: FBT001, FBT002 - Textual's
        """Style the screen and its widgets, if the theme or the classes changed."""
        styled = (self.app.theme, self.app.classes, self.classes)
        if styled != self._styled:
            self._styled = styled
            super().update_node_styles(animate)

    def paint_with(self, answered: Callable[[], Awaitable[None]]) -> None:
        """Paint only after `answered` ends, but wait at most `AT_ONCE_SECONDS`."""

        async def hold() -> None:
            with self.app.batch_update():
                with suppress(TimeoutError):
                    async with asyncio.timeout(AT_ONCE_SECONDS):
                        await answered()
                await self._lay_out()
            self.refresh()

        self.run_worker(hold())

    async def _lay_out(self) -> None:
        """Lay out until nothing requests it any more: each new scrollbar does once."""
        for _ in range(_LAYOUTS):
            await asyncio.sleep(_SETTLE_SECONDS)
            if not self._layout_required:
                return
            self._refresh_layout()
            self._layout_required = False

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close with an answer; screens above this one are closed first, without an answer.

        Textual would close the top screen instead of this one.
        """
        shown = self.app.screen_stack
        for over in reversed(shown[shown.index(self) + 1 :] if self in shown else ()):
            over.dismiss()
        return super().dismiss(result)

    def draw_ahead(self) -> None:
        """Lay out and draw the screen before it is first shown; Textual caches the drawing."""
        self.stack_updates += 1  # Textual lays out nothing that was never shown
        self._refresh_layout(self.app.size)
        self._layout_required = False
        self._compositor.render_update(full=True)

    def _compositor_refresh(self) -> None:
        """Skip superfluous painting: in a batch, and where all is painted next anyway.

        Below a dialog, only the changed regions are painted, through the dialog. Textual would
        paint the whole screen again after each message.
        """
        app = self.app
        if app._batch_count:  # noqa: SLF001 - it has no public name
            return
        changed = self._compositor._dirty_regions  # noqa: SLF001
        if self is app.screen:
            if not self._repaint_required:
                super()._compositor_refresh()
        elif changed and self in app._background_screens:  # noqa: SLF001
            app.screen.refresh(*changed)
            changed.clear()
            self._dirty_widgets.clear()
