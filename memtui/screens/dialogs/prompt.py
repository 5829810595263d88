"""Ask for a text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from memtui.contract import MemtuiError
from memtui.widgets.display import BAD, DIM, STRONG, display
from memtui.widgets.editor import ForeignInput


class Prompt(ModalScreen[str | None]):
    """Ask for one line of text; None if the person goes back.

    `check` is called with the text and raises one of the contract's errors to refuse it.
    """

    BINDINGS = [("escape", "back", "back")]

    def __init__(
        self,
        title: str,
        *,
        value: str = "",
        placeholder: str = "",
        hint: str = "",
        check: Callable[[str], object] = str,
    ) -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._placeholder = placeholder
        self._hint = hint
        self._check = check

    def compose(self) -> ComposeResult:
        """Lay out title, input and hint."""
        with Vertical(classes="dialog"):
            yield Static(display(self._title, limit=400, style=STRONG), classes="dialog-title")
            yield ForeignInput(
                self._value, placeholder=self._placeholder, compact=True, classes="dialog-input"
            )
            yield Static(classes="dialog-error")
            yield Static(display(self._hint or "enter take it   esc go back", style=DIM))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the text if it passes the check."""
        event.stop()
        try:
            self._check(event.value)
        except MemtuiError as error:
            self.query_one(".dialog-error", Static).update(display(str(error), style=BAD))
        else:
            self.dismiss(event.value)

    def action_back(self) -> None:
        """Go back without a text."""
        self.dismiss(None)
