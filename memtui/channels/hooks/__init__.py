"""Hooks that agents' clients call during a run, to get a context or to leave a note."""
