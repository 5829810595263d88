"""Short questions that lie over a screen."""
