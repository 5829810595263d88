"""Write a new fact: one line, about a user, a workspace or an agent."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from memtui.screens.budget.facts import Place
from memtui.widgets.display import ACCENT, BAD, DIM, STRONG, display, line


class WriteFact(ModalScreen[tuple[str, Place]]):
    """Ask for a fact and whose it is, which `tab` changes; None if the person goes back.

    `most` is how many characters a fact may have; 0 sets no limit.
    """

    BINDINGS = [
        ("escape", "back", "back"),
        ("tab,down", "turn(1)", "about"),
        ("shift+tab,up", "turn(-1)", "about"),
    ]

    def __init__(
        self, places: Sequence[Place], at: int, most: int, text: str = "", note: str = ""
    ) -> None:
        super().__init__()
        self._places = places
        self._at = at
        self._most = most
        self._text = text
        self._note = note

    def compose(self) -> ComposeResult:
        """Lay out whom it is about, the line and its length."""
        with Vertical(classes="dialog"):
            yield Static(display("Remember", style=STRONG), classes="dialog-title")
            yield Static(id="fact-places")
            yield Input(
                self._text,
                placeholder="one short fact",
                compact=True,
                classes="dialog-input",
                select_on_focus=False,
            )
            yield Static(classes="dialog-error")
            yield Static(id="fact-length")

    def on_mount(self) -> None:
        """Show what is there to begin with."""
        self._draw_places()
        self._draw_length(self._text)
        self._say(self._note)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Count the characters."""
        event.stop()
        if event.value != self._text:
            self._say("")
        self._draw_length(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the fact if it is one."""
        event.stop()
        text = event.value.strip()
        if not text:
            self._say("A fact needs a text.")
        elif self._most and len(text) > self._most:
            self._say(f"A fact has at most {self._most:,} characters; this one has {len(text):,}.")
        else:
            self.dismiss((text, self._places[self._at]))

    def action_turn(self, by: int) -> None:
        """Make it about the next one."""
        self._at = (self._at + by) % len(self._places)
        self._draw_places()

    def action_back(self) -> None:
        """Go back without a fact."""
        self.dismiss(None)

    def on_click(self, event: Click) -> None:
        """Make it about the next one by a click; a click beside the box goes back."""
        if event.widget is self:
            self.action_back()
        elif event.widget is not None and event.widget.id == "fact-places":
            self.action_turn(1)

    def _draw_places(self) -> None:
        parts = [
            Content.styled("● " if at == self._at else "○ ", ACCENT if at == self._at else DIM)
            + display(place.label, limit=60, style=STRONG if at == self._at else "")
            for at, place in enumerate(self._places)
        ]
        self.query_one("#fact-places", Static).update(line("about", *parts, gap="  "))

    def _draw_length(self, text: str) -> None:
        length = len(text.strip())
        over = bool(self._most) and length > self._most
        of_most = f" / {self._most:,}" if self._most else ""
        words = display(f"{length:,}{of_most} characters", style=BAD if over else DIM)
        keys = "   enter remember   tab about whom   esc go back"
        self.query_one("#fact-length", Static).update(words + display(keys, style=DIM))

    def _say(self, text: str) -> None:
        self.query_one(".dialog-error", Static).update(display(text, limit=400, style=BAD))
