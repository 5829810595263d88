"""The review of what could be pruned, before anything is."""

from __future__ import annotations

from memtui.screens.prune.screen import PruneReview

__all__ = ["PruneReview"]
