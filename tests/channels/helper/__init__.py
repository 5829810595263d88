"""The helper of hooks."""
