"""A migration from one binding to another: dry run, apply, verify, cut over and back."""

from __future__ import annotations

from memtui.screens.migration.screen import Migration

__all__ = ["Migration"]
