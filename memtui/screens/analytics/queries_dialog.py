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

from memtui.widgets.display import DIM, STRONG, display, line

_NAMED = 28


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a person wants with a statement; `name` is empty for one that is not saved."""

    what: Literal["open", "rename", "delete"]
    statement: str
    name: str = ""


class ChooseQuery(ModalScreen[Chosen | None]):
    """List the saved statements, then others run since the app began; None goes back."""

    BINDINGS = [
        ("escape,q", "back", "back"),
        ("r", "take('rename')", "rename"),
        ("d,delete", "take('delete')", "delete"),
        ("j", "step(1)", "down"),
        ("k", "step(-1)", "up"),
    ]

    def __init__(self, saved: Mapping[str, str], earlier: Sequence[str]) -> None:
        super().__init__()
        self._listed = [
            *(Chosen("open", text, name) for name, text in saved.items()),
            *(Chosen("open", text) for text in earlier if text not in saved.values()),
        ]

    def compose(self) -> ComposeResult:
        """Lay out the list and its keys."""
        with Vertical(classes="dialog dialog-list"):
            yield Static(display("Statements", style=STRONG), classes="dialog-title")
            if self._listed:
                yield OptionList(*map(_option, self._listed), compact=True, markup=False)
            else:
                words = "Nothing is saved yet; ctrl+s in the statement keeps it under a name."
                yield Static(display(words), classes="dialog-detail")
            keys = "enter open   r rename   d delete   esc go back"
            yield Static(display(keys if self._listed else "esc go back", style=DIM))

    @property
    def _highlighted(self) -> Chosen | None:
        for listed in self.query(OptionList):
            if listed.highlighted is not None:
                return self._listed[listed.highlighted]
        return None

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
        for listed in self.query(OptionList):
            listed.highlighted = ((listed.highlighted or 0) + by) % len(self._listed)

    def action_back(self) -> None:
        """Go back."""
        self.dismiss(None)


def _option(one: Chosen) -> Option:
    name = display(one.name, limit=_NAMED, style=STRONG) if one.name else Content("run before")
    lead = name + Content(" " * max(1, _NAMED - name.cell_length))
    return Option(line(lead, display(" ".join(one.statement.split()), limit=200, style=DIM)))
