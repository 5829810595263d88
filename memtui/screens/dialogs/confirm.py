"""Questions before something is changed: with a different key, or by typing a word."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from memtui.actions import key_label
from memtui.widgets.display import ACCENT, BAD, DIM, STRONG, display, line


class _Question(ModalScreen[bool]):
    """A box with a question; `esc` is no, and so is a click beside it."""

    BINDINGS = [("escape", "no", "keep")]

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def head(self) -> ComposeResult:
        """Yield the question and its detail."""
        yield Static(display(self._question, limit=600, style=STRONG), classes="dialog-title")
        if self._detail:
            yield Static(
                display(self._detail, limit=2_000, keep_newlines=True), classes="dialog-detail"
            )

    def action_no(self) -> None:
        """Answer no."""
        self.dismiss(False)  # noqa: FBT003 - the answer itself

    def on_click(self, event: Click) -> None:
        """Answer no for a click beside the box."""
        if event.widget is self:
            self.action_no()


class Confirm(_Question):
    """Ask a yes or no; only `key` says yes, which is never the key that asked.

    `question` names the object and the count: "Forget 3 records from vault·default?". `verb` is
    the word beside the key: "forget"; `otherwise` the one beside `esc`. `enter` does nothing here.
    """

    def __init__(
        self, question: str, *, verb: str, detail: str = "", key: str = "y", otherwise: str = "keep"
    ) -> None:
        super().__init__(question, detail)
        self._verb = verb
        self._otherwise = otherwise
        self._key = key
        self._bindings.bind(key, "yes", verb, show=False)

    def compose(self) -> ComposeResult:
        """Lay out question and keys."""
        with Vertical(classes="dialog"):
            yield from self.head()
            yield Static(
                line(
                    Content.styled(key_label(self._key), f"bold {ACCENT}")
                    + display(f" {self._verb}"),
                    Content.styled("esc", f"bold {ACCENT}") + display(f" {self._otherwise}"),
                    gap="   ",
                ),
                classes="dialog-keys",
            )

    def action_yes(self) -> None:
        """Answer yes."""
        self.dismiss(True)  # noqa: FBT003 - the answer itself


class TypedConfirm(_Question):
    """Ask for a yes by typing `word`, for what touches a great many things."""

    def __init__(self, question: str, *, word: str, verb: str, detail: str = "") -> None:
        super().__init__(question, detail)
        self._word = word
        self._verb = verb

    def compose(self) -> ComposeResult:
        """Lay out question, input and keys."""
        with Vertical(classes="dialog"):
            yield from self.head()
            yield Static(line("Type", display(self._word, style=STRONG), f"to {self._verb}."))
            yield Input(compact=True, classes="dialog-input")
            yield Static(classes="dialog-error")
            yield Static(display("enter " + self._verb + "   esc keep", style=DIM))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer yes only to the very word."""
        event.stop()
        if event.value.strip() == self._word:
            self.dismiss(True)  # noqa: FBT003 - the answer itself
        else:
            self.query_one(".dialog-error", Static).update(
                display(f"That is not {self._word!r}; nothing was changed.", style=BAD)
            )
