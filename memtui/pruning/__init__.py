"""Find records that could be forgotten: duplicates, stale or contradicted ones, with reasons."""
