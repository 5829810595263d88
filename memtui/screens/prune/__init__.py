"""The review of what could be pruned, before anything is."""
