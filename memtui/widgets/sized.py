"""Screens that are styled for their size from the start, and again only where styles differ."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress

from textual.await_complete import AwaitComplete
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType

AT_ONCE_SECONDS = 0.1
"""Within this what is asked for is there at once: it is worth no drawing of its own."""

_SETTLE_SECONDS = 0.005
"""How long widgets take to ask for another layout, once they are told of the last one."""
_LAYOUTS = 4
"""As many as what comes into view asks for, and no more where something asks for ever."""


class RestingScreen(Screen[ScreenResultType]):
    """A screen that comes to rest where the terminal changes its size several times at once."""

    def _screen_resized(self, size: Size) -> None:
        """Lay out for the size there is by now, whatever it was when this was sent.

        Of two sizes at once each would send itself again, and all be laid out for ever.
        """
        del size
        super()._screen_resized(self.app.size)


class SizedScreen(RestingScreen[ScreenResultType]):
    """A screen that has the classes of its size before anything stands on it.

    Textual sets them after the first layout, and then styles and lays out everything again. It also
    styles everything again whenever a screen is shown, as another theme may have been chosen.
    """

    _styled: Hashable = None
    """What all on the screen is styled for: rules ask a screen for nothing else."""

    def on_compose(self) -> None:
        """Set the classes; Textual composes next what is styled with them."""
        size = self.app.size
        ways = ((size.width, self.HORIZONTAL_BREAKPOINTS), (size.height, self.VERTICAL_BREAKPOINTS))
        for cells, breakpoints in ways:
            self.add_class(*self._get_breakpoint_classes(cells, breakpoints or []), update=False)
        self.update_node_styles(animate=False)

    def update_node_styles(self, animate: bool = True) -> None:  # noqa: FBT001, FBT002 - Textual's
        """Style the screen and all on it, where what that hangs on is not as it was."""
        styled = (self.app.theme, self.app.classes, self.classes)
        if styled != self._styled:
            self._styled = styled
            super().update_node_styles(animate)

    def paint_with(self, answered: Callable[[], Awaitable[None]]) -> None:
        """Paint nothing until what is being read has come, unless that takes longer."""

        async def hold() -> None:
            with self.app.batch_update():
                with suppress(TimeoutError):
                    async with asyncio.timeout(AT_ONCE_SECONDS):
                        await answered()
                await self._lay_out()
            self.refresh()

        self.run_worker(hold())

    async def _lay_out(self) -> None:
        """Lay out until nothing asks for it any more: each scrollbar that comes does once."""
        for _ in range(_LAYOUTS):
            await asyncio.sleep(_SETTLE_SECONDS)
            if not self._layout_required:
                return
            self._refresh_layout()
            self._layout_required = False

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Answer, and leave; what was opened over it meanwhile goes first, without an answer.

        Textual takes away whatever lies on top, and leaves this where it is.
        """
        shown = self.app.screen_stack
        for over in reversed(shown[shown.index(self) + 1 :] if self in shown else ()):
            over.dismiss()
        return super().dismiss(result)

    def draw_ahead(self) -> None:
        """Lay out and draw all on it before it is first shown; Textual keeps what was drawn."""
        self.stack_updates += 1  # Textual lays out nothing that was never shown
        self._refresh_layout(self.app.size)
        self._layout_required = False
        self._compositor.render_update(full=True)

    def _compositor_refresh(self) -> None:
        """Paint once: Textual also paints in a batch, for nothing, and before it paints all.

        Under a dialog it has what changed painted through that, and not, as Textual does, itself
        whole again after each message that it gets from then on.
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
