"""Both versions of a record that changed while a person edited it; nothing is lost."""

from __future__ import annotations

from enum import Enum, auto

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.contract import Record
from memtui.widgets.detail_lines import diff_lines, key_hint
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines


class Resolve(Enum):
    """What becomes of the two versions."""

    THEIRS = auto()
    MINE = auto()
    AGAIN = auto()
    LATER = auto()
    """Decide later; the own text is kept as a draft."""


class ConflictScreen(ModalScreen[Resolve]):
    """Show their version beside mine, under each other where the screen is narrow."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    BINDINGS = [
        ("t", "take('THEIRS')", "keep theirs"),
        ("m", "take('MINE')", "put mine on top"),
        ("e", "take('AGAIN')", "edit again"),
        ("escape", "take('LATER')", "decide later"),
    ]

    def __init__(self, base: Record, theirs: Record | None, mine: str) -> None:
        super().__init__()
        self._base = base
        self._theirs = theirs
        self._mine = mine

    def compose(self) -> ComposeResult:
        """Lay out both versions and the choice."""
        gone = self._theirs is None
        title = "The record is gone" if gone else "The record changed while you edited it"
        with Vertical(classes="dialog dialog-editor"):
            yield Static(display(f"{title}; nothing was written.", style=WARN))
            with Container(classes="versions"):
                with VerticalScroll(classes="version"):
                    yield Static(
                        self._version("Theirs", self._theirs.text if self._theirs else None)
                    )
                with VerticalScroll(classes="version"):
                    yield Static(self._version("Mine", self._mine))
            yield Static(
                line(
                    key_hint("t", "let it be gone" if gone else "keep theirs"),
                    key_hint("m", "write mine anew" if gone else "put mine on top of theirs"),
                    key_hint("e", "edit again"),
                    key_hint("esc", "decide later, mine is kept"),
                    gap="   ",
                ),
                classes="dialog-keys",
            )

    def _version(self, whose: str, text: str | None) -> Content:
        head = line(
            display(whose, style=STRONG), display("against what you read", style=DIM), gap="  "
        )
        if text is None:
            return lines([head, display("no record", style=DIM)])
        return lines([head, *diff_lines(self._base.text, text)])

    def action_take(self, choice: str) -> None:
        """Answer with a choice."""
        self.dismiss(Resolve[choice])
