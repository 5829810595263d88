"""The ways in: each channel takes a request from outside and passes it to the one service."""
