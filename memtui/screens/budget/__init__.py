"""Screen 5: what the model sees, its tokens and its cost, and the facts that it is made of."""
