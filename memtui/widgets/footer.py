"""The last line: the six keys that matter here and now."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from memtui.widgets.display import ACCENT, DIM, display

_GAP = 2


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """One key of the footer; `reason` says why it is disabled, or nothing."""

    action_id: str
    key: str
    label: str
    description: str
    reason: str = ""


def entry_content(entry: FooterEntry) -> Content:
    """Return a key and its word; a disabled one is dim and struck through, not only paler."""
    if entry.reason:
        return Content.styled(f"{entry.key} ", DIM) + display(entry.label, style=f"{DIM} strike")
    return Content.styled(f"{entry.key} ", f"bold {ACCENT}") + display(entry.label)


def fitting(entries: tuple[FooterEntry, ...], width: int) -> tuple[FooterEntry, ...]:
    """Return the entries that fit into `width` cells; the last one stays before all others."""
    if not entries or not width:
        return entries
    *first, last = entries
    room = width - entry_content(last).cell_length
    kept = []
    for entry in first:
        room -= entry_content(entry).cell_length + _GAP
        if room < 0:
            break
        kept.append(entry)
    return (*kept, last)


class FooterKey(Static):
    """One key that can be clicked."""

    def __init__(self, entry: FooterEntry) -> None:
        super().__init__(entry_content(entry))
        self.action_id = entry.action_id
        self.tooltip = display(entry.reason or entry.description)

    def on_click(self) -> None:
        """Do what the key does."""
        self.post_message(KeyFooter.Pressed(self.action_id))


class KeyFooter(Horizontal):
    """Shows `entries`; a click on one is passed up."""

    entries: reactive[tuple[FooterEntry, ...]] = reactive((), recompose=True)

    class Pressed(Message):
        """A key was clicked."""

        def __init__(self, action_id: str) -> None:
            super().__init__()
            self.action_id = action_id

    def compose(self) -> ComposeResult:
        """Yield one widget for each key that fits."""
        for entry in fitting(self.entries, self.content_size.width):
            yield FooterKey(entry)

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.refresh(recompose=True)
