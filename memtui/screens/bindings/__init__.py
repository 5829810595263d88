"""Screen 1: the bindings."""
