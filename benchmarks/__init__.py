"""Measurements; each script prints ratios of one run and says how to call it."""
