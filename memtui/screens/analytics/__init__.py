"""Screen 6: the figures of the operation log as charts, and any question about it in SQL."""

from __future__ import annotations

from memtui.screens.analytics.screen import AnalyticsScreen

__all__ = ["AnalyticsScreen"]
