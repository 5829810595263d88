"""Screen 4: browse, edit and prune the records of a binding."""

from __future__ import annotations

from memtui.screens.records.screen import RecordsScreen

__all__ = ["RecordsScreen"]
