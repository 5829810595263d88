"""The line in which a question is written."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from memtui.widgets.display import ACCENT
from memtui.widgets.keys import bindings_for


class AskLine(Horizontal):
    """Takes a question; posts `Asked` with it, `Left` when the person goes to the results."""

    ACTION_GROUP = "ask"
    BINDINGS = bindings_for("ask")

    class Asked(Message):
        """A question was entered; it is not empty."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The person is done with the line."""

    def compose(self) -> ComposeResult:
        """Lay out the sign and the input."""
        yield Static(Content.styled("›", f"bold {ACCENT}"), classes="ask-sign")
        yield Input(placeholder="Ask your memories, then enter", compact=True, id="ask-input")

    @property
    def text(self) -> str:
        """What is written."""
        return self.query_one(Input).value

    @text.setter
    def text(self, value: str) -> None:
        self.query_one(Input).value = value

    def enter(self) -> None:
        """Put the cursor into the line."""
        self.screen.set_focus(self.query_one(Input))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Ask."""
        event.stop()
        self.action_run()

    def action_run(self) -> None:
        """Ask what is written, if anything is."""
        if self.text.strip():
            self.post_message(self.Asked(self.text.strip()))

    def action_leave(self) -> None:
        """Go to the results."""
        self.post_message(self.Left())
