"""Screen 1: the bindings of a company, and where each is the default."""

from __future__ import annotations

from memtui.screens.bindings.screen import BindingsScreen

__all__ = ["BindingsScreen"]
