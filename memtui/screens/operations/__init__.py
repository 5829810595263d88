"""Screen 2: the operation log."""

from __future__ import annotations

from memtui.screens.operations.screen import OperationsScreen

__all__ = ["OperationsScreen"]
