"""What an adapter's author needs: the checks every adapter must pass, and one that passes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .memory import InMemoryAdapter

if TYPE_CHECKING:
    from memtui.testing.checks import AdapterContract

__all__ = ["AdapterContract", "InMemoryAdapter"]


def __getattr__(name: str) -> object:
    """Import the checks, and pytest with them, only where they are asked for."""
    if name == "AdapterContract":
        from memtui.testing.checks import AdapterContract

        return AdapterContract
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
