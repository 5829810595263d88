"""Screen 6: the figures of the operation log as charts, and any question about it in SQL."""
