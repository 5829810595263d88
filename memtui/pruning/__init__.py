"""What a memory could do without: duplicates, leftovers, contradictions, each with a reason."""
