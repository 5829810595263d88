"""Screen 3: ask the memories as an agent would."""
