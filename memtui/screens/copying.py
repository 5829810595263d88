"""Copy to the clipboard of the terminal, over SSH too (OSC 52)."""

from __future__ import annotations

from memtui.screens.base import MemtuiScreen


def copy_text(screen: MemtuiScreen, text: str, said: str) -> None:
    """Copy a text exactly, but for lone surrogates, which no clipboard takes; toast `said`."""
    screen.app.copy_to_clipboard(text.encode("utf-8", "replace").decode("utf-8"))
    screen.toast(said)
