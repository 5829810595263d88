"""The memory providers that memtui speaks to, one module or folder each, found by entry point."""
