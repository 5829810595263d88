"""Choose a saved or an earlier statement, rename or delete a saved one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from memtui.contract import MemtuiError
from memtui.widgets.background import Background, Work
from memtui.widgets.display import BAD, DIM, STRONG, display, line

_NAMED = 28


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a person wants with a statement; `name` is empty for one that is not saved."""

    what: Literal["open", "rename", "delete"]
    statement: str
    name: str = ""


class ChooseQuery(ModalScreen[Chosen | None]):
    """List the saved statements, then others run since the app began; None goes back.

    `read` brings the saved ones, while the dialog is there already.
    """

    BINDINGS = [
        ("escape,q", "back", "back"),
        ("r", "take('rename')", "rename"),
        ("d,delete", "take('delete')", "delete"),
        ("j", "step(1)", "down"),
        ("k", "step(-1)", "up"),
    ]

    def __init__(self, read: Work[Mapping[str, str]], earlier: Sequence[str]) -> None:
        super().__init__()
        self._read = read
        self._earlier = earlier
        self._listed: list[Chosen] = []
        self._reading = Background(self, "statements")

    def compose(self) -> ComposeResult:
        """Lay out the list and its keys."""
        with Vertical(classes="dialog dialog-list"):
            yield Static(display("Statements", style=STRONG), classes="dialog-title")
            yield Static(display("… reading", style=DIM), classes="dialog-detail")
            yield OptionList(compact=True, markup=False)
            keys = "enter open   r rename   d delete   esc go back"
            yield Static(display(keys, style=DIM))

    def on_mount(self) -> None:
        """Read the saved ones."""
        self._reading.latest(self._read, self._show, self._failed)

    def _show(self, saved: Mapping[str, str]) -> None:
        self._listed = [
            *(Chosen("open", text, name) for name, text in saved.items()),
            *(Chosen("open", text) for text in self._earlier if text not in saved.values()),
        ]
        nothing = "Nothing is saved yet; ctrl+s in the statement keeps it under a name."
        self._say(Content("") if self._listed else display(nothing))
        listed = self._options
        listed.add_options(map(_option, self._listed))
        listed.highlighted = 0 if self._listed else None

    def _failed(self, error: MemtuiError) -> None:
        self._say(display(f"✗ {error}", limit=400, style=BAD))

    def _say(self, words: Content) -> None:
        place = self.query_one(".dialog-detail", Static)
        place.update(words)
        place.display = bool(words)

    @property
    def _options(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _highlighted(self) -> Chosen | None:
        place = self._options.highlighted
        return None if place is None else self._listed[place]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the chosen statement."""
        event.stop()
        self.dismiss(self._listed[event.option_index])

    def action_take(self, what: Literal["rename", "delete"]) -> None:
        """Rename or delete a saved statement."""
        one = self._highlighted
        if one is not None and one.name:
            self.dismiss(Chosen(what, one.statement, one.name))

    def action_step(self, by: int) -> None:
        """Move the highlight."""
        if self._listed:
            listed = self._options
            listed.highlighted = ((listed.highlighted or 0) + by) % len(self._listed)

    def action_back(self) -> None:
        """Go back."""
        self.dismiss(None)


def _option(one: Chosen) -> Option:
    name = display(one.name, limit=_NAMED, style=STRONG) if one.name else Content("run before")
    lead = name + Content(" " * max(1, _NAMED - name.cell_length))
    return Option(line(lead, display(" ".join(one.statement.split()), limit=200, style=DIM)))
