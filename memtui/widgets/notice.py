"""The designed states of a pane that has no rows to show: loading, empty, degraded, error."""

from __future__ import annotations

from typing import Literal

from textual.content import Content
from textual.widgets import Static

from memtui.widgets.display import BAD, DIM, STRONG, WARN, display, lines

State = Literal["loading", "empty", "degraded", "error"]

_MARKS: dict[State, tuple[str, str]] = {
    "loading": ("…", DIM),
    "empty": ("○", DIM),
    "degraded": ("▲", WARN),
    "error": ("✗", BAD),
}


def notice(state: State, title: str, hint: str = "") -> Content:
    """Return a state as content: a mark, what is the case, and under it what to do next."""
    mark, style = _MARKS[state]
    head = Content.styled(f"{mark} ", style) + display(title, limit=400, style=STRONG)
    return lines([head, Content(""), display(hint, limit=400, style=DIM)]) if hint else head


class Notice(Static):
    """Shows one state in the middle of its pane; `show` changes it."""

    def show(self, state: State, title: str, hint: str = "") -> None:
        """Show a state: `title` says what is the case, `hint` the next thing to do."""
        self.update(notice(state, title, hint))
        self.display = True

    def hide(self) -> None:
        """Make room for the pane's rows."""
        self.display = False
