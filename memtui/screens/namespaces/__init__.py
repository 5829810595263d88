"""The namespaces of a binding: what there is, making one, its expiry, and deleting it."""

from __future__ import annotations

from memtui.screens.namespaces.screen import Namespaces

__all__ = ["Namespaces"]
