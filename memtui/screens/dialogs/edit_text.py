"""Edit one text in place."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.screens.dialogs.confirm import Confirm
from memtui.widgets.display import DIM, STRONG, WARN, display
from memtui.widgets.editor import ForeignTextArea


class EditText(ModalScreen[str | None]):
    """Let the person change a text; None where nothing is to be written.

    `original` is what counts as unchanged, `text` what the area begins with: they differ where a
    draft is taken up again.
    """

    BINDINGS = [("ctrl+s", "save", "save"), ("escape", "back", "back")]

    def __init__(self, title: str, original: str, text: str | None = None, note: str = "") -> None:
        super().__init__()
        self._title = title
        self._original = original
        self._begin = original if text is None else text
        self._note = note

    def compose(self) -> ComposeResult:
        """Lay out title, text and keys."""
        with Vertical(classes="dialog dialog-editor"):
            yield Static(display(self._title, limit=200, style=STRONG), classes="dialog-title")
            if self._note:
                yield Static(display(self._note, limit=600, style=WARN))
            yield ForeignTextArea(self._begin, soft_wrap=True, show_line_numbers=False)
            yield Static(display("ctrl+s save   esc go back", style=DIM), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin at the end of the text."""
        area = self.query_one(ForeignTextArea)
        area.move_cursor(area.document.end)
        self.set_focus(area)

    def action_save(self) -> None:
        """Take the text; an unchanged one is not written."""
        text = self.query_one(ForeignTextArea).text
        self.dismiss(None if text == self._original else text)

    def action_back(self) -> None:
        """Go back; a changed text is only thrown away after a yes."""
        if self.query_one(ForeignTextArea).text == self._original:
            self.dismiss(None)
            return
        question = Confirm("Throw your changes away?", verb="throw them away")
        self.app.push_screen(question, self._answered)

    def _answered(self, yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
        if yes:
            self.dismiss(None)
