"""The memory context for a model: its sections, text, tokens, price and share of the prompt."""
