"""The top line: whose memory, through which binding, how it is."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line

_MARKS = {"ok": ("●", OK), "degraded": ("▲", WARN), "down": ("✗", BAD), "unknown": ("○", DIM)}


@dataclass(frozen=True, slots=True)
class ScopeView:
    """What the scope bar shows. `status` is ok, degraded, down or unknown; `word` says it."""

    parts: tuple[str, ...] = ()
    binding: str = ""
    status: str = "unknown"
    word: str = ""
    read_only: bool = False


def path_content(view: ScopeView) -> Content:
    """Return the scope as `company › project › agent`."""
    first, *rest = view.parts or ("memtui",)
    parts = [display(first, limit=40, style=STRONG)]
    parts += [display(part, limit=40, style=ACCENT) for part in rest]
    return Content.styled(" › ", DIM).join(parts)


def binding_content(view: ScopeView) -> Content:
    """Return the binding with the mark and the word of its health."""
    mark, style = _MARKS.get(view.status, _MARKS["unknown"])
    health = Content.styled(f"{mark} ", style) + display(view.word, limit=30, style=style)
    badge = Content.styled(" read-only ", "bold reverse") if view.read_only else None
    return line(display(view.binding, limit=40), health, badge, gap="  ")


class ScopeBar(Horizontal):
    """Shows a `ScopeView`; a click on the scope or on the binding asks to change it."""

    view: reactive[ScopeView] = reactive(ScopeView)

    class Pressed(Message):
        """The scope (`app.scope`) or the binding (`app.binding`) was clicked."""

        def __init__(self, action_id: str) -> None:
            super().__init__()
            self.action_id = action_id

    def compose(self) -> ComposeResult:
        """Put the scope at the left and the binding at the right."""
        yield Static(id="scope-path")
        yield Static(id="scope-binding")

    def watch_view(self, view: ScopeView) -> None:
        """Draw the view."""
        if self.is_mounted:
            self.query_one("#scope-path", Static).update(path_content(view))
            self.query_one("#scope-binding", Static).update(binding_content(view))

    def on_mount(self) -> None:
        """Draw what was set before the parts were there."""
        self.watch_view(self.view)

    def on_click(self, event: Click) -> None:
        """Ask for the chooser of what was clicked."""
        inside = event.widget is not None and event.widget.id == "scope-binding"
        self.post_message(self.Pressed("app.binding" if inside else "app.scope"))
