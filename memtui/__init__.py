"""memtui: see, search, audit, correct and prune what agents remember."""

__version__ = "0.1.0"
