"""The local vault: markdown notes and facts in a folder, searched over a derived index."""

from __future__ import annotations

from .adapter import VaultAdapter, VaultConfig

__all__ = ["VaultAdapter", "VaultConfig"]
