"""The HTTP doors: servers of the contracts that other programs speak (extra `server`)."""
