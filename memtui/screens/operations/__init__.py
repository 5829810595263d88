"""Screen 2: the operation log."""
