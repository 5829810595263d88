"""The HTTP channels: servers of the contracts that other programs speak (extra `server`)."""
