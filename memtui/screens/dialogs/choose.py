"""Choose one of a list, narrowing it by typing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from memtui.contract import MemtuiError
from memtui.widgets.background import Background, Work
from memtui.widgets.display import BAD, DIM, STRONG, display

T = TypeVar("T")

_SHOWN = 200
"""Choices that are drawn at once; typing finds the rest."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """A value, how it is called, and a word on it at the right."""

    value: T
    label: str
    detail: str = ""


def matching(choices: Sequence[Choice[T]], text: str) -> list[Choice[T]]:
    """Return the choices in which every word of `text` occurs, whatever its case."""
    words = text.casefold().split()
    return [
        one
        for one in choices
        if all(word in f"{one.detail} {one.label}".casefold() for word in words)
    ]


def choice_content(choice: Choice[T], width: int) -> Content:
    """Return a choice as a line: what it is in a dim column, then its name."""
    lead = Content.styled(f"{choice.detail:<{width}}", DIM) if width else Content("")
    return lead + display(choice.label, limit=200)


class Choose(ModalScreen[T | None]):
    """Let a person choose one; None if they go back.

    `choices` may be work that reads them: the dialog is there at once, and takes what is typed
    while they come. `offer` makes further choices out of what was typed, for a value that is not
    in the list.
    """

    BINDINGS = [
        ("escape", "back", "back"),
        ("down", "step(1)", "down"),
        ("up", "step(-1)", "up"),
        ("ctrl+n", "step(1)", "down"),
        ("ctrl+k", "step(-1)", "up"),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice[T]] | Work[Sequence[Choice[T]]],
        *,
        placeholder: str = "type to narrow",
        offer: Callable[[str], Sequence[Choice[T]]] | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._choices: Sequence[Choice[T]] = () if callable(choices) else choices
        self._work = choices if callable(choices) else None
        self._reading = Background(self, "choices")
        self._entered = False
        """Whether `enter` was pressed while the choices were being read."""
        self._placeholder = placeholder
        self._offer = offer
        self._shown: list[Choice[T]] = []

    def compose(self) -> ComposeResult:
        """Lay out title, input and list."""
        with Vertical(classes="dialog dialog-list"):
            yield Static(display(self._title, limit=200, style=STRONG), classes="dialog-title")
            yield Input(placeholder=self._placeholder, compact=True, classes="dialog-input")
            yield Static(display("… reading", style=DIM), classes="dialog-reading")
            yield OptionList(compact=True)
            yield Static(display("↑↓ move   enter take it   esc go back", style=DIM))

    def on_mount(self) -> None:
        """Show all choices, or read them."""
        self._show("")
        self._place.display = self._work is not None
        if self._work is not None:
            self._reading.latest(self._work, self._found, self._failed)

    @property
    def _place(self) -> Static:
        return self.query_one(".dialog-reading", Static)

    def _found(self, choices: Sequence[Choice[T]]) -> None:
        self._choices, self._work = choices, None
        self._place.display = False
        self._show(self.query_one(Input).value)
        if self._entered:
            self._take()

    def _failed(self, error: MemtuiError) -> None:
        self._work = None
        self._place.update(display(f"✗ {error}", limit=400, style=BAD))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        event.stop()
        self._entered = False
        self._show(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the highlighted choice, once the choices are there."""
        event.stop()
        self._entered = self._work is not None
        if not self._entered:
            self._take()

    def _take(self) -> None:
        highlighted = self.query_one(OptionList).highlighted
        if highlighted is not None:
            self.dismiss(self._shown[highlighted].value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice that was clicked."""
        event.stop()
        self.dismiss(self._shown[event.option_index].value)

    def action_step(self, by: int) -> None:
        """Move the highlight while the cursor stays in the input."""
        listed = self.query_one(OptionList)
        if self._shown:
            listed.highlighted = ((listed.highlighted or 0) + by) % len(self._shown)

    def action_back(self) -> None:
        """Go back without a choice."""
        self.dismiss(None)

    def _show(self, text: str) -> None:
        found = matching(self._choices, text)[:_SHOWN]
        if text.strip() and self._offer is not None:
            found.extend(self._offer(text.strip()))
        self._shown = found
        width = max((len(one.detail) for one in found), default=-1) + 1
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(choice_content(one, width)) for one in found])
        if found:
            listed.highlighted = 0
