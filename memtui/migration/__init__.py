"""Move a binding's records to another binding, and prove that nothing was lost (seed 001)."""
