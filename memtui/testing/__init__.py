"""For authors of adapters: the checks that every adapter must pass, and an adapter that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .memory import InMemoryAdapter

if TYPE_CHECKING:
    from memtui.testing.checks import AdapterContract

__all__ = ["AdapterContract", "InMemoryAdapter"]


def __getattr__(name: str) -> object:
    """Import the checks, and with them pytest, only on demand."""
    if name == "AdapterContract":
        from memtui.testing.checks import AdapterContract

        return AdapterContract
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
