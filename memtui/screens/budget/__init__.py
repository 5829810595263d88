"""Screen 5: what the model sees, its tokens and its cost, and the facts that it is made of."""

from __future__ import annotations

from memtui.screens.budget.screen import BudgetScreen

__all__ = ["BudgetScreen"]
