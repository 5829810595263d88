"""Texts for operations, records, amounts and plans, for every channel: pure functions."""
