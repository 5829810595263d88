"""Screen 4: what the active binding holds."""
