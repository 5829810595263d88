"""A client of the HTTP memory plugin contract v1 (seed 001)."""

from __future__ import annotations

from .adapter import PluginAdapter
from .config import PluginConfig

__all__ = ["PluginAdapter", "PluginConfig"]
