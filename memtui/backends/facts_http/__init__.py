"""Facts behind a server that offers the endpoints of seed 004 §6.4."""

from __future__ import annotations

from .adapter import FactsHttpAdapter
from .config import FactsHttpConfig

__all__ = ["FactsHttpAdapter", "FactsHttpConfig"]
