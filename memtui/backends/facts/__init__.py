"""Fact memory in two scopes, users and drives, in SQLite or PostgreSQL (seed 004)."""

from __future__ import annotations

from .adapter import FactsAdapter
from .config import FactsConfig

__all__ = ["FactsAdapter", "FactsConfig"]
