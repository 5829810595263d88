"""Screen 3: query the memories as an agent would."""
