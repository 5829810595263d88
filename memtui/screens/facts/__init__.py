"""What the screens show of facts, and what a person can do to them."""
