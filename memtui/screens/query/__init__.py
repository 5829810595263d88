"""Screen 3: ask the memories as an agent would."""

from __future__ import annotations

from memtui.screens.query.screen import QueryScreen

__all__ = ["QueryScreen"]
